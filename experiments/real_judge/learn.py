"""How well do learners do with the rewards of a real judge?

    uv run python -m experiments.real_judge.learn

A language model has judged for every query and tool whether they fit
(`experiments.real_judge.ask`). Its verdicts are often wrong, for some tools more than for others,
and always the same for the same query, unlike the noise of Appendix B.4. Every learner runs with
these rewards:

    labels      1 if the tool shown is right
    hard        the judge's yes or no
    threshold   whether the judge's probability of yes is above a threshold, which is chosen on the
                labels of queries that are used for nothing else (``calibration``)
    soft        the probability of yes, between 0 and 1

Results are measured by the labels. Settings are chosen as in `experiments.orag`, on the labels of
each seed's validation part; ``debiased`` is given the share of wrong verdicts.

    judge/..            area under the ROC curve; share of yes for the right tool (rank 0) and the
                        nearest wrong ones; misses and false alarms, and their range over tools
    REWARD/LEARNER/..   success of the tool shown (online), nDCG@k by the last embeddings (final),
                        share of rewards that contradict the truth (wrong)
    theory/..           `jaxret.bounds` of ORAG in the unit ball with hard rewards

Letters: N queries, I tools, B bins. ``yes`` is the probability of yes and ``right`` whether the
tool is the query's, both [N, I].
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import chosen, learner_grid
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.real_judge.table import TABLE, Pairs, joined, judge_environment, load, parted
from jaxret.environments.environment import Environment
from jaxret.evaluation import plots
from jaxret.evaluation.statistics import area_under_roc
from jaxret.learners.grid import LearnerGrid
from jaxret.runtime.validate import require

REWARDS = ("labels", "hard", "threshold", "soft")
COLUMNS = ("online", "final", "wrong")


class Calibration(NamedTuple):
    """Pairs by their probability of yes, in bins of equal width."""

    predicted: Float[np.ndarray, " B"]  # mean probability of yes; NaN for an empty bin
    right: Float[np.ndarray, " B"]  # share of pairs whose tool is right; NaN for an empty bin
    pairs: Int[np.ndarray, " B"]  # number of pairs


@experiment("real_judge_learn")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Measure the judge, then every learner with each kind of reward."""
    pairs = joined(task_of(cfg), load(TABLE if cfg.table is None else Path(cfg.table)))
    apart, pairs = parted(pairs, cfg.calibration, cfg.seed)
    threshold = best_threshold(apart.yes, apart.right)
    results = {f"judge/{name}": x for name, x in judge_results(pairs, cfg.ranks).items()}
    results["judge/threshold"] = np.array([threshold])
    figures(run, pairs)
    wrong = float(results["judge/wrong"][0])
    steps = {}
    for kind in cfg.rewards:
        environment = judge_environment(pairs, kind, threshold)
        for name, spec in plain(cfg.learners).items():
            grid, step = learner_grid(name, with_noise_rate(spec, wrong)), f"{kind}/{name}"
            steps[step] = partial(measure, cfg, run.resume(step), pairs, grid, environment)
    for step, found in run.results(steps, "learner"):
        results |= {f"{step}/{key}": values for key, values in found.items()}
    return results | {f"theory/{name}": x for name, x in theory(cfg, pairs).items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown rewards and numbers that are out of range."""
    for kind in cfg.rewards:
        require("rewards", kind, f"some of {', '.join(REWARDS)}", REWARDS.__contains__)
    require("ranks", cfg.ranks, ">= 1", lambda x: x >= 1)
    require("calibration", cfg.calibration, "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the judge's errors, then a table for each kind of reward."""
    for name, value in results.items():
        if name.startswith(("judge/", "theory/")):
            print(f"{name:<32} {value['mean']:.4g}")
    for kind in cfg.rewards:
        rows = [f"{kind}/{learner}" for learner in cfg.learners]
        results_table(results, rows, COLUMNS, f"{cfg.dataset.name}, exposures={cfg.exposures}")


def measure(
    cfg: DictConfig, resume: Path, pairs: Pairs, grid: LearnerGrid, environment: Environment
) -> dict[str, np.ndarray]:
    """Choose a learner's settings in an environment, and stream what is reported.

    Returns:
      ``online``, ``final`` and ``wrong`` of each seed [S].
    """
    task, seeds, ndcg = pairs.task, range(cfg.seed, cfg.seed + cfg.seeds), f"ndcg@{cfg.k}"
    validation = task.parts(validation=cfg.validation, seeds=seeds).validation
    stream: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}
    stream["environment"] = environment
    setting = chosen(grid, task, on=validation, metric=ndcg, resume=resume / "choice", **stream)
    online = jr.simulate(setting, task, part=~validation, resume=resume / "online", **stream)
    return {
        "online": online.accuracy.values,
        "final": jr.evaluate(online, task, [ndcg], part=~validation)[ndcg].values,
        "wrong": np.nanmean(np.abs(online.trace.reward - online.trace.success), axis=1),
    }


