"""What does a round of the best rules cost, against `greedy`, each in the form that it has?

Keys ``rules/<I>x<d>/<learner>``, microseconds a round; ``how`` is the form that
`jaxret.simulation.engine` takes.
"""

from functools import partial

import jax
import numpy as np

from experiments.benchmarks.gpu.problem import Problem, problem, usual
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.simulation import precisely
from experiments.benchmarks.gpu.timing import Build, compare
from jaxret.learners import presets
from jaxret.learners.grid import grid
from jaxret.learners.learner import Learner
from jaxret.learners.mixture import mixture
from jaxret.simulation.engine import Simulation
from jaxret.task import Task

TILE = 32  # rounds between two moves of a map, of what has a blocked form


def mixture_of_8() -> Learner:
    """Two experts each that stay, move rows, and move a map of either kind; none replays."""
    taus = {"tau": [0.02, 0.04]}
    tiled = {**taus, "eta": 6e-4, "map_every": TILE}
    still, rows = grid(presets.frozen, **taus), grid(presets.greedy, **taus)
    return mixture([still, rows, grid(presets.mapped, **tiled), grid(presets.centred, **tiled)])


LEARNERS = {  # what has a blocked form first
    "greedy": presets.greedy,
    "mapped_tiled": partial(presets.mapped, map_every=TILE),
    "centred_tiled": partial(presets.centred, map_every=TILE),
    "greedy_replayed": presets.greedy_replayed,
    "mixture_of_8": mixture_of_8,
    "mapped": presets.mapped,
    "centred": presets.centred,
    "mixture": mixture,
}


def measure(settings: Settings, record: Record) -> None:
    """All learners of each size, in turn."""
    for size in settings.rules:
        found = problem(size, size.blocked)
        builds: dict[str, Build] = {
            name: precisely(usual(), partial(_rounds, record, size, found, name))
            for name in LEARNERS
        }
        group, repeats = f"rules/{size.name}", max(3, settings.repeats // 2)
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def _rounds(record: Record, size: Size, found: Problem, name: str):
    queries, labels, order = jax.device_get(found.stream)
    task = Task.from_arrays(np.asarray(found.theta), queries, labels)
    made = Simulation(LEARNERS[name], task, seeds=[0], chunk=size.blocked)
    settings = made.setting()
    at = [made.start(settings)]  # a step takes the place of the states that it is given
    record.keep(f"rules/{size.name}/{name}/how", {"how": made.how})

    def step():
        at[0], trace = made.step(at[0], settings, order[None])
        jax.block_until_ready((at[0], trace))

    return step, size.blocked
