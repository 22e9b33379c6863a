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

``coverage.md`` has all cells, and the sums over them that the page reports.

2 cores: DeskBank 8 min, UltraTool some 12 (30 on a busy machine). Expect all anytime-valid
intervals of a log to hold in .99 of the logs, the bootstrap of SNIPS in .82 and .77 of its own.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.off_policy import coverage_page
from experiments.off_policy.study import compared
from experiments.off_policy.worlds import Judged, aim, judged, learnt, logs, policy
from jaxret.offline.off_policy import evaluate
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require


@experiment("off_policy_coverage")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Evaluates every judged policy on the logs of every logging policy."""
    task = task_of(cfg)
    world, apart = task.split((cfg.share, 1 - cfg.share), seed=cfg.seed)
    policies = {name: judge(name, spec, world, apart, cfg.seed) for name, spec in judges(cfg)}
    results = {f"value/{name}": np.array([one.value]) for name, one in policies.items()}
    for name, spec in (bar := Progress([*plain(cfg.logging).items()], unit="policy")):
        bar.set_postfix_str(name)
        run.pause(0)
        serves = policy(name, spec)
        found = run.result(name, lambda serves=serves: measured(cfg, serves, world, policies))
        results |= {f"{name}/{key}": values for key, values in found.items()}
    coverage_page.figures(run, [*cfg.logging], [*cfg.judged], results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses unknown policies, and numbers out of their range."""
    for name, spec in plain(cfg.logging).items():
        policy(name, spec)
    for name, spec in judges(cfg):
        policy(name, {key: value for key, value in spec.items() if key != "exposures"})
    require("logs", cfg.logs, ">= 2", lambda x: x >= 2)
    require("rounds", cfg.rounds, ">= 2", lambda x: x >= 2)
    require("alpha", cfg.alpha, "in (0, 1)", lambda x: 0 < x < 1)
    require("share", cfg.share, "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Writes and prints the page."""
    text = coverage_page.text(cfg.dataset.name, [*cfg.logging], [*cfg.judged], results)
    path = Path(cfg.directory) / "coverage.md"
    path.write_text(text)
    print(text)


def judges(cfg: DictConfig) -> list[tuple[str, dict]]:
    """Returns names and settings of the judged policies."""
    return [*plain(cfg.judged).items()]


def judge(name: str, spec: Mapping, world: jr.Task, apart: jr.Task, seed: int) -> Judged:
    """Returns a policy that has learnt from ``apart``, evaluated on the queries of ``world``."""
    settings = dict(spec)
    exposures = settings.pop("exposures")
    return judged(learnt(policy(name, settings), apart, exposures, seed), world)


def measured(
    cfg: DictConfig, serves: jr.Learner, world: jr.Task, policies: Mapping[str, Judged]
) -> dict[str, np.ndarray]:
    """Evaluates each judged policy on each log of one logging policy.

    Args:
      cfg: with ``logs``, ``rounds``, ``alpha`` and ``seed``.
      serves: the logging policy.
      world: its queries are drawn.
      policies: the judged policies, by name.

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


if __name__ == "__main__":
    main.cli()
