"""Imperfect feedback: false rewards, missing feedback, and clicks.

    poisoned(items=168, queries=1613, tool=7, false_reward=1.0)  an attacker promotes tool 7
    poisoned(items=168, queries=1613, share=0.1)                 a tenth of the users invert rewards
    censored_by_success(after_success=0.2, after_failure=0.6)    users leave after a failure
    position_biased_clicks(bias=1.0, lure=0.2)                   users prefer items near the top

Poison is applied after label noise, and censoring after both. A round without feedback is not a
failure: it changes nothing. The observed rewards are then a biased sample of the outcomes.

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
    """An effect by which an attacker gives false rewards for some tools and queries."""

    tools: Bool[Array, " I"]  # tools whose rewards are false for the attacker's queries
    queries: Bool[Array, " N"]
    false_reward: float | Float[Array, ""] | None = None  # None: the inverted reward

    def reward_of(
        self, key: PRNGKey, item: Int[Array, ""], query: Int[Array, ""], reward: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Return the reward after the attack.

        Args:
          key: unused.
          item: item that was used.
          query: position of the query among the N queries.
          reward: reward before the attack, in [0, 1].

        Returns:
          [].
        """
        del key
        given = 1 - reward if self.false_reward is None else self.false_reward
        false = jnp.asarray(given, reward.dtype)
        return jnp.where(self.tools[item] & self.queries[query], false, reward)


class Censoring(NamedTuple):
    """An effect that withholds the feedback of some rounds."""

    after_success: float | Float[Array, ""]  # share of successes without feedback
    after_failure: float | Float[Array, ""]  # share of failures without feedback

    def is_observed(self, key: PRNGKey, success: Bool[Array, ""]) -> Bool[Array, ""]:
        """Draw whether feedback arrives.

        Args:
          key: consumed.
          success: whether a right item was used; the reward may differ.

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
    false_reward: float | None = None,
    seed: int = 0,
) -> Poison:
    """Make the rewards of some users false, for one tool or for all.

    The users of the attacker are represented by a set of queries.

    Args:
      items: I, the size of the catalogue.
      queries: N, the number of queries of the task.
      tool: row of the tool under attack; None: all tools.
      share: share of the queries that belong to the attacker, in [0, 1].
      false_reward: the reward given instead, in [0, 1]: 1 promotes, 0 demotes; None: inverts each
        reward.
      seed: seed of the attacker's queries.

    Raises:
      ValueError: if the tool is not in the catalogue, or a number is out of range.
    """
    require("tool", tool, f"None or in 0 .. {items - 1}", lambda i: i is None or 0 <= i < items)
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("false_reward", false_reward, "None or in [0, 1]", lambda x: x is None or 0 <= x <= 1)
    attacked_queries = np.zeros(queries, bool)
    order = np.random.default_rng(seed).permutation(queries)
    attacked_queries[order[: round(share * queries)]] = True
    tools = np.arange(items) == tool if tool is not None else np.ones(items, bool)
    return Poison(
        tools=jnp.asarray(tools), queries=jnp.asarray(attacked_queries), false_reward=false_reward
    )


def censored_by_success(*, after_success: float, after_failure: float) -> Censoring:
    """Withhold feedback in a share of the rounds that depends on the outcome.

    Args:
      after_success: share of successes without feedback, in [0, 1].
      after_failure: share of failures without feedback, in [0, 1].

    Raises:
      ValueError: if a share is out of range.
    """
    for name, share in (("after_success", after_success), ("after_failure", after_failure)):
        require(name, share, "in [0, 1]", lambda x: 0 <= x <= 1)
    return Censoring(after_success, after_failure)


def position_biased_clicks(*, bias: float = 1.0, lure: float = 0.2):
    """Make a reranker that simulates clicks, by position and by whether an item is right.

    In the position-based model (Richardson et al. 2007; Craswell et al. 2008) position j is clicked
    with probability examination times attractiveness. Here exactly one item is clicked per round,
    with probability proportional to that product:

        P(j) = v_j / (sum of v),    v_j = j^-bias (1 if the item is right, else lure),  j = 1 .. k

    A right item low on the slate is therefore clicked too rarely, and a click need not be a
    success. The learner does not know these probabilities: the propensity of a choice is the
    probability that the item is on the slate.

    Args:
      bias: >= 0; with 0 all positions are examined equally.
      lure: attractiveness of a wrong item relative to that of a right one, in (0, 1].

    Returns:
      A `jaxret.environments.environment.SlateReranker`.

    Raises:
      ValueError: if a number is out of range.
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
    """Compute the probability that each position of a slate is clicked.

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
