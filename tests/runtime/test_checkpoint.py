import itertools
import os
import pickle
import signal
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxret.runtime.checkpoint import Checkpointer, Interrupted, interruptible, run_chunks


class State(NamedTuple):
    theta: Any
    key: Any
    optimiser: Any
    losses: Any
    seen: Any


def make_state(devices, items=16):
    mesh = jax.make_mesh((devices,), ("item",), devices=jax.devices()[:devices])
    rows = NamedSharding(mesh, PartitionSpec("item"))
    theta = jax.device_put(jnp.arange(items * 4.0).reshape(items, 4), rows)
    return State(
        theta=theta,
        key=jax.random.key(7),
        optimiser=optax.adam(1e-3).init({"theta": theta}),
        losses=np.array([1 / 3, 1e-300]),  # no conversion to 32 bits may occur
        seen=np.array([2**40 + 1]),
    )


@pytest.mark.parametrize("devices", [8, 2])
def test_a_state_comes_back_as_it_was_on_any_mesh(tmp_path, devices):
    state = make_state(devices)
    with Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(3, make_state(devices=8), {"dataset": "deskbank", "eta": 0.1})
    with Checkpointer(tmp_path) as checkpoints:
        saved = checkpoints.restore_latest(state)
    assert saved.step == 3
    assert saved.meta == {"dataset": "deskbank", "eta": 0.1}
    assert jax.tree.structure(saved.state) == jax.tree.structure(state)
    for got, expected in zip(jax.tree.leaves(saved.state), jax.tree.leaves(state), strict=True):
        assert type(got) is type(expected)
        assert got.dtype == expected.dtype
        assert (got == expected).all()
    assert saved.state.theta.sharding == state.theta.sharding
    assert jax.random.uniform(saved.state.key) == jax.random.uniform(jax.random.key(7))


def test_only_the_newest_two_are_kept_and_time_does_not_run_backwards(tmp_path):
    with Checkpointer(tmp_path) as checkpoints:
        assert checkpoints.restore_latest({"t": np.array(0)}) is None
        for step in range(1, 5):
            checkpoints.save(step, {"t": np.array(step)}, {})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
        saved = checkpoints.restore_latest({"t": np.array(0)})
        assert (saved.step, saved.state["t"]) == (4, 4)
        with pytest.raises(ValueError, match=r"step 4 is not after step 4 saved in .*"):
            checkpoints.save(4, {"t": np.array(6)}, {})


@pytest.mark.parametrize(
    ("target", "difference"),
    [
        ({"theta": jnp.ones((3, 2))}, r"'theta'\] is float32\[4, 2\] there, float32\[3, 2\] here"),
        ({"theta": jnp.ones((4, 2), int)}, r"is float32\[4, 2\] there, int32\[4, 2\] here"),
        (
            {"theta": jnp.ones((4, 2)), "scale": jnp.ones(4)},
            r"\['scale'\] is missing there, float32\[4\] here",
        ),
        ({}, r"\['theta'\] is float32\[4, 2\] there, missing here"),
    ],
)
def test_another_state_is_refused_with_what_differs(tmp_path, target, difference):
    with Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(1, {"theta": jnp.ones((4, 2))}, {})
        with pytest.raises(ValueError, match=difference) as refused:
            checkpoints.restore_latest(target)
    assert str(tmp_path / "1") in str(refused.value)
    assert "Delete that folder" in str(refused.value)


@pytest.mark.parametrize("part", ["meta", "state"])
def test_a_truncated_checkpoint_is_refused_and_the_older_one_remains(tmp_path, part):
    state = {"theta": jnp.ones((64, 32))}
    with Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.save(2, state, {})
    files = [path for path in (tmp_path / "2" / part).rglob("*") if path.is_file()]
    for file in files:
        os.truncate(file, file.stat().st_size // 2)
    with (
        Checkpointer(tmp_path) as checkpoints,
        pytest.raises(ValueError, match=rf"checkpoint {tmp_path / '2'} cannot be read"),
    ):
        checkpoints.restore_latest(state)
    (tmp_path / "2").rename(tmp_path / "set_aside")
    with Checkpointer(tmp_path) as checkpoints:
        saved = checkpoints.restore_latest(state)
    assert saved.step == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_the_old_handlers_return(number):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with interruptible() as interrupted:
        assert not interrupted()
        signal.raise_signal(number)
        assert interrupted()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_second_ctrl_c_ends_the_run_at_once():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
    try:
        with interruptible():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def walk(folder, interrupted=lambda: False, **options):
    """Run five chunks that each record their number; return the state and the chunks run."""
    ran = []

    def step(state, number):
        ran.append(number)
        return {"x": state["x"] * 3 + number}

    state = run_chunks(
        folder, interrupted, chunks=5, start=lambda: {"x": np.array(1)}, step=step, **options
    )
    return int(state["x"]), ran


WALKED = 3**5 + 0 * 81 + 1 * 27 + 2 * 9 + 3 * 3 + 4


def test_chunks_run_in_order_and_leave_nothing_behind_unless_asked_to(tmp_path):
    assert walk(tmp_path) == (WALKED, [0, 1, 2, 3, 4])
    assert walk(tmp_path, keep=True) == (WALKED, [0, 1, 2, 3, 4])
    assert walk(tmp_path) == (WALKED, [])


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_an_interruption_saves_the_chunk_it_came_in(tmp_path, chunk):
    asked = itertools.count(1)
    with pytest.raises(Interrupted, match=f"stopped at step {chunk}, saved in {tmp_path}") as stop:
        walk(tmp_path, lambda: next(asked) >= chunk)
    assert stop.value.code == 143
    assert walk(tmp_path) == (WALKED, list(range(chunk, 5)))


def test_an_interruption_survives_pickling():
    """Launchers of sweeps pickle the exception that a run has raised."""
    stop = pickle.loads(pickle.dumps(Interrupted("runs/orag", 7)))
    assert str(stop) == "stopped at step 7, saved in runs/orag: the same command resumes"
    assert stop.code == 143


def test_a_run_that_dies_resumes_from_the_last_save(tmp_path):
    def killed():
        if next(asked) == 4:
            raise MemoryError
        return False

    asked = itertools.count(1)
    with pytest.raises(MemoryError):
        walk(tmp_path, killed, seconds=0)
    assert walk(tmp_path) == (WALKED, [3, 4])  # the fourth chunk had not been saved


def test_a_signal_between_two_loops_stops_the_second():
    with interruptible() as outer:
        signal.raise_signal(signal.SIGTERM)
        with interruptible() as inner:
            assert inner()
        assert outer()
    with interruptible() as another:
        assert not another()
