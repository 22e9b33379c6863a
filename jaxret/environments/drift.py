"""The world moves on: other tools become right, or queries turn away from where they were.

    swapped(labels, share=0.3, at=900)            tools take each other's queries from a round on
    turning(queries, angle=1.0, rounds=1800)      every query turns by the same angle, a bit a round

Nothing tells the learner: it sees other bits, or other queries.

Letters: N queries, L labels, d width, T rounds.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.runtime.validate import label_rows, matrix_of, require


class Drift(NamedTuple):
    """From a round on, queries have other labels."""

    labels: Int[Array, "N L"]  # from then on, -1 pads
    at: Int[Array, ""]  # the first round of them


class Rotation(NamedTuple):
    """Query n of round t is ``cos(t rate) q_n + sin(t rate) turned_n``."""

    turned: Float[Array, "N d"]  # each query, turned by a right angle
    rate: Float[Array, ""]  # radians a round


def swapped(labels: Int[ArrayLike, "N L"], *, share: float = 0.3, at: int, seed: int = 0) -> Drift:
    """A share of the tools take each other's queries, each those of the next, in a random circle.

    Args:
      labels: of the queries, -1 pads.
      share: of the tools that are a label at all, in (0, 1]; two at least.
      at: the first round in which the others are right, >= 0.
      seed: draws the circle.

    Raises:
      ValueError: for labels of one tool alone, or numbers out of range.
    """
    require("share", share, "in (0, 1]", lambda x: 0 < x <= 1)
    require("at", at, ">= 0", lambda t: t >= 0)
    before = label_rows(labels)
    tools = np.unique(before[before >= 0])
    require("the tools that are a label", len(tools), "two or more", lambda n: n >= 2)
    circle = np.random.default_rng(seed).permutation(tools)[: max(2, round(share * len(tools)))]
    heir = np.arange(tools.max() + 1)
    heir[circle] = np.roll(circle, 1)
    after = np.where(before >= 0, heir[before], -1)
    return Drift(labels=jnp.asarray(after, jnp.int32), at=jnp.asarray(at, jnp.int32))


def turning(
    queries: Float[ArrayLike, "N d"], *, angle: float, rounds: int, seed: int = 0
) -> Rotation:
    """All queries turn, in d / 2 planes that a seed draws, by the same angle each.

    After t rounds the cosine of a query with itself as it was is ``cos(angle t / rounds)``; their
    cosines with one another stay.

    Args:
      queries: those of the stream; d is even.
      angle: radians, after ``rounds`` rounds.
      rounds: >= 1.
      seed: draws the planes.

    Raises:
      ValueError: for an odd width, or no rounds.
    """
    rows = matrix_of("queries", queries)
    width = rows.shape[1]
    require("the width of the queries", width, "even, to turn in planes", lambda d: d % 2 == 0)
    require("rounds", rounds, ">= 1", lambda n: n >= 1)
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    along = rows @ basis  # [N, d], two numbers a plane
    turned = np.stack([-along[:, 1::2], along[:, ::2]], axis=-1).reshape(along.shape) @ basis.T
    return Rotation(turned=jnp.asarray(turned, jnp.float32), rate=jnp.asarray(angle / rounds))


def right_at(
    drift: Drift, t: Int[Array, ""], query: Int[Array, ""], labels: Int[Array, " L"]
) -> Int[Array, " L"]:
    """The right tools of a query in round t, in place of ``labels`` once the world has moved on.

    Returns:
      [L], -1 pads.
    """
    return jnp.where(t >= drift.at, drift.labels[query], labels)


def turned_at(
    rotation: Rotation, t: Int[Array, ""], query: Int[Array, ""], vector: Float[Array, " d"]
) -> Float[Array, " d"]:
    """A query as it is asked in round t.

    Returns:
      [d].
    """
    angle = (t * rotation.rate).astype(vector.dtype)
    return jnp.cos(angle) * vector + jnp.sin(angle) * rotation.turned[query].astype(vector.dtype)
