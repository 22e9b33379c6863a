"""One learner at every horizon: its regret and its bounds.

Letters: I items, N queries, S seeds, n horizons, T rounds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import jaxret as jr
from experiments.common.run_directory import RunDirectory
from jaxret.environments.environment import Environment, always_available
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one, rule_of
from jaxret.rules import estimators, policies, projections
from jaxret.runtime.progress import Progress
from jaxret.task import Task
from jaxret.theory import checks, theorems
from jaxret.theory.assumptions import Evidence, final_regrets
from jaxret.theory.comparators import Comparator
from jaxret.types import Stream, Trace


class Curve(NamedTuple):
    """One line of the figure: a learner over horizons."""

    name: str
    tau: float
    c: float
    rho: float = 0.0
    debiased: bool = False
    radius: float | None = None

    def learner(self, tau, eta) -> Learner:
        """Makes Algorithm 1 with this curve's estimator and projection."""
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
        """Computes the bounds that apply to this learner."""
        constants = theorems.measured_constants(run)
        if self.debiased:
            return [theorems.debiased(run, noise_rate=self.rho)]
        if self.rho:
            b3 = theorems.corollary_b3(run, constants, noise_rate=self.rho)
            return [theorems.theorem_b2(run, noise_rate=self.rho), b3]
        return [theorems.theorem_5_1(run), theorems.corollary_5_2(run, constants)]


class Stage(NamedTuple):
    """The task and settings that the curves of a figure share."""

    run: RunDirectory
    task: Task
    order: Int[np.ndarray, " T"]  # order of the longest horizon; the others are prefixes
    horizons: Sequence[int]
    seeds: range
    chunk: int


class Measured(NamedTuple):
    """The measurements of a curve at every horizon."""

    regrets: Float[np.ndarray, "S n"]
    bounds: dict[str, list[float]]  # the n values of each bound
    slope: float  # slope of log regret on log T
    results: dict[str, np.ndarray]


def measure(
    stage: Stage,
    curve: Curve,
    comparator: Callable[[float, Int[np.ndarray, " N"]], Comparator],
) -> Measured:
    """Streams each horizon, and compares its regret with the bounds.

    Args:
      stage: task and settings.
      curve: a learner.
      comparator: function of eta and the number of exposures of each query to the comparator.
    """
    run, task, order, horizons, seeds, chunk = stage
    environment = Environment(noise_rate=curve.rho or None)
    regrets, values, results = [], {}, {}

    def trace(step, learner, rounds):
        ran = jr.simulate(
            learner,
            task,
            order=order[:rounds],
            seeds=seeds,
            environment=environment,
            chunk=chunk,
            resume=run.resume(step),
        )
        return ran.trace._asdict()

    for rounds in Progress(horizons, desc=curve.name, unit="horizon"):
        eta = curve.c / np.sqrt(rounds)
        name, learner = f"{curve.name}/T={rounds}", curve.learner(curve.tau, eta)
        step = name.replace("/", "-")
        found = run.result(step, partial(trace, step, learner, rounds))
        best = comparator(eta, np.bincount(order[:rounds], minlength=len(task)))
        start = learner.init(jnp.asarray(task.theta), jnp.ones(len(task.theta), bool))
        rule = rule_of(learner)
        assert rule is not None
        orders = np.broadcast_to(order[:rounds], (len(seeds), rounds))
        evidence = Evidence(
            rule=rule,
            theta_1=start.theta,
            stream=Stream._make(map(jnp.asarray, (task.queries, task.labels, orders))),
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
    slope = checks.slope(np.array(horizons), regrets)
    for suffix, value in {"": slope.value, "_low": slope.low, "_high": slope.high}.items():
        results[f"{curve.name}/slope{suffix}"] = np.array([value])
    return Measured(regrets, values, float(slope.value), results)
