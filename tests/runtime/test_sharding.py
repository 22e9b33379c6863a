"""Meshes, the placement of arrays on meshes, and parallel runs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxret.runtime import sharding
from jaxret.types import Catalogue


def test_padding_adds_absent_rows_up_to_a_multiple():
    catalogue = Catalogue(theta=np.ones((13, 2), np.float32), available=np.ones(13, bool))
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


def test_a_mesh_has_the_axes_that_are_asked_for_up_to_the_devices_there_are():
    mesh = sharding.make_mesh(data=2, model=3)
    assert dict(mesh.shape) == {"run": 1, "item": 1, "data": 2, "model": 3}
    one = sharding.make_mesh(item=1, devices=jax.devices()[5:])
    assert [device.id for device in one.devices.flat] == [5]
    with pytest.raises(ValueError, match="run=3 x item=4 needs 12 devices; 8 here"):
        sharding.make_mesh(item=4, run=3)
    with pytest.raises(ValueError, match="run=1 x item=0"):
        sharding.make_mesh(item=0)
    with pytest.raises(ValueError, match="data=8 x model=2 needs 16 devices; 8 here"):
        sharding.make_mesh(data=8, model=2)


class Moments(NamedTuple):
    count: jax.Array
    mu: dict


TREE = {
    "params": {"head": {"kernel": jnp.ones((4, 8)), "bias": jnp.ones(8)}},
    "opt_state": (Moments(jnp.zeros(()), {"head": {"kernel": jnp.ones((4, 8))}}), ()),
}


def test_the_first_rule_that_matches_a_path_determines_the_placement():
    rules = [
        (r"mu/head/kernel$", P("data")),
        (r"head/kernel", P(None, "model")),
        (r"^params/.*bias", P("model")),
        (r"head", P("data", "model")),  # never first
    ]
    specs = sharding.by_path(TREE, rules)
    assert specs["params"]["head"] == {"kernel": P(None, "model"), "bias": P("model")}
    assert specs["opt_state"] == (Moments(P(), {"head": {"kernel": P("data")}}), ())
    with pytest.raises(ValueError, match=r"params/head/bias has 1 axes, too few for the rule's"):
        sharding.by_path(TREE, [("bias", P(None, "model"))])


def test_a_rule_applies_to_parameters_and_to_the_optimiser_state():
    params = TREE["params"]
    tree = {"params": params, "opt_state": optax.chain(optax.adam(1e-3)).init(params)}
    specs = sharding.by_path(tree, [("kernel", P(None, "model"))])
    adam = specs["opt_state"][0][0]
    for found in (specs["params"], adam.mu, adam.nu):
        assert found == {"head": {"kernel": P(None, "model"), "bias": P()}}
    assert adam.count == P()


@pytest.mark.parametrize("devices", [None, 2, 3], ids=lambda n: f"{n} devices")
def test_a_sweep_is_the_runs_one_by_one(devices):
    def run(eta, key):
        return {"noise": eta * jax.random.normal(key, (3,)), "eta": eta}

    etas = np.float32([0.1, 0.2, 0.4])
    one = jax.jit(lambda eta, seed: run(eta, jax.random.key(seed)))
    alone = [one(eta, seed) for seed, eta in enumerate(etas)]
    mesh = devices and sharding.run_mesh(devices)

    @jax.jit
    def sweep(etas):
        return sharding.sweep(run, etas, jax.vmap(jax.random.key)(np.arange(3)), mesh=mesh)

    together = jax.device_get(sweep(etas))
    assert len(together["eta"]) == 3
    for i, expected in enumerate(alone):
        np.testing.assert_array_equal(together["noise"][i], expected["noise"])
        assert together["eta"][i] == expected["eta"]


def test_a_process_has_the_cores_that_it_was_given(monkeypatch):
    monkeypatch.setattr(sharding.os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    monkeypatch.setattr(sharding.os, "cpu_count", lambda: 64)
    for said, own in {"": 3, "2": 2, "8": 3, "2,1": 2, "0": 3, "many": 3}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert sharding.cores() == own, said
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert sharding.cores() == 3
    monkeypatch.delattr(sharding.os, "sched_getaffinity")
    assert sharding.cores() == 64
