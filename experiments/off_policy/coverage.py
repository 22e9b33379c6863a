"""Coverage of intervals, size of errors, and whether warnings predict failing bootstraps

    uv run python -m experiments.off_policy.coverage                                   # DeskBank
    uv run python -m experiments.off_policy.coverage dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

All logs draw queries from one half of the task, cut by question, independently and with
replacement; judged policies learn from the other half. Every logging policy writes ``logs`` logs,
and every judged policy is evaluated on each. An interval should cover the policy's value, its mean
success over all queries of the first half. For LOGGING/JUDGED, one value per log:

    coverage/..     whether an interval covers: at all checked times, a bootstrap's at the end
    error/..        estimate minus value; bias and root mean squared error are printed
    width/..        of the interval at the end of the log
    effective       effective sample size; warned, whether the library warned that it is too small
    refused         whether the log was refused because the policy does not explore

``coverage.md`` has all cells (a logging policy and a judged one), and the sums over them that the
page reports.

2 cores: DeskBank 8 min, UltraTool some 12 (30 on a busy machine). Expect all anytime-valid
intervals of a log to hold in .99 of the logs, the bootstrap of SNIPS in .82 and .77 of its own.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import markdown
from experiments.off_policy.study import compared
from experiments.off_policy.worlds import Judged, aim, judged, learnt, logs, policy
from jaxret.evaluation import plots
from jaxret.offline.off_policy import FEW, evaluate
from jaxret.runtime.validate import require

ANYTIME = ("IPS", "DR", "clipped IPS")  # clipped IPS only has a lower bound
BOOTSTRAP = ("SNIPS", "Switch-DR")
ESTIMATORS = ("IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos", "MIPS")
MARKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LOW = 0.9  # coverage that is too low
OFTEN = 0.5  # share of warned logs from which a cell counts as warned


class Cell(NamedTuple):
    """The logs of one policy, and another that is judged."""

    serves: str
    judged: str
    values: Mapping[str, np.ndarray]  # measure -> one value per log

    def mean(self, name: str) -> float:
        """Return the mean of a measure over logs."""
        return float(np.mean(self.values[name]))

    def root(self, estimator: str) -> float:
        """Return the root mean squared error."""
        return float(np.sqrt(np.mean(self.values[f"error/{estimator}"] ** 2)))


@experiment("off_policy_coverage")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Evaluate every judged policy on the logs of every logging policy."""
    task = task_of(cfg)
    world, apart = task.split((cfg.share, 1 - cfg.share), seed=cfg.seed)
    policies = {}
    for name, spec in plain(cfg.judged).items():
        exposures = spec.pop("exposures")
        policies[name] = judged(learnt(policy(name, spec), apart, exposures, cfg.seed), world)
    results = {f"value/{name}": np.array([one.value]) for name, one in policies.items()}
    steps = {
        name: partial(measured, cfg, policy(name, spec), world, policies)
        for name, spec in plain(cfg.logging).items()
    }
    for name, found in run.results(steps, "policy"):
        results |= {f"{name}/{key}": values for key, values in found.items()}
    figures(run, [*cfg.logging], [*cfg.judged], results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown policies, and numbers out of their range."""
    for name, spec in plain(cfg.logging).items():
        policy(name, spec)
    for name, spec in plain(cfg.judged).items():
        policy(name, {key: value for key, value in spec.items() if key != "exposures"})
    require("logs", cfg.logs, ">= 2", lambda x: x >= 2)
    require("rounds", cfg.rounds, ">= 2", lambda x: x >= 2)
    require("alpha", cfg.alpha, "in (0, 1)", lambda x: 0 < x < 1)
    require("share", cfg.share, "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Write and print the page."""
    text = page(cfg.dataset.name, [*cfg.logging], [*cfg.judged], results)
    (Path(cfg.directory) / "coverage.md").write_text(text)
    print(text)


def measured(
    cfg: DictConfig, serves: jr.Learner, world: jr.Task, policies: Mapping[str, Judged]
) -> dict[str, np.ndarray]:
    """Evaluate each judged policy on each log that one policy writes of the queries of a task.

    Returns:
      ``<judged>/<measure>`` -> [n] of the n logs that were not refused; ``refused`` and ``earned``
      [logs].
    """
    found, refused, earned = defaultdict(list), [], []
    seeds = range(cfg.seed, cfg.seed + cfg.logs)
    for made in logs(serves, world, rounds=cfg.rounds, seeds=seeds):
        earned.append(made.log.reward.mean())
        try:
            of_log = {
                name: evaluate(
                    made.log, aim(one, made.query), name=name, groups=one.groups, alpha=cfg.alpha
                )
                for name, one in policies.items()
            }
        except ValueError as error:
            if "no support" not in str(error):
                raise
            refused.append(True)
            continue
        refused.append(False)
        for name, one in of_log.items():
            found[name].append(one)
    results = {"refused": np.array(refused, float), "earned": np.array(earned)}
    for name, of_logs in found.items():
        value = np.full(cfg.rounds, policies[name].value)
        study = compared(of_logs, [value] * len(of_logs))
        results |= {f"{name}/coverage/{key}": x.astype(float) for key, x in study.covered.items()}
        results |= {f"{name}/width/{key}": x for key, x in study.widths.items()}
        results |= {
            f"{name}/error/{key.partition(',')[0]}": x - study.truth
            for key, x in study.estimates.items()
        }
        results[f"{name}/effective"] = study.effective
        results[f"{name}/warned"] = study.few.astype(float)
    return results


def page(
    dataset: str,
    serving: Sequence[str],
    judged: Sequence[str],
    results: Mapping[str, Mapping[str, Any]],
) -> str:
    """Format the page in Markdown."""
    values = {name: np.asarray(found["values"]) for name, found in results.items()}
    each = [*cells(serving, judged, values)]
    parts = [f"# Coverage on {dataset}"]
    truths = ", ".join(f"{name} {values[f'value/{name}'][0]:.3f}" for name in judged)
    parts.append(f"Values that are to be covered: {truths}.")
    parts.append(policies_table(serving, values, each))
    parts.append(sums(each))
    parts.append(coverage_table(each))
    parts.append(errors_table(each))
    return "\n\n".join(parts) + "\n"


def cells(
    serving: Sequence[str], judged: Sequence[str], values: Mapping[str, np.ndarray]
) -> Iterator[Cell]:
    """Return all cells with accepted logs."""
    for serves in serving:
        for one in judged:
            mine = f"{serves}/{one}/"
            found = {key.removeprefix(mine): x for key, x in values.items() if key.startswith(mine)}
            if found:
                yield Cell(serves, one, found)


def policies_table(
    serving: Sequence[str], values: Mapping[str, np.ndarray], each: Sequence[Cell]
) -> str:
    """Format each logging policy's mean reward, refused logs, and coverage of accepted logs."""
    rows = []
    for name in serving:
        refused, held = values[f"{name}/refused"], together(each, name)
        earned, count = values[f"{name}/earned"].mean(), f"{refused.sum():.0f} of {len(refused)}"
        rows.append((name, f"{earned:.3f}", count, f"{held.mean():.3f}" if held.size else ""))
    head = ("logging policy", "mean reward", "logs refused", "all anytime intervals hold")
    return markdown(head, rows)


def sums(each: Sequence[Cell]) -> str:
    """Format the coverage over all cells, and the failures and warnings of the bootstrap."""
    logs = [together(each, serves) for serves in dict.fromkeys(one.serves for one in each)]
    lines = [
        f"- all intervals that hold at all times, of every judged policy together: in "
        f"{np.concatenate(logs).sum():,} of {sum(map(len, logs)):,} logs "
        f"({np.concatenate(logs).mean():.4f})"
    ]
    for name in (*ANYTIME, *BOOTSTRAP):
        held = np.concatenate([one.values[f"coverage/{name}"] for one in each])
        least = min(each, key=lambda one: one.mean(f"coverage/{name}"))
        lines.append(
            f"- {name}: {held.sum():,.0f} of {len(held):,} intervals cover ({held.mean():.4f}); the"
            f" least of {len(each)} cells {least.mean(f'coverage/{name}'):.3f} ({least.serves}, "
            f"{least.judged})"
        )
    doubted = np.concatenate([one.values["warned"] for one in each]) > 0
    for name in BOOTSTRAP:
        held = np.concatenate([one.values[f"coverage/{name}"] for one in each])
        lines.append(
            f"- {name}'s bootstrap covers in {share(held[~doubted])} of the logs without a warning,"
            f" in {share(held[doubted])} of those with one"
        )
        low = [one for one in each if one.mean(f"coverage/{name}") < LOW]
        other = [one for one in each if one not in low]
        silent = [one for one in low if one.mean("warned") < OFTEN]
        lines.append(
            f"- {name}'s bootstrap covers less than {LOW} in {len(low)} of {len(each)} cells; the "
            f"warning comes in {warned(low)} of the logs there, in {warned(other)} of the others"
        )
        lines += [
            f"  - low without a warning: {one.serves}, {one.judged}: "
            f"{one.mean(f'coverage/{name}'):.3f}, {one.mean('effective'):.0f} effective, warned in "
            f"{one.mean('warned'):.2f}"
            for one in silent
        ]
    return "\n".join(lines)


def together(each: Sequence[Cell], serves: str) -> np.ndarray:
    """Compute whether all anytime-valid intervals from a log of one policy hold."""
    mine = [one.values for one in each if one.serves == serves]
    held = [values[f"coverage/{name}"] for values in mine for name in ANYTIME]
    return np.all(held, axis=0) if held else np.zeros(0, bool)


def share(held: np.ndarray) -> str:
    """Format a mean with its number of values."""
    return f"{held.mean():.3f} ({len(held):,})" if len(held) else "none"


def warned(some: Sequence[Cell]) -> str:
    """Format the share of logs with a warning, over some cells."""
    return f"{np.mean([one.mean('warned') for one in some]):.3f}" if some else "none"


def coverage_table(each: Sequence[Cell]) -> str:
    """Format a row per cell: coverage and width of intervals."""
    head = ("logging", "evaluated", "logs", "effective", "warned", *ANYTIME, *BOOTSTRAP)
    rows = [
        (
            *(one.serves, one.judged, f"{len(one.values['warned'])}"),
            *(f"{one.mean('effective'):,.0f}", f"{one.mean('warned'):.2f}"),
            *(f"{one.mean(f'coverage/{name}'):.3f}" for name in (*ANYTIME, *BOOTSTRAP)),
            *(f"{one.mean(f'width/{name}'):.3f}" for name in ("IPS", "DR", "SNIPS")),
        )
        for one in each
    ]
    return markdown((*head, "width IPS", "DR", "SNIPS"), rows)


def errors_table(each: Sequence[Cell]) -> str:
    """Format a row per cell: root mean squared error, and bias if above three standard errors."""
    return markdown(
        ("logging", "evaluated", *ESTIMATORS),
        [(one.serves, one.judged, *(error(one, name) for name in ESTIMATORS)) for one in each],
    )


def error(one: Cell, estimator: str) -> str:
    """Format ``root mean squared error (bias)``."""
    values = one.values[f"error/{estimator}"]
    bias, noise = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    shown_bias = f" ({bias:+.3f})" if abs(bias) > 3 * noise and abs(bias) >= 0.0005 else ""
    return f"{one.root(estimator):.3f}{shown_bias}"


def figures(
    run: RunDirectory,
    serving: Sequence[str],
    judged: Sequence[str],
    values: Mapping[str, np.ndarray],
) -> None:
    """Draw coverage over effective sample size, one dot per cell, and errors by logging policy."""
    each = [*cells(serving, judged, values)]
    if not each:
        return
    drawn, ax = plots.new_figure("effective sample size, mean of a cell", "share of logs covered")
    size = np.array([max(one.mean("effective"), 0.1) for one in each])
    for name, mark in zip(("IPS", "DR", "SNIPS", "Switch-DR"), "os^D", strict=True):
        held = [one.mean(f"coverage/{name}") for one in each]
        ax.plot(size, held, mark, markersize=6, alpha=0.7, label=name, clip_on=False)
    ax.set(xscale="log", ylim=(0, 1))
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.minorticks_off()
    ax.axhline(0.95, color=plots.GREY, linewidth=0.8)
    ax.axvline(FEW, color=plots.GREY, linewidth=0.8, linestyle="--")
    ax.margins(x=0.05)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, handletextpad=0)
    run.save_figure(drawn, "coverage")

    for one in judged:
        mine = [cell for cell in each if cell.judged == one]
        drawn, ax = plots.new_figure("", "root mean squared error")
        for name in ESTIMATORS:
            ax.plot([cell.root(name) for cell in mine], "o-", markersize=4, label=name)
        ax.set(yscale="log")
        least, most = ax.get_ylim()
        marks = [mark for mark in MARKS if least <= mark <= most]
        ax.set_yticks(marks, [f"{mark:g}" for mark in marks])
        ax.minorticks_off()
        names = [cell.serves.replace("_0_", " 0.").replace("_", " ") for cell in mine]
        ax.set_xticks(range(len(mine)), names, rotation=35, ha="right")
        ax.margins(x=0.03)
        plots.label_curves(ax)
        run.save_figure(drawn, f"errors_{one}")


if __name__ == "__main__":
    main.cli()
