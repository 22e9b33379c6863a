"""Expansion and refinement: the questions that ask for a profile (Tool-REX 2.3, steps 1 and 3).

Refinement asks a second model the question of the first, with the answer it has given and what is
wrong with that: at temperature 0 the same question alone would give the same answer again.
"""

import json
from pathlib import Path

from jaxret.data.dataset import Document
from jaxret.documents.drafts import Draft
from jaxret.documents.profile import Rules
from jaxret.documents.read import original
from jaxret.llm import Messages, load_prompt

FOLDER = Path(__file__).parent / "prompts"
EXPAND = load_prompt(FOLDER / "expand.txt", ("document", *Rules._fields))
REFINE = load_prompt(FOLDER / "refine.txt", ("problem",))
MAX_CHARACTERS = 16_000  # of a document or an answer, about 4,000 tokens


def question(document: Document, rules: Rules) -> Messages:
    """Asks for the profile of a tool.

    Raises:
      TypeError, ValueError: see `jaxret.documents.read.original`.
    """
    bounds = {name: str(value) for name, value in rules._asdict().items()}
    return EXPAND.messages(document=shown(document), **bounds)


def better_question(document: Document, rules: Rules, draft: Draft) -> Messages:
    """Asks again, with what is wrong with a draft."""
    assert draft.problem is not None
    said = {"role": "assistant", "content": draft.answer[:MAX_CHARACTERS] or "(no answer)"}
    again = REFINE.messages(problem=draft.problem.reason)
    return [*question(document, rules), said, *again]


def shown(document: Document) -> str:
    """The original documentation as JSON, cut where it is very long.

    What was added to it, such as an earlier profile, is not shown.
    """
    # default: Python dicts hold what JSON does not know
    text = json.dumps(original(document), ensure_ascii=False, indent=1, default=str)
    return text[:MAX_CHARACTERS]
