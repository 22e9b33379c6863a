"""Experiments that ask language models: who is asked, and what it would cost before it does.

``llm`` in the config says where all stages ask, ``stages.NAME`` what is otherwise for one of them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from experiments.parts.config import plain
from jaxret import encoders
from jaxret.llm import Chat, Endpoint, Messages, Price

CHARACTERS = 4  # of a token, about, in English


class Estimate(NamedTuple):
    """What a stage would ask; tokens of all calls together, answers without thoughts."""

    calls: int
    prompt: int
    answer: int


def endpoint(cfg: DictConfig, stage: str) -> Endpoint:
    """Who is asked at a stage."""
    return Endpoint(**(plain(cfg.llm) | plain(cfg.stages[stage])))


def chat(cfg: DictConfig, stage: str) -> Chat:
    """A stage's model, with its memory under the cache."""
    cache = encoders.cache_directory() if cfg.cache is None else Path(cfg.cache)
    return Chat(endpoint(cfg, stage), cache / "llm")


def prices(cfg: DictConfig, stages: tuple[str, ...]) -> dict[str, Price]:
    """What a million tokens cost, by stage."""
    return {name: Price(**plain(cfg.price[name])) for name in stages}


def tokens(question: Messages) -> float:
    """About how many tokens a question has."""
    return sum(len(message["content"]) for message in question) / CHARACTERS


def announce(
    cfg: DictConfig,
    estimates: Mapping[str, Estimate],
    prices: Mapping[str, Price],
    first: Messages,
    *,
    note: str = "",
) -> dict[str, float]:
    """Prints calls, tokens, cost and the first prompt: nothing is sent, and no key is needed."""
    found: dict[str, float] = {}
    for name, one in estimates.items():
        cost = prices[name].of(one.prompt, one.answer)
        print(
            f"{name}, {endpoint(cfg, name).model}: about {one.calls:,} calls, {one.prompt:,} "
            f"tokens sent, {one.answer:,} received without thoughts, "
            f"cost {'unknown' if cost is None else f'{cost:.4f}'}"
        )
        found |= {f"{name}/calls": float(one.calls), f"{name}/prompt_tokens": float(one.prompt)}
    if note:
        print(note)
    print("the first prompt:\n")
    for message in first:
        print(f"[{message['role']}]\n{message['content']}\n")
    print("nothing was sent (dry_run=true)")
    return found
