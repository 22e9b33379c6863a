"""ToolRefiner on a first stage, end to end on a network of two blocks."""

import jax
import numpy as np
import pytest

from jaxret.methods.refiner import reranker as tool_refiner
from jaxret.methods.refiner import start
from jaxret.nn.refiner import refiner
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine
from tests.tiny import QUICK, WORDS, encoder, weights

ITEMS = 11
TEXTS = ["a b c", "d", "e f g h i j k l m n", "b b"]
RNG = np.random.default_rng(0)
TOOLS = RNG.standard_normal((ITEMS, 5)).astype(np.float32)
ITEMS_FOUND = np.stack([RNG.permutation(ITEMS)[:6] for _ in TEXTS]).astype(np.int32)
ITEMS_FOUND[1, 4:], ITEMS_FOUND[3, 5:] = -1, -1
FIRST = Ranking(
    items=ITEMS_FOUND,
    scores=np.where(ITEMS_FOUND < 0, -np.inf, -np.arange(6.0)).astype(np.float32),
)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("places", ["shared", "rank"])
def test_candidates_are_sorted_by_the_logits_of_their_query_alone(tmp_path, name, places):
    tiny = encoder(tmp_path, name)
    network = refiner(tiny.backbone, 5, places=places)
    params = weights(network.shapes(), seed=1)
    reranker = tool_refiner(network, params, tiny, TOOLS)
    found = refine(reranker, TEXTS, FIRST, chunk=3, progress=False)
    apply = jax.jit(network.apply)
    for row, text in enumerate(TEXTS):
        items = FIRST.items[row][FIRST.items[row] >= 0]
        ids = np.array([[2, *(WORDS.index(word) for word in text.split()), 3]])
        there = np.ones((1, len(items)), bool)
        logits = np.asarray(apply(params, ids, ids > 0, TOOLS[items][None], there))[0]
        order = np.argsort(-logits)
        np.testing.assert_array_equal(found.items[row, : len(items)], items[order])
        np.testing.assert_allclose(found.scores[row, : len(items)], logits[order], atol=1e-5)
        assert (found.items[row, len(items) :] == -1).all()


def test_a_tool_that_came_later_needs_only_its_row(tmp_path):
    tiny = encoder(tmp_path)
    network = refiner(tiny.backbone, 5)
    params = weights(network.shapes(), seed=1)
    longer = np.concatenate([TOOLS, TOOLS[3:4]])
    first = FIRST._replace(items=np.where(FIRST.items == 3, ITEMS, FIRST.items))
    known = refine(tool_refiner(network, params, tiny, TOOLS), TEXTS, FIRST, progress=False)
    later = refine(tool_refiner(network, params, tiny, longer), TEXTS, first, progress=False)
    assert (FIRST.items == 3).any()
    np.testing.assert_array_equal(later.items, np.where(known.items == 3, ITEMS, known.items))


def test_the_first_stages_score_is_added_with_its_weight(tmp_path):
    tiny = encoder(tmp_path)
    network = refiner(tiny.backbone, 5)
    reranker = tool_refiner(network, weights(network.shapes(), seed=1), tiny, TOOLS)
    own = refine(reranker, TEXTS, FIRST, progress=False)
    mixed = refine(reranker._replace(prior=2.0), TEXTS, FIRST, progress=False)
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


def test_before_training_the_backbone_is_the_encoders(tmp_path):
    tiny = encoder(tmp_path)
    network = refiner(tiny.backbone, 5)
    params = start(network, tiny.params, jax.random.key(0))
    assert params["backbone"] is tiny.params
    assert np.count_nonzero(params["projection"]["kernel"]) == 5  # the identity, of five rows
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    assert shapes == network.shapes()


def test_queries_are_cut_to_the_limit(tmp_path):
    read = tool_refiner(None, None, encoder(tmp_path), TOOLS, limit=4).read
    np.testing.assert_array_equal(read(["a b c d e"])["ids"][0, :5], [2, 4, 5, 3, 0])
