"""Each operation on one device and split over eight, against NumPy on the whole."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxret import sharding
from jaxret.types import Catalogue

ROWS, COPIED = P("item"), P()
RNG = np.random.default_rng(0)
X = RNG.normal(size=64)
X[[9, 40]] = X.max() + 1.0  # a tie for the largest, on two devices
WEIGHTS = np.where(RNG.random(2048) < 0.5, RNG.random(2048), 0.0)  # some items are absent


@pytest.fixture(params=[None, 1, 8], ids=["plain", "1 device", "8 devices"])
def split(request):
    """Runs ``fn(x, axis)`` on the whole of x, or on its rows split over a mesh."""
    if request.param is None:
        return lambda fn, x, out=None: fn(jnp.asarray(x), None)
    mesh = sharding.make_mesh(item=request.param)

    def run(fn, x, out=COPIED):
        local = jax.shard_map(
            lambda x: fn(x, "item"), mesh=mesh, in_specs=ROWS, out_specs=out, check_vma=False
        )
        return jax.jit(local)(jnp.asarray(x))

    return run


def test_sums_and_maxima_are_over_the_whole_catalogue(split):
    np.testing.assert_allclose(split(sharding.total, X), X.sum(), rtol=1e-5)
    np.testing.assert_allclose(split(sharding.maximum, X), X.max(), rtol=1e-6)


def test_of_equally_large_entries_the_first_is_best(split):
    assert split(sharding.argmax, X) == 9


def test_items_are_numbered_through_over_the_devices(split):
    ids = split(lambda x, axis: sharding.item_ids(x.shape[0], axis), X, ROWS)
    np.testing.assert_array_equal(ids, np.arange(64))


def test_entries_are_found_wherever_they_lie_and_negative_positions_give_zero(split):
    index = np.array([0, 63, -1, 17])
    got = split(lambda x, axis: sharding.take(x, jnp.asarray(index), axis), X)
    np.testing.assert_allclose(got, [X[0], X[63], 0, X[17]], rtol=1e-6)
    one = split(lambda x, axis: sharding.take(x, jnp.asarray(40), axis), X)
    np.testing.assert_allclose(one, X[40], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 5, 20])  # 20 is more than one of eight devices holds
def test_the_k_largest_come_in_order_with_their_positions(split, k):
    values, items = split(lambda x, axis: sharding.top_k(x, k, axis), X)
    expected = np.argsort(-X, kind="stable")[:k]
    np.testing.assert_array_equal(items, expected)
    np.testing.assert_allclose(values, X[expected], rtol=1e-6)


def test_more_than_all_items_cannot_be_asked_for(split):
    with pytest.raises(ValueError, match="k=65 items are asked of a catalogue of 64"):
        split(lambda x, axis: sharding.top_k(x, 65, axis), X)


def test_one_hot_counts_items_and_leaves_out_padding(split):
    labels = np.array([3, -1, 40, 3])
    got = split(lambda x, axis: sharding.one_hot(jnp.asarray(labels), x, axis), X, ROWS)
    np.testing.assert_array_equal(got, np.bincount([3, 40, 3], minlength=64))
    one = split(lambda x, axis: sharding.one_hot(jnp.asarray(40), x, axis), X, ROWS)
    np.testing.assert_array_equal(one, np.eye(64)[40])


def test_softmax_gives_absent_items_nothing(split):
    available = np.arange(64) % 8 != 1
    available[8:16] = False  # one device has no items at all
    expected = np.where(available, np.exp(X), 0)
    masked = sharding.masked(jnp.asarray(X), jnp.asarray(available))
    got = split(sharding.softmax, masked, ROWS)
    np.testing.assert_allclose(got, expected / expected.sum(), rtol=1e-5)


def test_draws_invert_the_cumulative_sum(split):
    uniform = (np.arange(4000) + 0.5) / 4000
    with jax.enable_x64(True):
        draw = lambda x, axis: jax.vmap(lambda u: sharding.draw(x, u, axis))(jnp.asarray(uniform))  # noqa: E731
        got = split(draw, WEIGHTS)
    cumulative = np.cumsum(WEIGHTS)
    expected = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24, 1.0])
def test_absent_items_are_not_drawn_even_at_the_ends(split, uniform):
    weights = np.zeros(2048)
    weights[[700, 701, 1500]] = [1e-6, 1.0, 1e-7]
    got = split(lambda x, axis: sharding.draw(x, jnp.float32(uniform), axis), weights)
    assert weights[got] > 0


def test_no_number_lands_on_an_absent_item(split):
    weights = jnp.asarray(WEIGHTS, jnp.float32)
    cumulative = jnp.cumsum(weights)  # its own rounding: numbers that fall exactly on an edge
    uniform = jnp.concatenate([cumulative / cumulative[-1], jnp.linspace(0, 1, 20_000)])
    draw = lambda x, axis: jax.vmap(lambda u: sharding.draw(x, u, axis))(uniform)  # noqa: E731
    assert (WEIGHTS[split(draw, weights)] > 0).all()


def test_padding_adds_absent_rows_up_to_a_multiple():
    catalogue = Catalogue(theta=jnp.ones((13, 2)), available=jnp.ones(13, bool))
    padded = sharding.padded(catalogue, 8)
    np.testing.assert_array_equal(padded.available, np.arange(16) < 13)
    np.testing.assert_array_equal(padded.theta, (np.arange(16) < 13)[:, None] * np.ones((1, 2)))
    again = sharding.padded(padded, 8)
    assert again.theta.shape == (16, 2)


def test_leaves_are_put_where_their_spec_says():
    mesh = sharding.make_mesh(item=4, run=2)
    tree = {"theta": jnp.arange(16.0).reshape(8, 2), "t": jnp.asarray(3)}
    placed = sharding.place(tree, mesh, {"theta": P("item", None), "t": P()})
    assert placed["theta"].sharding.shard_shape((8, 2)) == (2, 2)
    assert placed["t"].sharding.is_fully_replicated
    np.testing.assert_array_equal(placed["theta"], tree["theta"])


def test_a_mesh_of_more_devices_than_there_are_is_refused():
    with pytest.raises(ValueError, match="run=3 x item=4 needs 12 devices; 8 here"):
        sharding.make_mesh(item=4, run=3)
    with pytest.raises(ValueError, match="run=1 x item=0"):
        sharding.make_mesh(item=0)
    with pytest.raises(ValueError, match="data=8 x model=2 needs 16 devices; 8 here"):
        sharding.make_mesh(data=8, model=2)


def test_a_mesh_has_the_axes_that_are_asked_for():
    mesh = sharding.make_mesh(data=2, model=3)
    assert dict(mesh.shape) == {"run": 1, "item": 1, "data": 2, "model": 3}
    one = sharding.make_mesh(item=1, devices=jax.devices()[5:])
    assert [device.id for device in one.devices.flat] == [5]


class Moments(NamedTuple):
    count: jax.Array
    mu: dict


TREE = {
    "params": {"head": {"kernel": jnp.ones((4, 8)), "bias": jnp.ones(8)}},
    "opt_state": (Moments(jnp.zeros(()), {"head": {"kernel": jnp.ones((4, 8))}}), ()),
}


def test_the_first_rule_found_in_a_path_says_where_a_leaf_goes():
    rules = [
        (r"mu/head/kernel$", P("data")),
        (r"head/kernel", P(None, "model")),
        (r"^params/.*bias", P("model")),
        (r"head", P("data", "model")),  # too late for all of them
    ]
    specs = sharding.by_path(TREE, rules)
    assert specs["params"]["head"] == {"kernel": P(None, "model"), "bias": P("model")}
    moments, rest = specs["opt_state"]
    assert moments == Moments(P(), {"head": {"kernel": P("data")}})
    assert rest == ()


def test_one_rule_serves_parameters_and_what_an_optimiser_keeps_of_them():
    params = TREE["params"]
    tree = {"params": params, "opt_state": optax.chain(optax.adam(1e-3)).init(params)}
    specs = sharding.by_path(tree, [("kernel", P(None, "model"))])
    adam = specs["opt_state"][0][0]
    for found in (specs["params"], adam.mu, adam.nu):
        assert found == {"head": {"kernel": P(None, "model"), "bias": P()}}
    assert adam.count == P()


def test_a_rule_for_more_axes_than_a_leaf_has_is_refused():
    with pytest.raises(ValueError, match=r"params/head/bias has 1 axes, too few for the rule's"):
        sharding.by_path(TREE, [("bias", P(None, "model"))])


@pytest.mark.parametrize("devices", [None, 1, 2, 3], ids=lambda n: f"{n} devices")
def test_a_sweep_is_the_runs_one_by_one(devices):
    def run(eta, key):
        return {"noise": eta * jax.random.normal(key, (3,)), "eta": eta}

    etas, keys = jnp.array([0.1, 0.2, 0.4]), jax.random.split(jax.random.key(0), 3)
    alone = [jax.jit(run)(*args) for args in zip(etas, keys, strict=True)]
    keys = jax.random.split(jax.random.key(0), 3)
    mesh = devices and sharding.run_mesh(devices)
    together = jax.jit(lambda *args: sharding.sweep(run, *args, mesh=mesh))(etas, keys)
    assert len(together["eta"]) == 3
    for i, expected in enumerate(alone):
        np.testing.assert_array_equal(together["noise"][i], expected["noise"])
        assert together["eta"][i] == expected["eta"]
