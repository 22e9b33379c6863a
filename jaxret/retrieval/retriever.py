"""Retrievers, which score the whole catalogue, and rerankers, which score a few candidates.

    first = search(retriever, texts, k=100, mesh=make_mesh(item=8))
    final = refine(reranker, texts, first)

`search` and `refine` are host loops around one compiled program each. The program is compiled once
for each scoring function and shape of features, and outlives a call. Weights are arguments of the
program, so searching again, or with a retriever in training, compiles nothing.

The catalogue can be split over the devices of a mesh. Each device scores its own rows and keeps its
k best; only k (score, item) pairs per device and query are exchanged. Of equal scores the earlier
row is first, whatever the number of devices.

Letters: N queries, B queries in a chunk, I items, n devices, k items retrieved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.encoders import Encoder
from jaxret.retrieval.ranking import Ranking
from jaxret.runtime import distributed, over_items
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.types import Params

Features: TypeAlias = Any  # a tree of arrays with leading axis B
Texts: TypeAlias = Sequence[str] | ArrayLike  # queries that a `read` reads: strings or vectors


class Retriever(NamedTuple):
    """A first stage.

    ``split`` holds two trees of PartitionSpecs (or prefixes of trees), for params and features,
    which split the axes of the catalogue over the mesh axis ``item``. ``score`` must score each
    item by itself: given some rows of the catalogue, it returns the columns of those rows.
    """

    name: str
    read: Callable[[Any], Features]  # on the host, of some of the texts
    params: Params
    score: Callable[[Params, Features], Float[Array, "B I"]]  # pure
    split: tuple[Any, Any]
    items: int  # I
    encoder: Encoder | None = None  # encoder of the queries, where they become vectors
    config: Any = None  # configuration of the method that made it
    reads: Literal["texts", "vectors"] = "texts"  # which queries of a task that has both

    def search(self, texts: Texts, k: int, **options: Any) -> Ranking:
        """Find the k best items of every query.

        Args:
          texts: N queries, of the kind that ``read`` reads.
          k: number of items, at most I.
          **options: ``mesh``, devices that split the catalogue; ``chunk``, queries scored together;
            ``progress``, whether to show a bar.
        """
        return search(self, texts, k, **options)


class Reranker(NamedTuple):
    """A second stage. Its scores of candidate -1, which is not an item, are ignored."""

    name: str
    read: Callable[[Any], Features]
    params: Params
    score: Callable[[Params, Features, Int[Array, "B k"]], Float[Array, "B k"]]
    prior: float = 0.0  # weight of the first stage's score, which is added
    config: Any = None  # configuration of the method that made it

    def refine(self, texts: Texts, ranking: Ranking, **options: Any) -> Ranking:
        """Sort the candidates of every query by the scores of this reranker.

        Args:
          texts: the N queries of the ranking, in its order.
          ranking: the candidates [N, k].
          **options: ``chunk``, queries scored together; ``progress``, whether to show a bar.
        """
        return refine(self, texts, ranking, **options)


def search(
    retriever: Retriever,
    texts: Texts,
    k: int,
    *,
    mesh: Mesh | None = None,
    chunk: int = 256,
    progress: bool = True,
) -> Ranking:
    """Find the k best items of every query.

    Args:
      retriever: retriever that scores the catalogue.
      texts: N queries, of the kind that ``retriever.read`` reads.
      k: number of items, at most I.
      mesh: devices over whose axis ``item`` the catalogue is split; one device without it.
      chunk: B, queries scored together; B x I / n scores are in the memory of a device.
      progress: whether to show a bar.

    Returns:
      the ranking [N, k].

    Raises:
      ValueError: for an empty text, by its position; k outside [1, I]; a catalogue without I rows;
        a score that is NaN or plus infinity, by its query.
    """
    size = retriever.items
    require("k", k, f"in [1, {size}], the items there are", lambda k: 1 <= k <= size)
    texts = _checked(texts)
    lay_out = partial(_lay_out, retriever, mesh)
    params = lay_out(retriever.params, retriever.split[0])
    leaves, tree = jax.tree.flatten(retriever.split)
    ranking = Ranking(
        items=np.empty((len(texts), k), np.int32), scores=np.empty((len(texts), k), np.float32)
    )
    for rows, batch in _chunks(retriever.name, texts, chunk, progress):
        scores, items = best_items(
            params,
            lay_out(retriever.read(batch), retriever.split[1]),
            score=retriever.score,
            split=(tree, tuple(leaves)),
            items=size,
            k=k,
            mesh=mesh,
        )
        ranking.scores[rows] = np.asarray(scores)[: len(rows)]
        ranking.items[rows] = np.asarray(items)[: len(rows)]
        _require_finite(retriever.name, rows, np.isposinf(ranking.scores[rows]))
    return ranking


@partial(jax.jit, static_argnames=("score", "split", "items", "k", "mesh"))
def best_items(params: Params, features: Features, *, score, split, items, k, mesh):
    """Return scores and rows [B, k] of a chunk, best first: the compiled program of `search`.

    Args:
      params: with the axis of the catalogue padded to a multiple of the devices.
      features: features of B queries, with the same padding if they have that axis.
      score: score of the retriever.
      split: the PartitionSpecs of params and features, flattened: (tree, leaves).
      items: the number of items, I; rows beyond are padding and are never returned.
      k: items per query.
      mesh: the devices; None for one.

    Returns:
      scores [B, k] and rows of the catalogue [B, k].
    """

    def local(params, features, axis=None):
        scores = score(params, features).astype(jnp.float32)
        scores = jnp.where(scores == 0, 0.0, scores)  # top_k would rank 0.0 above -0.0
        scores = jnp.where(jnp.isnan(scores), jnp.inf, scores)  # first, where `search` detects it
        real = over_items.item_ids(scores.shape[1], axis) < items
        scores = jnp.where(real[None], scores, -jnp.inf)
        return jax.vmap(lambda row: over_items.top_k(row, k, axis))(scores)

    if mesh is None:
        return local(params, features)
    return jax.shard_map(
        partial(local, axis="item"),
        mesh=mesh,
        in_specs=jax.tree.unflatten(*split),
        out_specs=P(),
        check_vma=False,
    )(params, features)


def refine(
    reranker: Reranker, texts: Texts, ranking: Ranking, *, chunk: int = 64, progress: bool = True
) -> Ranking:
    """Sort the candidates of every query by the scores of a reranker.

    Args:
      reranker: scores the candidates.
      texts: the N queries of the ranking, in its order.
      ranking: the candidates [N, k]. Those that the reranker scores equally keep their order.
      chunk: B, queries scored together.
      progress: whether to show a bar.

    Returns:
      the same candidates in a new order [N, k].

    Raises:
      ValueError: for an empty text, by its position; other than N texts; a score that is NaN or
        plus infinity, by its query.
    """
    texts = _checked(texts)
    if len(texts) != len(ranking.items):
        raise ValueError(f"there are {len(texts)} texts and rankings of {len(ranking.items)}")
    params, absent = jax.device_put(reranker.params), ranking.items < 0
    scores = np.full(ranking.items.shape, -np.inf, np.float32)
    for rows, batch in _chunks(reranker.name, texts, chunk, progress):
        candidates = np.pad(ranking.items[rows], ((0, len(batch) - len(rows)), (0, 0)), mode="edge")
        rescored = _rescored(params, reranker.read(batch), candidates, score=reranker.score)
        prior = reranker.prior * np.where(absent[rows], 0, ranking.scores[rows])  # not 0 * -inf
        mixed = np.asarray(rescored)[: len(rows)] + prior
        scores[rows] = np.where(absent[rows], -np.inf, mixed)
        wrong = np.isnan(scores[rows]) | np.isposinf(scores[rows])
        _require_finite(reranker.name, rows, wrong)
    order = np.lexsort((-scores, absent), axis=1)
    return Ranking(*(np.take_along_axis(part, order, axis=1) for part in (ranking.items, scores)))


@partial(jax.jit, static_argnames="score")
def _rescored(params, features, candidates, *, score):
    return score(params, features, candidates).astype(jnp.float32)


def _chunks(name, texts, chunk, progress) -> Iterator[tuple[np.ndarray, list]]:
    """Yield positions and texts, longest first; the last chunk is padded with its last text."""
    require("chunk", chunk, ">= 1", lambda x: x >= 1)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    size = min(chunk, len(order))
    with Progress(desc=name, total=len(order), unit="query", disable=not progress) as bar:
        for start in range(0, len(order), chunk):
            rows = order[start : start + chunk]
            yield rows, [texts[row] for row in np.pad(rows, (0, size - len(rows)), mode="edge")]
            bar.update(len(rows))


def _lay_out(retriever, mesh, tree, specs):
    """Pad the rows of the catalogue and place them on their devices."""
    extra = 0 if mesh is None else -retriever.items % mesh.shape["item"]

    def one(spec, x):
        if "item" in spec:
            axis = tuple(spec).index("item")
            if x.shape[axis] != retriever.items:
                raise ValueError(
                    f"retriever {retriever.name!r} has {retriever.items} items, and an array "
                    f"{list(x.shape)} where axis {axis} should be theirs"
                )
            if extra:
                x = jnp.pad(x, [(0, extra * (i == axis)) for i in range(x.ndim)])
        if mesh is None:
            return jax.device_put(x)
        return distributed.put(x, NamedSharding(mesh, spec))

    return jax.tree.map(lambda spec, part: jax.tree.map(partial(one, spec), part), specs, tree)


def _checked(texts: Texts) -> Sequence | np.ndarray:
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of strings, got the single string {texts[:40]!r}")
    if not isinstance(texts, Sequence):
        return np.asarray(texts)
    for position, text in enumerate(texts):
        if isinstance(text, str) and not text.strip():
            raise ValueError(f"text {position} of {len(texts)} is empty: {text!r}")
    return texts


def _require_finite(name, rows, wrong):
    """Raise ValueError if scores are NaN or infinite, as of a diverged model."""
    if wrong.any():
        row = rows[wrong.any(axis=1).argmax()]
        raise ValueError(f"{name!r} gives query {row} a score that is NaN or plus infinity")
