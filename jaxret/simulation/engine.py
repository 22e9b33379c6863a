"""The program that makes R runs side by side: seeds, and settings of a grid.

All runs of a `Simulation` share one compiled program: settings are data, and streams are cut into
chunks of one shape. What has a blocked form takes it (`jaxret.simulation.blocked.simulate`), a
catalogue that is split over devices runs on a mesh, all else takes the plain scan, as where the
environment intervenes (`deployment`).

Letters: I items, d width, N queries, L labels, T rounds, R runs, c rounds a chunk, n settings.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxret.environments.deployment import bare, deployed
from jaxret.environments.environment import Environment, is_noise
from jaxret.learners import narrow_rows
from jaxret.learners.learner import Learner
from jaxret.runtime import distributed, sharding
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require, require_length, require_task
from jaxret.simulation.blocked.simulate import has_blocked_form, simulate_blocked, simulate_on_mesh
from jaxret.simulation.scan import scan_rounds
from jaxret.task import Task
from jaxret.types import Catalogue, PRNGKey, State, Stream, Trace

CHUNK = 2048  # rounds between two points where a run can stop
SHORTEST = 128  # rounds of a chunk that has to fit a short stream


class Simulation:
    """R runs of one learner side by side, compiled once for all of its settings.

    Args:
      make: numbers of a setting -> learner.
      task: what is streamed.
      environment: what responds; a function of the setting where that is data too.
      seeds: R numbers, which give the draws.
      example: one setting; all have the same form.
      chunk: rounds a chunk, at most: a short stream has a shorter one.
      devices: over which the catalogue is split; None: it is not, and runs go side by side.
      first: whole numbers that ``make`` takes before those of a setting, the same for all runs.

    Raises:
      ValueError: for a task without queries or vectors, an environment of another catalogue, or a
        learner that cannot be split over devices.
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
        first: Sequence[int] = (),
    ):
        task.require_vectors()
        require_task(task.theta, task.queries, task.labels)
        require(f"the queries of {task.name}", len(task), "one or more", lambda n: n >= 1)
        require("chunk", chunk, ">= 1", lambda x: x >= 1)
        require("devices", devices, "None or >= 1", lambda n: n is None or n >= 1)
        self.task, self.chunk = task, chunk
        self._seeds, self._devices = jnp.asarray(seeds), devices
        self._make, self._environment = make, environment
        learner = self._deployed(first, example, jax.random.key(0))
        self._blocked = has_blocked_form(learner, self._world(example))
        if devices is not None and not self._blocked:
            raise ValueError(
                f"learner {learner.name!r} has no blocked form here, which alone can split a "
                f"catalogue over devices={devices}: leave devices out"
            )
        items = len(task.theta)
        here = np.ones(items, bool) if task.available is None else task.available
        if devices is None:
            catalogue = Catalogue(jax.device_put(task.theta), jnp.asarray(here))  # no copy on CPU
        else:
            catalogue = sharding.split_rows(task.theta, here, sharding.make_mesh(item=devices))
        self._arrays = (catalogue, jnp.asarray(task.queries), jnp.asarray(task.labels), first)
        _check(self._world(example), task)
        self.scores, self.map_queries = learner.scores, learner.map_queries
        self._over_rows = learner.over_rows
        self._start = jax.jit(partial(self._over_runs, self._init_one))
        # In place: two states of all runs would be most of the memory that is used.
        self._step = jax.jit(partial(self._over_runs, self._run_one), donate_argnums=1)

    def beginning_with(self, *first: int) -> Self:
        """A simulation by the same program, of what ``make`` makes of other first numbers."""
        other = copy.copy(self)
        other._arrays = (*self._arrays[:3], first)
        return other

    @property
    def how(self) -> str:
        """In which form rounds are simulated."""
        if self._devices is not None:
            return f"mesh of {self._devices} devices"
        return "blocked" if self._blocked else "scan"

    def setting(self, *numbers: float) -> Float[np.ndarray, "R n"]:
        """The same numbers for every run.

        Returns:
          [R, n].
        """
        return np.tile(np.array(numbers, np.float32), (len(self._seeds), 1))

    def start(self, settings: Float[np.ndarray, "R n"]) -> State:
        """The states of all runs, of the learners as they are deployed.

        In the blocked form, rows in bfloat16 are packed (`jaxret.learners.narrow_rows.packed`).
        """
        return self._start(self._arrays, jnp.asarray(settings, jnp.float32), self._seeds)

    def step(
        self, states: State, settings: Float[np.ndarray, "R n"], order: Int[np.ndarray, "R c"]
    ) -> tuple[State, Trace]:
        """One chunk: the new states, in place of the old ones, and its `Trace` in every process."""
        return self._chunk(states, jnp.asarray(settings, jnp.float32), order)

    def _chunk(self, states, numbers, order) -> tuple[State, Trace]:
        """What `step` does; simulations that log, or are selected outside, do more or otherwise."""
        states, trace = self._step(self._arrays, states, numbers, order, self._seeds)
        return states, distributed.fetch(trace)

    def fingerprint(
        self, settings: Float[np.ndarray, "R n"], orders: Int[np.ndarray, "R T"]
    ) -> str:
        """A hash of all that decides the runs: the program with its constants, and its data."""
        numbers = jnp.asarray(settings, jnp.float32)
        states = jax.eval_shape(self._start, self._arrays, numbers, self._seeds)
        chunk = self.cut(orders)[0]
        program = self._step.lower(self._arrays, states, numbers, chunk, self._seeds)
        digest = hashlib.sha256(program.as_text().encode())
        start = self._start.lower(self._arrays, numbers, self._seeds)
        digest.update(start.as_text().encode())
        arrays = jax.tree.leaves(distributed.fetch(self._arrays))
        for array in (*arrays, numbers, orders, self._seeds):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def cut(self, orders: Int[np.ndarray, "R T"]) -> list[Int[np.ndarray, "R c"]]:
        """Cuts streams into chunks of one shape; -1, where nothing happens, fills the last one.

        A stream shorter than a chunk has one of its own, of a power of two: short streams do not
        cost long ones' time, and few sizes are compiled.

        Returns:
          chunks [R, c].
        """
        rounds = orders.shape[1]
        chunk = min(self.chunk, max(SHORTEST, 2 ** (max(rounds, 1) - 1).bit_length()))
        fill = -rounds % chunk
        orders = np.pad(orders.astype(np.int32), ((0, 0), (0, fill)), constant_values=-1)
        return [orders[:, i : i + chunk] for i in range(0, orders.shape[1], chunk)]

    def run(
        self,
        settings: Float[np.ndarray, "R n"],
        orders: Int[np.ndarray, "R T"],
        *,
        resume: Path | None = None,
        title: str = "simulate",
    ) -> tuple[State, Trace]:
        """Simulates whole streams.

        Args:
          settings: the numbers of each run.
          orders: the stream of each run.
          resume: folder of checkpoints: after SIGTERM or Ctrl-C the same call goes on.
          title: of the progress bar, which shows only where it takes long.

        Returns:
          the last states, of the learners alone, and the trace [R, T], on the host, unpadded.
        """
        chunks, rounds = self.cut(orders), orders.shape[1]
        with Progress(total=rounds, desc=title, unit="round", delay=3, leave=False) as bar:

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
        return self._unpadded(narrow_rows.unpacked(bare(state["learner"]))), trace

    def _world(self, setting) -> Environment:
        environment = self._environment
        if environment is None or isinstance(environment, Environment):
            return environment or Environment()
        return environment(*setting)

    def _deployed(self, first, setting, key: PRNGKey) -> Learner:
        """The learner as the environment treats it; the forms of rounds do so by themselves."""
        labels, learner = self.task.labels.shape[1], self._make(*first, *setting)
        return deployed(learner, self._world(setting), key, labels=labels)

    def _init_one(self, arrays, setting, seed):
        catalogue, *_, first = arrays
        state = self._deployed(first, setting, jax.random.key(seed)).init(*catalogue)
        return narrow_rows.packed(state) if self._blocked else state

    def _run_one(self, arrays, state, setting, order, seed):
        catalogue, queries, labels, first = arrays
        stream = Stream(queries=queries, labels=labels, order=order)
        world = _padded(self._world(setting), len(catalogue.theta))
        learner = self._make(*first, *setting)
        return self._form()(learner, state, world, stream, jax.random.key(seed))

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
        if items == states.theta.shape[1]:
            return states
        states = states._replace(available=states.available[:, :items])
        if (over_rows := self._over_rows) is None:
            return states._replace(theta=states.theta[:, :items])
        return jax.vmap(lambda one: over_rows(one, lambda rows: rows[:items]))(states)


