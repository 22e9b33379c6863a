"""Evaluates rankings of a task's tools, by learners, retrievers, rerankers, rows or lists.

    evaluate(run, test)["ndcg@10"]                  0.490 ± 0.003, over the seeds of a run
    evaluate(task.theta, test)                      rows [I, d], as one seed
    evaluate(retriever, test)                       a first stage, on the task's texts
    evaluate(reranker, test, first=ranking)         a second stage, on the first stage's lists
    evaluate(positions, test)                       lists of tools [N, k], best first
    evaluate(run, test, by=test.groups)             each group of queries by itself
    evaluate(run, task, part=parts.heldout)         a part of the queries, one row per seed

Runs, retrievers and rerankers are recognised by their attributes (`RunLike`, `RetrieverLike`,
`RerankerLike`), since this package does not import the packages that define them.

Letters: I items, d width, N queries, S seeds, k cut.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from jaxret.embeddings import Embeddings
from jaxret.evaluation import metrics
from jaxret.evaluation.estimate import Estimate
from jaxret.learners.learner import prior_for, query_for
from jaxret.runtime import distributed, sharding
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.types import State, Trace

METRICS = ("accuracy", "recall@10", "ndcg@10", "completeness@10")
_FEW_SIZES = 64  # parts are padded to multiples, so that few sizes are compiled


class RunLike(Protocol):
    """The parts of a `jaxret.simulation.run.Run` that are evaluated."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> Callable[..., Any]: ...  # numbers -> a learner
    @property
    def numbers(self) -> Float[np.ndarray, "S n"]: ...
    @property
    def task(self) -> Task: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...
    @property
    def order(self) -> Int[np.ndarray, "S T"]: ...
    @property
    def trace(self) -> Trace: ...
    @property
    def states(self) -> State: ...


class Lists(Protocol):
    """Rankings with their scores, such as a `jaxret.retrieval.ranking.Ranking`."""

    @property
    def items(self) -> Int[np.ndarray, "N k"]: ...
    @property
    def scores(self) -> Float[np.ndarray, "N k"]: ...


class RetrieverLike(Protocol):
    """A first stage, such as a `jaxret.retrieval.retriever.Retriever`."""

    @property
    def name(self) -> str: ...
    @property
    def items(self) -> int: ...
    def search(self, texts: Any, k: int, *, progress: bool) -> Lists:
        """Find the k best items of every query.

        Args:
          texts: the N queries, as strings, or as vectors [N, d] if the task has no texts.
          k: length of the lists, at most I.
          progress: whether to show a bar.

        Returns:
          the lists [N, k], best first.
        """
        ...


class RerankerLike(Protocol):
    """A second stage, such as a `jaxret.retrieval.retriever.Reranker`."""

    @property
    def name(self) -> str: ...
    def refine(self, texts: Any, ranking: Any, *, progress: bool) -> Lists:
        """Rerank the candidates of a first stage.

        Args:
          texts: the N queries, as strings, or as vectors [N, d] if the task has no texts.
          ranking: candidates of every query [N, k] and their scores.
          progress: whether to show a bar.

        Returns:
          the lists [N, k], best first.
        """
        ...


Ranked: TypeAlias = (
    RunLike
    | Embeddings
    | RetrieverLike
    | RerankerLike
    | Lists
    | ArrayLike
    | Sequence[Sequence[int]]
)


@overload
def evaluate(
    ranked: Ranked,
    task: Task,
    metrics: Sequence[str] = ...,
    by: None = None,
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    first: Lists | None = None,
) -> dict[str, Estimate]: ...


@overload
def evaluate(
    ranked: Ranked,
    task: Task,
    metrics: Sequence[str] = ...,
    *,
    by: ArrayLike | Sequence,
    part: Bool[np.ndarray, "*S N"] | None = None,
    first: Lists | None = None,
) -> dict[Any, dict[str, Estimate]]: ...


