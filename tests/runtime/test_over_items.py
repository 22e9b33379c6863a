"""Operations over items, on one device and split over eight, against NumPy on the whole array."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxret.runtime import over_items, sharding
from jaxret.testing import quick_jit

ROWS, COPIED = P("item"), P()
RNG = np.random.default_rng(0)
X = RNG.normal(size=64)
X[[9, 40]] = X.max() + 1.0  # a tie for the largest, on two devices
WEIGHTS = np.where(RNG.random(2048) < 0.5, RNG.random(2048), 0.0)  # 0 for absent items


@pytest.fixture(params=[None, 8], ids=["plain", "8 devices"])
def split(request):
    """Return a function that runs ``fn(x, axis)`` on x, or on rows of x split over a mesh."""
    if request.param is None:
        return lambda fn, x, out=None: quick_jit(lambda x: fn(x, None))(jnp.asarray(x))
    mesh = sharding.make_mesh(item=request.param)

    def run(fn, x, out=COPIED):
        local = jax.shard_map(
            lambda x: fn(x, "item"), mesh=mesh, in_specs=ROWS, out_specs=out, check_vma=False
        )
        return jax.jit(local)(jnp.asarray(x))

    return run


def test_sums_maxima_and_numbers_are_over_the_whole_catalogue(split):
    np.testing.assert_allclose(split(over_items.total, X), X.sum(), rtol=1e-5)
    np.testing.assert_allclose(split(over_items.maximum, X), X.max(), rtol=1e-6)
    assert split(over_items.argmax, X) == 9  # the first of equal entries
    ids = split(lambda x, axis: over_items.item_ids(x.shape[0], axis), X, ROWS)
    np.testing.assert_array_equal(ids, np.arange(64))


def test_entries_are_taken_from_any_device_and_negative_positions_give_zero(split):
    index = np.array([0, 63, -1, 17])
    got = split(lambda x, axis: over_items.take(x, jnp.asarray(index), axis), X)
    np.testing.assert_allclose(got, [X[0], X[63], 0, X[17]], rtol=1e-6)
    one = split(lambda x, axis: over_items.take(x, jnp.asarray(40), axis), X)
    np.testing.assert_allclose(one, X[40], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 5, 20])  # 20 exceeds the rows of one of eight devices
def test_the_k_largest_come_in_order_with_their_positions(split, k):
    values, items = split(lambda x, axis: over_items.top_k(x, k, axis), X)
    expected = np.argsort(-X, kind="stable")[:k]
    np.testing.assert_array_equal(items, expected)
    np.testing.assert_allclose(values, X[expected], rtol=1e-6)
    with pytest.raises(ValueError, match="k=65 items are asked of a catalogue of 64"):
        split(lambda x, axis: over_items.top_k(x, 65, axis), X)


def test_one_hot_counts_items_and_leaves_out_padding(split):
    labels = np.array([3, -1, 40, 3])
    got = split(lambda x, axis: over_items.one_hot(jnp.asarray(labels), x, axis), X, ROWS)
    np.testing.assert_array_equal(got, np.bincount([3, 40, 3], minlength=64))
    one = split(lambda x, axis: over_items.one_hot(jnp.asarray(40), x, axis), X, ROWS)
    np.testing.assert_array_equal(one, np.eye(64)[40])


def test_softmax_gives_absent_items_nothing(split):
    available = np.arange(64) % 8 != 1
    available[8:16] = False  # one device has no available items
    expected = np.where(available, np.exp(X), 0)
    masked = over_items.masked(jnp.asarray(X), jnp.asarray(available))
    got = split(over_items.softmax, masked, ROWS)
    np.testing.assert_allclose(got, expected / expected.sum(), rtol=1e-5)


def draws(uniform):
    return lambda x, axis: jax.vmap(lambda u: over_items.draw(x, u, axis))(uniform)


def test_draws_invert_the_cumulative_sum(split):
    uniform = (np.arange(4000) + 0.5) / 4000
    with jax.enable_x64(True):
        got = split(draws(jnp.asarray(uniform)), WEIGHTS)
    cumulative = np.cumsum(WEIGHTS)
    expected = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    np.testing.assert_array_equal(got, expected)


def test_no_uniform_number_draws_an_absent_item(split):
    weights = WEIGHTS.astype(np.float32)
    cumulative = np.asarray(quick_jit(jnp.cumsum)(weights))  # with numbers exactly on an edge
    uniform = np.r_[cumulative / cumulative[-1], np.linspace(0, 1, 4_000, dtype=np.float32)]
    assert (WEIGHTS[split(draws(uniform), weights)] > 0).all()
    weights = np.zeros(2048)
    weights[[700, 701, 1500]] = [1e-6, 1.0, 1e-7]
    ends = np.float32([0.0, 1 - 2**-24, 1.0])
    assert (weights[split(draws(ends), weights)] > 0).all()


def test_a_sum_that_rounding_raises_at_an_absent_item_does_not_draw_it():
    """Sums are computed in pairs, so they may grow in the last digit over items of weight 0."""
    raised, summed = 0, quick_jit(jnp.cumsum)
    draw = quick_jit(lambda weights, uniform: draws(uniform)(weights, None))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = np.float32(np.where(rng.random(512) < 0.3, rng.random(512), 0.0))
        sums = np.asarray(summed(weights))
        before = np.r_[0, np.maximum.accumulate(sums)[:-1]]
        edges = before[(weights == 0) & (sums > before)] / sums.max()
        uniform = np.full(1024, 0.5, np.float32)
        uniform[: 2 * len(edges)] = np.r_[np.nextafter(edges, np.float32(0)), edges]
        assert (weights[draw(weights, uniform)] > 0).all(), seed
        raised += len(edges)
    assert raised >= 10  # such sums occurred


def test_on_a_gpu_no_entry_is_compared_with_a_maximum_that_may_be_rounded_otherwise():
    """XLA may compute the entries once for each of two reductions, with different roundings."""

    def hlo(fn, platform):
        x = jax.ShapeDtypeStruct((8,), jnp.float32)
        return jax.jit(fn).trace(x).lower(lowering_platforms=(platform,)).as_text()

    def best(x):
        return over_items.argmax(x, None)

    equality = r"compare +EQ, .*FLOAT : \(tensor<8xf32>"  # of whole arrays
    assert re.search(equality, hlo(best, "cpu"))
    assert not re.search(equality, hlo(best, "cuda") + hlo(best, "tpu"))
    assert over_items._argmax(jnp.asarray(X)) == 9
