"""Bias and variance of estimators from one bit, and their cost         (ORAG Lemma 3.1, App. B)

    uv run python -m experiments.variance                                     # DeskBank, built in
    uv run python -m experiments.variance dataset=ultratool dataset.path=FILE

Runs every estimator, under label noise of rate rho, in a catalogue of a few tools and in the whole
catalogue. Only queries with one label are used, as the theory assumes.

    bias, variance   of the coefficients c against the gradient p - 1[i*] (`moments.py`), exact,
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

Exact moments include draws that never occur in a stream (see `moments.py`): if p is concentrated,
an unbiased estimator with a variance of 1e20 is biased in practice.

2 cores, beside other work: UltraTool 5 min.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import PARTS
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.variance.estimator_study import set_up, study
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import from_registry, require

ORACLE = "full_information"
MOMENTS = ("bias", "variance", "variance_median", "final/bias", "final/variance_median")
REACHED = ("online/accuracy", "final/recall@{k}", "final/ndcg@{k}")
GAPS = {"online/accuracy": "gap_closed", "final/ndcg@{k}": "final/gap_closed"}
AXES = ("bias", "variance_median")  # axes of the figure
MARKS = "osD^vP*X"  # marker per rate


@experiment("variance")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Runs every estimator at every rate and size; writes curves and figures."""
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
    np.savez(run.directory / "curves.npz", allow_pickle=False, **results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Checks learners and numbers."""
    specs = plain(cfg.learners)
    if ORACLE not in specs:
        raise ValueError(f"learners must hold {ORACLE!r}: gaps are measured against it")
    for rate in cfg.rates:
        require("rates", rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)
    for size in cfg.sizes:
        allowed = "'all' or a number >= 2"
        require("sizes", size, allowed, lambda x: x == "all" or (isinstance(x, int) and x >= 2))
    for name in ("exposures", "seeds", "chunk"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("validation", cfg.validation, "in (0, 1)", lambda x: 0 < x < 1)
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
    """Prints moments and results, by size of the catalogue."""
    for size in cfg.sizes:
        rows = [f"{name}/{size}/{rate:g}" for rate in cfg.rates for name in cfg.learners]
        title = f"{cfg.dataset.name}, {size} tools"
        results_table(results, rows, MOMENTS, title)
        columns = (*REACHED, *GAPS.values(), "online/regret")
        reached = [column.format(k=cfg.k) for column in columns]
        results_table(results, [f"frozen/{size}", *rows], reached, title)


def learner_of(name: str, spec: dict[str, Any], cfg: DictConfig) -> Callable[..., Learner]:
    """Returns a function of tau, eta and the noise rate that makes a learner.

    Args:
      name: name of the learner.
      spec: its ``policy`` and ``estimator``; an estimator with a ``noise_rate`` is given the rate.
      cfg: with ``projection`` and ``schedule``.
    """
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
    """Online accuracy over the noise rate."""
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
    """Variance of the median query over bias, at Theta_1; the oracle has neither."""
    figure, ax = plots.new_figure("bias", "variance of the median query")
    names = [name for name in names if name != ORACLE]
    ends, colours = [], []
    for i, name in enumerate(names):
        rows = [[results[f"{name}/{size}/{rate:g}/{x}"][0] for x in AXES] for rate in rates]
        (line,) = ax.plot(*zip(*rows, strict=True), linewidth=1)
        colours.append(line.get_color())
        ends.append(rows[-1])
        for mark, (x, y) in zip(MARKS, rows, strict=False):
            ax.plot(
                x, y, mark, color=colours[-1], markersize=10 - i
            )  # so that no marker hides another
    ax.set_yscale("log")
    ax.margins(0.05)
    marks = [Line2D([], [], linestyle="", marker=m, color=plots.GREY) for m in MARKS[: len(rates)]]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False}
    labels = [f"rho = {rate:g}" for rate in rates]
    ax.legend(marks, labels, ncols=4, handletextpad=0, columnspacing=1, **place)
    plots.label_points(ax, np.array(ends), names, colours)
    run.save_figure(figure, f"bias_variance_{size}")


if __name__ == "__main__":
    main.cli()
