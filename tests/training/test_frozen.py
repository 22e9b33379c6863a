"""Training a part of a network: what is frozen stays, is an argument, and is in no state."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxret.runtime.sharding import make_mesh
from jaxret.training.batches import shuffled
from jaxret.training.loop import fit, start, train_step

X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
BASE = np.arange(4, dtype=np.float32)
ROWS = shuffled(
    [1] * 32, lambda rows: {"x": X[rows], "y": (X @ [3.0, 1, 2, 3])[rows]}, size=8, seed=0
)


def loss(pair, batch, key):
    trained, frozen = pair
    return ((batch["x"] @ (trained + frozen) - batch["y"]) ** 2).mean(), {}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("devices", [None, 4])
def test_only_the_trained_part_moves(devices, accumulate):
    optimizer = optax.sgd(0.1)
    state = start(jnp.zeros(4), optimizer, jax.random.key(0))
    found = fit(
        state,
        train_step(loss, optimizer, accumulate=accumulate),
        ROWS,
        steps=160,
        validate=lambda trained: {"closeness": -float(jnp.abs(trained[0] - 3))},
        every=20,
        frozen=jnp.asarray(BASE),
        mesh=None if devices is None else make_mesh(data=devices),
        progress=False,
    )
    np.testing.assert_allclose(found.best, [3, 0, 0, 0], atol=1e-3)  # with BASE: 3, 1, 2, 3
    assert len(jax.tree.leaves(found.state)) == len(jax.tree.leaves(state))


def test_a_compiled_step_holds_no_copy_of_what_is_frozen():
    optimizer = optax.sgd(0.1)
    state = start(jnp.zeros(4), optimizer, jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, ROWS(0))
    step = jax.jit(train_step(loss, optimizer))
    states = [step(state, batch, jnp.full(4, base))[0].params for base in (0.0, 1.0)]
    assert step._cache_size() == 1
    assert np.abs(states[0] - states[1]).max() > 0.01
