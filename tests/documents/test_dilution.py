import numpy as np
import pytest

from jaxret.documents.dilution import similarity, triples


def unit(shape, seed):
    rows = np.random.default_rng(seed).standard_normal(shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


QUERIES, THETA = unit((40, 8), 0), unit((12, 8), 1)
LABELS = np.stack(
    [np.arange(40) % 12, np.where(np.arange(40) % 3, -1, (np.arange(40) + 5) % 12)], 1
)


@pytest.mark.parametrize("negatives", ["random", "hard"])
def test_the_positive_is_needed_and_the_negative_is_not(negatives):
    chosen = triples(QUERIES, LABELS, THETA, negatives=negatives)
    np.testing.assert_array_equal(chosen.query, np.arange(40))
    for query, positive, negative in zip(*chosen, strict=True):
        right = set(LABELS[query]) - {-1}
        assert positive in right
        assert negative not in right
        if negatives == "hard":
            wrong = [tool for tool in range(12) if tool not in right]
            assert negative == max(wrong, key=lambda tool: QUERIES[query] @ THETA[tool])


def test_every_right_and_every_wrong_tool_has_its_chance():
    labels = np.array([[3, 1, -1]])
    drawn = [triples(QUERIES[:1], labels, THETA, negatives="random", seed=s) for s in range(300)]
    assert {int(one.positive[0]) for one in drawn} == {1, 3}
    assert {int(one.negative[0]) for one in drawn} == set(range(12)) - {1, 3}


def test_both_kinds_of_negatives_are_of_the_same_queries_and_positives():
    easy, hard = (
        triples(QUERIES, LABELS, THETA, negatives=kind, n=7, seed=3) for kind in ("random", "hard")
    )
    assert len(set(easy.query.tolist())) == 7
    np.testing.assert_array_equal(easy.query, hard.query)
    np.testing.assert_array_equal(easy.positive, hard.positive)


def test_the_change_of_the_cosine_by_hand():
    queries = np.array([[1.0, 0.0]], np.float32)
    before = np.array([[0.8, 0.6], [0.6, 0.8]], np.float32)
    after = np.array([[0.6, 0.8], [0.0, 1.0]], np.float32)
    chosen = triples(queries, np.array([[0]]), before, negatives="hard")
    first, then = (similarity(queries, theta, chosen) for theta in (before, after))
    np.testing.assert_allclose(then.positive - first.positive, [-0.2], atol=1e-7)
    np.testing.assert_allclose(then.negative - first.negative, [-0.6], atol=1e-7)
    np.testing.assert_allclose(then.margin - first.margin, [0.4], atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negatives": "near"}, "negatives must be one of random, hard, got near"),
        ({"negatives": "hard", "n": 41}, "n must be None or in 1 .. 40, got 41"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        triples(QUERIES, LABELS, THETA, **settings)


def test_a_query_that_needs_every_tool_has_no_negative():
    with pytest.raises(ValueError, match="query 1 needs every tool"):
        triples(QUERIES[:2], np.array([[0, -1], [1, 0]]), THETA[:2], negatives="random")
