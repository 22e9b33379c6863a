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

Letters: N queries, S seeds, n horizons, T rounds.

2 cores: 1 min 40 s. Expect on DeskBank (20 seeds): in the ball, slope 0.51 of log regret on log
T with right bits and Theorem 5.1 at 1.9 to 2.4 times the regret; at rho = 0.2 slope 0.98 for
Eq. (4) and 0.74, falling, for the debiased rule. With free rows the proximal comparator recedes
as T grows, so regret grows faster than sqrt(T) (slope 0.8), and Theorem 5.1 is 25 to 120 times
the regret.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.environments.environment import Environment, always_available
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one, rule_of
from jaxret.rules import estimators, policies, projections
from jaxret.runtime.progress import Progress
from jaxret.task import Task
from jaxret.theory import checks, theorems
from jaxret.theory.assumptions import Evidence, final_regrets
from jaxret.theory.comparators import Comparator, in_ball, proximal
from jaxret.types import Stream, Trace

Measurements = dict[str, np.ndarray]


class Curve(NamedTuple):
    """One line of the figure: a learner over horizons."""

    name: str
    tau: float
    c: float
    rho: float = 0.0
    debiased: bool = False
    radius: float | None = None

    def learner(self, tau, eta) -> Learner:
        """Make Algorithm 1 with this curve's estimator and projection."""
        if self.debiased:
            estimator = estimators.debiased(noise_rate=self.rho)
        else:
            estimator = estimators.importance_weighted()
        free = self.radius is None
        projection = projections.none() if free else projections.ball(radius=self.radius)
        draw = policies.softmax()
        return rank_one(
            self.name, estimator=estimator, policy=draw, projection=projection, tau=tau, eta=eta
        )

    def bounds(self, run: Evidence) -> list[theorems.Bound]:
        """Compute the bounds that apply to this learner."""
        constants = theorems.measured_constants(run)
        if self.debiased:
            return [theorems.debiased(run, noise_rate=self.rho)]
        if self.rho:
            b3 = theorems.corollary_b3(run, constants, noise_rate=self.rho)
            return [theorems.theorem_b2(run, noise_rate=self.rho), b3]
        return [theorems.theorem_5_1(run), theorems.corollary_5_2(run, constants)]


class Measured(NamedTuple):
    """The measurements of a curve at every horizon."""

    regrets: Float[np.ndarray, "S n"]
    bounds: dict[str, list[float]]  # the n values of each bound
    slope: float  # slope of log regret on log T
    results: dict[str, np.ndarray]


@experiment("regret")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every curve at every horizon; return the results, and draw the figures."""
    task = single_label(task_of(cfg))
    few = first_tools(task, cfg.ball.tools)
    return _proximal(cfg, task, run) | _ball(cfg, few, run)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print regrets and bounds at every horizon, and the slopes."""
    rows = {name.rsplit("/", 1)[0] for name in results if "/T=" in name}
    rows = sorted(rows, key=lambda row: (row.split("T=")[0], int(row.split("T=")[1])))
    columns = ["regret", "Theorem 5.1", "Corollary 5.2", "Theorem B.2", "Corollary B.3", "debiased"]
    results_table(results, rows, columns, f"{cfg.dataset.name}: regret and bounds")
    for name in (name for name in results if name.endswith("slope")):
        low, high = results[f"{name}_low"]["mean"], results[f"{name}_high"]["mean"]
        print(f"{name}: {results[name]['mean']:.2f}, 95 % interval {low:.2f} to {high:.2f}")


def _proximal(cfg: DictConfig, task: Task, run: RunDirectory) -> Measurements:
    part = cfg.proximal
    results: Measurements = {}
    figure, ax = plots.new_figure("rounds T", "regret after T rounds")
    for point in part.points:
        curve = Curve(f"proximal/tau={point.tau}", tau=point.tau, c=point.c)

        def comparator(eta, counts, tau=point.tau):
            return best_near_start(task, counts, tau=tau, eta=eta)

        measured = measure(cfg, part, task, run, curve, comparator)
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
    part = cfg.ball
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
        measured = measure(cfg, part, task, run, curve, lambda eta, counts: best)
        results |= measured.results
        plots.curve_with_band(
            ax, part.horizons, measured.regrets, f"{label}: slope {measured.slope:.2f}"
        )
    plots.log_axes(ax, part.horizons)
    plots.label_curves(ax)
    run.save_figure(figure, "ball")
    return results


