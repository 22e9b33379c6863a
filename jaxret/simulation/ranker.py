"""How well the states of several seeds rank a task's queries, or parts of them.

    ranker = Ranker(task, k=10)
    ranker(states, heldout, simulation.scores)      means of `METRICS` [S, 4]

A mask [N] is the same part for all seeds; one [S, N] has a line a seed, since seeds may have parts
of their own.

Letters: N queries, S seeds, n queries of a part, I items, d width.
"""

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxret.evaluation import metrics
from jaxret.learners.learner import Scores
from jaxret.learners.rank_one import scores_by_rows
from jaxret.runtime import distributed, sharding
from jaxret.simulation.streams import rows_of
from jaxret.task import Task
from jaxret.types import Catalogue

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
Mask: TypeAlias = Bool[np.ndarray, "*S N"]


class Ranker:
    """Ranks parts of a task's queries by the states of several seeds; compiled once a size."""

    def __init__(self, task: Task, k: int):
        self._arrays = jnp.asarray(task.queries), jnp.asarray(task.labels)

        @partial(jax.jit, static_argnames="scores")
        def score(states, rows, queries, labels, scores):
            def one(state, rows):
                asked, right = queries[rows], labels[rows]  # -1, the last query: left out below
                if scores is None:
                    values = metrics.evaluate(state.theta, asked, right, task.tie_order, k=k)
                else:
                    by = partial(scores, state)
                    values = metrics.evaluate_scores(by, asked, right, task.tie_order, k=k)
                found = jnp.stack([values[name.format(k=k)] for name in METRICS])
                return jnp.where(rows >= 0, found, jnp.nan)

            return sharding.sweep(one, states, rows, mesh=sharding.run_mesh(len(rows)))

        self._score = score

    def __call__(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4"]:
        """Means of `METRICS` over a part of the queries.

        Args:
          states: of a learner, or a `Catalogue`; with an axis of seeds.
          part: which queries, at least one of each seed.
          scores: of the learner; None: by the rows.

        Returns:
          [S, 4].
        """
        return np.nanmean(self.each(states, part, scores).astype(np.float64), axis=-1)

    def each(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4 n"]:
        """`METRICS` of every query of a part, as they are averaged by a call.

        Returns:
          [S, 4, n], NaN where a seed has fewer than n queries.
        """
        rows = rows_of(np.broadcast_to(part, (len(states.theta), part.shape[-1])))
        if scores is scores_by_rows:  # which reads nothing else: one program for all such learners
            states = states._replace(extra=())
        return np.asarray(distributed.fetch(self._score(states, rows, *self._arrays, scores)))


def catalogues(*thetas: Float[np.ndarray, "I d"]) -> Catalogue:
    """Embeddings that nobody learnt, as `Ranker` takes them: one seed each."""
    rows = jnp.stack([jnp.asarray(theta) for theta in thetas])
    return Catalogue(theta=rows, available=jnp.ones(rows.shape[:2], bool))
