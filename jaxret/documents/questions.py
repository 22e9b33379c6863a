"""What the models of the expansion pipeline are asked, and what they answer (Tool-REX, 2.3).

    expand    write the profile of a tool
    judge     is everything in a profile supported by the documentation? true or false
    refine    write it again: all that was asked and answered before, and what is wrong with the
              last answer (at temperature 0 the same question would give the same answer)

A judge that says neither true nor false is asked once more, its answer before it. An answer that
should be a profile and is none is one of these problems:

    refusal     words of regret in place of an object
    bad_json    no JSON object, or a broken one
    rules       an object that breaks `jaxret.documents.Rules`
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.documents.reading import original
from jaxret.documents.shorten import Long, only_too_long
from jaxret.documents.tool_profile import Rules, aim, tidy, violations
from jaxret.llm import Messages, Problem, load_prompt, without_thoughts

FOLDER = Path(__file__).parent / "prompts"
AIMS = ("text_aim", "limitation_aim")
EXPAND = load_prompt(FOLDER / "expand.txt", ("document", *AIMS, *Rules._fields))
REFINE = load_prompt(FOLDER / "refine.txt", ("problem",))
JUDGE = load_prompt(FOLDER / "judge.txt", ("document", "profile"))
JUDGE_AGAIN = load_prompt(FOLDER / "judge_again.txt", ())
MAX_CHARACTERS = 16_000  # of a document or an answer, about 4,000 tokens
_REGRET = re.compile(r"\b(sorry|apologi[sz]e|cannot|can['’]t|unable|won['’]t|not able)\b", re.I)


class Draft(NamedTuple):
    """An answer without its thoughts, and what it holds."""

    answer: str
    profile: dict[str, Any] | None
    problem: Problem | None  # None: the profile keeps all rules
    long: Long | None = None  # where the problem is that texts are too long, and nothing else


def expand_question(document: Document, rules: Rules) -> Messages:
    """Asks for the profile of a tool.

    Raises:
      TypeError, ValueError: see `jaxret.documents.original`.
    """
    numbers = rules._asdict() | {
        "text_aim": aim(rules.text_words),
        "limitation_aim": aim(rules.limitation_words),
    }
    bounds = {name: str(value) for name, value in numbers.items()}
    return EXPAND.messages(document=documentation(document), **bounds)


def refine_question(asked: Messages, draft: Draft) -> Messages:
    """Asks again, with what is wrong with the draft that answered a question."""
    assert draft.problem is not None
    answer = {"role": "assistant", "content": draft.answer[:MAX_CHARACTERS] or "(no answer)"}
    return [*asked, answer, *REFINE.messages(problem=draft.problem.reason)]


def judge_question(document: Document, profile: dict[str, Any]) -> Messages:
    """Asks whether a profile agrees with its document."""
    text = json.dumps(profile, ensure_ascii=False, indent=1)
    return JUDGE.messages(document=documentation(document), profile=text)


def judge_again_question(asked: Messages, answer: str) -> Messages:
    """Asks for the verdict that an answer lacks."""
    content = without_thoughts(answer)[:MAX_CHARACTERS] or "..."
    return [*asked, {"role": "assistant", "content": content}, *JUDGE_AGAIN.messages()]


def documentation(document: Document) -> str:
    """The original documentation as JSON, cut where it is very long.

    What was added to it, such as an earlier profile, is not shown.
    """
    # default: Python dicts hold what JSON does not know
    text = json.dumps(original(document), ensure_ascii=False, indent=1, default=str)
    return text[:MAX_CHARACTERS]


def read_draft(text: str, rules: Rules) -> Draft:
    """Reads the profile in an answer.

    Thoughts before ``</think>`` are cut off; words and code fences around the object are passed
    over.
    """
    answer = without_thoughts(text)
    try:
        found = _object(answer)
    except ValueError as error:
        regrets = "{" not in answer and _REGRET.search(answer)
        kind, reason = ("refusal", "it is a refusal") if regrets else ("bad_json", str(error))
        return Draft(answer=answer, profile=None, problem=Problem(kind=kind, reason=reason))
    return checked(answer, found, rules)


def checked(answer: str, found: Any, rules: Rules) -> Draft:
    """The draft that an object makes, tidied and held to the rules."""
    profile = tidy(found)
    if not (broken := violations(profile, rules)):
        return Draft(answer=answer, profile=profile, problem=None)
    problem = Problem(kind="rules", reason="\n".join(broken))
    long = only_too_long(profile, rules)
    return Draft(answer=answer, profile=None, problem=problem, long=long)


def _object(answer: str) -> Any:
    start, end = answer.find("{"), answer.rfind("}")
    if start < 0:
        raise ValueError("there is no JSON object")
    try:
        return json.loads(answer[start : end + 1] if end > start else answer[start:])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the JSON object is broken: {error}") from error
