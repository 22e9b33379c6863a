"""What do words and usage add, without learning and with it?

    uv run python -m experiments.offsets                                              # DeskBank
    uv run python -m experiments.offsets dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Runs rules without offsets, with the match of words (`jr.with_lexical`), with the division by usage
(`jr.with_balance`) and with both, each with the settings of its preset, on the same streams of all
queries. No setting is chosen on the data. ``oracle`` is given the labels; ``mixture`` has its
default experts, in the column plain those without offsets. Then static retrieval with other weights
and strengths:

    RULE/plain, RULE/lexical, RULE/balance, RULE/both    success of the tool shown
    RULE/gain                                            both minus plain, seed by seed; of mixture
                                                         also by its other experts
    words                                                success of the best match of words alone
    static/WEIGHT/STRENGTH                               success of static retrieval
    static/weighed                                       a mixture of it at all weights, strength 0
    static/from_documents                                both, and usage that has counted each
                                                         document as a query before the first round

The figure shows static retrieval. 2 quiet cores: 2 minutes for DeskBank.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import accuracy_of
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rule_of
from jaxret.learners.registry import factories
from jaxret.rules.offsets import FIRST, Usage
from jaxret.runtime.validate import require
from jaxret.task import Task

COLUMNS = ("plain", "lexical", "balance", "both", "gain")


@experiment("offsets")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every rule with each combination of offsets; draw static retrieval."""
    task = task_of(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {"words": np.array([words_alone(task)])}
    plays = {
        f"{rule}/{column}": partial(accuracy_of, learner_of(rule, column, cfg), task, seeds)
        for rule in cfg.rules
        for column in columns_of(rule)
    }
    results |= {name: found["online"] for name, found in run.results(plays, "rule")}
    for rule in cfg.rules:
        results[f"{rule}/gain"] = results[f"{rule}/both"] - results[f"{rule}/plain"]
    results |= run.result("static", partial(static, cfg, task, seeds))
    run.save_figure(figure(cfg, results), "static")
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range, and unknown rules."""
    require("lexical", cfg.lexical, "in [0, 1)", lambda x: 0 <= x < 1)
    require("balance", cfg.balance, ">= 0", lambda x: x >= 0)
    require("weights", cfg.weights, "numbers in [0, 1)", lambda xs: 0 <= min(xs) <= max(xs) < 1)
    require("strengths", cfg.strengths, "numbers >= 0", lambda xs: min(xs) >= 0)
    known = "some of the presets " + ", ".join(factories())
    require("rules", cfg.rules, known, lambda xs: len(xs) and set(xs) <= set(factories()))
    for rule in cfg.rules:
        learner_of(rule, "both", cfg)  # refuses rules that are not rank one


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line for each rule."""
    alone = results["words"]["mean"]
    title = f"{cfg.dataset.name}, {cfg.encoder.name}: success online (words alone {alone:.3f})"
    results_table(results, list(cfg.rules), COLUMNS, title)


def columns_of(rule: str) -> tuple[str, ...]:
    """Return the combinations of offsets with which a rule runs."""
    return ("plain", "both") if rule == "mixture" else COLUMNS[:-1]


def learner_of(rule: str, column: str, cfg: DictConfig) -> Learner:
    """Make a rule with the offsets that a column names."""
    if rule == "mixture":
        return jr.mixture(jr.default_experts(map_every=cfg.map_every, offsets=column == "both"))
    offsets = {"lexical": None, "balance": None} if rule == "oracle" else {}
    learner = factories()[rule](**offsets)
    if column in ("lexical", "both"):
        learner = jr.with_lexical(learner, cfg.lexical)
    return jr.with_balance(learner, cfg.balance) if column in ("balance", "both") else learner


def words_alone(task: Task) -> float:
    """Compute the success of the tool whose words match best; ties go to the first."""
    best = task.prior_scores().argmax(axis=1)
    return float((task.labels == best[:, None]).any(axis=1).mean())


def static(cfg: DictConfig, task: Task, seeds: range) -> dict[str, np.ndarray]:
    """Simulate static retrieval with every weight and strength."""
    grid = jr.grid(jr.hybrid, lexical=list(cfg.weights), balance=list(cfg.strengths))
    sweep = jr.sweep(grid, task, seeds=seeds)
    found = {
        f"static/{weight:g}/{strength:g}": run.accuracy.values
        for (weight, strength), run in zip(grid.settings, sweep.runs, strict=True)
    }
    weighed = jr.mixture([jr.grid(jr.hybrid, lexical=list(cfg.weights))])
    both = from_documents(jr.hybrid(lexical=cfg.lexical, balance=cfg.balance), task)
    for name, learner in {"weighed": weighed, "from_documents": both}.items():
        found[f"static/{name}"] = jr.simulate(learner, task, seeds=seeds).accuracy.values
    return found


def from_documents(learner: Learner, task: Task) -> Learner:
    """Count each document once as a query, by its vector alone, in the initial usage.

    Args:
      learner: `jr.hybrid` with a balance.
      task: its rows are the embedded documents.
    """
    rule = rule_of(learner)
    assert rule is not None
    p = jax.nn.softmax(task.theta @ task.theta.T / rule.tau, axis=1).mean(axis=0)
    count = FIRST + len(p)
    first = Usage((FIRST + len(p) ** 2 * p) / count, jnp.full_like(p, count))

    def init(theta, available=None):
        return learner.init(theta, available)._replace(extra=rule.pack((), (), first))

    return learner._replace(init=init)


def figure(cfg: DictConfig, results: Results) -> Any:
    """Draw the success of static retrieval over the weight, a line for each strength."""
    drawn, ax = plots.new_figure("weight of words", "success of static retrieval")
    for strength in cfg.strengths:
        means = [results[f"static/{weight:g}/{strength:g}"].mean() for weight in cfg.weights]
        ax.plot(list(cfg.weights), means, marker="o", label=f"strength {strength:g}")
    ax.axhline(float(results["words"][0]), color="0.5", linestyle=":", label="words alone")
    ax.legend()
    return drawn


if __name__ == "__main__":
    main.cli()
