"""Bias, variance and results of one estimator in one catalogue.

The noise rate is data, like tau and eta: all rates share one compiled program.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.run_directory import RunDirectory
from experiments.variance.moments import over_queries
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rule_of
from jaxret.task import Task
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import cumulative_regret

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")


class Catalogue(NamedTuple):
    """Some tools, and everything that is the same for every learner on them.

    Attributes:
      size: size of the catalogue, as the results name it.
      task: the tools, and the queries with one label that they answer.
      validation: the queries that choose settings [N].
      sample: positions of the queries on which moments are taken [n].
      comparator: losses of the comparator [N].
    """

    size: str
    task: Task
    validation: Bool[np.ndarray, " N"]
    sample: Int[np.ndarray, " n"]
    comparator: Float[np.ndarray, " N"]


def set_up(cfg: DictConfig, task: Task, size: Any) -> Catalogue:
    """Draws some tools (or takes all), the queries that they answer, and the parts of these."""
    items = len(task.theta)
    if size != "all" and size > items:
        raise ValueError(f"sizes: {cfg.dataset.name} has {items} tools, fewer than {size}")
    generator = np.random.default_rng(cfg.seed)
    kept = np.sort(generator.permutation(items)[: items if size == "all" else size])
    rows = ((task.labels >= 0).sum(axis=1) == 1) & np.isin(task.labels[:, 0], kept)
    # No queries are held out, but they are the same as with a held-out share.
    parts = task.parts(validation=cfg.validation, heldout=0.5, seeds=[cfg.seed])
    ours = parts.validation[0][rows]
    if not ours.any() or ours.all():
        raise ValueError(f"sizes: the {size} tools drawn answer too few queries with one label")
    some = replace(
        task.select(rows),
        ids=tuple(task.ids[item] for item in kept),
        theta=task.theta[kept],
        labels=np.searchsorted(kept, task.labels[rows][:, :1]).astype(np.int32),
    )
    _, comparator = proximal_losses(
        *(some.theta, some.queries, some.labels),
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.eta_over_tau,
        counts=cfg.exposures * ~ours,
    )
    sample = generator.permutation(np.flatnonzero(~ours))[: cfg.moments.queries]
    return Catalogue(str(size), some, ours, sample, comparator)


def study(
    cfg: DictConfig,
    run: RunDirectory,
    catalogue: Catalogue,
    name: str,
    make: Callable[..., Learner],
    seeds: range,
) -> dict[float, dict[str, np.ndarray]]:
    """Measures a learner at every rate: moments at the first and last rows, and results.

    Returns:
      rate -> name -> numbers.
    """
    task, streamed = catalogue.task, ~catalogue.validation
    metrics = [metric.format(k=cfg.k) for metric in METRICS]
    measured = measure(make, task, catalogue.sample)
    pairs = list(product(cfg.tau, cfg.eta_over_tau))
    found = {}
    for rate in cfg.rates:
        step = f"{name}-{catalogue.size}-{rate:g}"
        environment = jr.Environment(noise_rate=rate)
        stream: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}
        stream["environment"] = environment

        def ran(step=step, rate=rate, stream=stream):
            grid = jr.grid(make, tau=list(cfg.tau), eta=list(cfg.eta_over_tau), rate=[rate])
            grid.settings[:, 1] *= grid.settings[:, 0]
            swept = jr.sweep(grid, task, resume=run.resume(step, "choice"), **stream)
            best = swept.best(on=catalogue.validation, metric=f"ndcg@{cfg.k}")
            online = jr.simulate(
                best, task, part=streamed, resume=run.resume(step, "online"), **stream
            )
            ranked = jr.evaluate(online, task, metrics, part=streamed)
            tau, eta_over_tau = pairs[swept.runs.index(best)]
            against = cumulative_regret(online.trace.loss, catalogue.comparator, online.order)
            moments = measured(np.asarray(online.states.theta), tau, rate)
            return {
                **{f"final/{metric}": x.values for metric, x in ranked.items()},
                **{f"final/{key}": x for key, x in moments.items()},
                "online/accuracy": online.trace.success.mean(axis=1),
                "online/regret": against[:, -1],
                "online/tau": np.full(len(seeds), tau),
                "online/eta_over_tau": np.full(len(seeds), eta_over_tau),
            }

        at_start = partial(measured, task.theta[None], cfg.moments.tau, rate)
        found[rate] = run.result(f"{step}-moments", at_start) | run.result(step, ran)
    return found


def measure(make: Callable[..., Learner], task: Task, sample: Int[np.ndarray, " n"]) -> Callable:
    """Returns (thetas [S, I, d], tau, rate) -> bias and variance [S] over the sample."""

    @jax.jit
    def moments(theta, queries, labels, tau, rate):
        rule = rule_of(make(tau=tau, eta=0.0, rate=rate))
        assert rule is not None
        found = over_queries(rule, theta, queries, labels, noise_rate=rate)
        return found.bias, found.variance

    def measured(thetas, tau, rate):
        queries, labels = task.queries[sample].astype(np.float64), task.labels[sample, 0]
        setting = float(tau), float(rate)
        with jax.enable_x64(True):
            each = [moments(x.astype(np.float64), queries, labels, *setting) for x in thetas]
        bias, variance = (np.array(values) for values in zip(*each, strict=True))
        return {
            "bias": bias.mean(axis=1),
            "variance": variance.mean(axis=1),
            "variance_median": np.median(variance, axis=1),
        }

    return measured
