"""Simulating a deployment: a learner on a stream of a task's queries, with several seeds.

    run = simulate(greedy(), train, exposures=5, seeds=5)

A seed decides the order of the stream and the draws. What can be played in blocks is
(`jaxret.online.blocked`), a catalogue that is split over devices is played on a mesh, everything
else takes the plain scan; ``run.how`` says which. All runs of a `Simulation` (seeds, settings of a
grid) share one compiled program: settings are data, and streams are cut into chunks of one shape.

Letters: I items, d width, N queries, L labels, T rounds, R runs, c rounds a chunk.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from jaxret import sharding
from jaxret.online import streams
from jaxret.online.blocked import simulate_blocked, simulate_on_mesh
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner
from jaxret.online.rounds import scan_rounds
from jaxret.online.run import Run
from jaxret.task import Task
from jaxret.types import Catalogue, State, Stream, Trace
from jaxret.validate import require, require_task

CHUNK = 2048  # rounds between two points where a run can stop


class Simulation:
    """R runs of one learner side by side, compiled once for all of its settings.

    Args:
      make: numbers of a setting -> learner.
      example: one setting; all have the same form.
      task: what is streamed.
      environment: what responds; a function of the setting where that is data too.
      seeds: R numbers, which give the draws.
      chunk: rounds a chunk.
      devices: over which the catalogue is split; None: it is not, and runs are played side by side.
    """

    def __init__(
        self,
        make: Callable[..., Learner],
        task: Task,
        environment: Environment | Callable[..., Environment] | None = None,
        *,
        seeds: Sequence[int],
        example: Sequence[float] = (),
        chunk: int = CHUNK,
        devices: int | None = None,
    ):
        require_task(task.theta, task.queries, task.labels)
        require("chunk", chunk, ">= 1", lambda x: x >= 1)
        environment = environment or Environment()
        self.task, self.chunk = task, chunk
        self._seeds, self._devices = jnp.asarray(seeds), devices
        learner = make(*example)
        self._blocked = learner.rule is not None and learner.rule.blocked
        if devices is not None and not self._blocked:
            raise ValueError(
                f"learner {learner.name!r} has no blocked form, which alone can split a catalogue "
                f"over devices={devices}: leave devices out"
            )
        items = len(task.theta)
        here = np.ones(items, bool) if task.available is None else task.available
        catalogue = sharding.padded(
            Catalogue(jnp.asarray(task.theta), jnp.asarray(here)), devices or 1
        )
        arrays = (catalogue, jnp.asarray(task.queries), jnp.asarray(task.labels))

        def world(setting) -> Environment:
            fixed = isinstance(environment, Environment)
            return _padded(environment if fixed else environment(*setting), len(catalogue.theta))

        def start(arrays, setting, seed):
            del seed
            return make(*setting).init(*arrays[0])

        def step(arrays, state, setting, order, seed):
            _, queries, labels = arrays
            stream = Stream(queries=queries, labels=labels, order=order)
            play = self._form()
            return play(make(*setting), state, world(setting), stream, jax.random.key(seed))

        self._start = partial(jax.jit(partial(self._over_runs, start)), arrays)
        self._step = partial(jax.jit(partial(self._over_runs, step)), arrays)

    @property
    def how(self) -> str:
        """In which form rounds are played."""
        if self._devices is not None:
            return f"mesh of {self._devices} devices"
        return "blocked" if self._blocked else "scan"

    def start(self, settings: Float[np.ndarray, "R n"]) -> State:
        """The states of all runs."""
        return self._start(jnp.asarray(settings, jnp.float32), self._seeds)

    def step(
        self, states: State, settings: Float[np.ndarray, "R n"], order: Int[np.ndarray, "R c"]
    ):
        """One chunk: the new states and its `Trace`."""
        return self._step(states, jnp.asarray(settings, jnp.float32), order, self._seeds)

    def cut(self, orders: Int[np.ndarray, "R T"]) -> list[Int[np.ndarray, "R c"]]:
        """Chunks of one shape; -1, where nothing is played, fills the last one."""
        fill = -orders.shape[1] % self.chunk
        orders = np.pad(orders.astype(np.int32), ((0, 0), (0, fill)), constant_values=-1)
        return [orders[:, i : i + self.chunk] for i in range(0, orders.shape[1], self.chunk)]

    def play(
        self,
        settings: Float[np.ndarray, "R n"],
        orders: Int[np.ndarray, "R T"],
        *,
        resume: Path | None = None,
        title: str = "simulate",
    ) -> tuple[State, Trace]:
        """Plays whole streams.

        Args:
          settings: the numbers of each run.
          orders: the stream of each run.
          resume: folder of checkpoints: after SIGTERM or Ctrl-C the same call goes on.
          title: of the progress bar, which shows only where it takes long.

        Returns:
          the last states, and the trace with fields [R, T], on the host; absent of padding.
        """
        chunks, rounds = self.cut(orders), orders.shape[1]
        with tqdm(
            total=rounds, desc=title, unit="round", delay=3, disable=None, leave=False
        ) as bar:

            def start():
                kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
                shape = (len(orders), len(chunks) * chunks[0].shape[1])
                return {
                    "learner": self.start(settings),
                    "trace": Trace._make(np.zeros(shape, kind) for kind in kinds.values()),
                }

            def step(state, number):
                states, trace = self.step(state["learner"], settings, chunks[number])
                first = number * chunks[0].shape[1]
                for whole, part in zip(state["trace"], trace, strict=True):
                    whole[:, first : first + part.shape[1]] = part
                bar.update(min(chunks[0].shape[1], rounds - first))
                return {"learner": states, "trace": state["trace"]}

            state = _loop(resume, len(chunks), start, step)
        trace = Trace._make(part[:, :rounds] for part in state["trace"])
        return self._unpadded(state["learner"]), trace

    def _form(self):
        if self._devices is not None:
            return partial(simulate_on_mesh, mesh=sharding.make_mesh(item=self._devices))
        return simulate_blocked if self._blocked else scan_rounds

    def _over_runs(self, part, data, *args):
        run = partial(part, data)
        if self._devices is None:
            return sharding.sweep(run, *args, mesh=sharding.run_mesh(len(self._seeds)))
        return jax.lax.map(lambda one: run(*one), args)  # one run after the other, on all devices

    def _unpadded(self, states: State) -> State:
        items = len(self.task.theta)
        return states._replace(theta=states.theta[:, :items], available=states.available[:, :items])


def simulate(
    learner: Learner,
    task: Task,
    *,
    exposures: int = 1,
    seeds: int | Sequence[int] = 1,
    environment: Environment | None = None,
    devices: int | None = None,
    resume: str | Path | None = None,
    chunk: int = CHUNK,
) -> Run:
    """Plays a learner on a task's queries.

    Args:
      learner: a preset, or a rule of one's own.
      task: its queries are streamed.
      exposures: how often each query comes, shuffled anew each time; 1 is a deployment that sees
        each once.
      seeds: how many runs (numbered from 0), or their numbers; they differ in order and draws.
      environment: what responds; None: the truth, everyone there, the first shown is used.
      devices: over which the catalogue is split, for large ones; None: seeds side by side.
      resume: a folder: the run can be interrupted (Ctrl-C, SIGTERM), and the same call goes on.
      chunk: rounds between two points where it can stop.

    Raises:
      ValueError: for a setting out of its range, or a folder that holds another run.
    """
    numbers = range(seeds) if isinstance(seeds, int) else tuple(seeds)
    require("seeds", seeds, "one or more", lambda _: len(numbers) > 0)
    simulation = Simulation(
        lambda: learner, task, environment, seeds=numbers, chunk=chunk, devices=devices
    )
    orders = np.stack([streams.exposures(len(task), exposures, seed) for seed in numbers])
    begin = time.perf_counter()
    folder = None if resume is None else _claimed(Path(resume), learner, task, orders, environment)
    blank = np.zeros((len(numbers), 0))
    states, trace = simulation.play(blank, orders, resume=folder, title=learner.name)
    return Run(
        learner=learner,
        task=task,
        seeds=tuple(numbers),
        order=orders,
        trace=trace,
        states=states,
        environment=environment or Environment(),
        how=simulation.how,
        seconds=time.perf_counter() - begin,
    )


def _loop(resume: Path | None, chunks: int, start: Callable, step: Callable) -> Any:
    """All chunks; with a folder, so that a signal stops it and the same call resumes."""
    if resume is None:
        state = start()
        for number in range(chunks):
            state = step(state, number)
        return state
    from jaxret.checkpoint import interruptible, run_chunks  # orbax: seconds of imports

    with interruptible() as interrupted:
        return run_chunks(resume, interrupted, chunks=chunks, start=start, step=step, keep=True)


def _claimed(folder: Path, learner: Learner, task: Task, orders, environment) -> Path:
    """The folder of checkpoints, if it is new or holds this very run."""
    rule = learner.rule
    numbers = () if rule is None else (float(rule.tau), float(rule.eta))
    digest = hashlib.sha256(repr((learner.name, numbers, environment)).encode())
    for array in (task.theta, task.queries, task.labels, orders):
        digest.update(np.ascontiguousarray(array).tobytes())
    told = {"learner": learner.name, "run": digest.hexdigest()}
    record = folder / "simulation.json"
    if record.exists() and json.loads(record.read_text()) != told:
        raise ValueError(f"{folder} holds another simulation: give another folder, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(told) + "\n")
    return folder / "checkpoints"


def _padded(environment: Environment, items: int) -> Environment:
    """Times of tools that stand for padding: they never come."""

    def fill(times):
        return None if times is None else jnp.pad(jnp.asarray(times), (0, items - len(times)))

    return environment._replace(arrives=fill(environment.arrives), leaves=fill(environment.leaves))
