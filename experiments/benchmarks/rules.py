"""What does a round of each rule cost, and how large is its state?

    uv run python -m experiments.benchmarks.rules again=true
    uv run python -m experiments.benchmarks.rules again=true dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool encoder=mpnet

One seed, the first setting of each grid, compiled; all learners in one process, in turn, so that
a ratio survives a noisy machine where a time does not. Of each learner:

    LEARNER/microseconds    a round; one value a repeat
    LEARNER/over_greedy     its time over that of `greedy` in the same turn
    LEARNER/kilobytes       of the state with which it begins

2 cores: DeskBank 3 min, most of which compiles.
"""

import time

import numpy as np
from omegaconf import DictConfig

from experiments.benchmarks import machine
from experiments.benchmarks.timing import quartiles
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table
from experiments.rivals import size
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation import streams
from jaxret.simulation.engine import Simulation

COLUMNS = ("microseconds", "over_greedy", "kilobytes")


@experiment("benchmark_rules")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Times every learner on the first rounds of a stream."""
    print(machine.measured(), flush=True)
    task, grids = load_task(cfg), learner_grids(cfg)
    rounds = min(cfg.rounds, len(task))
    order = streams.exposures(len(task), 1, cfg.seed)[None, :rounds]
    made = {
        grid.name: Simulation(
            *(grid.make, task), seeds=[cfg.seed], example=grid.settings[0], chunk=rounds
        )
        for grid in grids
    }
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in Progress(range(1 + cfg.repeats), unit="turn"):  # the first compiles
        run.pause(0)
        for grid in grids:
            begin = time.perf_counter()
            made[grid.name].run(grid.settings[:1], order)
            times[grid.name].append(1e6 * (time.perf_counter() - begin) / rounds)
    results = {}
    for grid in grids:
        each = np.array(times[grid.name][1:])
        results |= {
            f"{grid.name}/microseconds": each,
            f"{grid.name}/over_greedy": each / np.array(times["greedy"][1:]),
            f"{grid.name}/kilobytes": np.array([size(grid.learner(0), task) / 1e3]),
        }
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses numbers that cannot be, and learners without the one that they are held against."""
    names = [grid.name for grid in learner_grids(cfg)]
    require("learner", names, "with greedy among them", lambda known: "greedy" in known)
    for name in ("rounds", "repeats"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a learner: medians, and quartiles."""
    title = f"{cfg.dataset.name}, {cfg.encoder.name}: one seed, {cfg.repeats} repeats"
    rows = {
        name: [quartiles(results[f"{name}/{column}"]["values"]) for column in COLUMNS]
        for name in cfg.learners
    }
    print_table(title, COLUMNS, rows)


if __name__ == "__main__":
    main.cli()
