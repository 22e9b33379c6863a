"""Feedback that is not the plain truth: false bits, missing answers, and clicks.

    poisoned(items=168, queries=1613, tool=7, says=1.0)         an attacker praises tool 7
    poisoned(items=168, queries=1613, share=0.1)                a tenth of the users invert each bit
    censored_by_success(after_success=0.2, after_failure=0.6)   users leave after a failure
    position_biased_clicks(bias=1.0, lure=0.2)                  users click, rather near the top

Poison is applied after label noise, and censoring after both. A round without an answer is not a
failure: nothing is learnt from it. Bits that do arrive are then a biased sample of what happened.

Letters: I items, N queries, k items shown, L labels.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate


class Poison(NamedTuple):
    """False bits of an attacker, for some tools and queries: an effect of the environment."""

    tools: Bool[Array, " I"]  # whose bits are false, where the query's are too
    queries: Bool[Array, " N"]
    says: float | Float[Array, ""] | None = None  # the false reward; None: the inverted bit

    def reward_of(
        self,
        key: PRNGKey,
        item: Int[Array, ""],
        query: Int[Array, ""],
        reward: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Returns the reward after the attack.

        Args:
          key: unused.
          item: the item that was used.
          query: the position of the query among the N queries.
          reward: before the attack, in [0, 1].

        Returns:
          [].
        """
        del key
        false = 1 - reward if self.says is None else jnp.asarray(self.says, reward.dtype)
        return jnp.where(self.tools[item] & self.queries[query], false, reward)


class Censoring(NamedTuple):
    """Rounds without an answer: an effect of the environment."""

    after_success: float | Float[Array, ""]  # share of successes without an answer
    after_failure: float | Float[Array, ""]  # share of failures without an answer

    def is_observed(self, key: PRNGKey, success: Bool[Array, ""]) -> Bool[Array, ""]:
        """Draws whether an answer arrives.

        Args:
          key: consumed.
          success: whether a right item was used, whatever the reward says.

        Returns:
          [].
        """
        share = jnp.where(success, self.after_success, self.after_failure)
        return jax.random.uniform(key) >= share


def poisoned(
    *,
    items: int,
    queries: int,
    tool: int | None = None,
    share: float = 1.0,
    says: float | None = None,
    seed: int = 0,
) -> Poison:
    """Makes the bits of some users false, for one tool or for all.

    A user comes back with the same queries, so the attacker's users are a set of queries.

    Args:
      items: I, the size of the catalogue.
      queries: N, the number of the task's queries.
      tool: the row of the one tool under attack; None: all tools.
      share: of the users who are the attacker's, in [0, 1].
      says: the reward that they give, in [0, 1]: 1 praises, 0 slanders; None inverts each bit.
      seed: draws the users.

    Raises:
      ValueError: for a tool that is not in the catalogue, or numbers out of range.
    """
    require("tool", tool, f"None or in 0 .. {items - 1}", lambda i: i is None or 0 <= i < items)
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("says", says, "None or in [0, 1]", lambda x: x is None or 0 <= x <= 1)
    attacked_queries = np.zeros(queries, bool)
    order = np.random.default_rng(seed).permutation(queries)
    attacked_queries[order[: round(share * queries)]] = True
    tools = np.arange(items) == tool if tool is not None else np.ones(items, bool)
    return Poison(tools=jnp.asarray(tools), queries=jnp.asarray(attacked_queries), says=says)


def censored_by_success(*, after_success: float, after_failure: float) -> Censoring:
    """Withholds the answers of a share of the rounds, which depends on what happened.

    Args:
      after_success: the share of successes without an answer, in [0, 1].
      after_failure: the share of failures without an answer, in [0, 1].

    Raises:
      ValueError: for shares out of range.
    """
    for name, share in (("after_success", after_success), ("after_failure", after_failure)):
        require(name, share, "in [0, 1]", lambda x: 0 <= x <= 1)
    return Censoring(after_success, after_failure)


def position_biased_clicks(*, bias: float = 1.0, lure: float = 0.2):
    """Makes a user who clicks one of the items shown, by position and by whether it is right.

    In the position-based model (Richardson et al. 2007; Craswell et al. 2008) position j is clicked
    with probability examination times attractiveness. Here exactly one item is clicked per round,
    with probability proportional to that product:

        P(j) = v_j / (sum of v),    v_j = j^-bias (1 if the item is right, else lure),  j = 1 .. k

    So a right item low on the slate is clicked less often than it deserves, and a click need not be
    a success. The learner is not told these probabilities: the propensity of a choice is that with
    which the item came onto the slate.

    Args:
      bias: >= 0; with 0 all positions are examined equally.
      lure: attractiveness of a wrong item relative to that of a right one, in (0, 1].

    Returns:
      a `jaxret.environments.environment.Reranker`.

    Raises:
      ValueError: for numbers out of range.
    """
    require("bias", bias, ">= 0", lambda x: x >= 0)
    require("lure", lure, "in (0, 1]", lambda x: 0 < x <= 1)

    def click(key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]):
        del query
        return jax.random.categorical(key, jnp.log(click_probabilities(slate, labels, bias, lure)))

    return click


def click_probabilities(
    slate: Slate, labels: Int[Array, " L"], bias: float, lure: float
) -> Float[Array, " k"]:
    """Computes the probability that each position of a slate is the one that is clicked.

    Args:
      slate: the k items shown.
      labels: [L], the right items, -1 pads.
      bias: >= 0; with 0 all positions are examined equally.
      lure: attractiveness of a wrong item relative to that of a right one, in (0, 1].

    Returns:
      [k], sum 1.
    """
    right = (slate.items[:, None] == labels[None, :]).any(axis=1)
    position = jnp.arange(1, len(slate.items) + 1, dtype=slate.propensity.dtype)
    weights = position**-bias * jnp.where(right, 1.0, lure)
    return weights / weights.sum()
