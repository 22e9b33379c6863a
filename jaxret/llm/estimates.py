"""Estimates the cost of asking language models, before anything is sent."""

from collections.abc import Mapping
from typing import NamedTuple

from jaxret.llm.chat import Messages
from jaxret.llm.stages import Price

CHARACTERS = 4  # of a token in English, about


class Workload(NamedTuple):
    """Estimated calls and tokens of a stage; answers are counted without thoughts."""

    model: str
    price: Price
    calls: int
    prompt: int  # tokens of all calls
    answer: int  # tokens of all calls


def count_tokens(question: Messages) -> float:
    """Estimates the number of tokens of a question."""
    return sum(len(message["content"]) for message in question) / CHARACTERS


def announcement(
    estimates: Mapping[str, Workload], first: Messages, *, note: str = ""
) -> tuple[str, dict[str, float]]:
    """Writes calls, tokens, cost and the first prompt; sends nothing and needs no key.

    Args:
      estimates: by stage.
      first: the first prompt.
      note: is written after the estimates.

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
