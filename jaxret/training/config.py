"""The training settings that all trained methods share.

Each method's ``Config`` adds fields and sets defaults:

    mlc.Config(epochs=3, learning_rate=1e-4).optimizer(steps=900)
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import optax

from jaxret.nn.layers import Compute
from jaxret.runtime.validate import require, require_one_of
from jaxret.training import schedules
from jaxret.training.trainable import Lora

SCHEDULES = {
    "warmup_cosine": schedules.warmup_cosine,
    "reference": schedules.reference_warmup_cosine,
}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of batches, optimiser, precision and validation.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    limit: int = 64  # tokens to which texts are cut in training
    size: int = 32  # examples per batch
    accumulate: int = 1  # parts into which a batch is cut, to save memory
    epochs: float = 1
    learning_rate: float = 5e-5
    schedule: Literal["warmup_cosine", "reference"] = "warmup_cosine"
    warmup: float = 0.05  # below 1: share of all steps; from 1 on: number of steps
    weight_decay: float = 0.01
    clip: float | None = 1.0  # largest norm of a gradient; None: no limit
    dropout: float = 0.0
    dtype: Literal["float32", "bfloat16"] = "float32"  # type of the matrix products
    remat: bool = False  # saves memory: blocks are computed again in the backward pass
    validate: float = 0.25  # epochs between two validations

    def __post_init__(self):
        for name in ("limit", "size", "accumulate"):
            require(name, getattr(self, name), ">= 1", lambda x: x >= 1)
        for name in ("epochs", "learning_rate", "validate"):
            require(name, getattr(self, name), "> 0", lambda x: x > 0)
        for name in ("warmup", "weight_decay"):
            require(name, getattr(self, name), ">= 0", lambda x: x >= 0)
        require("clip", self.clip, "None or > 0", lambda x: x is None or x > 0)
        _ = self.compute  # raises for an invalid dtype or dropout
        for name, kind in get_type_hints(type(self)).items():
            if get_origin(kind) is Literal:
                require_one_of(name, getattr(self, name), get_args(kind))

    @property
    def compute(self) -> Compute:
        """Dropout, precision and rematerialisation of the network in training."""
        return Compute(dropout=self.dropout, dtype=self.dtype, remat=self.remat)

    def optimizer(self, steps: int) -> optax.GradientTransformation:
        """Return AdamW with warm-up, cosine decay and clipping for a run of ``steps`` updates."""
        warmup = max(1, round(self.warmup * steps)) if self.warmup < 1 else int(self.warmup)
        rate = SCHEDULES[self.schedule](self.learning_rate, warmup=min(warmup, steps), total=steps)
        optimizer = optax.adamw(rate, weight_decay=self.weight_decay)
        if self.clip is None:
            return optimizer
        return optax.chain(optax.clip_by_global_norm(self.clip), optimizer)


C = TypeVar("C")


def from_plain(kind: type[C], values: Mapping[str, Any]) -> C:
    """Make a config from plain values, as YAML and JSON hold them.

    Args:
      kind: the class of the config.
      values: fields by name; lists become tuples, and mappings become a `Lora`.

    Raises:
      ValueError: for an unknown field or a value out of its range.
    """
    known = [field.name for field in fields(kind)]  # ty: ignore[invalid-argument-type]
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(f"unknown settings {', '.join(unknown)}; known: {', '.join(known)}")

    def typed(value):
        if isinstance(value, Mapping):
            return from_plain(Lora, value)
        return tuple(value) if isinstance(value, list) else value

    return kind(**{name: typed(value) for name, value in values.items()})
