"""Fields of a profile that the judge is asked about once more, each one alone.

Asked about a whole profile, a small judge says yes to everything; asked whether the documentation
says one sentence, the same model refuses much of what is invented. What it does not confirm is left
out: these fields are optional.
"""

import re
from collections.abc import Sequence
from typing import Any

from jaxret.data.dataset import Document
from jaxret.documents.questions import FOLDER, documentation
from jaxret.llm import Messages, load_prompt, without_thoughts

PROMPT = load_prompt(FOLDER / "claim.txt", ("document", "claim"))
FIELDS = ("when_to_use", "limitation")  # optional, and one sentence each


def question(document: Document, claim: str) -> Messages:
    """Asks whether the documentation says it."""
    return PROMPT.messages(document=documentation(document), claim=claim)


def says_yes(answer: str) -> bool:
    """Whether an answer holds a yes, and no no beside it."""
    words = re.findall(r"[a-z]+", without_thoughts(answer).lower())
    return {"yes", "no"} & set(words) == {"yes"}


def confirmed(
    profile: dict[str, Any], fields: Sequence[str], answers: Sequence[str]
) -> dict[str, Any]:
    """The profile without those of the fields that the answers do not confirm."""
    denied = {f for f, answer in zip(fields, answers, strict=True) if not says_yes(answer)}
    return {field: value for field, value in profile.items() if field not in denied}
