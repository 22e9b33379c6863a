"""Bits that an attacker gives: of one tool or of all, in the name of all users or of some.

    attacked(items=168, queries=1613, tool=7)          says that tool 7 always works
    attacked(items=168, queries=1613, share=0.1)       a tenth of the users turn every bit round

A user asks the same queries each time they come, so the queries say whose bits are false.

Letters: I items, N queries.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require


class Poison(NamedTuple):
    """Whose bits are false, and what they say."""

    tools: Bool[Array, " I"]
    queries: Bool[Array, " N"]
    says: float | Float[Array, ""] | None = None  # None: the opposite of what is true


def attacked(
    *,
    items: int,
    queries: int,
    tool: int | None = None,
    share: float = 1.0,
    says: float | None = None,
    seed: int = 0,
) -> Poison:
    """An attacker's false bits, wherever they count.

    Args:
      items: I, of the catalogue.
      queries: N, of the task.
      tool: its row, the only one that is lied about; None: all.
      share: of the users who are the attacker's, in [0, 1].
      says: what they say, in [0, 1]: 1 praises, 0 slanders, None turns every bit round.
      seed: draws the users.

    Raises:
      ValueError: for a tool that is not in the catalogue, or numbers out of range.
    """
    require("tool", tool, f"None or in 0 .. {items - 1}", lambda i: i is None or 0 <= i < items)
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("says", says, "None or in [0, 1]", lambda x: x is None or 0 <= x <= 1)
    lying = np.zeros(queries, bool)
    lying[np.random.default_rng(seed).permutation(queries)[: round(share * queries)]] = True
    whose = np.arange(items) == tool if tool is not None else np.ones(items, bool)
    return Poison(tools=jnp.asarray(whose), queries=jnp.asarray(lying), says=says)


def poisoned(
    poison: Poison, item: Int[Array, ""], query: Int[Array, ""], reward: Float[Array, ""]
) -> Float[Array, ""]:
    """The reward as the attacker has it: of this tool, for this query.

    Returns:
      [].
    """
    false = 1 - reward if poison.says is None else jnp.asarray(poison.says, reward.dtype)
    return jnp.where(poison.tools[item] & poison.queries[query], false, reward)
