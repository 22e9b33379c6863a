"""Uses a language model as a stage of a pipeline: counts its problems, tokens and costs.

`Stage.ask` returns an answer or a `Problem` for each question. Problems have these kinds:

    timeout, rate_limit, connection, server_error    after the retries of `jaxret.llm.Endpoint`
    bad_request     of this question alone, as a rule: too long, or stopped by a filter
    empty           every answer was blank
    other           any other error

Problems are not stored, so the same command asks again. Every answer is stored, valid or not,
because it has been paid for. `ask_checked` checks answers and asks again with the reason where a
check fails. As the conversation is part of the key of the cache, a resumed run finds the same
answers and the same faults.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from jaxret.llm.chat import Chat, Malformed, Messages, Schema, Unanswered
from jaxret.llm.prompts import load_prompt
from jaxret.runtime.validate import require

T = TypeVar("T")
RETRY = load_prompt(Path(__file__).parent / "retry.txt", ("reason",))
CHARACTERS = 4  # characters of a token in English, on average
KINDS = {  # by the cause of an `Unanswered`
    "APITimeoutError": "timeout",
    "RateLimitError": "rate_limit",
    "APIConnectionError": "connection",
    "InternalServerError": "server_error",
    "BadRequestError": "bad_request",
    "Malformed": "empty",
}
HOPELESS = ("AuthenticationError", "PermissionDeniedError", "NotFoundError")


class Problem(NamedTuple):
    """The reason why a question has no valid answer."""

    kind: str
    reason: str  # as shown to the model that is asked next


class OutOfReach(RuntimeError):
    """The endpoint has stopped answering."""


class Price(NamedTuple):
    """The price of a million tokens, in any currency; None where unknown."""

    prompt: float | None = None
    completion: float | None = None

    def of(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost of numbers of tokens, or None where a price is unknown."""
        if self.prompt is None or self.completion is None:
            return None
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


class Stage:
    """A model in a pipeline.

    ``problems`` counts the problems of each kind; ``chat.counts`` holds the tokens used.

    Args:
      chat: the model.
      patience: largest number of successive questions without an answer; one more stops the run.
      before: called before each question; an exception that it raises stops all questions.
    """

    def __init__(
        self, chat: Chat, *, patience: int = 25, before: Callable[[], None] = lambda: None
    ):
        self.chat, self.problems = chat, Counter()
        self._patience, self._before = patience, before
        self._silent, self._lock = 0, Lock()

    def ask(
        self,
        questions: Sequence[Messages],
        title: str,
        *,
        schema: Schema | Sequence[Schema] | None = None,
    ) -> list[str | Problem]:
        """Ask questions; equal questions are asked once.

        Args:
          questions: n questions.
          title: title of the progress bar.
          schema: schema of the answers, used if `Endpoint.format` is ``"schema"``; one for
              all questions, or n schemas, equal for equal questions.

        Returns:
          n answers or problems, in order.

        Raises:
          OutOfReach: more than ``patience`` successive questions have no answer. Answers so far are
            stored.
          Unanswered: the key or the name of the model is wrong.
        """
        keys = [str(question) for question in questions]
        different = dict(zip(keys, questions, strict=True))
        if not (schema is None or isinstance(schema, dict)):
            schema = list(dict(zip(keys, schema, strict=True)).values())
        replies = self.chat.ask_all(
            list(different.values()),
            self._nonempty,
            schema=schema,
            title=title,
            before=self._before,
            failed=self._failed,
        )
        answers = dict(zip(different, replies, strict=True))
        return [self.noted(answers[key]) for key in keys]

    def noted(self, answer):
        """Count a problem; return the argument unchanged."""
        if isinstance(answer, Problem):
            self.problems[answer.kind] += 1
        return answer

    def _nonempty(self, text: str) -> str | Problem:
        if not text.strip():
            raise Malformed("an empty answer")
        with self._lock:
            self._silent = 0
        return text

    def _failed(self, error: Unanswered) -> str | Problem:
        cause = type(error.__cause__).__name__
        if cause in HOPELESS:
            raise error
        with self._lock:
            self._silent += 1
            silent = self._silent
        if silent > self._patience:
            raise OutOfReach(
                f"{silent} questions in a row have no answer; the last: {error}. Earlier "
                "answers are stored: the same command continues"
            ) from error
        return Problem(kind=KINDS.get(cause, "other"), reason=str(error))