def _loop(resume: Path | None, chunks: int, start: Callable, step: Callable) -> Any:
    """All chunks; with a folder, so that a signal stops it and the same call resumes."""
    if resume is None:
        state = start()
        for number in range(chunks):
            state = step(state, number)
        return state
    from jaxret.runtime.checkpoint import interruptible, run_chunks

    with interruptible() as interrupted:
        return run_chunks(resume, interrupted, chunks=chunks, start=start, step=step, keep=True)


def _check(environment: Environment, task: Task) -> None:
    """Refuses an environment that does not fit; what is traced passes."""
    (items, width), queries = task.theta.shape, len(task)
    for judge in (environment, environment.reranker):
        if (verdicts := getattr(judge, "verdicts", None)) is not None:
            shape = f"[{queries}, {items}], of every query and tool"
            require("verdicts", verdicts.shape, shape, (queries, items).__eq__)
    rate = environment.noise_rate
    require("noise_rate", rate, "None or in [0, 0.5]", lambda x: x is None or is_noise(x))
    for name in ("arrives", "leaves"):
        if (times := getattr(environment, name)) is not None:
            require_length(f"{name}, a round for each tool,", times, items)
    shapes = {
        "drift": {"labels": task.labels.shape},
        "rotation": {"turned": (queries, width)},
        "poison": {"tools": (items,), "queries": (queries,)},
        "rewriting": {"after": (items, width)},
    }
    shape = () if rate is None else np.shape(rate)
    require("the shape of noise_rate", shape, f"() or {(items,)}", ((), (items,)).__contains__)
    for name, arrays in shapes.items():
        if (part := getattr(environment, name)) is not None:
            for array, shape in arrays.items():
                found = np.shape(getattr(part, array))
                require(f"the shape of {name}.{array}", found, f"{shape}", shape.__eq__)


def _padded(environment: Environment, items: int) -> Environment:
    """Times of tools that stand for padding: they never come."""

    def fill(times):
        return None if times is None else jnp.pad(jnp.asarray(times), (0, items - len(times)))

    return environment._replace(arrives=fill(environment.arrives), leaves=fill(environment.leaves))
