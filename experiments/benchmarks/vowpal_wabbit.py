"""How accurate is Vowpal Wabbit on the same stream?   (a reference for `experiments.rivals`)

    uv pip install vowpalwabbit                      # or the extra `rivals`
    uv run --no-sync python -m experiments.benchmarks.vowpal_wabbit
    uv run --no-sync python -m experiments.benchmarks.vowpal_wabbit dataset=ultratool \\
        dataset.path=FILE document=orag_ultratool

Runs `--cb_explore_adf` on the parts and the stream of `experiments.rivals`, with the learning rate
chosen on a pilot by success while learning. Features of a tool: its name, crossed with the query's
vector (a linear model per tool), and the cosine of query and document. A success costs -1, a
failure 0. Updates are plain gradient steps: with the default updates (adaptive, normalised) all
tools get the same prediction. SquareCB's default, gamma_scale 10, explores far too much among
hundreds of tools, so it is 1,000 here. For each kind of exploration, with two initialisations:

    squarecb/nothing/online        success of the tool shown
    squarecb/documents/online      the same after a round for each document as a query, with its own
                                   tool right and a random one wrong

Results vary with the version of Vowpal Wabbit, which nothing else in jaxret needs.

2 cores, busy with other work: greedy and SquareCB on DeskBank 21 min, on UltraTool 90.
"""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.runtime.validate import require
from jaxret.task import Task

WAYS = {
    "greedy": "--epsilon 0.0",
    "squarecb": "--squarecb --gamma_scale 1000 --cb_min_cost -1 --cb_max_cost 0",
    "cover": "--cover 3",
}
STARTS = ("nothing", "documents")
BITS = 22  # size of the table of weights: 4 million


@experiment("benchmark_vowpal_wabbit")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream with every kind of exploration, at the rate chosen on the pilot."""
    task = task_of(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    pilot = jr.stream_orders(task, 1, seeds, part=parts.validation)
    reported = jr.stream_orders(task, 1, seeds, part=parts.training)

    def stream_all(way, start):
        """Choose the rate of each seed on its pilot, and stream at that rate."""
        online, rates = [], []
        for seed, few, stream in zip(seeds, pilot, reported, strict=True):
            run.pause(len(online))
            tried = [served(task, few, way, start, rate, seed) for rate in cfg.rates]
            rates.append(cfg.rates[int(np.argmax(tried))])
            online.append(served(task, stream, way, start, rates[-1], seed))
        return {"online": online, "rate": rates}

    steps = {f"{w}/{start}": partial(stream_all, w, start) for w in cfg.ways for start in STARTS}
    return {
        f"{name}/{key}": values
        for name, found in run.results(steps, "way")
        for key, values in found.items()
    }


@main.check
def check(cfg: DictConfig) -> None:
    """Check the kinds of exploration, and that Vowpal Wabbit is installed."""
    for way in cfg.ways:
        require("ways", way, f"of {', '.join(WAYS)}", WAYS.__contains__)
    require("rates", list(cfg.rates), "one or more, > 0", lambda x: x and min(x) > 0)
    workspace("greedy", 0.5, 0).finish()


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per kind of exploration and start."""
    rows = [f"{way}/{start}" for way in cfg.ways for start in STARTS]
    results_table(results, rows, ("online", "rate"), f"{cfg.dataset.name}: Vowpal Wabbit")


def served(
    task: Task, order: Int[np.ndarray, " T"], way: str, start: str, rate: float, seed: int
) -> float:
    """Stream once."""
    learner, rng = workspace(way, rate, seed), np.random.default_rng(seed)
    if start == "documents":
        for tool in rng.permutation(len(task.theta)):
            for shown in (tool, rng.integers(len(task.theta))):
                cost = -1.0 if shown == tool else 0.0
                learner.learn(example(task.theta, task.theta[tool], int(shown), cost, 1.0))
    success = []
    for query in order[order >= 0]:
        line = example(task.theta, task.queries[query])
        probabilities = np.asarray(learner.predict(line), np.float64)
        shown = int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
        right = bool((task.labels[query] == shown).any())
        success.append(right)
        bit = example(task.theta, task.queries[query], shown, -float(right), probabilities[shown])
        learner.learn(bit)
    learner.finish()
    return float(np.mean(success))


def workspace(way: str, rate: float, seed: int) -> Any:
    """Create Vowpal Wabbit with a linear model of the query for each tool."""
    try:
        from vowpalwabbit import Workspace
    except ImportError as error:
        raise ImportError("this benchmark needs: uv pip install vowpalwabbit") from error
    updates = f"--sgd --power_t 0 -l {rate} -b {BITS} --random_seed {seed}"
    return Workspace(f"--cb_explore_adf {WAYS[way]} -q qt {updates} --quiet")


def example(
    theta: Float[np.ndarray, "I d"],
    query: Float[np.ndarray, " d"],
    shown: int | None = None,
    cost: float = 0.0,
    chance: float = 1.0,
) -> str:
    """Format a round for Vowpal Wabbit; with the tool shown, cost and probability, to learn."""
    lines = ["shared |q " + " ".join(f"{i}:{x:.5g}" for i, x in enumerate(query))]
    for tool, cosine in enumerate((theta @ query).tolist()):
        label = f"0:{cost:g}:{chance:.6g} " if tool == shown else ""
        lines.append(f"{label}|t t{tool} |c d:{cosine:.4f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main.cli()
