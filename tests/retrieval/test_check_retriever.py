"""The conformance check of retrievers reports each kind of violation."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.retrieval.dense import inner_product
from tests.retrieval.conformance import check_retriever

RNG = np.random.default_rng(0)
THETA = RNG.normal(size=(19, 6)).astype(np.float32)
QUERIES = RNG.normal(size=(7, 6)).astype(np.float32)
GOOD = inner_product("mine", THETA)


def in_company(theta, queries):
    return (queries - queries.mean(axis=0)[None]) @ theta.T


def of_two(theta, queries):
    return queries @ theta.T[:, :2]


def over_the_catalogue(theta, queries):
    scores = queries @ theta.T
    return scores - scores.mean(axis=1, keepdims=True)  # a mean over the rows of one device


def logarithm(theta, queries):
    return jnp.log(queries @ theta.T)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"score": in_company}, "a query scores otherwise alone than in company"),
        ({"score": of_two}, r"scores have the shape \[7, 2\], not \[B, I\] = \[7, 19\]"),
        ({"score": logarithm}, "a score is not finite"),
        ({"score": over_the_catalogue}, "8 devices and one disagree"),
    ],
)
def test_a_violated_property_is_named(broken, sentence):
    with pytest.raises(AssertionError, match=f"retriever 'mine': {sentence}"):
        check_retriever(GOOD._replace(**broken), QUERIES)


def test_a_good_retriever_passes_and_features_of_changing_shape_are_reported():
    check_retriever(GOOD, QUERIES)
    calls = []

    def read(vectors):
        calls.append(None)
        return {"queries": np.asarray(vectors), "unused": np.zeros(len(calls))}

    uneven = GOOD._replace(read=read, score=lambda theta, features: features["queries"] @ theta.T)
    with pytest.raises(AssertionError, match="compiled its scores 2 times for two equal calls"):
        check_retriever(uneven, QUERIES)
