"""How do learners cope with drift, delay, missing and false feedback, new tools and restarts?

    uv run python -m experiments.scenarios                                       # DeskBank
    uv run python -m experiments.scenarios dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool exposures=1
    uv run python -m experiments.scenarios only=[drift,delay] learner=[mixture_vectors,greedy]

Every learner runs in every scenario (`kinds`; settings in ``configs/scenarios.yaml``), with and
without a guard (`jr.guarded`), and in the calm environment; static retrieval runs on the same
streams. Results of each (`measures`):

    accuracy, calm     online, in the scenario and in the calm environment
    lost               missing successes since the trouble began, in rounds of the calm environment
    until, back        rounds until a window of 200 in which the learner succeeds as often as in the
                       calm environment, and the share of seeds in which there is such a window
    worst, loss        the worst window of 200 rounds, minus static retrieval's; the largest number
                       of successes that the learner was behind static retrieval since the start
    guard/..           accuracy that the guard costs (negative: it helps), worst and loss with the
                       guard, and the share of seeds in which it stopped the learner

``scenarios.md`` has a table and a figure for each scenario; the figure also shows the first learner
with its guard. Settings are chosen as in `experiments.orag`, in the calm environment, by each
seed's validation part, which is streamed in no scenario. If documents are rewritten, static
retrieval ranks by the current ones. If several tools are shown, learners that only show one are
left out, and so is the guard.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import chosen, learner_grid
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.scenarios import page
from experiments.scenarios.kinds import Place, Scenario, of_static, scenario
from experiments.scenarios.measures import Windows, measures, of_guard
from jaxret.learners import registry
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import Rule
from jaxret.learners.replay import Replay, with_rule
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

POLICIES = {"greedy": jr.policies.greedy, "softmax": jr.policies.softmax}  # policies for presets


@experiment("scenarios")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every learner in every scenario; write the page and its figures."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    validation = task.parts(validation=cfg.validation, seeds=seeds).validation
    rounds = cfg.exposures * int((~validation).sum(axis=1).min())  # the shortest stream over seeds
    place = Place(task=task, rounds=rounds, seed=cfg.seed, cache=cache_folder(cfg))
    windows, budget = Windows(cfg.window, cfg.within), cfg.guard.share * rounds
    guard = partial(jr.guarded, budget=budget, delta=cfg.guard.delta, epsilon=cfg.guard.epsilon)
    stream: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}

    def choose(grid):
        """Choose the settings of a learner in the calm environment."""
        step, ndcg = f"{grid.name}-choice", f"ndcg@{cfg.k}"

        def compute():
            best = chosen(grid, task, on=validation, metric=ndcg, resume=run.resume(step), **stream)
            return {"settings": best.settings}

        return grid._replace(settings=run.result(step, compute)["settings"])

    def simulated(name, learner, environment):
        """Simulate a learner: success [S, T], and whether its guard stopped it [S]."""

        def compute():
            cut: dict[str, Any] = {"part": ~validation, "rounds": rounds, **stream}
            online = jr.simulate(learner, task, environment=environment, **cut)
            stopped = getattr(online.states.extra, "stopped", None)
            found = {"success": online.trace.success > 0}
            return found if stopped is None else found | {"stopped": stopped}

        run.pause(0)
        return run.result(name, compute)

    def learn_in(name, one):
        """Run every learner in a scenario: its results, and the curves of its figure."""
        environment, begins = one.environment(place), place.at(one.begins)
        static, calm = jr.frozen(k=one.shown), "calm" if one.shown == 1 else f"{name}-calm"
        quiet = simulated(f"{calm}-static", static, one.calm)["success"]
        still = simulated(f"{name}-static", static, of_static(environment))["success"]
        found = {"frozen": measures(still, quiet, still, begins, windows)}
        curves = {"frozen": still}
        for learner, spec in plain(cfg.learners).items():
            grid = showing(grids[learner], spec, one.shown)
            if learner == "frozen" or grid is None:
                continue
            before = simulated(f"{calm}-{learner}", grid, one.calm)["success"]
            success = simulated(f"{name}-{learner}", grid, environment)["success"]
            found[learner] = measures(success, before, still, begins, windows)
            curves[learner] = success
            if one.shown == 1 and grid.learner(0).probabilities is not None:
                held = simulated(f"{name}-{learner}-guarded", grid.wrapped(guard), environment)
                found[learner] |= of_guard(held, success, still, windows)
                curves.setdefault(page.GUARDED, held["success"])
        return found, curves

    grids = {grid.name: choose(grid) for grid in learner_grids(cfg)}
    results = {"rounds": np.array([rounds]), "budget": np.array([budget])}
    some = scenarios(cfg)
    for name in (bar := Progress(some, unit="scenario")):
        bar.set_postfix_str(name)
        found, curves = learn_in(name, some[name])
        for learner, each in found.items():
            results |= {f"{name}/{learner}/{key}": values for key, values in each.items()}
        run.save_figure(page.figure(curves, cfg.window, place.at(some[name].begins)), name)
        # No other scenario uses its programs, which all together exhaust the maps of a process.
        jax.clear_caches()
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown scenarios and learners, and numbers that are out of range."""
    learner_grids(cfg)
    for name in cfg.only or ():
        known = ", ".join(cfg.scenarios)
        require("only", name, f"of {known}", cfg.scenarios.__contains__)
    scenarios(cfg)
    require("window", cfg.window, ">= 1", lambda x: x >= 1)
    require("within", cfg.within, ">= 0", lambda x: x >= 0)
    require("guard.share", cfg.guard.share, "in (0, 1]", lambda x: 0 < x <= 1)
    jr.guarded(jr.frozen(), 1e9, delta=cfg.guard.delta, epsilon=cfg.guard.epsilon)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a table per scenario, and write the page."""
    specs, learners = plain(cfg.scenarios), [*dict.fromkeys(["frozen", *cfg.learners])]
    for name in scenarios(cfg):
        shown = [f"{name}/{one}" for one in learners if f"{name}/{one}/accuracy" in results]
        results_table(results, shown, [*page.COLUMNS], f"{name}: {describe(specs[name])}")
    rounds, budget = (results[name]["mean"] for name in ("rounds", "budget"))
    title = f"{cfg.dataset.name}: {rounds:,.0f} rounds, {cfg.seeds} seeds, a budget of {budget:.0f}"
    about = {name: describe(specs[name]) for name in scenarios(cfg)}
    path = Path(cfg.directory) / "scenarios.md"
    path.write_text(page.text(title, results, about, learners))
    print(f"page: {path}")


def scenarios(cfg: DictConfig) -> dict[str, Scenario]:
    """Read the scenarios of ``only``, or all of them, by name."""
    specs = plain(cfg.scenarios)
    return {name: scenario(name, specs[name]) for name in cfg.only or specs}


def describe(spec: Mapping[str, Any]) -> str:
    """Format the settings of a scenario."""
    given = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "name")
    return f"`{spec['name']}`: {given}."


def showing(grid: LearnerGrid, spec: Mapping[str, Any], k: int) -> LearnerGrid | None:
    """Return the learners of a grid with k tools shown in a round; None where they cannot."""
    if k == 1:
        return grid
    preset = spec.get("preset")
    if preset is None or "policy" in inspect.signature(registry.factories()[preset]).parameters:
        policy = spec.get("policy", "greedy")
        slate = ({"name": policy} if isinstance(policy, str) else dict(policy)) | {"k": k}
        return learner_grid(grid.name, {**spec, "policy": slate})._replace(settings=grid.settings)
    rank_one = isinstance(grid.learner(0).structure, Rule | Replay)
    return grid.wrapped(partial(with_slate, k=k)) if rank_one else None


def with_slate(learner: Learner, k: int) -> Learner:
    """Return a rank-one learner, with or without experience replay, that shows k tools."""

    def change(rule):
        return rule._replace(policy=POLICIES[rule.policy.name](k=k))

    return with_rule(learner, learner.name, change)


if __name__ == "__main__":
    main.cli()
