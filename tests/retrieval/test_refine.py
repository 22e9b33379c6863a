"""Second stages: candidates in the reranker's order, with absent ones last."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, refine

WORTH = jnp.array([0.1, 0.9, 0.5, 0.5, -2.0])


def by_worth(worth=WORTH, *, traced=None):
    """Return a reranker that scores tools by worth, negated for texts without "not"."""

    def score(params, features, candidates):
        if traced is not None:
            traced.append(candidates.shape)
        return features[:, None] * params[candidates]  # candidate -1 reads the last tool

    return Reranker(
        name="worth",
        read=lambda texts: np.array([-1.0 if "not" in t else 1.0 for t in texts], np.float32),
        params=worth,
        score=score,
    )


def ranking(rows):
    items = np.array(rows, np.int32)
    return Ranking(items=items, scores=np.where(items < 0, -np.inf, 1.0).astype(np.float32))


def refined(texts, rows, *, worth=WORTH, **options):
    return refine(by_worth(worth), texts, ranking(rows), progress=False, **options)


def test_candidates_are_sorted_by_the_rerankers_scores_and_equals_keep_their_order():
    found = refined(["best", "not best"], [[0, 4, 1]] * 2)
    assert found.items.tolist() == [[1, 0, 4], [4, 0, 1]]
    np.testing.assert_allclose(found.scores, [[0.9, 0.1, -2.0], [2.0, -0.1, -0.9]], rtol=1e-6)
    assert (found.items.dtype, found.scores.dtype) == (np.int32, np.float32)
    assert refined(["a", "b"], [[3, 2, 0], [2, 3, 0]]).items.tolist() == [[3, 2, 0], [2, 3, 0]]


def test_absent_candidates_stay_last_for_any_score():
    found = refined(["not this"], [[0, 1, -1, -1]])
    assert found.items.tolist() == [[0, 1, -1, -1]]
    assert found.scores[0, 2:].tolist() == [-np.inf, -np.inf]
    void = WORTH.at[-1].set(jnp.nan)  # only candidate -1 reads the NaN
    assert refined(["this"], [[0, 1, -1]], worth=void).items.tolist() == [[1, 0, -1]]


@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_rows_are_returned_in_their_order_for_any_chunk(chunk):
    texts = ["a", "not that one", "bb", "no longer than it need be", "not it"]
    found = refined(texts, [[0, 1]] * 5, chunk=chunk)
    assert found.items.tolist() == [[1, 0], [0, 1], [1, 0], [1, 0], [0, 1]]


def test_a_program_is_compiled_once_for_all_chunks_calls_and_weights():
    traced = []
    reranker, texts = by_worth(traced=traced), ["a", "b", "c"]
    refine(reranker, texts, ranking([[0, 1]] * 3), chunk=2, progress=False)
    refine(reranker._replace(params=-WORTH), texts, ranking([[0, 1]] * 3), chunk=2, progress=False)
    assert traced == [(2, 2)]


def test_diverged_rerankers_missing_and_empty_texts_are_refused():
    with pytest.raises(ValueError, match="'worth' gives query 1 a score that is NaN"):
        refined(["a", "b"], [[0, 1], [0, 4]], worth=WORTH.at[4].set(jnp.nan))
    with pytest.raises(ValueError, match="there are 1 texts and rankings of 2"):
        refined(["a"], [[0, 1]] * 2)
    with pytest.raises(ValueError, match="text 1 of 2 is empty"):
        refined(["a", " "], [[0, 1]] * 2)