def evaluate(
    ranked: Ranked,
    task: Task,
    metrics: Sequence[str] = METRICS,
    by: ArrayLike | Sequence | None = None,
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    first: Lists | None = None,
) -> dict[Any, Any]:
    """Average ranking metrics over the queries of a task.

    Queries without a right tool are left out, with a warning that counts them. Absent tools are not
    ranked. Runs and embeddings have their own masks of absent tools; for
    everything else the task's mask is used.

    Args:
      ranked: one of
        a run, which ranks by its last states, one per seed;
        `Embeddings`;
        rows of floats [I, d], which rank by inner product;
        a retriever (`jaxret.retrieval`, `jaxret.methods`), given the texts of the task, or its
        vectors if the task has no texts;
        a reranker, given ``first``;
        lists of tools, best first: a `Ranking`, or integers [N, k] that are positions in
        ``task.ids``, -1 pads; lists may differ in length.
      task: task with the queries and labels, and with the ranked tools.
      metrics: ``accuracy``, or ``recall@k``, ``ndcg@k`` and ``completeness@k`` for any k.
      by: group of each query [N]; None: all queries together.
      part: queries to rank, mask [N], or one row per seed [S, N] (`Task.parts`); None: all.
      first: `Ranking` of a first stage on the same queries, for a reranker.

    Returns:
      metric -> `Estimate`; with ``by``, group -> metric -> `Estimate`, NaN for a group of queries
      without a right tool.

    Raises:
      ValueError: if a metric is unknown, the task has other tools, the object cannot be ranked by,
        a reranker comes without ``first``, or lists are too short for a metric.
    """
    values = evaluate_each(ranked, task, metrics, part=part, first=first)
    _count_unanswerable(task, part)
    if by is None:
        return {name: Estimate.of(_mean(x)) for name, x in values.items()}
    groups = np.asarray(by)
    if groups.shape != (len(task),):
        raise ValueError(f"by must be [{len(task)}], one group per query, got {list(groups.shape)}")
    if (unknown := groups != groups).any():  # NaN is in no group
        raise ValueError(f"by must be a group per query, got NaN for query {unknown.argmax()}")
    return {
        group: {name: Estimate.of(_mean(x[:, groups == group])) for name, x in values.items()}
        for group in np.unique(groups).tolist()
    }


def evaluate_each(
    ranked: Ranked,
    task: Task,
    names: Sequence[str] = METRICS,
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    first: Lists | None = None,
) -> dict[str, Float[np.ndarray, "S N"]]:
    """Compute ranking metrics of every query and seed.

    Args:
      ranked: a run, embeddings, rows, a retriever, a reranker or lists.
      task: task with the queries and labels.
      names: names of the metrics.
      part: mask of the queries to rank, [N] or [S, N]; None: all queries.
      first: `Ranking` of a first stage, for a reranker.

    Returns:
      metric -> values [S, N], NaN outside the part and where no tool is right. Without a part S is
      1 except for a run.

    Raises:
      ValueError: if a metric is unknown, the task has other tools, or the object cannot be ranked
        by.
    """
    if isinstance(names, str):
        raise ValueError(f"metrics must be a list of names, got the single string {names!r}")
    require("metrics", names, "a list of one or more names", len)
    cuts = sorted(set(map(_cut, names)) - {0}) or [1]  # every cut gives the accuracy
    task.require_queries()
    masks = None if part is None else _masks(part, task)
    if is_run(ranked):
        values = _each_cut(_of_run(ranked, task, masks), cuts)
    elif isinstance(ranked, Embeddings):
        values = _each_cut(_of_embeddings(ranked, task), cuts)
    else:
        values = _of_others(ranked, task, cuts, first)
    found = {name: np.asarray(distributed.fetch(values[name])) for name in names}
    if masks is None or is_run(ranked):
        return found
    return {name: np.where(masks, each, np.nan) for name, each in found.items()}


def name_of(ranked: Ranked) -> str:
    """Return the name of a ranked object for tables."""
    if isinstance(ranked, Embeddings):
        return str(ranked.facts.get("learner", "embeddings"))
    name = getattr(ranked, "name", None)
    if isinstance(name, str):
        return name
    return "ranking" if _is_lists(ranked) or _integers(_array(ranked)) else "rows"


def is_run(ranked: Any) -> bool:
    """Return whether an object is a run, with a learner and its last states."""
    return hasattr(ranked, "states") and hasattr(ranked, "family")


def _is_lists(ranked: Any) -> bool:
    return isinstance(getattr(ranked, "items", None), np.ndarray | jax.Array | list | tuple)


def _each_cut(of_cut: Callable, cuts: Sequence[int]) -> dict[str, Any]:
    return {name: values for k in cuts for name, values in of_cut(k=k).items()}


def _masks(part: Bool[np.ndarray, "*S N"], task: Task) -> Bool[np.ndarray, "S N"]:
    """Convert a part to one row per seed, or a single row for all seeds."""
    given = np.asarray(part)
    if given.dtype != bool and not np.isin(given, (0, 1)).all():
        raise ValueError(
            "part must be a mask of True and False, got positions or other numbers: give "
            "np.isin(np.arange(len(task)), positions)"
        )
    masks = np.atleast_2d(given.astype(bool))
    if masks.ndim != 2 or masks.shape[1] != len(task) or not masks.any(axis=1).all():
        raise ValueError(
            f"part must be [{len(task)}] or [S, {len(task)}], True for a query or more of each "
            f"seed, got the shape {list(np.shape(part))} with {int(np.sum(part))} queries"
        )
    return masks


