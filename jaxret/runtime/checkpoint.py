"""Saving a run so that the same command resumes it, bit for bit.

    with Checkpointer(directory) as checkpoints, interruptible() as interrupted:
        saved = checkpoints.restore_latest(state)
        start, state = (0, state) if saved is None else (saved.step, saved.state)
        for step in range(start + 1, chunks + 1):
            state = run_chunk(state)
            if interrupted() or step % 10 == 0:
                checkpoints.save(step, state, meta)
            if interrupted():
                raise Interrupted(directory, step)

A state is any pytree: NamedTuples, typed keys, optax states, 64-bit NumPy arrays and sharded arrays
are restored unchanged. The target of a restore determines the shardings, so a state can be resumed
on another mesh or by another number of processes. Each process writes its own part to a shared file
system.
"""

import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxret.runtime import distributed

VERSION = 1  # version of the metadata beside the state
_OUTER: list[Callable[[], bool]] = []  # the function of the outer `interruptible`, if any
State = TypeVar("State")


class Saved(NamedTuple):
    """A state restored by `Checkpointer.restore_latest`."""

    step: int
    state: Any
    meta: dict[str, Any]


class Checkpointer:
    """The newest ``keep`` states of a run, in one folder; a context manager.

    A save is complete on disk when `save` returns; incomplete saves are never restored.
    """

    def __init__(self, directory: str | Path, keep: int = 2):
        self.directory = Path(directory).resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(
            self.directory, options=options, item_names=("state", "meta")
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._manager.close()

    def save(self, step: int, state: Any, meta: dict[str, Any]) -> None:
        """Write a state and its metadata.

        Args:
          step: number of the save, larger than that of the newest save.
          state: a tree of arrays.
          meta: metadata such as settings and counts, as JSON values.

        Raises:
          ValueError: if ``step`` is not larger than that of the newest save.
        """
        state = distributed.everywhere(state)
        latest = self._manager.latest_step()
        if latest is not None and step <= latest:
            raise ValueError(f"step {step} is not after step {latest} saved in {self.directory}")
        described = {"version": VERSION, "leaves": _describe(state), "meta": meta}
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(described)
            ),
        )

    def restore_latest(self, target: Any) -> Saved | None:
        """Restore the newest state, or return None if there is none.

        Args:
          target: a state (or its `jax.ShapeDtypeStruct`s with shardings) with the structure,
            shapes, dtypes and shardings of the restored state.

        Raises:
          ValueError: if the saved state differs from the target or cannot be read.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        described = self._read(step, meta=ocp.args.JsonRestore())["meta"]
        if described["version"] != VERSION:
            self._refuse(step, f"has format {described['version']}, this code reads {VERSION}")
        if differences := _differences(described["leaves"], _describe(target)):
            self._refuse(step, "holds another state than this run: " + "; ".join(differences[:5]))
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, distributed.everywhere(target))
        state = self._read(step, state=ocp.args.StandardRestore(abstract))["state"]
        return Saved(step=step, state=distributed.local(state, like=target), meta=described["meta"])

    def _read(self, step: int, **items: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:  # orbax raises many types for damaged files
            self._refuse(step, f"cannot be read ({type(error).__name__})", error)

    def _refuse(self, step: int, problem: str, cause: Exception | None = None) -> NoReturn:
        raise ValueError(
            f"checkpoint {self.directory / str(step)} {problem}. Delete that folder to go on "
            f"from an older one, or give the run another directory to start afresh."
        ) from cause


def run_chunks(
    folder: str | Path,
    interrupted: Callable[[], bool],
    *,
    chunks: int,
    start: Callable[[], State],
    step: Callable[[State, int], State],
    keep: bool = False,
    seconds: float = 300,
) -> State:
    """Run a loop that a signal can stop and the same call resumes, bit for bit.

    Args:
      folder: folder of the saved states.
      interrupted: function from `interruptible`, called after every chunk.
      chunks: number of chunks.
      start: makes the first state, a pytree of arrays of constant shapes.
      step: (state, number of the chunk) -> state.
      keep: whether the last state is saved, too.
      seconds: time between two saves; an interruption always saves.

    Raises:
      Interrupted: if a signal arrived, after the state is saved.
    """
    with Checkpointer(folder, keep=1) as checkpoints:
        state, first = start(), 0
        if saved := checkpoints.restore_latest(state):
            state, first = saved.state, saved.step
        last_save = time.monotonic()
        for done in range(first + 1, chunks + 1):
            state = step(state, done - 1)
            stop = interrupted()  # read once, so that a save and the raise agree
            overdue = distributed.anyone(time.monotonic() - last_save > seconds)
            if stop or overdue or (keep and done == chunks):
                checkpoints.save(done, state, {})
                last_save = time.monotonic()
            if stop:
                raise Interrupted(folder, done)
    return state


class Interrupted(SystemExit):
    """Ends an interrupted run whose state is saved, with exit code 143, as after SIGTERM.

    Python prints no message on exit, so the outermost level of a program prints ``str(error)``.
    """

    def __init__(self, directory: str | Path, step: int):
        super().__init__(143)
        self.directory, self.step = directory, step

    def __str__(self) -> str:
        return f"stopped at step {self.step}, saved in {self.directory}: the same command resumes"

    def __reduce__(self) -> tuple[type, tuple[str | Path, int]]:
        """Pickle the exception, for a parent process such as a sweep."""
        return Interrupted, (self.directory, self.step)


@contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM or SIGINT (Ctrl-C) has arrived.

    The signal no longer ends the process, so that the loop can end at the next chunk; a second
    Ctrl-C ends the process at once. Python allows signal handlers only in the main thread. With
    several processes a signal to one stops all; all must call the function equally often. Nested
    uses share the function, so that a signal between two loops of a run stops the second loop.
    """
    if _OUTER:
        yield _OUTER[0]
        return
    received = []

    def note(number, frame):
        received.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    # A handler that was not set from Python is None and cannot be restored.
    before = {
        number: signal.getsignal(number) or signal.SIG_DFL
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    for number in before:
        signal.signal(number, note)
    _OUTER.append(lambda: distributed.anyone(bool(received)))
    try:
        yield _OUTER[0]
    finally:
        _OUTER.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _describe(state: Any) -> dict[str, str]:
    """Return the type and shape of every leaf by path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {
        jax.tree_util.keystr(path): f"{getattr(leaf, 'dtype', type(leaf).__name__)}"
        f"{list(np.shape(leaf))}"
        for path, leaf in leaves
    }


def _differences(saved: dict[str, str], wanted: dict[str, str]) -> list[str]:
    return [
        f"{path or 'the state'} is {saved.get(path, 'missing')} there, "
        f"{wanted.get(path, 'missing')} here"
        for path in sorted(saved.keys() | wanted.keys())
        if saved.get(path) != wanted.get(path)
    ]
