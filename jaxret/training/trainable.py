"""What of a network is trained: all of it, or a LoRA beside some of its matrices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jaxret.nn import lora
from jaxret.nn.functional import Module
from jaxret.runtime.validate import require
from jaxret.types import Params


@dataclass(frozen=True, kw_only=True)
class Lora:
    """A low-rank adapter (`jaxret.nn.lora`).

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    rank: int = 32
    alpha: float = 64  # the change is scaled by alpha / rank
    dropout: float = 0.1  # of the branches' inputs
    targets: str = "blocks/.*/kernel"  # a regular expression of whole paths

    def __post_init__(self):
        require("lora.rank", self.rank, ">= 1", lambda x: x >= 1)
        require("lora.alpha", self.alpha, "> 0", lambda x: x > 0)
        require("lora.dropout", self.dropout, "in [0, 1)", lambda x: 0 <= x < 1)


class Trainable(NamedTuple):
    """The part that moves, and how it makes a network."""

    start: Params
    frozen: Params | None  # the rest, see `jaxret.training.loop.fit`
    apply: Callable[..., Any]  # the network, of what is trained or of the pair (trained, frozen)
    whole: Callable[[Params], Params]  # what is trained -> the network's parameters, for use


def trainable(network: Module, params: Params, adapter: Lora | None, seed: int) -> Trainable:
    """Makes everything trainable, or an adapter alone.

    Args:
      network: as it is computed while training.
      params: where training starts.
      adapter: its settings; None trains all parameters.
      seed: of the adapter's first weights.
    """
    if adapter is None:
        return Trainable(start=params, frozen=None, apply=network.apply, whole=lambda x: x)
    alpha = adapter.alpha
    return Trainable(
        start=lora.init(jax.random.key(seed), params, adapter.targets, rank=adapter.rank),
        frozen=params,
        apply=lora.branched(network, alpha=alpha, rate=adapter.dropout),
        whole=lambda trained: lora.merge(params, trained, alpha=alpha),
    )