def _of_run(run: Any, task: Task, masks: Bool[np.ndarray, "S N"] | None) -> Callable:
    """Compute metrics [S, N] of a run's last states, NaN outside the masks."""
    _require_ids(run.task.ids, task)
    _require_shape(run.task.theta.shape, task)
    seeds, queries = len(run.seeds), len(task)
    if masks is None:
        rows = np.tile(np.arange(queries, dtype=np.int32), (seeds, 1))
    elif len(masks) in (1, seeds):
        masks = np.broadcast_to(masks, (seeds, queries))
        longest = int(masks.sum(axis=1).max())
        longest = min(queries, longest + -longest % _FEW_SIZES)
        rows = np.full((seeds, longest), -1, np.int32)
        for row, mask in zip(rows, masks, strict=True):
            row[: mask.sum()] = np.flatnonzero(mask)
    else:
        raise ValueError(f"part has {len(masks)} rows, and the run has {seeds} seeds")
    numbers = jnp.asarray(run.numbers, jnp.float32)
    learner = run.family(*run.numbers[0].tolist())
    learner_queries = query_for(learner, jnp.asarray(task.queries), prior_for(learner, task))
    arrays = (run.states, numbers, rows, learner_queries, task.labels)
    mesh = _mesh_of(run.states.theta)

    def of_cut(k):
        found = _rank_by_states(*arrays, family=run.family, k=k, mesh=mesh)
        values = distributed.fetch(found)
        spread = {name: np.full((seeds, queries), np.nan) for name in values}
        for name, found in values.items():
            for whole, row, own in zip(spread[name], rows, np.asarray(found), strict=True):
                whole[row[row >= 0]] = own[row >= 0]
        return spread

    return of_cut


def _of_embeddings(found: Embeddings, task: Task) -> Callable:
    _require_ids(found.ids, task)
    if found.prior_weight is None and found.usage_offset is None:
        return _of_rows(found.theta, found.map_queries(task.queries), task, found.available)
    _require_shape(found.theta.shape, task)
    prior = None if found.prior_weight is None else task.prior_scores()
    scores = found.scores(task.queries, prior)
    return partial(_rank_by_scores, scores, task.labels, found.available)


def _of_rows(theta, queries, task: Task, available) -> Callable:
    """Compute metrics [1, N] of rows."""
    _require_shape(theta.shape, task)
    arrays = (jnp.asarray(theta), jnp.asarray(queries), task.labels, available)
    return partial(_rank_by_rows, *arrays)


def _of_others(ranked: Any, task: Task, cuts: Sequence[int], first: Lists | None) -> dict[str, Any]:
    """Compute metrics [1, N] of retrievers, rerankers, lists and rows."""
    texts = task.queries_for(ranked)
    items, longest = len(task.ids), cuts[-1]
    if callable(getattr(ranked, "search", None)):
        if ranked.items != items:
            raise ValueError(f"{ranked.name} has {ranked.items} tools and {task.name} {items}")
        absent = 0 if task.available is None else int((~task.available).sum())
        k = min(items, longest + absent)
        lists = ranked.search(texts, k, progress=False).items
    elif callable(getattr(ranked, "refine", None)):
        if not _is_lists(first):
            raise ValueError(
                f"{ranked.name} sorts the candidates of a first stage: give their Ranking, "
                "first=search(retriever, texts, k)"
            )
        lists = ranked.refine(texts, first, progress=False).items
    elif _is_lists(ranked):
        lists = _array(ranked.items)
        if not _integers(lists):
            raise ValueError(f"the items of a ranking must be whole numbers, got {lists.dtype}")
    else:
        lists = _array(ranked)
        if not _integers(lists):
            rows = lists.astype(np.float32)
            return _each_cut(_of_rows(rows, task.queries, task, task.available), cuts)
    values = metrics.evaluate_ranking(_checked(np.asarray(lists), task, longest), task.labels, cuts)
    return {name: each[None] for name, each in values.items()}


def _array(ranked: Any) -> np.ndarray:
    """Read rows of floats, or lists of positions, which are padded to one length with -1."""
    plain = isinstance(ranked, list | tuple) and not hasattr(ranked, "_fields")
    try:
        if plain and len({np.size(row) for row in ranked}) > 1:
            longest = max(np.size(row) for row in ranked)
            array = np.full((len(ranked), longest), -1)
            for row, found in zip(array, ranked, strict=True):
                row[: np.size(found)] = [int(item) for item in map(_integer, found)]
        else:
            array = np.asarray(ranked)
            if array.dtype == bool or array.dtype.kind in "USc":
                raise TypeError(array.dtype)  # a mask, ids or complex numbers are not a ranking
            array = array if _integers(array) else array.astype(np.float32)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2:
        raise ValueError(
            f"{type(ranked).__name__} does not rank: give a run, embeddings, rows of floats "
            "[I, d], a retriever, a reranker with first=, or lists of positions [N, k]"
        )
    return array


