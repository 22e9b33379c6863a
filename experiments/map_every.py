"""What does it cost to update a query map once in many rounds instead of every round?

    uv run python -m experiments.map_every                                            # DeskBank
    uv run python -m experiments.map_every dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Runs `mapped`, `centred` and `mixture` with query maps that are updated once in B rounds, on the
same streams. Multiples of 8 have a blocked form. For each, with all queries streamed once:

    LEARNER B/online    success of the tool shown
    LEARNER B/gain      the same minus that of the first B of the list, seed by seed

2 cores, busy with other work: 6 min for `mapped` and `centred` on DeskBank. Expect gains within
half a point of 0, most of them below.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import accuracy_of
from experiments.common.tables import results_table
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require

COLUMNS = ("online", "gain")
MAKERS: dict[str, Callable[[int], Learner]] = {
    "mapped": lambda every: jr.mapped(map_every=every),
    "centred": lambda every: jr.centred(map_every=every),
    "mixture": lambda every: jr.mixture(jr.default_experts(map_every=every)),
}


@experiment("map_every")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every learner with every B on the same streams."""
    task = task_of(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    steps = {
        f"{rule} {every}": partial(accuracy_of, MAKERS[rule](every), task, seeds)
        for rule in cfg.rules
        for every in cfg.every
    }
    for name, found in run.results(steps, "tile"):
        results[f"{name}/online"] = found["online"]
        first = results[f"{name.split()[0]} {cfg.every[0]}/online"]
        results[f"{name}/gain"] = found["online"] - first
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range, and unknown learners."""
    require("every", cfg.every, "numbers >= 1", lambda xs: len(xs) and min(xs) >= 1)
    known = "some of " + ", ".join(MAKERS)
    require("rules", cfg.rules, known, lambda xs: len(xs) and set(xs) <= set(MAKERS))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line for each learner and B."""
    names = [name.removesuffix("/online") for name in results if name.endswith("/online")]
    title = f"{cfg.dataset.name}, {cfg.encoder.name}: maps that move once in B rounds"
    results_table(results, names, COLUMNS, title)


if __name__ == "__main__":
    main.cli()
