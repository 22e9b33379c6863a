"""Does regret grow like sqrt(T), and how loose are the bounds?   (ORAG Section 5, B.4, Figure 8)

    uv run python -m experiments.regret                                       # DeskBank
    uv run python -m experiments.regret dataset=ultratool dataset.path=FILE

One sequence of queries, cut at horizons T and answered by Algorithm 1 as it is analysed: items
drawn from p, constant eta = c / sqrt(T), seeds that differ in the draws alone.

    proximal   the whole catalogue, rows free; regret against the proximal comparator of each
               horizon (certified in float64), beside Theorem 5.1 and Corollary 5.2
    ball       a few tools, rows in the unit ball; regret against the best rows in it. Bits are
               right, or wrong with probability rho: Eq. (4) as the paper feeds it and the debiased
               rule, beside Theorems 5.1 and B.2, Corollary B.3 and the debiased bound

Only queries with one label are streamed: the theorems are about those.

2 cores: 1 min 40 s. Expect on DeskBank (20 seeds): in the ball, slope 0.51 of log regret on log
T with right bits and Theorem 5.1 at 1.9 to 2.4 times the regret; at rho = 0.2 slope 0.98 for
Eq. (4) and 0.74, falling, for the debiased rule. With free rows the proximal comparator recedes
as T grows, so regret grows faster than sqrt(T) (slope 0.8), and Theorem 5.1 is 25 to 120 times
the regret.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import TextTask, load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret import plots
from jaxret.online import estimators, policies, projections, streams
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner
from jaxret.online.rank_one import rank_one
from jaxret.online.recording import record
from jaxret.online.simulation import Simulation
from jaxret.progress import Progress
from jaxret.theory import bounds, checks, corollaries
from jaxret.theory.comparators import Comparator, proximal
from jaxret.theory.constrained import in_ball
from jaxret.theory.evidence import Evidence, final_regrets
from jaxret.types import Stream, Trace


class Curve(NamedTuple):
    """One line of the figure: a learner whose horizon varies."""

    name: str
    tau: float
    c: float
    rho: float = 0.0
    debiased: bool = False
    radius: float | None = None

    def learner(self, tau, eta) -> Learner:
        """Algorithm 1 with this curve's estimator and projection."""
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

    def bounds(self, run: Evidence) -> list[bounds.Bound]:
        """The statements that are about this learner."""
        constants = corollaries.measured_constants(run)
        if self.debiased:
            return [bounds.debiased(run, noise_rate=self.rho)]
        if self.rho:
            b3 = corollaries.corollary_b3(run, constants, noise_rate=self.rho)
            return [bounds.theorem_b2(run, noise_rate=self.rho), b3]
        return [bounds.theorem_5_1(run), corollaries.corollary_5_2(run, constants)]


