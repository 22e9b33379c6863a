"""A learner that goes on from a snapshot: against the same rounds, put together by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import restart
from jaxret.environments.environment import Environment
from jaxret.simulation.scan import scan_rounds


@pytest.mark.parametrize("saved", [0, 12])
def test_what_was_learnt_since_the_snapshot_is_lost_and_the_world_goes_on(task, stream, saved):
    learner, at = jr.orag(tau=0.2, eta=0.02), 30  # its draws say which round it is
    world = Environment(restart=restart.from_snapshot(saved=saved, at=at))
    run = jr.simulate(learner, task, seeds=[4], environment=world)
    assert run.how == "scan"
    order = run.order[0]

    @jax.jit
    def straight(state, order):
        return scan_rounds(learner, state, Environment(), stream(task, order), jax.random.key(4))

    def part(start, stop):
        return np.pad(order[start:stop], (0, 40 - stop + start), constant_values=-1)

    snapshot, _ = straight(learner.init(jnp.asarray(task.theta)), part(0, saved))
    _, before = straight(learner.init(jnp.asarray(task.theta)), part(0, at))
    last, after = straight(snapshot._replace(t=np.int32(at)), part(at, 40))
    items = np.concatenate([before.item[:at], after.item[: 40 - at]])
    np.testing.assert_array_equal(run.trace.item[0], items)
    np.testing.assert_allclose(run.states.theta[0], last.theta, atol=1e-6)
    assert run.states.t[0] == saved + 40 - at  # as young as it knows itself to be
    plain = jr.simulate(learner, task, seeds=[4])
    assert np.abs(plain.states.theta - run.states.theta).max() > 1e-3


def test_its_memory_goes_back_too(task, scribe):
    run = jr.simulate(
        scribe(40),
        task,
        environment=Environment(restart=restart.from_snapshot(saved=10, at=25)),
    )
    told = jax.tree.map(lambda x: x[0], run.states.extra)
    assert told.count == 25
    remembered = np.r_[np.arange(10), np.arange(25, 40)]
    np.testing.assert_array_equal(told.item[:25], run.trace.item[0][remembered])


@pytest.mark.parametrize(
    ("rounds", "message"),
    [((-1, 4), "saved must be >= 0, got -1"), ((4, 4), "at must be > saved=4, got 4")],
)
def test_snapshots_of_later_are_refused(rounds, message):
    with pytest.raises(ValueError, match=message):
        partial(restart.from_snapshot, **dict(zip(("saved", "at"), rounds, strict=True)))()
