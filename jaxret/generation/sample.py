"""Which tools a question offers, and which examples it shows.

Both are functions of the seed, the iteration, the slot in it and what was accepted before, so that
a run that resumes asks the same questions.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require


def generator(seed: int, iteration: int, slot: int) -> np.random.Generator:
    """The randomness of one question."""
    return np.random.default_rng([seed, iteration, slot])


def draw_tools(
    random: np.random.Generator,
    used: Int[np.ndarray, " I"],
    n: int,
    *,
    coverage: float = 0.0,
) -> Int[np.ndarray, " n"]:
    """Draws n tools without replacement; the paper's T = 10, uniformly (C.3).

    Args:
      random: of this question.
      used: how many accepted queries need each tool.
      n: how many are drawn.
      coverage: tools are drawn in proportion to ``(1 + used) ** -coverage``: 0 is uniform, and
        the higher it is the sooner every tool has queries.

    Returns:
      their positions [n].

    Raises:
      ValueError: more tools are wanted than there are, or coverage is negative.
    """
    require("n", n, f"in [1, {len(used)}], the size of the catalogue", lambda x: 0 < x <= len(used))
    require("coverage", coverage, ">= 0", lambda x: x >= 0)
    weights = (1.0 + used) ** -float(coverage)
    return random.choice(len(used), n, replace=False, p=weights / weights.sum())


def draw_examples(random: np.random.Generator, pool: Sequence, n: int) -> list:
    """At most n of the pool, without replacement; the paper's 5, uniformly (section 3)."""
    chosen = random.choice(len(pool), min(n, len(pool)), replace=False)
    return [pool[i] for i in chosen]
