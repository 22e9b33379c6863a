"""What does a round of each rule cost, and how large is its state?

    uv run python -m experiments.benchmarks.rules again=true
    uv run python -m experiments.benchmarks.rules again=true dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool encoder=mpnet
    uv run python -m experiments.benchmarks.rules again=true size=2000x384 rounds=1024

One seed, the first setting of each grid, without compilation; all learners in one process, in turn.
With ``size=<I>x<d>`` the catalogue is random and the learners are `BEST`, each in the form that the
library takes for it. For each learner:

    LEARNER/microseconds    per round; one value per repeat
    LEARNER/over_greedy     its time / the time of `greedy` in the same turn
    LEARNER/kilobytes       of the state before the first round

2 cores: DeskBank 3 min, most of which compiles.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.benchmarks import machine
from experiments.benchmarks.rounds import random_problem
from experiments.benchmarks.timing import quartiles
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table
from experiments.rivals import size
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.engine import Simulation
from jaxret.task import Task

COLUMNS = ("microseconds", "over_greedy", "kilobytes")
EVERY = 32  # rounds between two updates of a map that has a blocked form


def mixture_of_8() -> Learner:
    """Return a mixture with a blocked form: frozen, `greedy` and two kinds of maps, at two tau."""
    taus = {"tau": [0.02, 0.04]}
    maps = {**taus, "eta": 6e-4, "map_every": EVERY}
    rows = [jr.grid(jr.frozen, **taus), jr.grid(jr.greedy, **taus)]
    return jr.mixture([*rows, jr.grid(jr.mapped, **maps), jr.grid(jr.centred, **maps)])


def mixture_vectors() -> Learner:
    """Return the default mixture without words and usage, with maps that move in every round."""
    return jr.mixture(jr.default_experts(offsets=False, map_every=1))


BEST = {
    "greedy": jr.greedy,
    "mapped_tiled": partial(jr.mapped, map_every=EVERY),
    "centred_tiled": partial(jr.centred, map_every=EVERY),
    "greedy_replayed": jr.greedy_replayed,
    "mixture_of_8": mixture_of_8,
    "mapped": jr.mapped,
    "centred": jr.centred,
    "mixture_vectors": mixture_vectors,
}


@experiment("benchmark_rules")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Time every learner on the first rounds of a stream."""
    print(machine.measured(), flush=True)
    task, grids = _problem(cfg)
    rounds = min(cfg.rounds, len(task))
    order = jr.exposures(len(task), 1, cfg.seed)[None, :rounds]
    made = {
        name: Simulation(
            *(grid.family, task), seeds=[cfg.seed], example=grid.settings[0], chunk=rounds
        )
        for name, grid in grids.items()
    }
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in Progress(range(1 + cfg.repeats), unit="turn"):  # the first turn compiles
        run.pause(0)
        for name, grid in grids.items():
            begin = time.perf_counter()
            made[name].run(grid.settings[:1], order)
            times[name].append(1e6 * (time.perf_counter() - begin) / rounds)
    results = {}
    for name, grid in grids.items():
        each = np.array(times[name][1:])
        results |= {
            f"{name}/microseconds": each,
            f"{name}/over_greedy": each / np.array(times["greedy"][1:]),
            f"{name}/kilobytes": np.array([size(grid.learner(0), task) / 1e3]),
        }
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse invalid numbers, and learners without the one that they are compared with."""
    names = [grid.name for grid in learner_grids(cfg)]
    require("learner", names, "with greedy among them", lambda known: "greedy" in known)
    require("rounds", cfg.rounds, ">= 1", lambda x: x >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print medians and quartiles, one line per learner."""
    where = cfg.size or f"{cfg.dataset.name}, {cfg.encoder.name}"
    rows = {
        name: [quartiles(results[f"{name}/{column}"]["values"]) for column in COLUMNS]
        for name in (BEST if cfg.size else cfg.learners)
    }
    print_table(f"{where}: one seed, {cfg.repeats} repeats", COLUMNS, rows)


def _problem(cfg: DictConfig) -> tuple[Any, dict[str, LearnerGrid]]:
    """Return the task and the learners by name."""
    if not cfg.size:
        return task_of(cfg), {grid.name: grid for grid in learner_grids(cfg)}
    items, width = map(int, cfg.size.split("x"))
    theta, stream = random_problem(items, width, cfg.rounds, cfg.seed)
    arrays = (np.asarray(x) for x in (theta, stream.queries, stream.labels))
    return Task.from_arrays(*arrays), {name: jr.grid(make) for name, make in BEST.items()}


if __name__ == "__main__":
    main.cli()
