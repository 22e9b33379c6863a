"""How often does a log identify the best of six rules, and what is the regret otherwise?

    uv run python -m experiments.off_policy.selection                                  # DeskBank
    uv run python -m experiments.off_policy.selection dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Logs are made as in `experiments.off_policy.coverage`: independent queries of one half of the task,
so that the success of every frozen rule is known. The first rounds of each log choose

    values      among six rules that have learnt from the other half and are frozen, by the largest
                value of each estimator on the whole log
    select      among the same six in their first states, by `jr.select`: they learn from the first
                half of the log, are frozen, and are evaluated on the other half; their values are
                those after learning

For LOGGING/LENGTH/values/ESTIMATOR and LOGGING/LENGTH/select, one value per log: ``right``, whether
the best rule was chosen; ``regret``, the value of the best rule minus that of the chosen one;
``chance``, the regret of a uniformly drawn rule. For `jr.select` also ``sure``, whether its bounds
separate the best from all others, and ``gain``, the value of the chosen rule minus that of static
retrieval.

2 cores: some 3 min on DeskBank. Expect there from 4,000 rounds on, where tools are drawn, a regret
of about 0.005, against 0.025 (values) and 0.047 (select) of a drawn rule.
"""

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import cell, markdown
from experiments.off_policy.worlds import Judged, aim, judged, learnt, logs, policy, value
from jaxret.evaluation import plots
from jaxret.logs import Log, take
from jaxret.offline.off_policy import evaluate
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

ESTIMATORS = ("IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos", "MIPS")
OF_SELECT = ("right", "regret", "chance", "gain", "sure", "warned")


