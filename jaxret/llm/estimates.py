"""What asking language models would cost, said before anything is sent."""

from collections.abc import Mapping
from typing import NamedTuple

from jaxret.llm.chat import Messages
from jaxret.llm.stages import Price

CHARACTERS = 4  # of a token, about, in English


class Estimate(NamedTuple):
    """What a stage would ask; tokens of all calls together, answers without thoughts."""

    model: str
    price: Price
    calls: int
    prompt: int
    answer: int


def count_tokens(question: Messages) -> float:
    """Counts the tokens of a question, about."""
    return sum(len(message["content"]) for message in question) / CHARACTERS


def announcement(
    estimates: Mapping[str, Estimate], first: Messages, *, note: str = ""
) -> tuple[str, dict[str, float]]:
    """Says calls, tokens, cost and the first prompt: nothing is sent, and no key is needed.

    Args:
      estimates: by stage.
      first: the first prompt.
      note: after the estimates.

    Returns:
      the text, and the numbers ``STAGE/calls`` and ``STAGE/prompt_tokens``.
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
