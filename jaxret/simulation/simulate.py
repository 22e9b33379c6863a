"""Simulates a deployment: a learner on a stream of a task's queries, with several seeds.

    run = simulate(greedy(), train, exposures=5, seeds=5)

A seed determines the order of the stream and all random draws. `jaxret.simulation.scan` defines a
round: start reading there. A second call with a learner of the same structure compiles nothing,
whatever the learner's numbers.

Letters: S seeds, T rounds, N queries, n numbers of a setting.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.environments.environment import Environment
from jaxret.learners.grid import Family, LearnerGrid, traced
from jaxret.learners.learner import Learner, require_learner
from jaxret.runtime import distributed
from jaxret.runtime.files import write_whole
from jaxret.runtime.validate import require
from jaxret.simulation.engine import CHUNK, Form, Simulation
from jaxret.simulation.logged import LoggedSimulation
from jaxret.simulation.run import Run
from jaxret.simulation.selected import SelectedSimulation
from jaxret.simulation.streams import seed_numbers, stream_orders
from jaxret.task import Task
from jaxret.types import Selector, State, Trace


def simulate(
    learner: Learner | Run | LearnerGrid,
    task: Task,
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    exposures: int = 1,
    rounds: int | None = None,
    hops: bool = False,
    order: Int[np.ndarray, "*S T"] | None = None,
    seeds: int | Sequence[int] = 1,
    environment: Environment | None = None,
    form: Form = "auto",
    devices: int | None = None,
    select: Selector | None = None,
    after: Run | None = None,
    resume: str | Path | None = None,
    log: str | Path | None = None,
    chunk: int = CHUNK,
) -> Run:
    """Simulate a learner on a task's queries.

    `jaxret.simulation.scan` defines a round: start reading there. ``run.form`` names the form used.

    Args:
      learner: a preset or any `Learner`; a run, whose learner is used with the settings that each
        seed chose (`Sweep.best`); or a grid of one setting, or of one setting per seed.
      task: task whose queries are streamed.
      part: queries to stream, mask [N], or one row per seed [S, N] (`Task.parts`); None: all.
      exposures: number of times that each query is streamed, reshuffled each time; 1 is a
        deployment that sees each query once.
      rounds: length at which streams are cut; None: streams are simulated to their ends.
      hops: whether the queries of a group are the hops of one question, which are streamed
        consecutively (ORAG Algorithm 4).
      order: positions of the queries in the order of the stream, [T], or one row per seed [S, T]
        padded with -1; replaces ``part``, ``exposures`` and ``hops``.
      seeds: number of runs (with seeds from 0), or the seeds themselves.
      environment: environment of the rounds; None: rewards are correct, all items are available,
        and the first item shown is used.
      form: 'scan' for the plain scan, 'blocked' for the exact blocked form, 'auto' for the fastest
        form of the learner. With ``select``, and with ``log`` for slates of several items, rounds
        are always those of the scan.
      devices: number of devices, over all processes, over which a large catalogue is split; None:
        seeds run side by side.
      select: chooses from each slate outside the program; None: the environment chooses.
      after: run to continue from its last states; rounds are numbered on.
      resume: folder of checkpoints; after Ctrl-C or SIGTERM the same call continues the run.
      log: folder in which each seed writes its slates and feedback (`jaxret.logs`), as
        ``seed_<number>.jsonl``; rounds already in a log are not written twice.
      chunk: rounds between two points where the run can stop.

    Raises:
      ValueError: if ``learner`` is not a learner, a setting is out of range, or a folder holds
        another run.
      Interrupted: if a signal stopped the run and ``resume`` holds its state; a SystemExit.
    """
    numbers = seed_numbers(seeds)
    one, family, settings, named = _family_of(learner, len(numbers))
    if select is not None and (log is not None or devices is not None):
        raise ValueError("select goes with neither log nor devices: leave them out")
    simulator: Callable[..., Simulation] = Simulation
    if log is not None:
        simulator = partial(LoggedSimulation, folder=Path(log))
    if select is not None:
        simulator = partial(SelectedSimulation, select=select)
    shared: dict[str, Any] = {"chunk": chunk, "devices": devices, "form": form, "seeds": numbers}
    simulation = simulator(family, task, environment, example=settings[0].tolist(), **shared)
    stream: dict[str, Any] = {"part": part, "rounds": rounds, "hops": hops, "order": order}
    orders = stream_orders(task, exposures, numbers, **stream)
    begin = time.perf_counter()
    states, trace = run_streams(
        simulation, settings, orders, name=one.name, resume=resume, after=after
    )
    return Run(
        learner=one,
        family=family,
        numbers=settings,
        task=task,
        seeds=numbers,
        order=orders,
        trace=trace,
        states=states,
        environment=environment or Environment(),
        form=simulation.form,
        seconds=time.perf_counter() - begin,
        settings=named,
    )


def run_streams(
    simulation: Simulation,
    settings: Float[np.ndarray, "S n"],
    orders: Int[np.ndarray, "S T"],
    *,
    name: str,
    resume: str | Path | None,
    after: Run | None = None,
) -> tuple[State, Trace]:
    """Run a simulation to its end, or until a signal stops it.

    Args:
      simulation: simulation of S runs.
      settings: numbers of each run [S, n].
      orders: stream of each run [S, T], -1 where it has ended.
      name: name of the learner, for the progress bar.
      resume: folder of checkpoints; None: the run cannot be resumed.
      after: run to continue from; None: the simulation starts from the learner's first state.

    Returns:
      The last states, and the trace [S, T], NaN (items: -1) where a stream has ended.

    Raises:
      ValueError: if ``after`` has other seeds or is combined with ``resume``, or the folder holds
        another simulation.
      Interrupted: if a signal stopped the run and ``resume`` holds its state; a SystemExit.
    """
    folder, first = None, None if after is None else after.states
    if after is not None and after.seeds != simulation.seeds:
        raise ValueError(f"the run to continue from has the seeds {after.seeds}: give the same")
    if resume is not None and after is not None:
        raise ValueError("after goes without resume: leave one of them out")
    if resume is not None:
        folder = _claimed(Path(resume), name, simulation.fingerprint(settings, orders))
    try:
        states, trace = simulation.run(settings, orders, resume=folder, title=name, first=first)
    except SystemExit as stopped:  # a signal came; the state is saved
        print(f"{name}: {stopped}", file=sys.stderr)
        raise
    if (orders >= 0).all():
        return states, trace
    ended = {key: -1 if key == "item" else np.nan for key in Trace._fields}
    fields = trace._asdict().items()
    return states, Trace._make(np.where(orders >= 0, x, ended[key]) for key, x in fields)


def _family_of(
    learner: Learner | Run | LearnerGrid, seeds: int
) -> tuple[Learner, Family, Float[np.ndarray, "S n"], dict[str, Any]]:
    """Return the first seed's learner, its family, the numbers of each seed, and their names."""
    if isinstance(learner, Run):
        one, family, numbers = learner.learner, learner.family, learner.numbers
        settings = dict(learner.settings)
    elif isinstance(learner, LearnerGrid):
        one, family, numbers = learner.learner(0), learner.family, learner.settings
        settings: dict[str, Any] = dict(learner.columns(numbers))
    else:
        require_learner(learner)
        one, settings = learner, {}
        family, own = traced(learner)
        numbers = np.array([own], np.float64)
    if (numbers == numbers[0]).all():
        return one, family, np.tile(numbers[0], (seeds, 1)), settings
    require("seeds", seeds, f"{len(numbers)}, as many as there are settings", len(numbers).__eq__)
    return one, family, numbers, settings


def _claimed(folder: Path, learner: str, fingerprint: str) -> Path:
    """Return the folder of checkpoints if it is new or holds this run."""
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