def _integer(item: Any) -> int:
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise TypeError(item)
    return int(item)


def _integers(array: np.ndarray) -> bool:
    return np.issubdtype(array.dtype, np.integer)


def _checked(lists: Int[np.ndarray, "N k"], task: Task, longest: int) -> Int[np.ndarray, "N k"]:
    """Remove absent tools from lists, and pad lists of the whole catalogue to the longest cut."""
    items = len(task.ids)
    if len(lists) != len(task):
        raise ValueError(
            f"there are {len(lists)} lists of positions and {len(task)} queries in {task.name}; "
            "integers are positions of tools, and rows of embeddings must be floats"
        )
    outside = ((lists < -1) | (lists >= items)).any(axis=1)
    in_order = np.sort(lists, axis=1)
    twice = ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)
    for wrong, what in (
        (outside, f"a position outside -1 .. {items - 1}"),
        (twice, "a tool twice"),
    ):
        if wrong.any():
            raise ValueError(f"the list of query {wrong.argmax()} has {what}")
    if task.available is not None:
        gone = (lists < 0) | ~task.available[lists]
        order = np.argsort(gone, axis=1, kind="stable")
        lists = np.take_along_axis(np.where(gone, -1, lists), order, axis=1)
    short = longest - lists.shape[1]
    if short > 0 and lists.shape[1] == items:
        lists = np.pad(lists, ((0, 0), (0, short)), constant_values=-1)
    return lists


def _mesh_of(theta: Float[jax.Array | np.ndarray, "S I d"]) -> Mesh | None:
    """Return a mesh that ranks the seeds side by side; None if rows are on other devices."""
    mesh = sharding.run_mesh(len(theta))
    if isinstance(theta, jax.Array) and theta.sharding.device_set != set(mesh.devices.flat):
        return None
    return mesh


@partial(jax.jit, static_argnames=("family", "k", "mesh"))
def _rank_by_states(states, numbers, rows, queries, labels, *, family, k, mesh):
    def one(state, numbers, rows):
        by, own = partial(family(*numbers).scores, state), jax.tree.map(lambda x: x[rows], queries)
        available = state.available
        return metrics.evaluate_scores(by, own, labels[rows], available=available, k=k)

    if mesh is None:  # a catalogue that is split over devices: one seed after another
        return jax.lax.map(lambda run: one(*run), (states, numbers, rows))
    return sharding.sweep(one, states, numbers, rows, mesh=mesh)


@partial(jax.jit, static_argnames="k")
def _rank_by_rows(theta, queries, labels, available, *, k):
    def scores(queries):
        # Full precision: the faster default of accelerators would round scores into ties.
        return jnp.matmul(queries, theta.T, precision=jax.lax.Precision.HIGHEST)

    values = metrics.evaluate_scores(scores, queries, labels, available=available, k=k)
    return jax.tree.map(lambda x: x[None], values)


@partial(jax.jit, static_argnames="k")
def _rank_by_scores(scores, labels, available, *, k):
    values = metrics.evaluate_scores(lambda x: x, scores, labels, available=available, k=k)
    return jax.tree.map(lambda x: x[None], values)


def _cut(name: str) -> int:
    """Return the k of a metric, 0 for accuracy; refuse unknown names."""
    metric, at, k = name.partition("@")
    known = ("recall", "ndcg", "completeness")
    if name != "accuracy" and not (metric in known and at and k.isdigit() and int(k) >= 1):
        raise ValueError(f"metric must be accuracy or one of {known} with @k, got {name!r}")
    return int(k) if at else 0


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
    values = values.astype(np.float64)
    known = ~np.isnan(values).all(axis=1)
    means = np.full(len(values), np.nan)
    means[known] = np.nanmean(values[known], axis=1)
    return means


def _count_unanswerable(task: Task, part: Bool[np.ndarray, "*S N"] | None) -> None:
    """Warn that metrics are over the queries for which a tool is right, if not all are."""
    ranked = np.ones(len(task), bool) if part is None else np.atleast_2d(part).any(axis=0)
    if none := int((ranked & ~task.answerable).sum()):
        warnings.warn(
            f"{task.name}: {none:,} of {int(ranked.sum()):,} queries have no right tool; metrics "
            "are averages over the others",
            stacklevel=3,
        )