class Wrong(Malformed):
    """An answer that fails a check; failures are counted by ``kind``."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


class Answers(NamedTuple, Generic[T]):
    """The results of n questions."""

    values: list[T | None]  # n; None: no valid answer in all attempts
    failures: Counter[str]  # answers by kind; "lost": questions without a value


def ask_checked(
    stage: Stage,
    questions: Sequence[Messages],
    checks: Sequence[Callable[[str], T]],
    *,
    attempts: int,
    title: str,
    schemas: Sequence[Schema] | None = None,
) -> Answers[T]:
    """Ask questions, and ask again where an answer fails its check.

    Args:
      stage: the model.
      questions: n questions.
      checks: n functions, each of which turns the text of an answer into a value or raises `Wrong`.
      attempts: largest number of answers to a question.
      title: title of the progress bar.
      schemas: n schemas of the answers, used if `Endpoint.format` is ``"schema"``.

    Raises:
      ValueError: attempts is below 1.
      OutOfReach: the endpoint answered none of the questions, or more successive questions than the
        patience of the stage have no answer.
      Unanswered: the key or the name of the model is wrong.
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
                f"({title}); the last: {problems[-1].reason}. Earlier answers are stored: the "
                "same command continues"
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
                conversations[i] += [answer, *RETRY.messages(reason=str(error))]
                wrong.append(i)
        waiting = wrong
        if not waiting:
            break
    failures["lost"] += sum(value is None for value in values)
    return Answers(values=values, failures=+failures)


def json_object(text: str, fields: Collection[str]) -> dict[str, Any]:
    """Read the JSON object in an answer, ignoring the text around it and the model's reasoning.

    Raises:
      Wrong: of kind ``not_json``, or of kind ``fields`` where a field is missing.
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
    """Return a text on one line.

    Raises:
      Wrong: of kind ``fields``, if the value is not a text or is blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise Wrong("fields", f"{field} must be a text, got {value!r:.60}")
    return " ".join(value.split())


def without_thoughts(text: str) -> str:
    """Remove a reasoning model's thoughts; return an empty text if the thoughts do not end.

    The opening tag may belong to the template of the model, so that only the closing tag is seen.
    """
    _, closed, end = text.rpartition("</think>")
    answer = end if closed else text
    return "" if "<think>" in answer else answer.strip()


class Workload(NamedTuple):
    """The expected calls of a stage and their tokens in all; answers without reasoning."""

    model: str
    price: Price
    calls: int
    prompt: int
    answer: int


def count_tokens(question: Messages) -> float:
    """Estimate the number of tokens of a question."""
    return sum(len(message["content"]) for message in question) / CHARACTERS


def announcement(
    estimates: Mapping[str, Workload], first: Messages, *, note: str = ""
) -> tuple[str, dict[str, float]]:
    """Describe calls, tokens, cost and the first prompt of a run, without sending anything.

    Args:
      estimates: by stage.
      first: the first question.
      note: a line after the estimates.

    Returns:
      The text, and the numbers ``STAGE/calls`` and ``STAGE/prompt_tokens``.
    """
    numbers: dict[str, float] = {}
    lines = []
    for name, one in estimates.items():
        cost = one.price.of(one.prompt, one.answer)
        lines.append(
            f"{name}, {one.model}: about {one.calls:,} calls, {one.prompt:,} "
            f"tokens sent, {one.answer:,} received without thoughts, "
            f"cost {'unknown' if cost is None else f'{cost:.4f}'}"
        )
        numbers |= {f"{name}/calls": float(one.calls), f"{name}/prompt_tokens": float(one.prompt)}
    lines += [note] if note else []
    lines.append("the first prompt:\n")
    lines += [f"[{message['role']}]\n{message['content']}\n" for message in first]
    lines.append("nothing was sent (dry_run=true)")
    return "\n".join(lines), numbers
