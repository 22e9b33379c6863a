"""Runs R simulations (seeds, or settings of a grid) side by side in one compiled program.

jax compiles once per `Program` and shape: the numbers of a learner (tau, eta, ..), the arrays of
the environment, the streams and the seeds are data. Streams are cut into chunks of one shape.
Learners with a blocked form use it (`jaxret.simulation.blocked`), on a mesh if the catalogue is
split over devices; all other learners use the plain scan.

Letters: I items, d width, N queries, L labels, T rounds, R runs, c rounds per chunk, n numbers.
"""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, Int

from jaxret.environments.environment import (
    Environment,
    padded,
    require_environment,
    with_interventions,
)
from jaxret.environments.interventions import learner_state
from jaxret.learners.grid import Family
from jaxret.learners.learner import prior_for
from jaxret.runtime import distributed, sharding
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require, require_task
from jaxret.simulation.blocked.simulate import (
    has_blocked_form,
    simulate_blocked,
    simulate_on_mesh,
    state_specs,
)
from jaxret.simulation.scan import scan_rounds
from jaxret.task import Task
from jaxret.types import Catalogue, Prior, State, Stream, Trace

CHUNK = 2048  # rounds between two points where a run can stop
SHORTEST = 128  # rounds of the shortest chunk
Form = Literal["auto", "scan", "blocked"]
_TEXTS: dict[tuple[Any, str], bytes] = {}  # cached hashes of programs, which are slow to print
SimulateRounds = Callable[..., tuple[State, Any]]


class Program(NamedTuple):
    """The static part of a simulation: everything that is not data.

    Attributes:
      family: function from numbers to a learner.
      environment: environment without its arrays, from `split_environment`.
      rounds: function that simulates a chunk of one run, with the signature of `scan_rounds`.
      devices: devices over which the catalogue is split; None: runs go side by side on one device.
    """

    family: Family
    environment: Hashable
    rounds: SimulateRounds
    devices: int | None = None


class Data(NamedTuple):
    """The arrays of a program that all runs share."""

    catalogue: Catalogue  # Theta_1 and the mask of available items, padded on a mesh
    queries: Float[jax.Array, "N d"]  # [N, d]
    labels: Int[jax.Array, "N L"]  # [N, L], -1 pads
    environment: tuple[Any, ...]  # arrays of the environment, from `split_environment`
    prior: Prior | None = None  # fields [N, K]; None: the learner reads none


def split_environment(environment: Environment) -> tuple[tuple[Any, ...], Hashable]:
    """Split an environment into arrays, which are data, and a static rest.

    Returns:
      The arrays and numbers, and the static rest for `join_environment`.
    """
    leaves, tree = jax.tree.flatten(environment)
    is_data = tuple(isinstance(leaf, jax.Array | np.ndarray | float | int) for leaf in leaves)
    rest = tuple(None if data else leaf for leaf, data in zip(leaves, is_data, strict=True))
    return tuple(leaf for leaf, data in zip(leaves, is_data, strict=True) if data), (tree, rest)


def join_environment(arrays: Sequence[Any], rest: Any) -> Environment:
    """Reverse `split_environment`."""
    tree, others = rest
    given = iter(arrays)
    return jax.tree.unflatten(tree, [next(given) if x is None else x for x in others])


