"""Drift: other tools become right for the same queries, or the queries rotate slowly.

    swapped(labels, share=0.3, at=900)            tools exchange their queries from a round on
    turning(queries, angle=1.0, rounds=1800)      every query rotates by the same angle per round

A learner is not informed of drift; it only receives other rewards or other queries.

Letters: N queries, L labels, d width, t a round.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.runtime.validate import label_rows, matrix_of, require


class Drift(NamedTuple):
    """An effect that replaces the right labels from one round on."""

    labels: Int[Array, "N L"]  # right labels from round ``at`` on, -1 pads
    at: Int[Array, ""]  # the first round of these labels

    def labels_at(
        self, t: Int[Array, ""], query: Int[Array, ""], labels: Int[Array, " L"]
    ) -> Int[Array, " L"]:
        """Return the right labels of a query in a round.

        Args:
          t: the round.
          query: the position of the query among the N queries.
          labels: [L], its labels before the drift, -1 pads.

        Returns:
          [L], -1 pads.
        """
        return jnp.where(t >= self.at, self.labels[query], labels)


class Rotation(NamedTuple):
    """An effect that rotates queries: ``cos(t rate) q_n + sin(t rate) turned_n`` in round t."""

    turned: Float[Array, "N d"]  # each query, rotated by 90 degrees
    rate: Float[Array, ""]  # radians per round

    def queries_at(
        self, t: Int[Array, ""], query: Int[Array, ""], vector: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """Return the vector of a query in a round.

        Args:
          t: the round.
          query: the position of the query among the N queries.
          vector: [d], the query before the rotation.

        Returns:
          [d].
        """
        angle = (t * self.rate).astype(vector.dtype)
        turned = self.turned[query].astype(vector.dtype)
        return jnp.cos(angle) * vector + jnp.sin(angle) * turned


def swapped(labels: Int[ArrayLike, "N L"], *, share: float = 0.3, at: int, seed: int = 0) -> Drift:
    """Permute the labels of some tools: each tool takes the queries of the next in a cycle.

    Args:
      labels: right labels of the queries [N, L], -1 pads.
      share: share of the labelled tools that are permuted, in (0, 1]; at least two tools.
      at: first round with the permuted labels, >= 0.
      seed: seed of the cycle.

    Raises:
      ValueError: if only one tool is labelled, or a number is out of range.
    """
    require("share", share, "in (0, 1]", lambda x: 0 < x <= 1)
    require("at", at, ">= 0", lambda t: t >= 0)
    before = label_rows(labels)
    tools = np.unique(before[before >= 0])
    require("the tools that are a label", len(tools), "two or more", lambda n: n >= 2)
    cycle = np.random.default_rng(seed).permutation(tools)[: max(2, round(share * len(tools)))]
    successor = np.arange(tools.max() + 1)
    successor[cycle] = np.roll(cycle, 1)
    after = np.where(before >= 0, successor[before], -1)
    return Drift(labels=jnp.asarray(after, jnp.int32), at=jnp.asarray(at, jnp.int32))


def turning(
    queries: Float[ArrayLike, "N d"], *, angle: float, rounds: int, seed: int = 0
) -> Rotation:
    """Rotate all queries by the same angle, in d / 2 random planes.

    After t rounds the cosine between a query and its original is ``cos(angle t / rounds)``. The
    cosines between queries do not change.

    Args:
      queries: queries of the stream [N, d]; d is even.
      angle: angle in radians, reached after ``rounds`` rounds.
      rounds: number of rounds, >= 1.
      seed: seed of the planes.

    Raises:
      ValueError: if the width is odd, or ``rounds`` is below 1.
    """
    rows = matrix_of("queries", queries)
    width = rows.shape[1]
    require("the width of the queries", width, "even, to turn in planes", lambda d: d % 2 == 0)
    require("rounds", rounds, ">= 1", lambda n: n >= 1)
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    along = rows @ basis  # [N, d], two numbers per plane
    turned = np.stack([-along[:, 1::2], along[:, ::2]], axis=-1).reshape(along.shape) @ basis.T
    return Rotation(turned=jnp.asarray(turned, jnp.float32), rate=jnp.asarray(angle / rounds))
