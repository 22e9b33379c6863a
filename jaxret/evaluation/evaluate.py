"""How well rows rank a task's queries, over the seeds of a run.

    evaluate(run, test)["ndcg@10"]                  0.490 ± 0.003
    evaluate(task.theta, test)                      a matrix ranks as one seed
    evaluate(run, test, by=test.groups)             the same for each group of queries

Letters: I items, d width, N queries, S seeds, k cut.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.embeddings import Embeddings
from jaxret.evaluation import metrics
from jaxret.evaluation.estimate import Estimate
from jaxret.learners.learner import Learner
from jaxret.runtime import distributed
from jaxret.simulation.run import Run
from jaxret.task import Task
from jaxret.types import State

METRICS = ("accuracy", "recall@10", "ndcg@10", "completeness@10")
Ranked: TypeAlias = Run | Embeddings | Float[ArrayLike, "I d"]


@overload
def evaluate(
    ranked: Ranked, task: Task, metrics: Sequence[str] = ..., by: None = None
) -> dict[str, Estimate]: ...


@overload
def evaluate(
    ranked: Ranked, task: Task, metrics: Sequence[str] = ..., *, by: ArrayLike | Sequence
) -> dict[Any, dict[str, Estimate]]: ...


def evaluate(
    ranked: Ranked,
    task: Task,
    metrics: Sequence[str] = METRICS,
    by: ArrayLike | Sequence | None = None,
) -> dict[Any, Any]:
    """Ranks a task's queries and averages metrics over them.

    Args:
      ranked: a run, whose last states rank; embeddings; or a matrix [I, d]. Tools that are absent
        are not ranked: a run and embeddings know them, a matrix takes them from the task.
      task: whose queries are ranked, with the same catalogue.
      metrics: ``accuracy``, or ``recall@k``, ``ndcg@k`` and ``completeness@k`` for any k.
      by: a group of each query [N]: the result then has a dict for each group.

    Returns:
      metric -> `Estimate`; or group -> metric -> `Estimate`.

    Raises:
      ValueError: for an unknown metric, or a task with another catalogue.
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
    if isinstance(names, str):
        raise ValueError(f"metrics must be a list of names, got the single string {names!r}")
    cuts = sorted({_cut(name) for name in names})
    of_cut = _of_run(ranked, task) if isinstance(ranked, Run) else _of_rows(ranked, task)
    values = {k: of_cut(k=k) for k in cuts}
    return {name: np.asarray(distributed.fetch(values[_cut(name)][name])) for name in names}


def evaluate_settings(
    make: Callable[..., Learner],
    settings: Float[np.ndarray, "R n"],
    states: State,
    task: Task,
    metric: str,
) -> Float[np.ndarray, "R N"]:
    """One metric of R states whose learners differ in numbers alone, as one program.

    Args:
      make: numbers of a setting -> learner.
      settings: those of each state.
      states: with a leading axis [R].
      task: whose queries are ranked.
      metric: as in `evaluate`.

    Returns:
      [R, N].
    """

    @jax.jit
    def rank(settings, states):
        def one(run):
            setting, state = run
            return _rank_by_state(make(*setting).scores, state, *arrays, k=_cut(metric))[metric]

        return jax.lax.map(one, (settings, states))

    arrays = (task.queries, task.labels, task.tie_order)
    _require_shape(states.theta.shape[1:], task)
    values = rank(jnp.asarray(settings, jnp.float32), states)
    return np.asarray(distributed.fetch(values))


def _of_run(run: Run, task: Task) -> Callable:
    """Metrics [S, N] of a run's last states."""
    _require_ids(run.task.ids, task)
    _require_shape(run.task.theta.shape, task)
    arrays = (run.states, task.queries, task.labels, task.tie_order)
    return partial(_rank_by_states, *arrays, scores=run.learner.scores)


def _of_rows(rows: Embeddings | Float[ArrayLike, "I d"], task: Task) -> Callable:
    """Metrics [1, N] of embeddings or of a matrix."""
    queries, available = task.queries, task.available
    if isinstance(rows, Embeddings):
        _require_ids(rows.ids, task)
        theta, queries, available = rows.theta, rows.map_queries(queries), rows.available
    else:
        theta = np.asarray(rows, np.float32)
    _require_shape(theta.shape, task)
    arrays = (jnp.asarray(theta), jnp.asarray(queries), task.labels, task.tie_order, available)
    return partial(_rank_by_rows, *arrays)


@partial(jax.jit, static_argnames=("scores", "k"))
def _rank_by_states(states, queries, labels, tie_order, *, scores, k):
    def one(state):
        return _rank_by_state(scores, state, queries, labels, tie_order, k=k)

    return jax.lax.map(one, states)


def _rank_by_state(scores, state, queries, labels, tie_order, *, k):
    by, here = partial(scores, state), state.available
    return metrics.evaluate_scores(by, queries, labels, tie_order, available=here, k=k)


@partial(jax.jit, static_argnames="k")
def _rank_by_rows(theta, queries, labels, tie_order, available, *, k):
    values = metrics.evaluate(theta, queries, labels, tie_order, available=available, k=k)
    return jax.tree.map(lambda x: x[None], values)


def _cut(name: str) -> int:
    metric, at, k = name.partition("@")
    known = ("recall", "ndcg", "completeness")
    if name != "accuracy" and not (metric in known and at and k.isdigit() and int(k) >= 1):
        raise ValueError(f"metric must be accuracy or one of {known} with @k, got {name!r}")
    return int(k) if at else 1


def _require_shape(shape: Sequence[int], task: Task) -> None:
    if tuple(shape) != task.theta.shape:
        have, want = list(shape), list(task.theta.shape)
        raise ValueError(f"the rows are {have} and those of {task.name} {want}: other tools?")


def _require_ids(ids: Sequence[str], task: Task) -> None:
    if tuple(ids) != task.ids:
        raise ValueError(
            f"{len(ids)} tools were learnt, and {task.name} has {len(task.ids)}: they must be the "
            "same, in the same order"
        )


def _mean(values: Float[np.ndarray, "S n"]) -> Float[np.ndarray, " S"]:
    return values.astype(np.float64).mean(axis=1)