class Simulation:
    """R runs of a family of learners side by side.

    Args:
      family: function from the numbers of a setting to a learner.
      task: task whose queries are streamed.
      environment: environment of the rounds.
      seeds: R seeds of all random draws.
      example: numbers of one setting.
      chunk: largest number of rounds in a chunk; a short stream has shorter chunks.
      devices: devices over which the catalogue is split; None: runs go side by side on one device.
      form: 'scan', 'blocked', or 'auto' for the fastest form of the learner.

    Raises:
      ValueError: if the task has no queries or vectors, the environment is of another catalogue,
        or the learner lacks a blocked form that ``form`` or ``devices`` requires.
    """

    def __init__(
        self,
        family: Family,
        task: Task,
        environment: Environment | None = None,
        *,
        seeds: Sequence[int],
        example: Sequence[float] = (),
        chunk: int = CHUNK,
        devices: int | None = None,
        form: Form = "auto",
    ):
        task.require_vectors()
        task.require_queries()
        require_task(task.theta, task.queries, task.labels)
        require("chunk", chunk, ">= 1", lambda x: x >= 1)
        require("devices", devices, "None or >= 1", lambda n: n is None or n >= 1)
        require("form", form, "auto, scan or blocked", {"auto", "scan", "blocked"}.__contains__)
        self.task, self.chunk, self.environment = task, chunk, environment or Environment()
        self.seeds = tuple(seeds)
        (items, width), labels = task.theta.shape, task.labels.shape[1]
        sizes = {"items": items, "queries": len(task), "width": width, "labels": labels}
        require_environment(self.environment, **sizes)
        self._learner = learner = family(*example)
        prior = prior_for(learner, task)
        blocks = has_blocked_form(learner, self.environment)
        if not blocks and (devices is not None or form == "blocked"):
            option = "form='blocked'" if devices is None else f"devices={devices}"
            raise ValueError(
                f"learner {learner.name!r} has no blocked form here, which {option} needs: "
                f"leave {option.partition('=')[0]} out"
            )
        self._blocked = blocks and form != "scan"
        available = np.ones(items, bool) if task.available is None else task.available
        if devices is None:  # no copy on CPU
            catalogue = Catalogue(*jax.device_put((task.theta, available)))
        else:
            catalogue = sharding.split_rows(task.theta, available, sharding.make_mesh(item=devices))
        arrays, rest = split_environment(padded(self.environment, len(catalogue.theta)))
        # one call for three arrays, which saves time on small tasks
        queries, right, self._seeds = jax.device_put((task.queries, task.labels, np.array(seeds)))
        self._data = Data(catalogue, queries, right, arrays, prior)
        self._program = Program(family, rest, self._rounds(), devices)

    def _rounds(self) -> SimulateRounds:
        """Return the function that simulates a chunk of one run."""
        return simulate_blocked if self._blocked else scan_rounds

    @property
    def form(self) -> str:
        """Name of the form in which rounds are simulated."""
        if self._program.devices is not None:
            return f"mesh of {self._program.devices} devices"
        return "blocked" if self._blocked else "scan"

    def setting(self, *numbers: float) -> Float[np.ndarray, "R n"]:
        """Repeat the numbers of a setting for every run.

        Returns:
          [R, n].
        """
        return np.tile(np.array(numbers, np.float32), (len(self._seeds), 1))

    def start(self, settings: Float[np.ndarray, "R n"]) -> State:
        """Return the first states of all runs, interventions included."""
        return _start(self._program, self._data, _numbers(settings), self._seeds)

    def step(
        self, states: State, settings: Float[np.ndarray, "R n"], order: Int[np.ndarray, "R c"]
    ) -> tuple[State, Trace]:
        """Simulate one chunk.

        Args:
          states: states from `start` or an earlier call; their buffers are donated.
          settings: numbers of each run [R, n].
          order: positions of the queries [R, c], -1 where a stream has ended.

        Returns:
          The new states, and the trace of the chunk in every process.
        """
        return self._chunk(states, _numbers(settings), order)

    def _chunk(self, states, numbers, order) -> tuple[State, Trace]:
        """Implement `step`; overridden by simulations that log or call a selector."""
        states, trace = _step(self._program, self._data, states, numbers, order, self._seeds)
        return states, distributed.fetch(trace)

    def fingerprint(
        self, settings: Float[np.ndarray, "R n"], orders: Int[np.ndarray, "R T"]
    ) -> str:
        """Hash everything that determines the runs: the programs and their data."""
        numbers = _numbers(settings)
        states = jax.eval_shape(partial(_start, self._program), self._data, numbers, self._seeds)
        runs, mesh = len(self._seeds), sharding.run_mesh(len(self._seeds))
        if self._program.devices is None and (split := mesh.shape["run"]) > 1:
            # The mesh of the states of `start`, so that `_step` is traced once for both.
            mesh = NamedSharding(mesh, P("run") if runs % split == 0 else P())
            states = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=mesh), states
            )
        chunk, data = self.cut(orders)[0], (self._program, self._data)
        shapes = jax.tree.map(lambda x: (np.shape(x), jnp.result_type(x)), (self._data, chunk))
        key = (self._program, str(shapes))
        if key not in _TEXTS:
            step = _step.lower(*data, states, numbers, chunk, self._seeds).as_text()
            start = _start.lower(*data, numbers, self._seeds).as_text()
            _TEXTS[key] = hashlib.sha256((step + start).encode()).digest()
        digest = hashlib.sha256(_TEXTS[key])
        for array in jax.tree.leaves(distributed.fetch((self._data, numbers, orders, self._seeds))):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def cut(self, orders: Int[np.ndarray, "R T"]) -> list[Int[np.ndarray, "R c"]]:
        """Cut streams into chunks of one shape; the last chunk is padded with -1.

        A stream shorter than a chunk becomes one chunk whose length is a power of two, so that few
        sizes are compiled.

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
        first: State | None = None,
    ) -> tuple[State, Trace]:
        """Simulate whole streams.

        Args:
          settings: the numbers of each run [R, n].
          orders: the stream of each run [R, T].
          resume: folder of checkpoints; after SIGTERM or Ctrl-C the same call continues the run.
          title: title of the progress bar, which is shown only for long runs.
          first: states to continue from; None: `start`.

        Returns:
          The last states without those of interventions, and the trace [R, T], on the host and
          unpadded.
        """
        chunks, rounds = self.cut(orders), orders.shape[1]
        with Progress(total=rounds, desc=title, unit="round", delay=3, leave=False) as bar:

            def start():  # copies states to continue from, since buffers are donated
                kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
                shape = (len(orders), len(chunks) * chunks[0].shape[1])
                return {
                    "learner": self.start(settings)
                    if first is None
                    else jax.tree.map(jnp.copy, first),
                    "trace": Trace._make(np.zeros(shape, kind) for kind in kinds.values()),
                }

            def step(state, number):
                states, trace = self.step(state["learner"], settings, chunks[number])
                begin = number * chunks[0].shape[1]
                for whole, part in zip(state["trace"], trace, strict=True):
                    whole[:, begin : begin + part.shape[1]] = part
                bar.update(min(chunks[0].shape[1], rounds - begin))
                return {"learner": states, "trace": state["trace"]}

            state = _loop(resume, len(chunks), start, step)
        trace = Trace._make(part[:, :rounds] for part in state["trace"])
        return self._unpadded(learner_state(state["learner"])), trace

    def _unpadded(self, states: State) -> State:
        """Remove the rows with which a catalogue on a mesh is padded."""
        items = len(self.task.theta)
        if items == states.theta.shape[1]:
            return states

        def cut(spec, part):
            if "item" not in spec:
                return part
            axis = tuple(spec).index("item")
            return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, items, axis=axis), part)

        specs = state_specs(self._learner)
        return jax.vmap(partial(jax.tree.map, cut, specs))(states)


@partial(jax.jit, static_argnames="program")
def _start(program: Program, data: Data, numbers, seeds) -> State:
    def one(numbers, seed):
        environment = join_environment(data.environment, program.environment)
        own, key = program.family(*numbers), jax.random.key(seed)
        learner = with_interventions(own, environment, key, labels=data.labels.shape[1])
        return learner.init(*data.catalogue)

    return over_runs(program, one, numbers, seeds)


# Donates the states: a second copy of all runs would dominate the memory.
@partial(jax.jit, static_argnames="program", donate_argnames="states")
def _step(program: Program, data: Data, states, numbers, order, seeds) -> tuple[State, Any]:
    def one(state, numbers, order, seed):
        stream = Stream(data.queries, data.labels, order, data.prior)
        environment = join_environment(data.environment, program.environment)
        arguments = (program.family(*numbers), state, environment, stream, jax.random.key(seed))
        if program.devices is not None:
            return simulate_on_mesh(*arguments, mesh=sharding.make_mesh(item=program.devices))
        return program.rounds(*arguments)

    return over_runs(program, one, states, numbers, order, seeds)


def over_runs(program: Program, one: Callable, *args: Any) -> Any:
    """Map a function over runs: side by side, or one after another on all devices of a mesh.

    Args:
      program: program of the runs.
      one: function of one run.
      *args: trees with a leading axis [R].
    """
    if program.devices is None:
        runs = len(jax.tree.leaves(args)[0])
        return sharding.sweep(one, *args, mesh=sharding.run_mesh(runs))
    return jax.lax.map(lambda x: one(*x), args)


def _numbers(settings: Float[np.ndarray, "R n"]) -> jax.Array:
    return jnp.asarray(np.asarray(settings, np.float32))  # converted by NumPy, without a program


def _loop(resume: Path | None, chunks: int, start: Callable, step: Callable) -> Any:
    """Run all chunks; with a folder, a signal stops the run and the same call resumes it."""
    if resume is None:
        state = start()
        for number in range(chunks):
            state = step(state, number)
        return state
    # imports orbax, which takes seconds
    from jaxret.runtime.checkpoint import interruptible, run_chunks

    with interruptible() as interrupted:
        return run_chunks(resume, interrupted, chunks=chunks, start=start, step=step, keep=True)