def with_noise_rate(spec: dict[str, Any], rate: float) -> dict[str, Any]:
    """Give the share of wrong verdicts to a learner that has a noise rate, at most 0.49."""
    return spec | {"noise_rate": min(rate, 0.49)} if "noise_rate" in spec else spec


def judge_results(pairs: Pairs, ranks: int) -> Results:
    """Measure the judge's errors."""
    task, yes, right = pairs
    misses, alarms = by_tool(yes, right)
    found = {
        "area_under_roc": area_under_roc(yes, right),
        "wrong": float(((yes > 0.5) != right).mean()),
        "misses": float((yes[right] <= 0.5).mean()),
        "false_alarms": float((yes[~right] > 0.5).mean()),
    }
    for name, of in (("misses", misses), ("false_alarms", alarms)):
        found |= {f"{name}/least": float(np.nanmin(of)), f"{name}/most": float(np.nanmax(of))}
    shares = by_rank(yes, right, task.queries @ task.theta.T, ranks)
    found |= {f"yes_at_rank/{rank}": float(share) for rank, share in enumerate(shares)}
    return {name: np.array([value]) for name, value in found.items()}


def theory(cfg: DictConfig, pairs: Pairs) -> Results:
    """Compute the bound for noisy rewards: ORAG with rows in the unit ball, hard rewards."""
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    environment = judge_environment(pairs, "hard", 0.5)
    run = jr.simulate(
        learner, pairs.task, exposures=cfg.exposures, seeds=seeds, environment=environment
    )
    wrong = float((run.trace.reward != run.trace.success).mean())
    found = {"wrong_rewards": wrong}
    if wrong <= 0.5:
        statement = jr.bounds(run)[0]
        print(statement)
        found |= {"bound": statement.value, "regret": statement.measured}
        found["assumptions_hold"] = float(statement.holds)
    return {name: np.array([value]) for name, value in found.items()}


def figures(run: RunDirectory, pairs: Pairs) -> None:
    """Draw the judge's errors by tool, and its calibration."""
    misses, alarms = by_tool(pairs.yes, pairs.right)
    figure, ax = plots.new_figure("no, where the tool is right", "yes, where it is wrong")
    ax.plot(misses, alarms, "o", markersize=4)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    run.save_figure(figure, "errors_by_tool")
    curve = calibration(pairs.yes, pairs.right)
    figure, ax = plots.new_figure("probability of yes", "share of tools that are right")
    ax.plot([0, 1], [0, 1], "--", color=plots.GREY)
    ax.plot(curve.predicted, curve.right, "o-")
    run.save_figure(figure, "calibration")


def by_rank(
    yes: Float[np.ndarray, "N I"],
    right: Bool[np.ndarray, "N I"],
    scores: Float[np.ndarray, "N I"],
    ranks: int,
) -> Float[np.ndarray, " 1+ranks"]:
    """Compute the share of yes for the right tool, and for each of the nearest wrong tools."""
    order = np.argsort(np.where(right, -np.inf, scores), axis=1, kind="stable")[:, ::-1][:, :ranks]
    nearest = np.take_along_axis(yes, order, axis=1)
    return np.concatenate([[(yes[right] > 0.5).mean()], (nearest > 0.5).mean(axis=0)])


def by_tool(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"]
) -> tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"]]:
    """Compute the misses and false alarms of each tool.

    Returns:
      the share of no among the queries for which a tool is right, NaN for a tool that is never
      right; and the share of yes among the others.
    """
    accepted = yes > 0.5
    with np.errstate(invalid="ignore"):
        misses = (right & ~accepted).sum(axis=0) / right.sum(axis=0)
    return misses, (~right & accepted).sum(axis=0) / (~right).sum(axis=0)


def calibration(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"], bins: int = 10
) -> Calibration:
    """Compute how often the tool is right, by the probability of yes in B bins."""
    place = np.minimum((yes * bins).astype(int), bins - 1).ravel()
    pairs = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(place, weights=yes.ravel(), minlength=bins) / pairs
        share = np.bincount(place, weights=right.ravel(), minlength=bins) / pairs
    return Calibration(predicted, share, pairs)


def best_threshold(yes: Float[np.ndarray, "n I"], right: Bool[np.ndarray, "n I"]) -> float:
    """Return the threshold with the smallest sum of the rates of misses and false alarms.

    It depends on labels: give it queries that are not reported.
    """
    levels = np.unique(yes)
    misses = np.searchsorted(np.sort(yes[right]), levels, side="right") / right.sum()
    alarms = 1 - np.searchsorted(np.sort(yes[~right]), levels, side="right") / (~right).sum()
    return float(levels[np.argmin(misses + alarms)])


if __name__ == "__main__":
    main.cli()
