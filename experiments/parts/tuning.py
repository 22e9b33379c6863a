"""Streams, rankings and settings of the main job: what a seed streams, how well it then ranks,
and which setting does best on the validation part."""

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.common.loading import Parts
from experiments.parts.player import Player
from jaxret import metrics, sharding
from jaxret.online import streams
from jaxret.online.grids import LearnerGrid
from jaxret.online.learner import Scores
from jaxret.task import Task
from jaxret.types import Catalogue

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
Mask: TypeAlias = Bool[np.ndarray, " N"]


def orders(
    streamed: Mask, exposures: int, seeds: range, tasks: Int[np.ndarray, " N"] | None = None
) -> Int[np.ndarray, "S T"]:
    """Each seed's own order of the streamed queries; hops of one task one after the other."""
    some = np.flatnonzero(streamed)

    def order(seed):
        if tasks is None:
            return streams.exposures(len(some), exposures, seed)
        return streams.hops(tasks[some], exposures, seed)

    return np.stack([some[order(seed)] for seed in seeds])


def catalogues(*thetas: Float[np.ndarray, "I d"]) -> Catalogue:
    """Embeddings that nobody learnt, as `Ranker` takes them: one seed each."""
    rows = jnp.stack([jnp.asarray(theta) for theta in thetas])
    return Catalogue(theta=rows, available=jnp.ones(rows.shape[:2], bool))


class Ranker:
    """Ranks the catalogue by the rows of each seed."""

    def __init__(self, task: Task, k: int):
        self._task = task

        @partial(jax.jit, static_argnames="scores")
        def score(states, queries, labels, scores):
            def one(state):
                if scores is None:
                    values = metrics.evaluate(state.theta, queries, labels, task.tie_order, k=k)
                else:
                    by = partial(scores, state)
                    values = metrics.evaluate_scores(by, queries, labels, task.tie_order, k=k)
                return jnp.stack([values[name.format(k=k)] for name in METRICS])

            return sharding.sweep(one, states, mesh=sharding.run_mesh(len(states.theta)))

        self._score = score

    def __call__(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4"]:
        """Means of `METRICS` over a part of the queries.

        Args:
          states: of a learner, or a `Catalogue`; with an axis of seeds.
          part: which queries.
          scores: of the learner; None: by the rows.
        """
        return self.each(states, part, scores).astype(np.float64).mean(axis=-1)

    def each(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4 n"]:
        """`METRICS` of every query of a part, as they are averaged by a call."""
        queries, labels = self._task.queries[part], self._task.labels[part]
        return np.asarray(self._score(states, queries, labels, scores))


def tune(
    name: str,
    grid: LearnerGrid,
    player: Player,
    ranker: Ranker,
    streamed: Int[np.ndarray, "S T"],
    parts: Parts,
) -> dict[str, np.ndarray]:
    """Plays a stream once for every setting and ranks by the final embeddings.

    Args:
      name: of the unit.
      grid: the G settings.
      player: of that grid.
      ranker: of the problem.
      streamed: the orders of all seeds.
      parts: which queries are ranked.

    Returns:
      ``validation`` and ``heldout``: [G, S, 4], the means of `METRICS` over those parts;
      ``online [G, S]``, the success of validation queries in the stream (0 if there are none);
      ``success`` and ``loss``: [G, S], means over the whole stream; and ``best``, the setting with
      the largest nDCG + online success on the validation part: it should serve while it learns and
      rank well afterwards.
    """
    chunks = player.cut(streamed)
    blank = np.zeros((len(grid.settings), len(streamed), len(METRICS)))
    counted = parts.validation[streamed]
    total = np.maximum(counted.sum(axis=1), 1)

    def start():
        learner = player.start(player.setting(*grid.settings[0]))
        scores = {
            "validation": blank.copy(),
            "heldout": blank.copy(),
            **{name: blank[..., 0].copy() for name in ("online", "success", "loss")},
        }
        return {"learner": learner, **scores}

    def step(state, done):
        g, number = divmod(done, len(chunks))
        setting = player.setting(*grid.settings[g])
        states = state["learner"] if number else player.start(setting)
        states, trace = player.step(states, setting, chunks[number])
        first = sum(chunk.shape[1] for chunk in chunks[:number])
        ours = counted[:, first : first + chunks[number].shape[1]]
        whole = {"success": trace.success, "loss": trace.loss}
        whole = {key: np.asarray(x, np.float64)[:, : ours.shape[1]] for key, x in whole.items()}
        state["online"][g] += (whole["success"] * ours).sum(axis=1) / total
        for key, values in whole.items():
            state[key][g] += values.sum(axis=1) / streamed.shape[1]
        if number == len(chunks) - 1:
            for part in ("validation", "heldout"):
                state[part][g] = ranker(states, getattr(parts, part), player.scores)
        return state | {"learner": states}

    def finish(state):
        ndcg = state["validation"][..., METRICS.index("ndcg@{k}")]
        scores = {name: value for name, value in state.items() if name != "learner"}
        return {**scores, "best": (ndcg + state["online"]).mean(axis=1).argmax()}

    return player.run.unit(
        name,
        chunks=len(chunks) * len(grid.settings),
        start=start,
        step=step,
        finish=finish,
    )
