"""Does regret grow like sqrt(T), and how loose are the bounds?   (ORAG Section 5, B.4, Figure 8)

    uv run python -m experiments.regret                                       # DeskBank
    uv run python -m experiments.regret dataset=ultratool dataset.path=FILE

One sequence of queries is cut at horizons T and streamed to Algorithm 1 as analysed in the paper:
items drawn from p, constant eta = c / sqrt(T), seeds that differ only in the draws.

    proximal   the whole catalogue, unconstrained rows; regret against the proximal comparator of
               each horizon (certified in float64), with Theorem 5.1 and Corollary 5.2
    ball       a few tools, rows in the unit ball; regret against the best rows in it. Rewards are
               correct, or wrong with probability rho: Eq. (4) with noisy rewards and the debiased
               rule, with Theorems 5.1 and B.2, Corollary B.3 and the debiased bound

Only queries with one label are streamed, as the theorems assume.

2 cores: 1 min 40 s. Expect on DeskBank (20 seeds): in the ball, slope 0.51 of log regret on log
T with right bits and Theorem 5.1 at 1.9 to 2.4 times the regret; at rho = 0.2 slope 0.98 for
Eq. (4) and 0.74, falling, for the debiased rule. With free rows the proximal comparator recedes
as T grows, so regret grows faster than sqrt(T) (slope 0.8), and Theorem 5.1 is 25 to 120 times
the regret.
"""

from dataclasses import replace

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.regret.curve import Curve, Stage, measure
from experiments.regret.hindsight import best_in_ball, best_near_start
from jaxret.evaluation import plots
from jaxret.task import Task

Measurements = dict[str, np.ndarray]


@experiment("regret")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Runs every curve at every horizon; returns the results, and draws the figures."""
    task = _single_label(task_of(cfg))
    few = _first_tools(task, cfg.ball.tools)
    return _proximal(cfg, task, run) | _ball(cfg, few, run)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints regrets and bounds at every horizon, and the slopes."""
    rows = {name.rsplit("/", 1)[0] for name in results if "/T=" in name}
    rows = sorted(rows, key=lambda row: (row.split("T=")[0], int(row.split("T=")[1])))
    columns = ["regret", "Theorem 5.1", "Corollary 5.2", "Theorem B.2", "Corollary B.3", "debiased"]
    results_table(results, rows, columns, f"{cfg.dataset.name}: regret and bounds")
    for name in (name for name in results if name.endswith("slope")):
        low, high = results[f"{name}_low"]["mean"], results[f"{name}_high"]["mean"]
        print(f"{name}: {results[name]['mean']:.2f}, 95 % interval {low:.2f} to {high:.2f}")


def _proximal(cfg: DictConfig, task: Task, run: RunDirectory) -> Measurements:
    part, stage = cfg.proximal, _stage(cfg, cfg.proximal, task, run)
    results: Measurements = {}
    figure, ax = plots.new_figure("rounds T", "regret after T rounds")
    for point in part.points:
        curve = Curve(f"proximal/tau={point.tau}", tau=point.tau, c=point.c)

        def comparator(eta, counts, tau=point.tau):
            return best_near_start(task, counts, tau=tau, eta=eta)

        measured = measure(stage, curve, comparator)
        results |= measured.results
        label = f"tau = {point.tau}: slope {measured.slope:.2f}"
        line = plots.curve_with_band(ax, part.horizons, measured.regrets, label)
        theorem = measured.bounds["Theorem 5.1"]
        (dotted,) = ax.plot(part.horizons, theorem, ":", color=line.get_color())
        dotted.set_label(f"Theorem 5.1, tau = {point.tau}")
    plots.log_axes(ax, part.horizons)
    plots.label_curves(ax)
    run.save_figure(figure, "proximal")
    return results


def _ball(cfg: DictConfig, task: Task, run: RunDirectory) -> Measurements:
    part, stage = cfg.ball, _stage(cfg, cfg.ball, task, run)
    best = best_in_ball(task, tau=part.tau)  # every horizon is compared with the same rows
    clean = Curve("ball/rho=0", tau=part.tau, c=part.c, radius=1.0)
    curves = {"bits are right": clean}
    for rho in part.rates:
        noisy = clean._replace(name=f"ball/rho={rho}", rho=rho)
        curves[f"Eq. (4), rho = {rho}"] = noisy
        fair = noisy._replace(name=f"{noisy.name}/debiased", debiased=True)
        curves[f"debiased, rho = {rho}"] = fair
    results: Measurements = {}
    figure, ax = plots.new_figure("rounds T", "regret after T rounds")
    for label, curve in curves.items():
        measured = measure(stage, curve, lambda eta, counts: best)
        results |= measured.results
        plots.curve_with_band(
            ax, part.horizons, measured.regrets, f"{label}: slope {measured.slope:.2f}"
        )
    plots.log_axes(ax, part.horizons)
    plots.label_curves(ax)
    run.save_figure(figure, "ball")
    return results


def _stage(cfg: DictConfig, part: DictConfig, task: Task, run: RunDirectory) -> Stage:
    order = _sequence(task, max(part.horizons), cfg.seed)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    return Stage(run, task, order, part.horizons, seeds, part.chunk)


def _sequence(task: Task, rounds: int, seed: int) -> np.ndarray:
    """Returns the order of the queries: shuffled anew each time they have all been seen."""
    times = -(-rounds // len(task.queries))
    return jr.exposures(len(task.queries), times, seed)[:rounds]


def _single_label(task: Task) -> Task:
    one = (task.labels >= 0).sum(axis=1) == 1
    if not one.any():
        raise ValueError(f"{task.name} has no query with one label, which theorems need")
    kept = task.select(one)
    return replace(kept, labels=kept.labels[:, :1])


def _first_tools(task: Task, items: int) -> Task:
    """Selects the first tools of the catalogue, and their queries."""
    some = (task.labels < items)[:, 0]
    if not 2 <= items <= len(task.theta) or not some.any():
        raise ValueError(f"ball.tools must be in 2 .. {len(task.theta)}, got {items}")
    return replace(task.select(some), theta=task.theta[:items], ids=task.ids[:items])


if __name__ == "__main__":
    main.cli()
