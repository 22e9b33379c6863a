"""A query in the words that a person would use (Query Polish, section 3)."""

from collections.abc import Sequence

from jaxret.generation.ask import Draft, refuse_names
from jaxret.generation.checked_answers import PROMPTS, json_object, sentence
from jaxret.llm import load_prompt

PROMPT = load_prompt(PROMPTS / "polish.txt", ("functions", "instruction"))


def question(draft: Draft) -> list[dict[str, str]]:
    """The messages."""
    return PROMPT.messages(functions=", ".join(draft.functions), instruction=draft.instruction)


def check(text: str, functions: Sequence[str]) -> str:
    """The polished query.

    Raises:
      Wrong: ``not_json``, ``fields`` or ``named``.
    """
    instruction = sentence(
        json_object(text, ("reasoning", "instruction"))["instruction"], "instruction"
    )
    refuse_names(instruction, functions)
    return instruction
