"""What does a round of the best rules cost, against `greedy`, each in the form that it has?

Keys ``rules/<I>x<d>/<learner>``, microseconds a round; ``how`` is the form that
`jaxret.online.simulation` takes.
"""

from functools import partial

import jax
import numpy as np

from experiments.benchmarks.gpu.problem import Problem, problem, usual
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.simulation import precisely
from experiments.benchmarks.gpu.timing import Build, compare
from jaxret.online import presets
from jaxret.online.mixture import mixture
from jaxret.online.simulation import Simulation
from jaxret.task import Task

LEARNERS = {
    "greedy": presets.greedy,
    "mapped": presets.mapped,
    "centred": presets.centred,
    "greedy_replayed": presets.greedy_replayed,
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
