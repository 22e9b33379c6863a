"""How much do the paper's settings change scores in one pass?           (ORAG C.2, tau = 1)

    uv run python -m experiments.paper_settings
    uv run python -m experiments.paper_settings dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Runs every learning rate of the paper's search, and some above it, for its trainer (AdamW over
batches of 40, 1/sqrt(t)) and for Eq. (4) itself (SGD, 1/sqrt(t)), with each query once: on DeskBank
50 updates of AdamW, where the paper makes some 3,000. For every rate:

    change      of a score q . theta between first and last embeddings: mean and largest
    bound       on the largest change for any feedback (`experiments.score_drift`; for SGD its mean
                over draws, for the tool that is right most often)
    reordered   share of queries whose first ten tools or their order differ afterwards
    ndcg        after minus before, on the streamed queries

and the gap between the first and the second score of a query, which a change must exceed to matter.

2 cores: DeskBank 20 s. Expect there, at the highest rate that the paper searches (1e-5): no score
changes by more than 0.001 (bound 0.002) under AdamW and 0.0002 under SGD, where the first two lie
0.023 apart; 2 % and 0.1 % of the lists of ten are reordered, and nDCG@10 rises by 0.00005.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.score_drift import adam_ratio, adamw_score_drift, sgd_mean_score_drift
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.rules import schedules
from jaxret.task import Task

COLUMNS = ("mean", "largest", "bound", "reordered", "ndcg")
RULES = ("adamw", "sgd")
SEARCHED = (1e-8, 1e-5)  # learning rates searched in the paper


@experiment("paper_settings")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Streams once for every rate; measures, bounds, and draws the figure."""
    rates, task, metric = plain(cfg.rates), task_of(cfg), f"ndcg@{cfg.k}"
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    before = task.queries @ task.theta.T
    static = jr.evaluate(task.theta, task, [metric])[metric].values
    ordered = np.sort(before, axis=1)
    results = {"gap/median": np.array([np.median(ordered[:, -1] - ordered[:, -2])])}

    def measure(name, learner):
        ran = jr.simulate(learner, task, seeds=seeds, chunk=cfg.chunk, resume=run.resume(name))
        after = [task.queries @ np.asarray(theta).T for theta in ran.states.theta]
        return {
            "mean": [np.abs(x - before).mean() for x in after],
            "largest": [np.abs(x - before).max() for x in after],
            "reordered": [reordered(before, x, cfg.k) for x in after],
            "ndcg": jr.evaluate(ran, task, [metric])[metric].values - static,
        }

    for rule in rates:
        for rate in rates[rule]:
            name, learner = f"{rule}/{rate:g}", make(rule, rate, cfg.batch)
            step = name.replace("/", "-")
            found = run.result(step, partial(measure, step, learner))
            results |= {f"{name}/{key}": values for key, values in found.items()}
            results[f"{name}/bound"] = np.array([bound(rule, rate, task, cfg.batch)])
    figure(run, rates, results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Checks the names of trainers."""
    if unknown := sorted(set(cfg.rates) - set(RULES)):
        raise ValueError(f"rates: unknown {unknown}; known: {', '.join(RULES)}")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line per rate."""
    rows = [f"{rule}/{rate:g}" for rule in cfg.rates for rate in cfg.rates[rule]]
    results_table(results, rows, COLUMNS, cfg.dataset.name)
    print(f"gap between the first and second score, median: {results['gap/median']['mean']:.4f}")


def make(rule: str, rate: float, batch: int) -> Learner:
    """Makes one of the paper's two learners at tau = 1: its trainer, or Algorithm 1."""
    if rule == "adamw":
        return jr.paper_adamw(eta=rate, batch=batch)
    return jr.paper_sgd(eta=rate)


def reordered(before: Float[np.ndarray, "N I"], after: Float[np.ndarray, "N I"], k: int) -> float:
    """Computes the share of queries whose first k items or their order changed."""
    first, then = (np.argsort(-scores, axis=1, kind="stable")[:, :k] for scores in (before, after))
    return float((first != then).any(axis=1).mean())


def bound(rule: str, rate: float, task: Task, batch: int) -> float:
    """Computes the bound on the change of any score."""
    rounds = len(task.queries)
    steps = rounds // batch if rule == "adamw" else rounds
    rates = rate * np.asarray(schedules.inverse_sqrt()(jnp.arange(steps)), np.float64)
    if rule == "sgd":
        uses = np.bincount(task.labels[task.labels >= 0])
        return sgd_mean_score_drift(rates, tau=1.0, share=uses.max() / rounds)
    longest = 1 + (rates * adam_ratio(steps)).sum() * np.sqrt(task.queries.shape[1])
    widest = task.queries[np.abs(task.queries).sum(axis=1).argmax()]
    return adamw_score_drift(rates, widest, longest=longest)


def figure(
    run: RunDirectory, rates: dict[str, list[float]], results: dict[str, np.ndarray]
) -> None:
    """Draws the largest change over the rate, its bound dashed, and the gap of scores."""
    drawn, ax = plots.new_figure("learning rate", "largest change of a score")
    for rule in rates:
        values = np.stack([results[f"{rule}/{rate:g}/largest"] for rate in rates[rule]], axis=1)
        line = plots.curve_with_band(ax, np.array(rates[rule]), values, rule)
        bounds = [results[f"{rule}/{rate:g}/bound"][0] for rate in rates[rule]]
        ax.plot(rates[rule], bounds, "--", color=line.get_color(), linewidth=1)
    ax.axhline(results["gap/median"][0], color=plots.GREY, linewidth=1)
    ax.axvspan(*SEARCHED, color=plots.GREY, alpha=0.12, linewidth=0)
    ax.text(SEARCHED[0] * 1.5, ax.get_ylim()[1], "searched in the paper", va="top", fontsize=9)
    ax.set(xscale="log", yscale="log")
    ax.annotate(
        "median gap of the first two scores",
        (min(r for some in rates.values() for r in some), results["gap/median"][0]),
        xytext=(0, 3),
        textcoords="offset points",
        color=plots.GREY,
        fontsize=9,
    )
    plots.label_curves(ax)
    run.save_figure(drawn, "change")


if __name__ == "__main__":
    main.cli()
