"""Documents are rewritten while a learner serves: what becomes of what it has learnt?

    rewritten(before, after, at=900, how="carry")

    keep      the rows stay as they are
    reset     rows of rewritten documents begin anew at them
    carry     what was learnt is added to them: after + (theta - before)

It happens before the round ``at``, to all rows that stand for the tool
(`jaxret.learners.learner.change_rows`). Rows of documents that stay the same stay, whatever ``how``
says. A live index does it tool by tool (`jaxret.serving.catalogue`).

Letters: I items, d width.
"""

from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Learner, change_rows
from jaxret.runtime.validate import matrix_of, require
from jaxret.types import State

How: TypeAlias = Literal["keep", "reset", "carry"]


class Rewriting(NamedTuple):
    """Other documents from a round on."""

    before: Float[Array, "I d"]
    after: Float[Array, "I d"]
    at: Int[Array, ""]
    how: How


def rewritten(
    before: Float[ArrayLike, "I d"],
    after: Float[ArrayLike, "I d"],
    *,
    at: int,
    how: How = "carry",
) -> Rewriting:
    """Documents that are others before round ``at`` begins.

    Args:
      before: their vectors, as the task has them.
      after: their new vectors.
      at: >= 1.
      how: what becomes of what was learnt.

    Raises:
      ValueError: for matrices of different shapes, or another ``how``.
    """
    old, new = matrix_of("before", before), matrix_of("after", after)
    require("the shape of after", new.shape, f"{old.shape}, that of before", old.shape.__eq__)
    require("at", at, ">= 1", lambda t: t >= 1)
    require("how", how, "keep, reset or carry", lambda x: x in ("keep", "reset", "carry"))
    return Rewriting(jnp.asarray(old), jnp.asarray(new), jnp.asarray(at, jnp.int32), how)


def redescribed(rewriting: Rewriting, learner: Learner, state: State) -> State:
    """The state with the new documents, its rows where the learner's projection wants them."""
    if rewriting.how == "keep":
        return state
    dtype = state.theta.dtype

    def projected(rows):
        return learner.init(rows.astype(dtype), state.available).theta

    before, after = projected(rewriting.before), projected(rewriting.after)
    others = (rewriting.before != rewriting.after).any(axis=1)[:, None]

    def change(theta):
        moved = after if rewriting.how == "reset" else projected(after + theta - before)
        return jnp.where(others, moved, theta)

    return change_rows(learner, state, change)
