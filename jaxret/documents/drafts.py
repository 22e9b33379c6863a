"""What a language model has said when it was asked for a profile: the profile, or what is wrong.

refusal     words of regret in place of an object
bad_json    no JSON object, or a broken one
rules       an object that breaks `jaxret.documents.profile.Rules`
"""

import json
import re
from typing import Any, NamedTuple

from jaxret.documents.profile import Rules, tidy, violations
from jaxret.llm import Problem, without_thoughts

_REGRET = re.compile(r"\b(sorry|apologi[sz]e|cannot|can['’]t|unable|won['’]t|not able)\b", re.I)


class Draft(NamedTuple):
    """An answer without its thoughts, and what it holds."""

    answer: str
    profile: dict[str, Any] | None
    problem: Problem | None  # None: the profile keeps all rules


def read_draft(text: str, rules: Rules) -> Draft:
    """Reads the profile in an answer.

    Thoughts before ``</think>`` are cut off; words and code fences around the object are passed
    over.
    """
    answer = without_thoughts(text)
    try:
        found = tidy(_object(answer))
    except ValueError as error:
        regrets = "{" not in answer and _REGRET.search(answer)
        kind, reason = ("refusal", "it is a refusal") if regrets else ("bad_json", str(error))
        return Draft(answer=answer, profile=None, problem=Problem(kind=kind, reason=reason))
    if wrong := violations(found, rules):
        problem = Problem(kind="rules", reason="\n".join(wrong))
        return Draft(answer=answer, profile=None, problem=problem)
    return Draft(answer=answer, profile=found, problem=None)


def _object(answer: str) -> Any:
    start, end = answer.find("{"), answer.rfind("}")
    if start < 0:
        raise ValueError("there is no JSON object")
    try:
        return json.loads(answer[start : end + 1] if end > start else answer[start:])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the JSON object is broken: {error}") from error
