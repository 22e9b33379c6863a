"""Judgement: is everything in a profile supported by the documentation? (Tool-REX 2.3, step 2)

A judge says true or false. One that says anything else is asked once more, its answer before it.
"""

import json
from typing import Any

from jaxret.data.dataset import Document
from jaxret.documents.expand import FOLDER, MAX_CHARACTERS, shown
from jaxret.llm import Messages, load_prompt, without_thoughts

JUDGE = load_prompt(FOLDER / "judge.txt", ("document", "profile"))
AGAIN = load_prompt(FOLDER / "judge_again.txt", ())


def question(document: Document, profile: dict[str, Any]) -> Messages:
    """Asks whether a profile agrees with its document."""
    text = json.dumps(profile, ensure_ascii=False, indent=1)
    return JUDGE.messages(document=shown(document), profile=text)


def question_again(asked: Messages, answer: str) -> Messages:
    """Asks for the verdict that an answer lacks."""
    said = {"role": "assistant", "content": without_thoughts(answer)[:MAX_CHARACTERS] or "..."}
    return [*asked, said, *AGAIN.messages()]
