"""How well rows rank a task's queries, over the seeds of a run.

    evaluate(run, test)["ndcg@10"]                  0.490 ± 0.003
    evaluate(task.theta, test)                      a matrix ranks as one seed
    evaluate(run, test, by=test.groups)             the same for each group of queries

Letters: I items, d width, N queries, S seeds, k cut.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret import metrics
from jaxret.embeddings import Embeddings
from jaxret.estimate import Estimate
from jaxret.online.run import Run
from jaxret.task import Task

METRICS = ("accuracy", "recall@10", "ndcg@10", "completeness@10")
Ranked: TypeAlias = Run | Embeddings | Float[ArrayLike, "I d"]


def evaluate(
    ranked: Ranked,
    task: Task,
    metrics: Sequence[str] = METRICS,
    by: ArrayLike | None = None,
) -> dict:
    """Means of metrics over a task's queries.

    Args:
      ranked: a run, whose last states rank; embeddings; or a matrix [I, d].
      task: whose queries are ranked, with the same catalogue.
      metrics: ``accuracy``, or ``recall@k``, ``ndcg@k`` and ``completeness@k`` for any k.
      by: a group of each query [N]: the result then has a dict for each group.

    Returns:
      metric -> `Estimate`; or group -> metric -> `Estimate`.
    """
    values = evaluate_each(ranked, task, metrics)
    if by is None:
        return {name: Estimate.of(_mean(x)) for name, x in values.items()}
    groups = np.asarray(by)
    if groups.shape != (len(task),):
        raise ValueError(f"by must be [{len(task)}], a group a query, got {list(groups.shape)}")
    return {
        group: {name: Estimate.of(_mean(x[:, groups == group])) for name, x in values.items()}
        for group in np.unique(groups).tolist()
    }


def evaluate_each(
    ranked: Ranked, task: Task, names: Sequence[str] = METRICS
) -> dict[str, Float[np.ndarray, "S N"]]:
    """Metrics of every query and seed; the arguments are those of `evaluate`.

    Returns:
      metric -> [S, N].
    """
    cuts = sorted({_cut(name) for name in names})
    if not isinstance(ranked, Run):
        rows = ranked.theta if isinstance(ranked, Embeddings) else np.asarray(ranked, np.float32)
        queries = (
            ranked.map_queries(task.queries) if isinstance(ranked, Embeddings) else task.queries
        )
        _require_rows(rows, task)
        of_cut = partial(_of_rows, jnp.asarray(rows), jnp.asarray(queries))
        found = {
            k: jax.tree.map(lambda x: x[None], of_cut(task.labels, task.tie_order, k=k))
            for k in cuts
        }
    else:
        _require_rows(ranked.states.theta[0], task)
        arrays = (task.queries, task.labels, task.tie_order)
        found = {
            k: _of_states(ranked.states, *arrays, scores=ranked.learner.scores, k=k) for k in cuts
        }
    return {name: np.asarray(found[_cut(name)][name]) for name in names}


@partial(jax.jit, static_argnames=("scores", "k"))
def _of_states(states, queries, labels, tie_order, *, scores, k):
    def one(state):
        by = partial(scores, state)
        return metrics.evaluate_scores(by, queries, labels, tie_order, k=k)

    return jax.lax.map(one, states)


@partial(jax.jit, static_argnames="k")
def _of_rows(theta, queries, labels, tie_order, *, k):
    return metrics.evaluate(theta, queries, labels, tie_order, k=k)


def _cut(name: str) -> int:
    metric, at, k = name.partition("@")
    known = ("recall", "ndcg", "completeness")
    if name != "accuracy" and not (metric in known and at and k.isdigit() and int(k) >= 1):
        raise ValueError(f"metric must be accuracy or one of {known} with @k, got {name!r}")
    return int(k) if at else 1


def _require_rows(rows, task: Task) -> None:
    if np.shape(rows) != task.theta.shape:
        have, want = list(np.shape(rows)), list(task.theta.shape)
        raise ValueError(
            f"the rows are {have} and the task's catalogue is {want}: not the same tools"
        )


def _mean(values: Float[np.ndarray, "S n"]) -> Float[np.ndarray, " S"]:
    return values.astype(np.float64).mean(axis=1)
