"""Bias and variance of estimators from one bit, and their cost         (ORAG Lemma 3.1, App. B)

    uv run python -m experiments.variance                                     # DeskBank, built in
    uv run python -m experiments.variance dataset=ultratool dataset.path=FILE

Runs every estimator, under label noise of rate rho, in a catalogue of a few tools and in the whole
catalogue. Only queries with one label are used, as the theory assumes.

    bias, variance   of the coefficients c against the gradient p - 1[i*], exact,
                     averaged over a sample of the streamed queries: at Theta_1 with one tau for
                     all, and (final) at the estimator's last embeddings and its tau.
                     ``variance_median`` is that of the median query, since few queries, whose right
                     tool is hardly ever drawn, dominate the mean
    online, final    success of the tool shown, regret, and ranking by the last embeddings, each
                     query once. tau and eta_over_tau are chosen on the validation part by the
                     rule of `experiments.orag`, from one grid for all
    gap_closed       (accuracy - frozen) / (full_information - frozen), online: 1 is as good as
                     learning from labels, 0 as not learning. Both references show the best tool, so
                     the cost of drawing tools counts against the other learners; this does not
                     apply (final) to the same ratio of nDCG by the last embeddings

Exact moments include draws that never occur in a stream: with p* = 1e-9 the variance of Eq. (4),
1 / p* - 1, is a billion, while in a stream of a million rounds the right item is hardly ever drawn
and the estimate is biased in practice.

Letters: I items, d width, N queries, S seeds.

2 cores, beside other work: UltraTool 5 min.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from matplotlib.lines import Line2D
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.comparator import comparator_losses
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import PARTS
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import measured_online, ranking_metrics
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import Rule, rank_one, rule_of
from jaxret.runtime import over_items
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import from_registry, require
from jaxret.task import Task
from jaxret.theory.checks import Moments, moments

ORACLE = "full_information"
MOMENTS = ("bias", "variance", "variance_median", "final/bias", "final/variance_median")
REACHED = ("online/accuracy", "final/recall@{k}", "final/ndcg@{k}")
GAPS = {"online/accuracy": "gap_closed", "final/ndcg@{k}": "final/gap_closed"}
AXES = ("bias", "variance_median")  # axes of the figure
MARKS = "osD^vP*X"  # marker per rate


class Catalogue(NamedTuple):
    """Some tools, and everything that is the same for every learner on them."""

    size: str  # size of the catalogue, as the results name it
    task: Task  # the tools, and the queries with one label that they answer
    validation: Bool[np.ndarray, " N"]  # the queries that choose settings
    sample: Int[np.ndarray, " n"]  # positions of the queries on which moments are taken
    comparator: Float[np.ndarray, " N"]  # losses of the comparator


@experiment("variance")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every estimator at every rate and size; write curves and figures."""
    task = task_of(cfg)
    makes = {name: learner_of(name, spec, cfg) for name, spec in plain(cfg.learners).items()}
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    catalogues = [set_up(cfg, task, size) for size in cfg.sizes]
    bar = Progress(total=len(catalogues) * len(makes), unit="learner")
    for catalogue in catalogues:
        size, names = catalogue.size, list(makes)
        reached = [column.format(k=cfg.k) for column in REACHED]
        frozen = jr.evaluate(
            catalogue.task.theta,
            catalogue.task,
            [column.split("/")[1] for column in reached],
            part=~catalogue.validation,
        )
        for column in reached:
            results[f"frozen/{size}/{column}"] = frozen[column.split("/")[1]].values
        for name_of_rule, make in makes.items():
            bar.set_postfix_str(f"{name_of_rule}, {size} tools")
            for rate, found in study(cfg, run, catalogue, name_of_rule, make, seeds).items():
                name = f"{name_of_rule}/{size}/{rate:g}"
                results |= {f"{name}/{key}": values for key, values in found.items()}
            bar.update()
        for rate in cfg.rates:
            for metric, closed in GAPS.items():
                metric = metric.format(k=cfg.k)
                level = results[f"frozen/{size}/{metric}"]
                gap = results[f"{ORACLE}/{size}/{rate:g}/{metric}"].mean() - level
                for name in names if gap > 0 else ():
                    gained = results[f"{name}/{size}/{rate:g}/{metric}"] - level
                    results[f"{name}/{size}/{rate:g}/{closed}"] = gained / gap
        accuracy_figure(run, size, names, cfg.rates, results)
        moments_figure(run, size, names, cfg.rates, results)
    bar.close()
    run.save_curves(results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners and numbers."""
    specs = plain(cfg.learners)
    if ORACLE not in specs:
        raise ValueError(f"learners must hold {ORACLE!r}: gaps are measured against it")
    for rate in cfg.rates:
        require("rates", rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)
    for size in cfg.sizes:
        allowed = "'all' or a number >= 2"
        require("sizes", size, allowed, lambda x: x == "all" or (isinstance(x, int) and x >= 2))
    require("moments.tau", cfg.moments.tau, "> 0", lambda x: x > 0)
    require("moments.queries", cfg.moments.queries, ">= 1", lambda x: x >= 1)
    for name, spec in specs.items():
        if learner_of(name, spec, cfg)(tau=1.0, eta=1.0).probabilities is None:
            raise ValueError(
                f"learner {name!r} must show one item, with a policy that gives the probability "
                f"of each: got {spec['policy']}"
            )


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print moments and results, by size of the catalogue."""
    for size in cfg.sizes:
        rows = [f"{name}/{size}/{rate:g}" for rate in cfg.rates for name in cfg.learners]
        title = f"{cfg.dataset.name}, {size} tools"
        results_table(results, rows, MOMENTS, title)
        columns = (*REACHED, *GAPS.values(), "online/regret")
        reached = [column.format(k=cfg.k) for column in columns]
        results_table(results, [f"frozen/{size}", *rows], reached, title)


def learner_of(name: str, spec: dict[str, Any], cfg: DictConfig) -> Callable[..., Learner]:
    """Return a function of tau, eta and the noise rate that makes a learner."""
    if set(spec) != {"policy", "estimator"}:
        raise ValueError(f"learner {name!r} needs policy and estimator, got {sorted(spec)}")
    shared = {key: plain(cfg)[key] for key in ("projection", "schedule")}

    def make(*, tau: float, eta: float, rate: float = 0.0) -> Learner:
        estimator = spec["estimator"]
        if isinstance(estimator, dict) and "noise_rate" in estimator:
            estimator = estimator | {"noise_rate": rate}
        parts = {**spec, **shared, "estimator": estimator}
        made = {
            key: from_registry(f"learner {name!r}", key, PARTS[key], part)
            for key, part in parts.items()
        }
        return rank_one(name, tau=tau, eta=eta, **made)

    return make


def accuracy_figure(
    run: RunDirectory, size: str, names: Sequence[str], rates: Sequence[float], results: Mapping
) -> None:
    """Draw online accuracy over the noise rate."""
    figure, ax = plots.new_figure("noise rate rho", "online accuracy")
    for name in names:
        cells = [results[f"{name}/{size}/{rate:g}/online/accuracy"] for rate in rates]
        plots.curve_with_band(ax, np.array(rates), np.stack(cells, axis=1), name)
    frozen = results[f"frozen/{size}/online/accuracy"][0]
    ax.plot(rates, [frozen] * len(rates), "--", color=plots.GREY, label="frozen")
    ax.set_xticks(rates)
    plots.label_curves(ax)
    run.save_figure(figure, f"accuracy_{size}")


def moments_figure(
    run: RunDirectory, size: str, names: Sequence[str], rates: Sequence[float], results: Mapping
) -> None:
    """Draw the variance of the median query over bias, at Theta_1; the oracle has neither."""
    figure, ax = plots.new_figure("bias", "variance of the median query")
    names = [name for name in names if name != ORACLE]
    ends, colours = [], []
    for i, name in enumerate(names):
        rows = [[results[f"{name}/{size}/{rate:g}/{x}"][0] for x in AXES] for rate in rates]
        (line,) = ax.plot(*zip(*rows, strict=True), linewidth=1)
        colours.append(line.get_color())
        ends.append(rows[-1])
        for mark, (x, y) in zip(MARKS, rows, strict=False):
            wide = 10 - i  # so that no marker hides another
            ax.plot(x, y, mark, color=colours[-1], markersize=wide)
    ax.set_yscale("log")
    ax.margins(0.05)
    marks = [Line2D([], [], linestyle="", marker=m, color=plots.GREY) for m in MARKS[: len(rates)]]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False}
    labels = [f"rho = {rate:g}" for rate in rates]
    ax.legend(marks, labels, ncols=4, handletextpad=0, columnspacing=1, **place)
    plots.label_points(ax, np.array(ends), names, colours)
    run.save_figure(figure, f"bias_variance_{size}")


