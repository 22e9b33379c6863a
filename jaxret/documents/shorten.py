"""Texts of a profile that are too long, asked for one by one.

Small models do not mend what they have written when they see it whole: they repeat it. Asked for
one sentence alone, without the rest, they write a new one.
"""

from pathlib import Path
from typing import Any, NamedTuple

from jaxret.documents.tool_profile import Rules, aim, longest, violations
from jaxret.llm import Messages, load_prompt, without_thoughts

PROMPT = load_prompt(Path(__file__).parent / "prompts" / "shorten.txt", ("text", "words"))


class Long(NamedTuple):
    """A profile that breaks no rule but that these texts are too long."""

    profile: dict[str, Any]
    fields: tuple[str, ...]


def only_too_long(profile: Any, rules: Rules) -> Long | None:
    """What is to be shortened, where nothing else is wrong with a profile."""
    if not isinstance(profile, dict):
        return None
    fields = tuple(
        field
        for field, words in longest(rules).items()
        if isinstance(text := profile.get(field), str) and len(text.split()) > words
    )
    rest = profile | dict.fromkeys(fields, "short")
    return Long(profile, fields) if fields and not violations(rest, rules) else None


def questions(long: Long, rules: Rules) -> list[Messages]:
    """One for each text."""
    most = longest(rules)
    return [
        PROMPT.messages(text=long.profile[field], words=str(aim(most[field])))
        for field in long.fields
    ]


def shortened(long: Long, answers: list[str]) -> dict[str, Any]:
    """The profile with the answers in place of its long texts; they may be too long again."""
    texts = [" ".join(without_thoughts(answer).split()).strip("\"'“”") for answer in answers]
    return long.profile | dict(zip(long.fields, texts, strict=True))
