"""What happens to learners in life: drift, delay, silence, lies, new tools, restarts?

    uv run python -m experiments.scenarios                                       # DeskBank
    uv run python -m experiments.scenarios dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool exposures=1
    uv run python -m experiments.scenarios only=[drift,delay] learner=[mixture,greedy]

Every rule meets every scenario (`worlds`, with their settings in ``configs/scenarios.yaml``), with
a guard (`jr.guarded`) and without; beside it the same rule in the calm world, and static retrieval,
on the same streams. Of each (`measures`):

    accuracy, calm     online, in the scenario and without it
    lost               successes missing since the trouble began, as rounds of the calm world
    until, back        rounds until a window of 200 in which it serves as in the calm world again,
                       and the share of seeds in which there is one
    worst, loss        the worst window of 200 rounds less static retrieval's; the largest number of
                       successes that the rule was behind it since the start
    guard/..           accuracy that the guard costs (negative: it helps), the same two with it, and
                       the share of seeds in which the rule had to go

``scenarios.md`` has a table and a figure for each, in which the first rule is seen with the guard,
too. Settings are chosen as in `experiments.orag`, in the calm world, by each seed's own validation
part, which is in no stream here. Where documents are rewritten, static retrieval serves those of
the moment. A rule that cannot show several tools is left out where several are shown, and so is the
guard, which needs one.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.scenarios import page
from experiments.scenarios.measures import Windows
from experiments.scenarios.playing import Stage, played
from experiments.scenarios.scenario import Place, Scenario
from experiments.scenarios.worlds import scenario
from jaxret.data.masks import draw_parts_each
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.choosing import choose
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import Ranker
from jaxret.simulation.streams import orders


@experiment("scenarios")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Plays every rule in every scenario; writes the page and its figures."""
    task, grids, chosen = load_task(cfg), learner_grids(cfg), scenarios(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    parts = draw_parts_each(task.groups, cfg.validation, 0.5, seeds)
    reported, everything = (
        orders(mask, cfg.exposures, seeds)
        for mask in (~parts.validation, np.ones_like(parts.validation))
    )
    order = reported[:, : (reported >= 0).all(axis=0).sum()]  # the rounds that all seeds have
    rounds, ranker = order.shape[1], Ranker(task, cfg.k)
    stage = Stage(
        run=run,
        place=Place(task=task, rounds=rounds, seed=cfg.seed, cache=cache_folder(cfg)),
        seeds=seeds,
        order=order,
        chunk=cfg.chunk,
        windows=Windows(cfg.window, cfg.within),
        guard=partial(
            jr.guarded,
            budget=cfg.guard.share * rounds,
            delta=cfg.guard.delta,
            epsilon=cfg.guard.epsilon,
        ),
    )
    settings = {}
    for grid in grids:
        simulation = Simulation(
            grid.make, task, seeds=seeds, example=grid.settings[0], chunk=cfg.chunk
        )
        settings[grid.name] = choose(
            run.unit(f"{grid.name}-choice"),
            *(grid, simulation, ranker, everything),
            validation=parts.validation,
        )
    results: dict[str, np.ndarray] = {}
    for name in (bar := Progress(chosen, unit="scenario")):
        bar.set_postfix_str(name)
        found, curves = played(stage, name, chosen[name], plain(cfg.learners), settings)
        results |= {f"{name}/{key}": values for key, values in found.items()}
        begins = stage.place.at(chosen[name].begins)
        run.save_figure(page.figure(curves, cfg.window, begins), name)
    return results | {"rounds": np.array([rounds]), "budget": np.array([cfg.guard.share * rounds])}


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses scenarios, rules and numbers that cannot be."""
    learner_grids(cfg)
    for name in cfg.only or ():
        known = ", ".join(cfg.scenarios)
        require("only", name, f"of {known}", cfg.scenarios.__contains__)
    scenarios(cfg)
    for name in ("exposures", "seeds", "chunk", "window"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("within", cfg.within, ">= 0", lambda x: x >= 0)
    require("validation", cfg.validation, "in (0, 1)", lambda x: 0 < x < 1)
    require("guard.share", cfg.guard.share, "in (0, 1]", lambda x: 0 < x <= 1)
    jr.guarded(jr.frozen(), 1e9, delta=cfg.guard.delta, epsilon=cfg.guard.epsilon)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a table a scenario, and writes the page."""
    specs, rules = plain(cfg.scenarios), ["frozen", *cfg.learners]
    rules = [*dict.fromkeys(rules)]
    for name in scenarios(cfg):
        shown = [f"{name}/{rule}" for rule in rules if f"{name}/{rule}/accuracy" in results]
        results_table(results, shown, [*page.COLUMNS], f"{name}: {told(specs[name])}")
    rounds, budget = (results[name]["mean"] for name in ("rounds", "budget"))
    title = f"{cfg.dataset.name}: {rounds:,.0f} rounds, {cfg.seeds} seeds, a budget of {budget:.0f}"
    about = {name: told(specs[name]) for name in scenarios(cfg)}
    path = Path(cfg.directory) / "scenarios.md"
    path.write_text(page.text(title, results, about, rules))
    print(f"page: {path}")


def scenarios(cfg: DictConfig) -> dict[str, Scenario]:
    """Those that are asked for, by name."""
    specs = plain(cfg.scenarios)
    return {name: scenario(name, specs[name]) for name in cfg.only or specs}


def told(spec: Mapping[str, Any]) -> str:
    """A scenario's settings in words."""
    given = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "name")
    return f"`{spec['name']}`: {given}."


if __name__ == "__main__":
    main.cli()
