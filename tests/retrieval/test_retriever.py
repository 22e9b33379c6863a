"""First stages: equal lists on one device and on eight, with trec_eval's order of ties."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.retriever import Retriever, best_items, search
from jaxret.runtime import sharding

I, D, N = 43, 4, 30  # 43 is not divisible by 8
TOOL_IDS = [f"tool{i * 37 % 101}" for i in range(I)]
RNG = np.random.default_rng(0)
# Small integers give exact scores with many ties.
THETA = RNG.integers(-1, 2, (I, D)).astype(np.float32)
QUERIES = RNG.integers(-1, 2, (N, D)).astype(np.float32)
TIED = inner_product("tied", THETA)


def mesh_of(devices):
    return sharding.make_mesh(item=devices) if devices else None


def by_letters(name="letters", *, traced=None):
    """Return a retriever that multiplies counts of 'a' and 'b' by two columns of weights."""

    def score(params, features):
        if traced is not None:
            traced.append(features.shape)
        return jnp.matmul(features, params["weights"])

    return Retriever(
        name=name,
        read=lambda texts: np.array([[t.count("a"), t.count("b")] for t in texts], np.float32),
        params={"weights": jnp.array([[1.0, 0.0, 2.0], [0.0, 1.5, 0.0]])},
        score=score,
        split=({"weights": P(None, "item")}, P()),
        items=3,
    )


@pytest.mark.parametrize(
    ("devices", "k", "chunk"),  # k of 10 and I exceed the rows of one of eight devices
    [*itertools.product((0, 1, 2, 8), (1, 10, I), (8,)), *((0, 5, n) for n in (1, 7, 30, 256))],
)
def test_among_tied_items_the_earlier_row_is_first_on_any_devices_in_any_chunk(devices, k, chunk):
    found = search(TIED, QUERIES, k, mesh=mesh_of(devices), chunk=chunk, progress=False)
    scores = QUERIES @ THETA.T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found.items, expected)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, expected, axis=1))
    assert (found.items.dtype, found.scores.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize("devices", [0, 8])
@pytest.mark.parametrize(
    ("rows", "query", "expected"),
    [
        ([-np.inf, 1.0, -np.inf], 1.0, [1, 0, 2]),  # padding stays below minus infinity
        ([-1.0, 1.0, -1.0], 0.0, [0, 1, 2]),  # a negative zero is tied with zero
    ],
)
def test_extreme_scores_are_sorted_too(devices, rows, query, expected):
    retriever = inner_product("few", np.array(rows, np.float32)[:, None])
    queries = np.full((2, 1), query)
    found = search(retriever, queries, 3, mesh=mesh_of(devices), progress=False)
    assert found.items.tolist() == [expected] * 2


def test_texts_are_answered_in_their_order_although_the_longest_are_scored_first():
    found = search(by_letters(), ["b", "aab", "bbbb", "a"], 2, chunk=3, progress=False)
    assert found.items.tolist() == [[1, 0], [2, 0], [1, 0], [2, 0]]
    assert found.scores.tolist() == [[1.5, 0], [4, 2], [6, 0], [2, 1]]
    none = search(by_letters(), [], 2, progress=False)
    assert none.items.shape == none.scores.shape == (0, 2)


def test_a_program_is_compiled_once_for_all_chunks_calls_and_weights():
    traced = []
    retriever = by_letters(traced=traced)
    texts = ["a", "b", "ab", "ba", "aa"]
    search(retriever, texts, 2, chunk=2, progress=False)  # the last chunk has one text
    trained = retriever._replace(params={"weights": -retriever.params["weights"]})
    found = search(trained, texts, 2, chunk=2, progress=False)
    assert traced == [(2, 2)]
    assert found.items[0].tolist() == [1, 0]  # scores 0, -1 and -2 with the new weights


COLLECTIVE = re.compile(
    r"= (.*?) (all-gather|all-reduce|all-to-all|collective-\w+|reduce-scatter|send|recv)"
    r"(?:-start)?\("
)


def collectives(program):
    """Return (name, shape) of everything that a compiled program sends between devices."""
    return [
        (name, tuple(int(n) for n in dims.split(",") if n))
        for shapes, name in COLLECTIVE.findall(program.as_text())
        for dims in re.findall(r"\w+\[([\d,]*)\]", shapes)
    ]


def as_read(_, scores):
    return scores


@pytest.mark.parametrize(
    ("params", "features", "retriever"),
    [
        ((4096, D), (16, D), TIED),
        ((), (16, 4096), TIED._replace(score=as_read, split=(P(), P(None, "item")))),
    ],
    ids=["inner products", "scores of the host"],
)
def test_devices_exchange_k_scores_and_items_each_and_nothing_else(params, features, retriever):
    shape = lambda dims: jax.ShapeDtypeStruct(dims, "float32")  # noqa: E731
    leaves, tree = jax.tree.flatten(retriever.split)
    program = best_items.lower(
        shape(params),
        shape(features),
        score=retriever.score,
        split=(tree, tuple(leaves)),
        items=4096 - 3,  # three rows are padding
        k=5,
        mesh=sharding.make_mesh(item=8),
    )
    found = collectives(program.compile())
    assert [name for name, _ in found] == ["all-gather"] * 2  # scores and items
    assert {int(np.prod(dims)) for _, dims in found} == {16 * 5 * 8}  # for 16 queries


def test_the_search_for_collectives_finds_a_silent_exchange_of_all_scores():
    rows = jax.NamedSharding(sharding.make_mesh(item=8), P(None, "item"))
    scores = jax.ShapeDtypeStruct((16, 4096), "float32", sharding=rows)
    found = collectives(jax.jit(lambda x: jax.lax.top_k(x, 5)).lower(scores).compile())
    assert max(int(np.prod(shape)) for _, shape in found) >= 16 * 4096


ITEMS = rf"k must be in \[1, {I}\], the items there are, got"


@pytest.mark.parametrize(
    ("retriever", "queries", "k", "error", "message"),
    [
        (TIED, QUERIES, 0, ValueError, f"{ITEMS} 0"),
        (TIED, QUERIES, I + 1, ValueError, f"{ITEMS} {I + 1}"),
        (by_letters(), ["a", "", "b"], 1, ValueError, "text 1 of 3 is empty"),
        (by_letters(), ["a", "  \n", "b"], 1, ValueError, "text 1 of 3 is empty"),
        (by_letters(), "ab", 1, TypeError, "got the single string 'ab'"),
        (
            TIED._replace(params=THETA[:-1]),
            QUERIES,
            3,
            ValueError,
            r"'tied' has 43 items, and an array \[42, 4\] where axis 0",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(retriever, queries, k, error, message):
    with pytest.raises(error, match=message):
        search(retriever, queries, k)


@pytest.mark.parametrize("devices", [0, 8])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_refused_by_its_query(devices, wrong):
    queries = QUERIES.copy()
    queries[17] = wrong
    with pytest.raises(ValueError, match="'tied' gives query 17 a score that is NaN or plus"):
        search(TIED, queries, 3, mesh=mesh_of(devices), chunk=8, progress=False)
