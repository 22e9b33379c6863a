"""The chance of each place of a slate, given the places above it: what a log must hold of a slate.

    p_j / (1 - sum of p above)      where items are drawn from p one after the other, none twice

The product over places is the probability of the slate in its order, which off-policy evaluation
divides by. `Slate.propensity` is another number: the chance of an item to be on the slate at all.

Letters: I items, d width, k items shown.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Learner
from jaxret.types import Slate, State


def place_chances(
    learner: Learner, state: State, query: Float[Array, " d"], slate: Slate
) -> Float[Array, " k"]:
    """The chance of each place of a slate that the learner shows.

    Returns:
      [k]; NaN where the learner does not draw its slate place by place (`Policy.drawn_from`).
    """
    if len(slate.items) == 1:
        return slate.propensity
    drawn_from = None if learner.rule is None else learner.rule.policy.drawn_from
    if drawn_from is None or learner.logits is None:
        return jnp.full_like(slate.propensity, jnp.nan)
    return by_place(drawn_from(learner.logits(state, query)), slate.items)


def by_place(p: Float[Array, " I"], items: Int[Array, " k"]) -> Float[Array, " k"]:
    """The chance of each place of a slate that was drawn from p without replacement.

    Args:
      p: of each item, to be drawn first.
      items: the slate, in the order of the draws.

    Returns:
      ``p_j / (1 - sum of p above)`` [k], the difference as a sum of what is left, so that it does
      not cancel; NaN where nothing is left.
    """

    def draw(left, item):
        return left.at[item].set(0.0), left[item] / left.sum()

    return lax.scan(draw, p, items)[1]