@experiment("regret")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Runs every curve at every horizon; returns the results, and draws the figures."""
    task = _single_label(load_task(cfg))
    results: dict[str, np.ndarray] = {}
    _proximal(cfg, task, run, results)
    _ball(cfg, _first_tools(task, cfg.ball.tools), run, results)
    return results


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


def _proximal(
    cfg: DictConfig, task: TextTask, run: RunDirectory, results: dict[str, np.ndarray]
) -> None:
    part = cfg.proximal
    order = _sequence(task, max(part.horizons), cfg.seed)

    def comparator(curve: Curve, eta: float, counts: np.ndarray) -> Comparator:
        return _solve_proximal(*_float64(task, counts), eta, curve.tau)

    figure, ax = plots.new_figure("rounds T", "regret after T rounds")
    for point in part.points:
        curve = Curve(f"proximal/tau={point.tau}", tau=point.tau, c=point.c)
        regrets, sides = _play(cfg, part, curve, task, order, run, comparator, results)
        slope = results[f"{curve.name}/slope"].item()
        label = f"tau = {point.tau}: slope {slope:.2f}"
        line = plots.curve_with_band(ax, part.horizons, regrets, label)
        theorem = sides["Theorem 5.1"]
        (dotted,) = ax.plot(part.horizons, theorem, ":", color=line.get_color())
        dotted.set_label(f"Theorem 5.1, tau = {point.tau}")
    plots.log_axes(ax, part.horizons)
    plots.label_curves(ax)
    run.save_figure(figure, "proximal")


def _ball(
    cfg: DictConfig, task: TextTask, run: RunDirectory, results: dict[str, np.ndarray]
) -> None:
    part = cfg.ball
    order = _sequence(task, max(part.horizons), cfg.seed)

    def comparator(curve: Curve, eta: float, counts: np.ndarray) -> Comparator:
        # Of the queries once each: every horizon is compared with the same rows.
        return _solve_in_ball(*_float64(task, np.ones_like(counts)), curve.tau)

    clean = Curve("ball/rho=0", tau=part.tau, c=part.c, radius=1.0)
    curves = {"bits are right": clean}
    for rho in part.rates:
        noisy = clean._replace(name=f"ball/rho={rho}", rho=rho)
        curves[f"Eq. (4), rho = {rho}"] = noisy
        fair = noisy._replace(name=f"{noisy.name}/debiased", debiased=True)
        curves[f"debiased, rho = {rho}"] = fair
    figure, ax = plots.new_figure("rounds T", "regret after T rounds")
    for label, curve in curves.items():
        regrets, _ = _play(cfg, part, curve, task, order, run, comparator, results)
        slope = results[f"{curve.name}/slope"].item()
        plots.curve_with_band(ax, part.horizons, regrets, f"{label}: slope {slope:.2f}")
    plots.log_axes(ax, part.horizons)
    plots.label_curves(ax)
    run.save_figure(figure, "ball")


def _play(
    cfg: DictConfig,
    part: DictConfig,
    curve: Curve,
    task: TextTask,
    order: np.ndarray,
    run: RunDirectory,
    comparator: Callable[[Curve, float, np.ndarray], Comparator],
    results: dict[str, np.ndarray],
) -> tuple[np.ndarray, dict[str, list[float]]]:
    """All horizons of one curve: regrets [S, n], and each bound's values [n]."""
    environment = Environment(noise_rate=curve.rho or None)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    simulation = Simulation(
        curve.learner, task, environment, seeds=seeds, example=(1.0, 0.0), chunk=part.chunk
    )
    regrets, sides = [], {}
    for rounds in Progress(part.horizons, desc=curve.name, unit="horizon"):
        eta = curve.c / np.sqrt(rounds)
        name = f"{curve.name}/T={rounds}"
        orders = np.broadcast_to(order[:rounds], (cfg.seeds, rounds))
        setting = simulation.setting(curve.tau, eta)
        unit = record(
            run.unit(name.replace("/", "-")), simulation, setting, orders, finish=lambda states: {}
        )
        found = comparator(curve, eta, np.bincount(order[:rounds], minlength=len(task.queries)))
        learner = curve.learner(curve.tau, eta)
        theta_1 = jnp.asarray(task.theta)
        assert learner.rule is not None
        evidence = Evidence(
            rule=learner.rule,
            theta_1=learner.init(theta_1, jnp.ones(len(theta_1), bool)).theta,
            stream=Stream._make(map(jnp.asarray, (task.queries, task.labels, orders))),
            trace=Trace._make(jnp.asarray(unit[field]) for field in Trace._fields),
            comparator=jnp.asarray(found.theta, jnp.float32),
        )
        regrets.append(final_regrets(evidence))
        results[f"{name}/regret"] = regrets[-1]
        results[f"{name}/certificate"] = np.array([float(found.gap)])
        for bound in curve.bounds(evidence):
            sides.setdefault(bound.name, []).append(bound.value)
            if not bound.holds:
                print(bounds.describe(bound))
            elif np.isfinite(bound.value):
                results[f"{name}/{bound.name}"] = np.array([bound.value])
    regrets = np.stack(regrets, axis=1)
    slope = checks.slope(np.array(part.horizons), regrets)
    for suffix, value in {"": slope.value, "_low": slope.low, "_high": slope.high}.items():
        results[f"{curve.name}/slope{suffix}"] = np.array([value])
    return regrets, sides


def _sequence(task: TextTask, rounds: int, seed: int) -> np.ndarray:
    """The order of the queries: shuffled anew each time they have all been seen."""
    times = -(-rounds // len(task.queries))
    return streams.exposures(len(task.queries), times, seed)[:rounds]


def _single_label(task: TextTask) -> TextTask:
    one = (task.labels >= 0).sum(axis=1) == 1
    if not one.any():
        raise ValueError(f"{task.name} has no query with one label, which theorems need")
    kept = task.select(one)
    return replace(kept, labels=kept.labels[:, :1])


def _first_tools(task: TextTask, items: int) -> TextTask:
    """The first tools of the catalogue, and their queries."""
    some = (task.labels < items)[:, 0]
    if not 2 <= items <= len(task.theta) or not some.any():
        raise ValueError(f"ball.tools must be in 2 .. {len(task.theta)}, got {items}")
    return replace(task.select(some), theta=task.theta[:items], ids=task.ids[:items])


def _float64(task: TextTask, counts: np.ndarray) -> tuple[np.ndarray, ...]:
    return (
        task.theta.astype(np.float64),
        task.queries.astype(np.float64),
        task.labels,
        counts.astype(np.float64),
    )


def _solve_proximal(theta_1, queries, labels, counts, eta, tau) -> Comparator:
    with jax.enable_x64(True):
        return _compiled_proximal(theta_1, queries, labels, counts, eta, tau)


@jax.jit
def _compiled_proximal(theta_1, queries, labels, counts, eta, tau):
    found = proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts, tolerance=1e-9)
    return found


def _solve_in_ball(theta_1, queries, labels, counts, tau) -> Comparator:
    with jax.enable_x64(True):
        return _compiled_in_ball(theta_1, queries, labels, counts, tau)


@jax.jit
def _compiled_in_ball(theta_1, queries, labels, counts, tau):
    return in_ball(queries, labels, tau=tau, radius=1.0, theta_0=theta_1, counts=counts)


if __name__ == "__main__":
    main.cli()
