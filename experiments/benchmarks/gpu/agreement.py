"""When does a precision first show another item than float32 on the CPU, and what does it cost?

Keys ``agreement/<I>x<d>/<learner>/<precision>``: ``first`` is the round (from 0) of the first other
item, or None; ``same`` the share of rounds with the same item, ``accuracy`` the share of successes.
``cpu`` in the place of the precision is what the others are held against. `greedy` shows the best
item, `orag` draws, where a difference in the last digit of one p can move every later item.
"""

from functools import partial

import jax
import numpy as np

from experiments.benchmarks.gpu.kernels import kernels
from experiments.benchmarks.gpu.problem import (
    PRECISIONS,
    algorithm_1,
    precisions,
    problem,
    start,
)
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from jaxret.online import presets
from jaxret.online.blocked import simulate_blocked
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner

LEARNERS = {"greedy": presets.greedy, "orag": algorithm_1}


def measure(settings: Settings, record: Record) -> None:
    """Small catalogues first: the CPU has to play the same rounds."""
    for size in sorted(settings.sizes, key=lambda size: size.items * size.width):
        for name, make in LEARNERS.items():
            _one(settings, record, size, name, make())


def _one(settings: Settings, record: Record, size: Size, name: str, learner: Learner) -> None:
    found = problem(size, size.checked)
    state, key = start(learner, found), jax.random.key(0)
    group = f"agreement/{size.name}/{name}"

    def run(state, stream):
        return simulate_blocked(learner, state, Environment(), stream, key, block=settings.block)[1]

    def on_cpu():
        with jax.default_device(jax.devices("cpu")[0]):
            args = jax.device_put((state, found.stream), jax.devices("cpu")[0])
            shown.append(jax.device_get(jax.jit(run)(*args)))
        return {"accuracy": float(shown[0].success.mean()), "rounds": size.checked}

    def held(form, algorithm):
        with jax.default_matmul_precision(algorithm):
            trace = jax.device_get(jax.jit(form)(state, found.stream))
        other = np.flatnonzero(trace.item != shown[0].item)
        return {
            "first": int(other[0]) if len(other) else None,
            "same": 1 - len(other) / size.checked,
            "accuracy": float(trace.success.mean()),
            "rounds": size.checked,
        }

    shown: list = []
    if record.attempt(f"{group}/cpu", on_cpu) is None:
        return
    for precision, algorithm in precisions().items():
        record.attempt(f"{group}/{precision}", partial(held, run, algorithm))
    for form, play in kernels(settings, size).items():

        def run_kernel(state, stream, play=play):
            return play(learner, state, stream, key)[1]

        record.attempt(f"{group}/{form}", partial(held, run_kernel, PRECISIONS["float32"]))
