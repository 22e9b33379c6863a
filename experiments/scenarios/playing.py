"""Every rule in one scenario, with a guard and without; beside it in the calm world.

Letters: S seeds, T rounds, n numbers of a setting.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

import jaxret as jr
from experiments.common.run_directory import RunDirectory
from experiments.scenarios.measures import Windows, measures, of_guard
from experiments.scenarios.page import GUARDED
from experiments.scenarios.rules import rule_showing, static_rule
from experiments.scenarios.scenario import Place, Scenario
from experiments.scenarios.worlds import of_static
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.simulation.engine import Simulation


class Stage(NamedTuple):
    """What all scenarios share."""

    run: RunDirectory
    place: Place
    seeds: range
    order: Int[np.ndarray, "S T"]
    chunk: int
    windows: Windows
    guard: Callable[[jr.Learner], jr.Learner]

    def simulated(
        self,
        name: str,
        grid: LearnerGrid,
        setting: Float[np.ndarray, "S n"],
        environment: Environment,
        *,
        guard: bool = False,
    ) -> dict[str, np.ndarray]:
        """``success [S, T]`` of a rule in a world; with a guard also ``stopped [S]``."""

        def make(*numbers):
            learner = grid.make(*numbers)
            return self.guard(learner) if guard else learner

        def compute():
            simulation = Simulation(
                make,
                self.place.task,
                environment,
                seeds=self.seeds,
                example=setting[0],
                chunk=self.chunk,
            )
            states, trace = simulation.run(setting, self.order, title=name)
            found = {"success": np.asarray(trace.success) > 0}
            return found | ({"stopped": states.extra.stopped} if guard else {})

        self.run.pause(0)
        return self.run.result(name, compute)


def played(
    stage: Stage,
    name: str,
    one: Scenario,
    learners: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Float[np.ndarray, "S n"]],
) -> tuple[dict[str, np.ndarray], dict[str, Float[np.ndarray, "S T"]]]:
    """Every rule in one scenario.

    Args:
      stage: where it is played.
      name: of the scenario.
      one: the scenario.
      learners: the rules, as ``configs/learners.yaml`` has them.
      settings: of each rule, for every seed.

    Returns:
      ``<learner>/<measure>`` -> [S]; and the successes [S, T] of each learner, and of the first
      that has a guard with it.
    """
    environment, begins = one.world(stage.place), stage.place.at(one.begins)
    static = static_rule(one.shown)
    alone = np.tile(static.settings, (len(stage.seeds), 1))
    calm = "calm" if one.shown == 1 else f"{name}-calm"
    quiet = stage.simulated(f"{calm}-static", static, alone, one.calm)["success"]
    still = stage.simulated(f"{name}-static", static, alone, of_static(environment))["success"]
    found = measures(still, quiet, still, begins, stage.windows)
    results = {f"frozen/{key}": values for key, values in found.items()}
    curves = {"frozen": still}
    for rule, spec in learners.items():
        grid = rule_showing(rule, spec, one.shown)
        if rule == "frozen" or grid is None:
            continue
        setting = settings[rule]
        before = stage.simulated(f"{calm}-{rule}", grid, setting, one.calm)["success"]
        success = stage.simulated(f"{name}-{rule}", grid, setting, environment)["success"]
        found = measures(success, before, still, begins, stage.windows)
        curves[rule] = success
        if one.shown == 1 and grid.make(*setting[0]).chances is not None:
            guarded = stage.simulated(
                f"{name}-{rule}-guarded", grid, setting, environment, guard=True
            )
            found |= of_guard(guarded, success, still, stage.windows)
            curves.setdefault(GUARDED, guarded["success"])
        results |= {f"{rule}/{key}": values for key, values in found.items()}
    return results, curves
