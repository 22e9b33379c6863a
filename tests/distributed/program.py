"""Computations on which one process and many processes must agree.

Run as ``python -m tests.distributed.program FOLDER PART ..``. Process 0 writes the results of each
part to ``FOLDER/PART.npz``.
"""

import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from jaxret.runtime import distributed

if {"JAX_NUM_PROCESSES", "SLURM_NTASKS"} & {*os.environ}:
    distributed.start_as({"heartbeat": 15})

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxret as jr
from jaxret.runtime import sharding
from jaxret.runtime.checkpoint import Checkpointer, interruptible, run_chunks
from jaxret.runtime.tracking import NoopTracker
from jaxret.simulation.engine import Simulation

SEEDS = 4


def task(items=38, width=8, queries=60):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((items, width))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(0, items, (queries, 1))
    vectors = theta[labels[:, 0]] + 0.3 * rng.standard_normal((queries, width))
    return jr.Task.from_arrays(theta, vectors, labels)


def numbers(run, name=""):
    """Return the trace, the final rows and the ranking metrics of a run."""
    metrics = {key: found.values for key, found in jr.evaluate(run, task()).items()}
    rows = {"theta": distributed.fetch(run.states.theta)}
    found = run.trace._asdict() | rows | metrics
    return {f"{name}{key}": np.asarray(value) for key, value in found.items()}


def simulate(folder):
    """Simulate several seeds of a learner that samples the items shown."""
    return numbers(jr.simulate(jr.orag(), task(), exposures=2, seeds=SEEDS))


def alone(folder):
    """Simulate one seed of a learner without a blocked form, and write a log."""
    run = jr.simulate(jr.mapped(), task(), log=folder / "log")
    run.save(folder / "rows")
    return numbers(run)


