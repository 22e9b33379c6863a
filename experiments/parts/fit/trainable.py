"""What of a network is trained: all of it, or a LoRA beside some of its matrices."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jaxret.nn import lora
from jaxret.nn.functional import Module
from jaxret.types import Params


class Trainable(NamedTuple):
    """The part that moves, and how it makes a network."""

    start: Params
    frozen: Params | None  # the rest, see `jaxret.training.loop.fit`
    apply: Callable[..., Any]  # the network, of what is trained or of the pair (trained, frozen)
    whole: Callable[[Params], Params]  # what is trained -> the network's parameters, for use


def trainable(
    network: Module, params: Params, settings: Mapping[str, Any] | None, seed: int
) -> Trainable:
    """Everything, or the LoRA that a recipe's ``lora`` describes.

    Args:
      network: as it is computed while training.
      params: where training starts.
      settings: rank, alpha, dropout and targets, a regular expression of paths; None for no LoRA.
      seed: of the adapter.
    """
    if settings is None:
        return Trainable(start=params, frozen=None, apply=network.apply, whole=lambda x: x)
    alpha = settings["alpha"]
    key = jax.random.key(seed)
    return Trainable(
        start=lora.init(key, params, settings["targets"], rank=settings["rank"]),
        frozen=params,
        apply=lora.branched(network, alpha=alpha, rate=settings["dropout"]),
        whole=lambda adapter: lora.merge(params, adapter, alpha=alpha),
    )
