"""The trained part of a network: all parameters, or a LoRA beside some matrices."""

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
    """Settings of a low-rank adapter (`jaxret.nn.lora`).

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    rank: int = 32
    alpha: float = 64  # the change is scaled by alpha / rank
    dropout: float = 0.1  # dropout rate of the branches' inputs
    targets: str = "blocks/.*/kernel"  # a regular expression of whole paths

    def __post_init__(self):
        require("lora.rank", self.rank, ">= 1", lambda x: x >= 1)
        require("lora.alpha", self.alpha, "> 0", lambda x: x > 0)
        require("lora.dropout", self.dropout, "in [0, 1)", lambda x: 0 <= x < 1)


class Trainable(NamedTuple):
    """The trained part of a network."""

    start: Params  # the trained parameters before training
    frozen: Params | None  # the other parameters; None: there are none
    apply: Callable[..., Any]  # the network's apply, of trained or (trained, frozen) params
    whole: Callable[[Params], Params]  # trained parameters -> the network's parameters


def trainable(network: Module, params: Params, adapter: Lora | None, seed: int) -> Trainable:
    """Select the parameters to train: all of them, or an adapter's.

    Args:
      network: with the dropout and precision of training.
      params: the network's initial parameters.
      adapter: settings of the adapter; None trains all parameters.
      seed: seed of the adapter's initial weights.
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
