"""What do a real judge's bits teach?

    uv run python -m experiments.real_judge.learn

A language model has said of every tool and query whether they fit (`experiments.real_judge.ask`):
its bits are wrong often, for some tools more than for others, and always in the same way for the
same question, which is not the noise of Appendix B.4. Every learner is given

    labels      the truth: 1 if the tool shown is the query's
    hard        yes or no, as the judge would answer
    threshold   whether its probability is above a level, chosen on the labels of queries that are
                left out of everything else (``calibration``)
    soft        the probability itself, as a reward between 0 and 1

and is measured by the truth. Settings are chosen as in `experiments.orag`, on the labels of each
seed's validation part; the ``debiased`` rule is told the share of verdicts that are wrong.

    judge/..            area under the ROC curve; share of yes for the right tool (rank 0) and the
                        nearest wrong ones; misses and false alarms, and their range over tools
    REWARD/LEARNER/..   success of the tool shown (online), nDCG@k by the last embeddings (final),
                        share of rewards that contradict the truth (wrong)
    theory/..           what `jaxret.bounds` says of ORAG in the unit ball on hard bits
"""

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import learner_grid
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.real_judge import errors
from experiments.real_judge.pairs import Pairs, environment, joined, parted
from experiments.real_judge.table import TABLE, load
from jaxret.data.masks import draw_parts_each
from jaxret.environments.environment import Environment
from jaxret.evaluation import plots
from jaxret.evaluation.statistics import area_under_roc
from jaxret.learners.grid import LearnerGrid
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.choosing import choose
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Ranker
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders

REWARDS = ("labels", "hard", "threshold", "soft")
COLUMNS = ("online", "final", "wrong")
NDCG = METRICS.index("ndcg@{k}")


