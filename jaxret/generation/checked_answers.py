"""Questions whose answers are checked, and asked again with the reason where a check fails.

Every answer, good or bad, is kept by the cache of `Chat` under its conversation; so a run that was
killed gets the same answers, finds the same faults, and pays for none of them twice.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from jaxret.llm import (
    Malformed,
    Messages,
    OutOfReach,
    Problem,
    Prompt,
    Schema,
    Stage,
    load_prompt,
    without_thoughts,
)
from jaxret.runtime.validate import require

PROMPTS = Path(__file__).parent / "prompts"
RETRY = load_prompt(PROMPTS / "retry.txt", ("reason",))
T = TypeVar("T")


class Wrong(Malformed):
    """An answer that fails a check; ``kind`` names the check where faults are counted."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


class Answers(NamedTuple, Generic[T]):
    """What came of n questions."""

    values: list[T | None]  # None: no good answer in all attempts
    failures: Counter[str]  # kind to answers; "lost": questions that stay without a value


def ask_checked(
    stage: Stage,
    questions: Sequence[Messages],
    checks: Sequence[Callable[[str], T]],
    *,
    attempts: int,
    title: str,
    schemas: Sequence[Schema] | None = None,
    retry: Prompt = RETRY,
) -> Answers[T]:
    """Asks all, and those whose answers are wrong again; each fails for itself alone.

    Args:
      stage: who is asked.
      questions: n of them.
      checks: of each question: text to value, or raises `Wrong`.
      attempts: at most so many answers to a question.
      title: of the progress bar.
      schemas: of each question's answers, for an endpoint that writes by one.
      retry: says why an answer cannot be used.

    Raises:
      OutOfReach: the endpoint answered none of the questions, or its stage lost the patience.
    """
    require("attempts", attempts, ">= 1", lambda x: x >= 1)
    values: list[T | None] = [None] * len(questions)
    conversations, failures = [list(question) for question in questions], Counter()
    waiting = list(range(len(questions)))
    for attempt in range(attempts):
        forms = None if schemas is None else [schemas[i] for i in waiting]
        replies = stage.ask([conversations[i] for i in waiting], title, schema=forms)
        problems = [one for one in replies if isinstance(one, Problem)]
        if attempt == 0 and questions and len(problems) == len(questions):
            raise OutOfReach(
                f"{stage.chat.endpoint.model} answered none of {len(questions)} questions "
                f"({title}); the last: {problems[-1].reason}. What it said before is kept: the "
                "same command goes on"
            )
        wrong = []
        for i, text in zip(waiting, replies, strict=True):
            if isinstance(text, Problem):
                failures[text.kind] += 1
                continue
            try:
                values[i] = checks[i](text)
            except Wrong as error:
                failures[error.kind] += 1
                answer = {"role": "assistant", "content": text}
                conversations[i] += [answer, *retry.messages(reason=str(error))]
                wrong.append(i)
        waiting = wrong
        if not waiting:
            break
    failures["lost"] += sum(value is None for value in values)
    return Answers(values=values, failures=+failures)


def json_object(text: str, fields: Collection[str]) -> dict[str, Any]:
    """The JSON object in an answer, whatever stands around it; thoughts are passed over.

    Raises:
      Wrong: ``not_json``, or ``fields`` where one is missing.
    """
    text = without_thoughts(text)
    begin, end = text.find("{"), text.rfind("}")
    try:
        content = json.loads(text[begin : end + 1])
    except json.JSONDecodeError as error:
        raise Wrong("not_json", f"it holds no valid JSON object ({error.msg})") from error
    if missing := sorted(set(fields) - set(content)):
        raise Wrong("fields", f"the JSON object lacks {', '.join(missing)}")
    return content


def sentence(value: Any, field: str) -> str:
    """A text on one line.

    Raises:
      Wrong: ``fields``, if it is no text or blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise Wrong("fields", f"{field} must be a text, got {value!r:.60}")
    return " ".join(value.split())
