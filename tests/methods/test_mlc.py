"""MLC as a retriever, before and after training, on a network of two blocks."""

import jax
import numpy as np
import pytest

from jaxret.encoders import encode
from jaxret.methods.mlc import Config, build, fit, start
from jaxret.nn.classifier import classifier
from jaxret.retrieval.retriever import best_items, search
from tests.retrieval.conformance import check_retriever
from tests.tiny import weights

ITEMS = 19
TEXTS = ["a b c", "d", "e f g h i j k l m n", "b b", "o p q a"]
THETA = np.random.default_rng(0).standard_normal((ITEMS, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def network(tiny):
    return classifier(tiny.backbone, ITEMS, pool="mean")


@pytest.fixture(scope="module")
def retriever(tiny, network):
    return build(Config(limit=32), weights(network.shapes(), seed=1), tiny)


def test_before_training_it_ranks_as_the_vectors_it_starts_from(tiny, network, retriever):
    params = start(network, tiny, jax.random.key(0), tools=THETA, length=2.5)
    found = search(retriever._replace(params=params), TEXTS, 7, progress=False)
    queries = encode(tiny, TEXTS, kind="query", cache=None, progress=False)
    scores = queries.astype(np.float64) @ THETA.T.astype(np.float64)
    np.testing.assert_array_equal(found.items, np.argsort(-scores, axis=1)[:, :7])
    ratio = found.scores / -np.sort(-scores, axis=1)[:, :7]  # 20 / 2.5 of the pooled length
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-3)


def test_without_vectors_only_the_head_is_new(tiny, network):
    first, second = (start(network, tiny, jax.random.key(seed)) for seed in (1, 2))
    for params in (first, second):
        assert params["backbone"] is tiny.params
    assert np.abs(first["head"]["kernel"] - second["head"]["kernel"]).max() > 0.01
    np.testing.assert_allclose(np.std(first["head"]["kernel"]), 0.02, rtol=0.2)


def test_vectors_of_another_width_are_refused(tiny, network):
    with pytest.raises(ValueError, match=r"the shape \(19, 7\), the head wants \(19, 12\): encode"):
        start(network, tiny, jax.random.key(0), tools=THETA[:, :7])


def test_mlc_satisfies_the_contract_of_retrievers(retriever):
    check_retriever(retriever, TEXTS)


def test_trained_parameters_are_searched_with_the_same_program(network, retriever):
    first = search(retriever, TEXTS, 7, progress=False)
    compiled = best_items._cache_size()
    trained = retriever._replace(params=weights(network.shapes(), seed=2))
    second = search(trained, TEXTS, 7, progress=False)
    assert best_items._cache_size() == compiled
    assert (first.items != second.items).any()


def test_queries_are_cut_to_the_limit_and_keep_their_closing_token(tiny, network):
    params = network.shapes()
    cut = build(Config(limit=4), params, tiny).read(["a b c d e", "a"])
    np.testing.assert_array_equal(cut["ids"][:, :5], [[2, 4, 5, 3, 0], [2, 4, 3, 0, 0]])
    np.testing.assert_array_equal(cut["mask"].sum(axis=1), [4, 3])


def recall_at_3(queries, theta, labels):
    first = np.argsort(-(queries @ theta.T), axis=1)[:, :3]
    found = (first[:, :, None] == labels[:, None, :]).any(axis=1) & (labels >= 0)
    return np.mean(found.sum(axis=1) / (labels >= 0).sum(axis=1))


def test_the_best_step_is_chosen_on_the_validation_queries(parts, untrained):
    """Before training, MLC ranks as Tool2Vec does, so its recall needs no network."""
    train, validation = parts
    fit(train, Config(), validation=validation)
    used = (train.labels[:, :, None] == np.arange(len(train.ids))).any(axis=1)  # [N, I]
    theta = used.T.astype(np.float64) @ train.queries
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    ours, theirs = (recall_at_3(part.queries, theta, part.labels) for part in (validation, train))
    assert abs(ours - theirs) > 0.01
    assert untrained["validate"](untrained["start"])["recall@3"] == pytest.approx(ours)