def set_up(cfg: DictConfig, task: Task, size: Any) -> Catalogue:
    """Draw some tools (or take all), the queries that they answer, and the parts of these."""
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
    comparator = comparator_losses(cfg, some, counts=cfg.exposures * ~ours)
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
    """Measure a learner at every rate: moments at the first and last rows, and results.

    The noise rate is data, like tau and eta: all rates share one compiled program.
    """
    task, streamed = catalogue.task, ~catalogue.validation
    metrics = ranking_metrics(cfg.k)
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
            shown = measured_online(online, catalogue.comparator)
            moments = measured(np.asarray(online.states.theta), tau, rate)
            return {
                **{f"final/{metric}": x.values for metric, x in ranked.items()},
                **{f"final/{key}": x for key, x in moments.items()},
                **{key: shown[key] for key in ("online/accuracy", "online/regret")},
                "online/tau": np.full(len(seeds), tau),
                "online/eta_over_tau": np.full(len(seeds), eta_over_tau),
            }

        at_start = partial(measured, task.theta[None], cfg.moments.tau, rate)
        found[rate] = run.result(f"{step}-moments", at_start) | run.result(step, ran)
    return found


def measure(make: Callable[..., Learner], task: Task, sample: Int[np.ndarray, " n"]) -> Callable:
    """Return (thetas [S, I, d], tau, rate) -> bias and variance [S] over the sample."""

    @jax.jit
    def of_rows(theta, queries, labels, tau, rate):
        rule = rule_of(make(tau=tau, eta=0.0, rate=rate))
        assert rule is not None
        found = over_queries(rule, theta, queries, labels, noise_rate=rate)
        return found.bias, found.variance

    def measured(thetas, tau, rate):
        queries, labels = task.queries[sample].astype(np.float64), task.labels[sample, 0]
        setting = float(tau), float(rate)
        with jax.enable_x64(True):
            each = [of_rows(x.astype(np.float64), queries, labels, *setting) for x in thetas]
        bias, variance = (np.array(values) for values in zip(*each, strict=True))
        return {
            "bias": bias.mean(axis=1),
            "variance": variance.mean(axis=1),
            "variance_median": np.median(variance, axis=1),
        }

    return measured


def of_round(
    rule: Rule,
    logits: Float[Array, " I"],
    label: Int[Array, ""],
    *,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Moments:
    """Compute the moments of one round with one right item, over the policy's probabilities."""
    assert rule.policy.probabilities is not None
    given = {"propensity": rule.policy.probabilities(logits), "noise_rate": noise_rate}
    return moments(rule.estimator, over_items.softmax(logits, None), label, **given)


def over_queries(
    rule: Rule,
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, " N"],
    *,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Moments:
    """Compute the moments of a round with each query, at constant embeddings."""

    def one(query_and_label):
        query, label = query_and_label
        return of_round(rule, theta @ query / rule.tau, label, noise_rate=noise_rate)

    return lax.map(one, (queries, labels))


if __name__ == "__main__":
    main.cli()
