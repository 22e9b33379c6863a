"""ToolRefiner on a first stage, end to end on a network of two blocks."""

import jax
import numpy as np
import pytest

from jaxret.methods import refiner
from jaxret.methods.refiner import Config, build
from jaxret.nn import refiner as networks
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine
from tests.tiny import WORDS, encoder, weights

ITEMS = 11
TEXTS = ["a b c", "d", "e f g h i j k l m n", "b b"]
RNG = np.random.default_rng(0)
WHOLE = Config(layers=None)
TOOLS = RNG.standard_normal((ITEMS, 5)).astype(np.float32)
ITEMS_FOUND = np.stack([RNG.permutation(ITEMS)[:6] for _ in TEXTS]).astype(np.int32)
ITEMS_FOUND[1, 4:], ITEMS_FOUND[3, 5:] = -1, -1
FIRST = Ranking(
    items=ITEMS_FOUND,
    scores=np.where(ITEMS_FOUND < 0, -np.inf, -np.arange(6.0)).astype(np.float32),
)


@pytest.fixture(scope="module")
def reranker(tiny):
    """Return one reranker for all tests of this file, so that its program compiles once."""
    network = networks.refiner(tiny.backbone, 5)
    return build(WHOLE, (weights(network.shapes(), seed=1), TOOLS), tiny)


def reranked(reranker, first=FIRST):
    return refine(reranker, TEXTS, first, chunk=3, progress=False)


OTHERS = [("bert", "rank"), ("deberta", "shared"), ("deberta", "rank")]


@pytest.mark.parametrize(
    ("name", "places"),
    [("bert", "shared"), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)],
)
def test_candidates_are_sorted_by_the_logits_of_their_query_alone(tmp_path, name, places, reranker):
    tiny = encoder(tmp_path, name)
    network = networks.refiner(tiny.backbone, 5, places=places)
    if (name, places) in OTHERS:
        params = weights(network.shapes(), seed=1)
        reranker = build(Config(layers=None, places=places), (params, TOOLS), tiny)
    params = reranker.params[0]
    found = reranked(reranker)
    apply = jax.jit(network.apply)
    for row in (1, 2):  # the shortest and the longest text
        items = FIRST.items[row][FIRST.items[row] >= 0]
        ids = np.array([[2, *(WORDS.index(word) for word in TEXTS[row].split()), 3]])
        there = np.ones((1, len(items)), bool)
        logits = np.asarray(apply(params, ids, ids > 0, TOOLS[items][None], there))[0]
        order = np.argsort(-logits)
        np.testing.assert_array_equal(found.items[row, : len(items)], items[order])
        np.testing.assert_allclose(found.scores[row, : len(items)], logits[order], atol=1e-5)
        assert (found.items[row, len(items) :] == -1).all()


def test_a_tool_that_came_later_needs_only_its_row(reranker):
    longer = np.concatenate([TOOLS, TOOLS[3:4]])
    first = FIRST._replace(items=np.where(FIRST.items == 3, ITEMS, FIRST.items))
    known = reranked(reranker)
    later = reranked(reranker._replace(params=(reranker.params[0], longer)), first)
    assert (FIRST.items == 3).any()
    np.testing.assert_array_equal(later.items, np.where(known.items == 3, ITEMS, known.items))


def test_the_first_stages_score_is_added_with_its_weight(reranker):
    own, mixed = reranked(reranker), reranked(reranker._replace(prior=2.0))
    for row in range(len(TEXTS)):
        first, second = (
            dict(zip(found.items[row].tolist(), found.scores[row].tolist(), strict=True))
            for found in (FIRST, own)
        )
        expected = {item: second[item] + 2 * first[item] for item in first if item >= 0}
        order = sorted(expected, key=expected.__getitem__, reverse=True)
        assert mixed.items[row, : len(order)].tolist() == order
        scores = [expected[item] for item in order]
        np.testing.assert_allclose(mixed.scores[row, : len(order)], scores, atol=1e-5)
    assert (own.items != mixed.items).any()


def test_queries_are_cut_to_the_limit(tiny):
    read = build(Config(layers=None, limit=4), (None, TOOLS), tiny).read
    np.testing.assert_array_equal(read(["a b c d e"])["ids"][0, :5], [2, 4, 5, 3, 0])


@pytest.fixture
def given(parts, untrained):
    """Return what `fit` gives to the training loop by default."""
    train, validation = parts
    refiner.fit(train, Config(layers=1, candidates=4, size=len(train)), validation=validation)
    return untrained


def test_before_training_the_backbone_is_the_encoders(given, parts):
    params, (train, _) = given["start"], parts
    ours, theirs = params["backbone"]["blocks"], train.encoder.params["blocks"]
    assert set(ours) == {"0"}
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: x is y, ours["0"], theirs["0"])))
    kernel = np.asarray(params["projection"]["kernel"])
    np.testing.assert_allclose(kernel, kernel[0, 0] * np.eye(12))


def test_a_training_query_is_left_out_of_the_means_of_its_tools(given, parts):
    """Check the vectors that the refiner reads and the first stage's candidates."""
    train, _ = parts
    batch = given["objective"]().batches(0)
    texts = [list(text) for text in train.encoder.tokens(list(train.texts), kind="query")]
    every = range(len(train.ids))
    otherwise = 0
    columns = (batch[name] for name in ("ids", "mask", "candidates", "tools"))
    for ids, mask, candidates, vectors in zip(*columns, strict=True):
        row = texts.index(ids[mask].tolist())

        def means(without, row=row):
            users = [(train.labels == tool).any(axis=1) for tool in every]
            for tool in set(train.labels[row]) & set(without):
                users[tool][row] = False
            sums = np.stack([train.queries[some].sum(axis=0, dtype=np.float64) for some in users])
            return sums / np.linalg.norm(sums, axis=1, keepdims=True)

        theta = means(without=every)
        query = train.queries[row]
        scores = theta @ query  # in float64, since tools may tie in float32
        np.testing.assert_allclose(scores[candidates], -np.sort(-scores)[:4], atol=1e-6)
        np.testing.assert_allclose(vectors, theta[candidates], atol=1e-5)
        scores = means(without=()) @ query
        otherwise += (np.diff(scores[candidates]) > 1e-6).any()
    assert otherwise > 3
