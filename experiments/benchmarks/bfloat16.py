"""What does it cost to keep Theta in bfloat16, and how should its rows be rounded?

    uv run python -m experiments.benchmarks.bfloat16                    # DeskBank; exposures=5
    uv run python -m experiments.benchmarks.bfloat16 dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Each learner with rows in float32, in bfloat16 rounded to the nearest number, and stochastically
(`jaxret.in_bfloat16`), on the same streams. `greedy`, `orag` and `mapped_32` (a map that moves once
in 32 rounds) take the blocked form, which rounds once in 128 rounds or 32; `mapped` takes the scan,
which rounds in each.

    LEARNER ROWS/online     success of the tool shown, all queries streamed
    LEARNER ROWS/final      nDCG@10 of all queries by the last states
    LEARNER ROWS/heldout    nDCG@10 of a fifth of the questions, after a stream of the others
    .._gain                 the same less that of float32, seed by seed

2 cores, busy with other work: a minute for DeskBank. To expect: gains of some thousandths, either
way, but where each round rounds to the nearest.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.benchmarks import machine
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.learners.learner import Learner
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import Task

MEASURES = ("online", "final", "heldout")
COLUMNS = tuple(f"{name}{more}" for name in MEASURES for more in ("", "_gain"))
MAKERS: dict[str, Callable[[], Learner]] = {
    "greedy": jr.greedy,
    "orag": jr.orag,
    "mapped_32": partial(jr.mapped, map_every=32),
    "mapped": jr.mapped,
}
ROWS: dict[str, Callable[[Learner], Learner]] = {
    "float32": lambda learner: learner,
    "nearest": partial(jr.in_bfloat16, rounding="nearest"),
    "stochastic": partial(jr.in_bfloat16, rounding="stochastic"),
}


@experiment("benchmark_bfloat16")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Plays every learner with every kind of rows on the same streams."""
    print(machine.measured(), flush=True)
    task = load_task(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    for name in cfg.rules:
        for rows in (bar := Progress(ROWS, unit="kind")):
            bar.set_postfix_str(f"{name} {rows}")
            run.pause(0)
            play = partial(played, ROWS[rows](MAKERS[name]()), task, cfg.exposures, seeds, cfg.seed)
            for measure, values in run.result(f"{name}-{rows}", play).items():
                results[f"{name} {rows}/{measure}"] = values
                gain = values - results[f"{name} float32/{measure}"]
                results[f"{name} {rows}/{measure}_gain"] = gain
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses numbers that cannot be."""
    require("seeds", cfg.seeds, ">= 1", lambda x: x >= 1)
    require("exposures", cfg.exposures, ">= 1", lambda x: x >= 1)
    known = "some of " + ", ".join(MAKERS)
    require("rules", cfg.rules, known, lambda xs: len(xs) and set(xs) <= set(MAKERS))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line for each learner and kind of rows."""
    names = [f"{name} {rows}" for name in cfg.rules for rows in ROWS]
    title = f"{cfg.dataset.name}, {cfg.encoder.name}: rows in bfloat16, exposures={cfg.exposures}"
    results_table(results, names, COLUMNS, title)


def played(
    learner: Learner, task: Task, exposures: int, seeds: range, split: int
) -> dict[str, np.ndarray]:
    """`MEASURES` of each seed, [S]."""
    ndcg = "ndcg@10"
    whole = jr.simulate(learner, task, exposures=exposures, seeds=seeds)
    train, test = task.split((0.8, 0.2), seed=split)
    part = jr.simulate(learner, train, exposures=exposures, seeds=seeds)
    return {
        "online": whole.accuracy.values,
        "final": jr.evaluate(whole, task, [ndcg])[ndcg].values,
        "heldout": jr.evaluate(part, test, [ndcg])[ndcg].values,
    }


if __name__ == "__main__":
    main.cli()
