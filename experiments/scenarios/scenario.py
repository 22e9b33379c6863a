"""A scenario: a world, when its trouble begins, and the calm world beside it; and where it is.

Times are shares of the stream in [0, 1], until a `Place` says how many rounds that are.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from experiments.common.loading import TextTask
from jaxret import encoders
from jaxret.data.templates import template
from jaxret.environments.environment import Environment


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a scenario takes place."""

    task: TextTask
    rounds: int
    seed: int
    cache: Path

    def at(self, share: float) -> int:
        """The round at a share of the stream."""
        return round(share * self.rounds)

    def documents(self, name: str) -> Float[np.ndarray, "I d"]:
        """The tools by another template.

        Returns:
          [I, d].
        """
        texts = [template(name)(one) for one in self.task.dataset.documents]
        return encoders.encode(self.task.encoder, texts, kind="document", cache=self.cache)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One of them."""

    world: Callable[[Place], Environment]
    begins: float = 0.0  # the trouble, as a share of the stream
    shown: int = 1  # tools in a round
    calm: Environment = field(default_factory=Environment)