def _sequence(task: Task, rounds: int, seed: int) -> np.ndarray:
    """Return the order of the queries: shuffled anew each time they have all been seen."""
    times = -(-rounds // len(task.queries))
    return jr.exposures(len(task.queries), times, seed)[:rounds]


def single_label(task: Task) -> Task:
    """Keep the queries with one right tool, which the theorems assume."""
    one = (task.labels >= 0).sum(axis=1) == 1
    if not one.any():
        raise ValueError(f"{task.name} has no query with one label, which theorems need")
    kept = task.select(one)
    return replace(kept, labels=kept.labels[:, :1])


def first_tools(task: Task, items: int) -> Task:
    """Select the first tools of the catalogue, and their queries."""
    some = (task.labels < items)[:, 0]
    if not 2 <= items <= len(task.theta) or not some.any():
        raise ValueError(f"tools must be in 2 .. {len(task.theta)}, with queries, got {items}")
    few = {"theta": task.theta[:items], "ids": task.ids[:items], "lexical": False}
    return replace(task.select(some), given_prior=None, **few)


def measure(
    cfg: DictConfig,
    part: DictConfig,
    task: Task,
    run: RunDirectory,
    curve: Curve,
    comparator: Callable[[float, Int[np.ndarray, " N"]], Comparator],
) -> Measured:
    """Stream each horizon, and compare its regret with the bounds."""
    order, seeds = (
        _sequence(task, max(part.horizons), cfg.seed),
        range(cfg.seed, cfg.seed + cfg.seeds),
    )
    environment = Environment(noise_rate=curve.rho or None)
    regrets, values, results = [], {}, {}

    def trace(step, learner, rounds):
        ran = jr.simulate(
            learner,
            task,
            order=order[:rounds],
            seeds=seeds,
            environment=environment,
            chunk=part.chunk,
            resume=run.resume(step),
        )
        return ran.trace._asdict()

    for rounds in Progress(part.horizons, desc=curve.name, unit="horizon"):
        eta = curve.c / np.sqrt(rounds)
        name, learner = f"{curve.name}/T={rounds}", curve.learner(curve.tau, eta)
        found = run.result(name, partial(trace, name, learner, rounds))
        best = comparator(eta, np.bincount(order[:rounds], minlength=len(task)))
        start = learner.init(jnp.asarray(task.theta), jnp.ones(len(task.theta), bool))
        rule = rule_of(learner)
        assert rule is not None
        orders = np.broadcast_to(order[:rounds], (len(seeds), rounds))
        evidence = Evidence(
            rule=rule,
            theta_1=start.theta,
            stream=Stream._make((*map(jnp.asarray, (task.queries, task.labels, orders)), None)),
            trace=Trace._make(jnp.asarray(found[field]) for field in Trace._fields),
            comparator=jnp.asarray(best.theta, jnp.float32),
            always_available=always_available(environment, rounds, start.available),
        )
        regrets.append(final_regrets(evidence))
        results[f"{name}/regret"] = regrets[-1]
        results[f"{name}/certificate"] = np.array([float(best.gap)])
        for bound in curve.bounds(evidence):
            values.setdefault(bound.name, []).append(bound.value)
            if not bound.holds:
                print(theorems.describe(bound))
            elif np.isfinite(bound.value):
                results[f"{name}/{bound.name}"] = np.array([bound.value])
    regrets = np.stack(regrets, axis=1)
    slope = checks.slope(np.array(part.horizons), regrets)
    for suffix, value in {"": slope.value, "_low": slope.low, "_high": slope.high}.items():
        results[f"{curve.name}/slope{suffix}"] = np.array([value])
    return Measured(regrets, values, float(slope.value), results)


def best_near_start(
    task: Task, counts: Int[np.ndarray, " N"], *, tau: float, eta: float
) -> Comparator:
    """Find the proximal comparator of queries with given numbers of exposures."""
    with jax.enable_x64(True):
        return _solve_proximal(*_float64(task), counts.astype(np.float64), eta, tau)


def best_in_ball(task: Task, *, tau: float) -> Comparator:
    """Find the best rows in the unit ball for each query once."""
    with jax.enable_x64(True):
        return _solve_in_ball(*_float64(task), np.ones(len(task)), tau)


def _float64(task):
    return task.theta.astype(np.float64), task.queries.astype(np.float64), task.labels


@jax.jit
def _solve_proximal(theta_1, queries, labels, counts, eta, tau):
    return proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts, tolerance=1e-9)


@jax.jit
def _solve_in_ball(theta_1, queries, labels, counts, tau):
    return in_ball(queries, labels, tau=tau, radius=1.0, theta_0=theta_1, counts=counts)


if __name__ == "__main__":
    main.cli()
