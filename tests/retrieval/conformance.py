"""A conformance check for new retrievers, similar to `jaxret.testing.check_learner`.

    check_retriever(my_retriever(...), ["a few", "different texts"])

The call raises an AssertionError that names the violated property, if there is one.
"""

import jax
import numpy as np

from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, Texts, search
from jaxret.runtime import sharding

_DEVICES = 8
_TOLERANCE = 1e-5  # relative to the largest score


def check_retriever(retriever: Retriever, texts: Texts, *, k: int = 5) -> None:
    """Check a retriever on a few queries.

    Scores must be finite and [B, I], and the scores of a query must not depend on the rest of the
    batch. `search` must find the k best items and compile once for two calls, and must return the
    same lists when the catalogue is split over 8 devices (skipped if there are fewer). The order of
    near-ties may differ between programs, so lists are compared by their scores. At least two
    texts are needed.
    """
    scores = _scores(retriever, texts)
    whole = -np.sort(-scores, axis=1)[:, :k]
    calls = []

    def counted(params, features):
        calls.append(None)
        return retriever.score(params, features)

    for _ in range(2):
        ranking = search(retriever._replace(score=counted), texts, k, progress=False)
    if len(calls) != 1:
        _fail(retriever, f"search compiled its scores {len(calls)} times for two equal calls")
    _agree(retriever, "search and a sort of all scores", ranking, scores, whole)
    if len(jax.devices()) >= _DEVICES:
        mesh = sharding.make_mesh(item=_DEVICES)
        ranking = search(retriever, texts, k, mesh=mesh, progress=False)
        _agree(retriever, f"{_DEVICES} devices and one", ranking, scores, whole)


def _scores(retriever, texts):
    """Return all scores, after checks of their shape and of independence from the batch."""
    score = jax.jit(retriever.score)
    together = np.asarray(score(retriever.params, retriever.read(texts)))
    if together.shape != (len(texts), retriever.items):
        wanted = [len(texts), retriever.items]
        _fail(retriever, f"scores have the shape {list(together.shape)}, not [B, I] = {wanted}")
    if not np.isfinite(together).all():
        _fail(retriever, "a score is not finite")
    alone = [np.asarray(score(retriever.params, retriever.read(texts[i : i + 1]))) for i in (0, 1)]
    gap = _gap(np.concatenate(alone), together[:2], together)
    if not gap <= _TOLERANCE:
        _fail(retriever, f"a query scores otherwise alone than in company, by {gap:.1e}")
    return together


def _agree(retriever, what, ranking: Ranking, scores, whole):
    if any(len(set(row)) < len(row) for row in ranking.items.tolist()):
        _fail(retriever, f"{what}: an item is returned twice")
    of_items = np.take_along_axis(scores, ranking.items, axis=1)
    for name, got in {"lists": ranking.scores, "items": of_items}.items():
        gap = _gap(got, whole, scores)
        if not gap <= _TOLERANCE:
            _fail(retriever, f"{what} disagree: scores of the {name} differ by {gap:.1e}")


def _gap(got, expected, scale) -> float:
    return float(np.abs(got - expected).max() / max(np.abs(scale).max(), 1e-30))


def _fail(retriever, sentence):
    raise AssertionError(f"retriever {retriever.name!r}: {sentence}")