@experiment("real_judge_learn")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Measures the judge, then every learner on its rewards."""
    pairs = joined(load_task(cfg), load(TABLE if cfg.table is None else Path(cfg.table)))
    apart, pairs = parted(pairs, cfg.calibration, cfg.seed)
    threshold = errors.best_threshold(apart.yes, apart.right)
    results = {f"judge/{name}": x for name, x in judge_results(pairs, cfg.ranks).items()}
    results["judge/threshold"] = np.array([threshold])
    figures(run, pairs)
    bar = Progress(total=len(cfg.rewards) * len(cfg.learners), unit="learner")
    for kind in cfg.rewards:
        world = environment(pairs, kind, threshold)
        for name, spec in plain(cfg.learners).items():
            bar.set_postfix_str(f"{name}, {kind}")
            grid = learner_grid(name, told(spec, float(results["judge/wrong"][0])))
            found = measure(cfg, run, pairs, grid, kind, world)
            results |= {f"{kind}/{name}/{key}": values for key, values in found.items()}
            bar.update()
    bar.close()
    return results | {f"theory/{name}": x for name, x in theory(cfg, pairs).items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses rewards and numbers that cannot be."""
    for kind in cfg.rewards:
        require("rewards", kind, f"some of {', '.join(REWARDS)}", REWARDS.__contains__)
    for name in ("exposures", "seeds", "chunk", "ranks"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    for name in ("validation", "calibration"):
        require(name, cfg[name], "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints the judge, then a table for each kind of reward."""
    for name, value in results.items():
        if name.startswith(("judge/", "theory/")):
            print(f"{name:<32} {value['mean']:.4g}")
    for kind in cfg.rewards:
        rows = [f"{kind}/{learner}" for learner in cfg.learners]
        results_table(results, rows, COLUMNS, f"{cfg.dataset.name}, exposures={cfg.exposures}")


def measure(
    cfg: DictConfig,
    run: RunDirectory,
    pairs: Pairs,
    grid: LearnerGrid,
    kind: str,
    world: Environment,
) -> dict[str, np.ndarray]:
    """One learner on one kind of reward: chooses its settings, then streams what is reported."""
    task, seeds = pairs.task, range(cfg.seed, cfg.seed + cfg.seeds)
    validation = draw_parts_each(task.groups, cfg.validation, 0.5, seeds).validation
    simulation = Simulation(
        grid.make, task, world, seeds=seeds, example=grid.settings[0], chunk=cfg.chunk
    )
    ranker = Ranker(task, cfg.k)
    everything, reported = (
        orders(mask, cfg.exposures, seeds) for mask in (np.ones_like(validation), ~validation)
    )
    setting = choose(
        run.unit(f"{grid.name}-{kind}-choice"),
        *(grid, simulation, ranker, everything),
        validation=validation,
    )

    def finish(states):
        return {"final": ranker(states, ~validation, simulation.scores)}

    online = record(run.unit(f"{grid.name}-{kind}"), simulation, setting, reported, finish)
    return {
        "online": np.nanmean(online["success"], axis=1),
        "final": online["final"][:, NDCG],
        "wrong": np.nanmean(np.abs(online["reward"] - online["success"]), axis=1),
    }


def told(spec: dict[str, Any], rate: float) -> dict[str, Any]:
    """A learner's settings; one that wants a noise rate gets the share of wrong verdicts."""
    estimator = spec.get("estimator")
    if isinstance(estimator, dict) and "noise_rate" in estimator:
        return spec | {"estimator": estimator | {"noise_rate": min(rate, 0.49)}}
    return spec


def judge_results(pairs: Pairs, ranks: int) -> Results:
    """What the judge's errors are."""
    task, yes, right = pairs
    misses, alarms = errors.by_tool(yes, right)
    found = {
        "area_under_roc": area_under_roc(yes, right),
        "wrong": float(((yes > 0.5) != right).mean()),
        "misses": float((yes[right] <= 0.5).mean()),
        "false_alarms": float((yes[~right] > 0.5).mean()),
    }
    for name, of in (("misses", misses), ("false_alarms", alarms)):
        found |= {f"{name}/least": float(np.nanmin(of)), f"{name}/most": float(np.nanmax(of))}
    shares = errors.by_rank(yes, right, task.queries @ task.theta.T, ranks)
    found |= {f"yes_at_rank/{rank}": float(share) for rank, share in enumerate(shares)}
    return {name: np.array([value]) for name, value in found.items()}


def theory(cfg: DictConfig, pairs: Pairs) -> Results:
    """ORAG with rows in the unit ball, on hard bits: the theorem that knows noise."""
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    seeds, world = range(cfg.seed, cfg.seed + cfg.seeds), environment(pairs, "hard", 0.5)
    run = jr.simulate(learner, pairs.task, exposures=cfg.exposures, seeds=seeds, environment=world)
    wrong = float((run.trace.reward != run.trace.success).mean())
    found = {"wrong_rewards": wrong}
    if wrong <= 0.5:
        statement = jr.bounds(run)[0]
        print(statement)
        found |= {"bound": statement.value, "regret": statement.measured}
        found["assumptions_hold"] = float(statement.holds)
    return {name: np.array([value]) for name, value in found.items()}


def figures(run: RunDirectory, pairs: Pairs) -> None:
    """How the judge errs by tool, and what its probabilities are worth."""
    misses, alarms = errors.by_tool(pairs.yes, pairs.right)
    figure, ax = plots.new_figure("no, where the tool is right", "yes, where it is wrong")
    ax.plot(misses, alarms, "o", markersize=4)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    run.save_figure(figure, "errors_by_tool")
    curve = errors.calibration(pairs.yes, pairs.right)
    figure, ax = plots.new_figure("probability of yes", "share of tools that are right")
    ax.plot([0, 1], [0, 1], "--", color=plots.GREY)
    ax.plot(curve.believed, curve.right, "o-")
    run.save_figure(figure, "calibration")


if __name__ == "__main__":
    main.cli()