@experiment("off_policy_selection")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Choose in both ways, on every log and at every length."""
    world, apart = task_of(cfg).split((cfg.share, 1 - cfg.share), seed=cfg.seed)
    rules = {name: policy(name, spec) for name, spec in plain(cfg.rules).items()}
    frozen = {
        name: judged(learnt(rule, apart, cfg.exposures, cfg.seed), world)
        for name, rule in rules.items()
    }
    results = {f"value/{name}": np.array([one.value]) for name, one in frozen.items()}
    seeds = range(cfg.seed, cfg.seed + cfg.logs)
    bar = Progress(total=len(cfg.logging) * cfg.logs, unit="log")
    for name, spec in plain(cfg.logging).items():
        served = logs(policy(name, spec), world, rounds=max(cfg.lengths), seeds=seeds)
        each = defaultdict(list)
        for seed, (log, query) in zip(seeds, served, strict=True):
            run.pause(0)

            def compute(log=log, query=query):
                found = {}
                for rounds in cfg.lengths:
                    some = take(log, slice(0, rounds))
                    by_value = chosen_by_values(some, query[:rounds], frozen)
                    by_select = chosen_by_select(some, rules, world)
                    found |= {f"{rounds}/values/{key}": x for key, x in by_value.items()}
                    found |= {f"{rounds}/select/{key}": x for key, x in by_select.items()}
                return found

            for key, x in run.result(f"{name}-{seed}", compute).items():
                each[f"{name}/{key}"].append(float(x))
            bar.update()
        results |= {key: np.array(x) for key, x in each.items()}
    bar.close()
    figures(run, [*cfg.logging], [*cfg.lengths], results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown rules, and numbers out of their range."""
    for specs in (cfg.rules, cfg.logging):
        for name, spec in plain(specs).items():
            policy(name, spec)
    require("rules", len(cfg.rules), ">= 2", lambda x: x >= 2)
    require("rules", [*cfg.rules], "with frozen", lambda x: "frozen" in x)
    require("logs", cfg.logs, ">= 1", lambda x: x >= 1)
    require("lengths", [*cfg.lengths], ">= 4 each", lambda x: x and min(x) >= 4)
    require("share", cfg.share, "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Write and print the page."""
    title = f"Selection on {cfg.dataset.name}, {cfg.logs} logs"
    text = page(title, [*cfg.rules], [*cfg.logging], [*cfg.lengths], results)
    (Path(cfg.directory) / "selection.md").write_text(text)
    print(text)


def chosen_by_values(log: Log, query: np.ndarray, frozen: Mapping[str, Judged]) -> dict[str, float]:
    """Choose by each estimator among frozen rules, each evaluated on the whole log."""
    found = {
        name: evaluate(log, aim(one, query), name=name, groups=one.groups)
        for name, one in frozen.items()
    }
    truth = {name: one.value for name, one in frozen.items()}
    results = {"chance": max(truth.values()) - float(np.mean([*truth.values()]))}
    for estimator in ESTIMATORS:
        estimates = {name: of(one.values, estimator).estimate for name, one in found.items()}
        picks = [name for name, value in estimates.items() if value == max(estimates.values())]
        outcomes = [outcome(pick, truth) for pick in picks]  # the mean over ties
        for key in outcomes[0]:
            results[f"{estimator}/{key}"] = float(np.mean([one[key] for one in outcomes]))
    return results


def of(values: Mapping, estimator: str):
    """Return the value of an estimator; the name of MIPS ends with its number of groups."""
    return next(x for name, x in values.items() if name.partition(",")[0] == estimator)


def chosen_by_select(log: Log, rules: Mapping[str, jr.Learner], world: jr.Task) -> dict[str, float]:
    """Choose by `jr.select`, and compare the values of the rules after learning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the log has too few effective rounds")
        chosen = jr.select(log, [*rules.values()])
    truth = {name: value(one, world) for name, one in chosen.snapshots.items()}
    few = [found.few for found in chosen.values.values()]
    return {
        **outcome(chosen.best, truth),
        "sure": float(chosen.sure),
        "warned": float(np.mean(few)),
        "gain": truth[chosen.best] - truth["frozen"],
        "chance": max(truth.values()) - float(np.mean([*truth.values()])),
    }


def outcome(pick: str, truth: Mapping[str, float]) -> dict[str, float]:
    """Return whether a rule is the best, ties included, and its regret."""
    best = max(truth.values())
    return {"right": float(truth[pick] == best), "regret": best - truth[pick]}


def page(
    title: str,
    rules: Sequence[str],
    logging: Sequence[str],
    lengths: Sequence[int],
    results: Mapping[str, Mapping[str, Any]],
) -> str:
    """Format the page in Markdown."""
    truths = ", ".join(f"{name} {results[f'value/{name}']['mean']:.3f}" for name in rules)
    parts = [f"# {title}", f"Values of the frozen rules: {truths}."]
    for name in logging:
        head = ("rounds", *ESTIMATORS, "by lot")
        for what in ("right", "regret"):
            rows = [
                (
                    f"{length:,}",
                    *(cell(results[f"{name}/{length}/values/{e}/{what}"]) for e in ESTIMATORS),
                    cell(results[f"{name}/{length}/values/chance"])
                    if what == "regret"
                    else f"{1 / len(rules):.3f}",
                )
                for length in lengths
            ]
            parts += [f"{name}: {what}, by the values of frozen rules", markdown(head, rows)]
        rows = [
            (f"{length:,}", *(cell(results[f"{name}/{length}/select/{e}"]) for e in OF_SELECT))
            for length in lengths
        ]
        parts += [f"{name}: `jr.select`", markdown(("rounds", *OF_SELECT), rows)]
    return "\n\n".join(parts) + "\n"


def figures(
    run: RunDirectory,
    logging: Sequence[str],
    lengths: Sequence[int],
    values: Mapping[str, np.ndarray],
) -> None:
    """Draw the regret of the chosen rule over the length of the log."""
    for name in logging:
        drawn, ax = plots.new_figure("rounds of the log", "success a round below the best rule's")
        for way in ("IPS", "SNIPS", "DR", "DRos", "MIPS"):
            regret = [values[f"{name}/{length}/values/{way}/regret"] for length in lengths]
            plots.curve_with_band(ax, np.array(lengths), np.stack(regret, axis=1), way)
        regret = [values[f"{name}/{length}/select/regret"] for length in lengths]
        plots.curve_with_band(ax, np.array(lengths), np.stack(regret, axis=1), "jr.select")
        lot = [values[f"{name}/{length}/values/chance"] for length in lengths]
        line = plots.curve_with_band(ax, np.array(lengths), np.stack(lot, axis=1), "by lot")
        line.set(linestyle="--", color=plots.GREY)
        ax.set(xscale="log")
        ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
        plots.label_curves(ax)
        run.save_figure(drawn, f"selection_{name}")


if __name__ == "__main__":
    main.cli()