def mesh(folder):
    """Simulate with the catalogue split over all devices, padded if they do not divide it."""
    run = jr.simulate(jr.greedy(), task(), seeds=2, devices=jax.device_count())
    (rows,) = {shard.data.shape[1] for shard in run.states.theta.addressable_shards}
    share = -(-38 // jax.device_count())
    return numbers(run) | {"rows_as_shared": np.array(rows in (share, 38))}


def method(folder):
    """Train and save a reranker, load it from the store, and rank with both copies."""
    from jaxret.methods import files, refiner, tool2vec
    from jaxret.retrieval.retriever import refine, search
    from jaxret.training.store import Hooks
    from tests.tiny import letters

    class Losses(NoopTracker):
        def log(self, metrics, step):
            logged.append([metrics[key] for key in sorted(metrics)])

    logged = []
    train, validation = letters(Path(tempfile.mkdtemp())).split((0.75, 0.25), seed=0)
    config = refiner.Config(
        epochs=1, validate=0.5, size=12, learning_rate=3e-3, layers=1, candidates=8, prior=2.0
    )
    fit = partial(
        refiner.fit,
        train,
        config,
        validation=validation,
        folder=folder / "models",
        hooks=Hooks(progress=False, tracker=Losses()),
    )
    model, again = fit(), fit()
    files.save(model, folder / "saved")
    first = tool2vec.fit(train, tool2vec.Config())
    texts = list(validation.texts)
    found = [
        refine(one, texts, search(first, texts, 8, progress=False), progress=False)
        for one in (model, again)
    ]
    np.testing.assert_array_equal(found[0].scores, found[1].scores)
    params = {f"params{i}": x for i, x in enumerate(jax.tree.leaves(model.params))}
    return {"items": found[0].items, "scores": found[0].scores, "log": np.array(logged), **params}


def state():
    """Return a state with rows split over all devices and arrays local to each process."""
    rows = np.arange(64.0, dtype=np.float32).reshape(16, 4)
    split = NamedSharding(sharding.make_mesh(item=jax.device_count()), P("item"))
    return {
        "theta": distributed.put(rows, split),
        "key": jax.random.key(7),
        "own": jnp.arange(3.0),
        "losses": np.array([1 / 3, 1e-300]),
        "seen": np.array(2**40 + 1),
    }


def save(folder):
    with Checkpointer(folder / "state") as checkpoints:
        checkpoints.save(3, state(), {"eta": 0.1})
    return {}


def restore(folder):
    """Restore a checkpoint that a different number of processes may have saved."""
    target = jax.tree.map(lambda x: np.zeros_like(x) if isinstance(x, np.ndarray) else x, state())
    with Checkpointer(folder / "state") as checkpoints:
        saved = checkpoints.restore_latest(target)
    assert saved.step == 3
    assert saved.meta == {"eta": 0.1}
    assert saved.state["theta"].sharding == target["theta"].sharding
    assert saved.state["own"].is_fully_addressable
    got = distributed.fetch(saved.state)
    return got | {"key": jax.random.key_data(got["key"])}


def who(folder):
    """Print the index of this process, the number of processes and devices, and visible GPUs."""
    gpus = jax.config.values["jax_cuda_visible_devices"]
    print("who", jax.process_index(), jax.process_count(), jax.device_count(), gpus)
    return {}


def agree(folder):
    """Test agreement on values that differ between processes; process 0 is slow."""
    mine, count = jax.process_index(), jax.process_count()
    assert distributed.agreed(mine + 7) == 7
    assert distributed.agreed(mine == 0) is True
    assert distributed.agreed(mine + 1 / 3) == 1 / 3  # checks for 64-bit precision
    assert distributed.anyone(mine == count - 1)
    assert not distributed.anyone(False)
    if distributed.leads():
        time.sleep(0.5)
        (folder / "note.txt").write_text("slow")
    distributed.wait()
    assert (folder / "note.txt").read_text() == "slow"
    assert distributed.leads() == (mine == 0)
    return {}


def fail(folder):
    """Raise an error in the last process only, while the others wait for that process."""
    if jax.process_index() == jax.process_count() - 1:
        raise ArithmeticError("here alone")
    distributed.wait()
    return {}


def chunks(folder):
    """Simulate in chunks with checkpoints, and may be killed or stopped in one of them.

    KILLED=PROCESS:CHUNK kills that process in that chunk with SIGKILL. STOPPED=PROCESS:CHUNK sends
    it SIGTERM, after which only the final checkpoint is saved.
    """
    victim, fatal = map(int, os.environ.get("KILLED", "-1:-1").split(":"))
    stopped, last_chunk = map(int, os.environ.get("STOPPED", "-1:-1").split(":"))
    seeds = range(SEEDS)
    family, numbers = jr.traced(jr.greedy())
    simulation = Simulation(family, task(), seeds=seeds, example=numbers, chunk=16)
    setting, orders = simulation.setting(*numbers), jr.stream_orders(task(), 2, seeds)
    parts = simulation.cut(orders)
    ran = []

    def step(state, number):
        ran.append(number)
        if number == fatal and jax.process_index() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == last_chunk and jax.process_index() == stopped:
            os.kill(os.getpid(), signal.SIGTERM)
        states, trace = simulation.step(state["states"], setting, parts[number])
        state["item"][:, 16 * number : 16 * (number + 1)] = trace.item
        return {"states": states, "item": state["item"]}

    try:
        with interruptible() as interrupted:
            last = run_chunks(
                folder / "checkpoints",
                interrupted,
                chunks=len(parts),
                start=lambda: {
                    "states": simulation.start(setting),
                    "item": np.zeros((SEEDS, 16 * len(parts)), np.int32),
                },
                step=step,
                seconds=0 if stopped < 0 and distributed.leads() else 1e9,  # by process 0's clock
            )
    finally:
        print("chunks", ran)
    return {"item": last["item"], "theta": distributed.fetch(last["states"].theta)}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for part in sys.argv[2:]:
        found = globals()[part](place)
        if distributed.leads():
            np.savez(place / f"{part}.npz", allow_pickle=False, **found)
    distributed.wait()
