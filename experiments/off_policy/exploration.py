"""What does `jr.with_exploration` cost in accuracy, and how useful is the log?

    uv run python -m experiments.off_policy.exploration                                # DeskBank
    uv run python -m experiments.off_policy.exploration dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

The log of a rule that always shows its best tool can evaluate no other rule, and `jr.off_policy`
refuses it. With exploration, a uniformly drawn tool is shown in a share epsilon of the rounds.
Every query comes once; each seed has its own order and draws, the same for all shares. For
RULE/EPSILON, one value per seed:

    accuracy       success of the tool shown, while learning; cost: the accuracy of the same seed
                   without exploration minus this one
    ndcg@10        ranking of the same queries by the last state
    JUDGED/..      evaluation of another policy by the log: refused; the effective sample size;
                   width of the intervals at its end (for SNIPS the bootstrap's); error of IPS and
                   of DR

``drawn`` is greedy's rule with its tool drawn from the softmax of twice the logits: another way to
explore, with smaller importance weights.

2 cores: some 3 min on DeskBank. Expect there for ``greedy`` a cost of 0.014 at epsilon = 0.05 and
2 effective rounds for static retrieval; for ``drawn`` 0.018 at 0.01, against greedy alone, and 117.
"""

import warnings
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import cell, markdown
from experiments.off_policy.worlds import learnt, policy, value
from jaxret.offline.snapshots import with_probabilities
from jaxret.runtime.validate import require

BOUNDED = ("IPS", "DR", "SNIPS")
OF_RULE = ("accuracy", "cost", "ndcg@10")
OF_LOG = ("refused", "effective", *(f"width/{x}" for x in BOUNDED), "error/IPS", "error/DR")
OTHER = 1000  # offset from the serving learners' seeds


@experiment("off_policy_exploration")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every rule with every share of exploration, and evaluate policies by its logs."""
    task, policies = task_of(cfg), {}
    for name, spec in plain(cfg.judged).items():
        exposures = spec.pop("exposures")
        policies[name] = learnt(policy(name, spec), task, exposures, cfg.seed + OTHER)
    truth = {name: value(one, task) for name, one in policies.items()}
    results = {f"value/{name}": np.array([x]) for name, x in truth.items()}
    folder, steps = run.directory / "logs", {}
    for name, spec in plain(cfg.rules).items():
        for epsilon in cfg.epsilons:
            serves, place = exploring(name, spec, epsilon), f"{name}/{epsilon:g}"
            steps[place] = partial(served, cfg, serves, task, folder / place, policies, truth)
    for place, found in run.results(steps, "rule"):
        results |= {f"{place}/{key}": values for key, values in found.items()}
        without = results[f"{place.partition('/')[0]}/{cfg.epsilons[0]:g}/accuracy"]
        results[f"{place}/cost"] = without - found["accuracy"]
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown rules, and numbers out of their range."""
    for name, spec in plain(cfg.rules).items():
        for epsilon in cfg.epsilons:
            exploring(name, spec, epsilon)
    require("epsilons", [*cfg.epsilons], "0 first, and more", lambda x: len(x) > 1 and x[0] == 0)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print and write the cost of exploration, then the evaluations of each policy."""
    places = [(name, f"{epsilon:g}") for name in cfg.rules for epsilon in cfg.epsilons]
    heads = [("what serves", [*OF_RULE])]
    heads += [(name, [f"{name}/{measure}" for measure in OF_LOG]) for name in cfg.judged]
    parts = []
    for title, columns in heads:
        known = results.get(f"value/{title}")
        parts.append(title if known is None else f"{title}, value {known['mean']:.3f}")
        rows = [
            (*place, *(cell(results.get(f"{'/'.join(place)}/{column}")) for column in columns))
            for place in places
        ]
        names = [column.removeprefix(f"{title}/") for column in columns]
        parts.append(markdown(("rule", "epsilon", *names), rows))
    text = "\n\n".join(parts) + "\n"
    (Path(cfg.directory) / "exploration.md").write_text(text)
    print(text)


def exploring(name: str, spec: Mapping, epsilon: float) -> jr.Learner:
    """Make a rule with exploration; without it where epsilon is 0."""
    return policy(name, {**spec, "epsilon": epsilon} if epsilon else spec)


def served(
    cfg: DictConfig,
    serves: jr.Learner,
    task: jr.Task,
    folder: Path,
    policies: Mapping[str, jr.Snapshot],
    truth: Mapping[str, float],
) -> dict[str, np.ndarray]:
    """Simulate a rule with a log per seed, and evaluate the judged policies by each log.

    Returns:
      measure -> [S]; of a refused log ``refused`` alone.
    """
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    played = jr.simulate(serves, task, exposures=cfg.exposures, seeds=seeds, log=folder)
    results = defaultdict(list)
    for seed in seeds:
        log = with_probabilities(jr.load_log(folder / f"seed_{seed}.jsonl", task), serves)
        for name, one in policies.items():
            for key, number in evaluated(log, one, truth[name]).items():
                results[f"{name}/{key}"].append(number)
    found = {key: np.array(values) for key, values in results.items()}
    found["accuracy"] = played.accuracy.values
    found["ndcg@10"] = jr.evaluate(played, task)["ndcg@10"].values
    return found


def evaluated(log: jr.Log, one: jr.Snapshot, truth: float) -> dict[str, float]:
    """Evaluate a policy by a log; ``truth`` is its value."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*effective rounds of .* are too few")
        try:
            found = jr.off_policy(log, one)
        except ValueError as error:
            if "no support" not in str(error):
                raise
            return {"refused": 1.0}
    values = {"refused": 0.0, "effective": found.effective}
    values |= {f"width/{name}": found[name].high - found[name].low for name in BOUNDED}
    return values | {f"error/{name}": found[name].estimate - truth for name in ("IPS", "DR")}


if __name__ == "__main__":
    main.cli()
