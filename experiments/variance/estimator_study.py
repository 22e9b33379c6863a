"""One estimator in one catalogue: how biased and noisy it is there, and what it reaches.

The noise rate is data, like tau and eta: all rates share one compiled program.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxret.data.masks import Masks, draw_parts
from jaxret.simulation.choosing import tune
from jaxret.simulation.ranker import METRICS, Ranker
from jaxret.simulation.recording import record
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.loading import TextTask
from experiments.common.run_directory import RunDirectory
from experiments.variance.moments import over_queries
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.simulation.engine import Simulation
from jaxret.simulation.streams import orders
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import cumulative_regret


class Stage(NamedTuple):
    """A catalogue and all that is the same for every learner in it."""

    size: str
    task: TextTask
    parts: Masks
    ranker: Ranker
    choosing: Int[np.ndarray, "S R"]  # all queries
    order: Int[np.ndarray, "S T"]  # without the validation part
    sample: Int[np.ndarray, " n"]  # queries on which moments are taken
    comparator: Float[np.ndarray, " N"]  # losses


def set_up(cfg: DictConfig, task: TextTask, size: Any, seeds: range) -> Stage:
    """Some tools at random (or all), the queries that one of them answers, and their parts."""
    items = len(task.theta)
    if size != "all" and size > items:
        raise ValueError(f"sizes: {cfg.dataset.name} has {items} tools, fewer than {size}")
    generator = np.random.default_rng(cfg.seed)
    kept = np.sort(generator.permutation(items)[: items if size == "all" else size])
    rows = ((task.labels >= 0).sum(axis=1) == 1) & np.isin(task.labels[:, 0], kept)
    # The same queries whatever share is held out: here none is.
    validation = draw_parts(task.groups, cfg.validation, 0.5, cfg.seed).validation
    ours, theirs = validation[rows], ~validation[rows]
    if not ours.any() or not theirs.any():
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
        counts=cfg.exposures * theirs,
    )
    return Stage(
        size=str(size),
        task=some,
        parts=Masks(validation=ours, heldout=theirs, training=theirs),
        ranker=Ranker(some, cfg.k),
        choosing=orders(np.ones_like(ours), cfg.exposures, seeds),
        order=orders(theirs, cfg.exposures, seeds),
        sample=generator.permutation(np.flatnonzero(theirs))[: cfg.moments.queries],
        comparator=comparator,
    )


def study(
    cfg: DictConfig, run: RunDirectory, stage: Stage, grid: LearnerGrid, seeds: range
) -> dict[float, dict[str, np.ndarray]]:
    """At every rate: the moments at the first and the last embeddings, and what was reached."""
    task, streamed = stage.task, ~stage.parts.validation
    simulation = Simulation(
        grid.make,
        task,
        lambda tau, eta, rate: Environment(noise_rate=rate),
        seeds=seeds,
        example=(1.0, 0.0, 0.1),
        chunk=cfg.chunk,
    )
    measured = measure(grid, task, stage.sample)
    pairs = list(product(cfg.tau, cfg.eta_over_tau))
    found = {}
    for rate in cfg.rates:
        unit = f"{grid.name}-{stage.size}-{rate:g}"
        rates = np.full(len(grid.settings), rate)
        at_rate = grid._replace(settings=np.column_stack([grid.settings, rates]))
        tuned = tune(
            run.unit(f"{unit}-tuning"),
            at_rate,
            simulation,
            stage.ranker,
            stage.choosing,
            validation=stage.parts.validation,
        )
        best = int(tuned["best"][0])  # of all seeds, which share the part that chooses
        tau, eta_over_tau = pairs[best]

        def finish(states, tau=tau, rate=rate):
            ranked = stage.ranker(states, streamed)
            return {"ranked": ranked, **measured(np.asarray(states.theta), tau, rate)}

        at_start = partial(measured, task.theta[None], cfg.moments.tau, rate)
        start = run.result(f"{unit}-moments", at_start)
        online = record(
            run.unit(f"{unit}-online"), simulation, tuned["setting"], stage.order, finish
        )
        against = cumulative_regret(online["loss"], stage.comparator, online["order"])
        final = {m.format(k=cfg.k): online["ranked"][:, i] for i, m in enumerate(METRICS)}
        final |= {key: online[key] for key in start}
        found[rate] = {
            **start,
            **{f"final/{key}": values for key, values in final.items()},
            "online/accuracy": online["success"].mean(axis=1),
            "online/regret": against[:, -1],
            "online/tau": np.full(len(seeds), tau),
            "online/eta_over_tau": np.full(len(seeds), eta_over_tau),
        }
    return found


def measure(grid: LearnerGrid, task: TextTask, sample: Int[np.ndarray, " n"]) -> Callable:
    """Gives (thetas [S, I, d], tau, rate) -> bias and variance [S] over the sample, in float64."""

    @jax.jit
    def moments(theta, queries, labels, tau, rate):
        rule = grid.make(tau, 0.0, rate).rule
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
