"""Simulating a deployment: a learner on a stream of a task's queries, with several seeds.

    run = simulate(greedy(), train, exposures=5, seeds=5)

A seed decides the order of the stream and the draws.

Letters: S seeds, T rounds.
"""

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.runtime import distributed
from jaxret.runtime.files import write_whole
from jaxret.runtime.validate import require
from jaxret.simulation import streams
from jaxret.simulation.engine import CHUNK, Simulation
from jaxret.simulation.logged import LoggedSimulation
from jaxret.simulation.run import Run
from jaxret.task import Task


def simulate(
    learner: Learner,
    task: Task,
    *,
    exposures: int = 1,
    seeds: int | Sequence[int] = 1,
    environment: Environment | None = None,
    devices: int | None = None,
    resume: str | Path | None = None,
    log: str | Path | None = None,
    chunk: int = CHUNK,
) -> Run:
    """Simulates a learner on a task's queries.

    What has a blocked form takes it, a catalogue that is split over devices runs on a mesh,
    everything else takes the plain scan; ``run.how`` says which.

    Args:
      learner: a preset, or a rule of one's own.
      task: its queries are streamed.
      exposures: how often each query comes, shuffled anew each time; 1 is a deployment that sees
        each once.
      seeds: how many runs (numbered from 0), or their numbers; they differ in order and draws.
      environment: what responds; None: the truth, everyone there, the first shown is used.
      devices: over which the catalogue is split, for large ones, of all processes together; None:
        seeds side by side.
      resume: a folder: the run can be interrupted (Ctrl-C, SIGTERM), and the same call goes on.
      log: a folder, to which each seed writes what it shows and what comes back (`jaxret.logs`),
        as ``seed_<number>.jsonl``; what stands there of this very run is not written twice.
      chunk: rounds between two points where it can stop.

    Raises:
      ValueError: for a setting out of its range, or a folder that holds another run.
      Interrupted: where a signal came and the state is saved in ``resume``; it is a SystemExit.
    """
    numbers = seed_numbers(seeds)
    form = Simulation if log is None else partial(LoggedSimulation, folder=Path(log))
    simulation = form(
        lambda: learner, task, environment, seeds=numbers, chunk=chunk, devices=devices
    )
    orders = stream_orders(task, exposures, numbers)
    blank = np.zeros((len(numbers), 0))
    begin = time.perf_counter()
    folder = None
    if resume is not None:
        folder = _claimed(Path(resume), learner.name, simulation.fingerprint(blank, orders))
    try:
        states, trace = simulation.run(blank, orders, resume=folder, title=learner.name)
    except SystemExit as stopped:  # a signal came; the state is saved
        print(f"{learner.name}: {stopped}", file=sys.stderr)
        raise
    return Run(
        learner=learner,
        task=task,
        seeds=numbers,
        order=orders,
        trace=trace,
        states=states,
        environment=environment or Environment(),
        how=simulation.how,
        seconds=time.perf_counter() - begin,
    )


def seed_numbers(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Which seeds are meant: so many, numbered from 0, or these."""
    numbers = tuple(range(seeds)) if isinstance(seeds, int | np.integer) else tuple(seeds)
    require(
        "seeds",
        seeds,
        "how many, 1 or more, or different numbers from 0 to 2^31 - 1",
        lambda _: (
            numbers
            and len({*numbers}) == len(numbers)
            and 0 <= min(numbers) <= max(numbers) < 2**31
        ),
    )
    return numbers


def stream_orders(task: Task, exposures: int, seeds: Sequence[int]) -> Int[np.ndarray, "S T"]:
    """The order in which each seed meets the queries of a task.

    Returns:
      positions [S, T].
    """
    require("exposures", exposures, "a whole number >= 1", lambda n: n == int(n) and n >= 1)
    return np.stack([streams.exposures(len(task), int(exposures), seed) for seed in seeds])


def _claimed(folder: Path, learner: str, fingerprint: str) -> Path:
    """The folder of checkpoints, if it is new or holds this very run."""
    described = {"learner": learner, "fingerprint": fingerprint}
    record = folder / "simulation.json"
    if record.exists() and json.loads(record.read_text()) != described:
        raise ValueError(
            f"{folder} holds another simulation (other data, settings, seeds, devices or version): "
            "give another folder, or delete it"
        )
    if distributed.leads():
        write_whole(record, json.dumps(described) + "\n")
    return folder / "checkpoints"
