"""When does a precision first show another item than float32 on the CPU, and what does it cost?

Keys ``agreement/<I>x<d>/<learner>/<form>/<precision>``: ``first`` is the round (from 0) of the
first other item, or None; ``same`` the share of rounds with the same item, ``accuracy`` the share
of successes. ``.../cpu`` is what they are held against, the blocked form. `greedy` shows the best
item, `orag` draws, where a difference in the last digit of one p can move every later item.
``orag/torch/<precision>`` draws by numbers of its own, so that accuracy is all it has.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import jax
import numpy as np

from experiments.benchmarks.gpu.kernels import Play, kernels
from experiments.benchmarks.gpu.problem import (
    PRECISIONS,
    algorithm_1,
    precisions,
    problem,
    start,
)
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.simulation import blocked, mesh_of_one, scan
from experiments.benchmarks.gpu.torch_here import here
from experiments.benchmarks.gpu.torch_simulation import accuracy
from jaxret.learners import presets
from jaxret.types import Trace

LEARNERS = {"greedy": presets.greedy, "orag": algorithm_1}
Form = tuple[str, str, Play]  # its name, the precision, how it plays


def measure(settings: Settings, record: Record) -> None:
    """Small catalogues first: the CPU has to play the same rounds. What is fastest first."""
    cpu: dict[str, Trace] = {}
    sizes = sorted(settings.sizes, key=lambda size: size.items * size.width)
    for forms in (first_forms, more_forms):
        for size, name in product(sizes, LEARNERS):
            _held(settings, record, size, name, forms(settings, size), cpu)
    for size, precision in product(sizes if here() else (), precisions()):
        record.attempt(
            f"{_group(size, 'orag')}/torch/{precision}", partial(_torch, size, precision)
        )


def first_forms(settings: Settings, size: Size) -> Iterator[Form]:
    """Blocked in all precisions, and the kernels."""
    for precision in precisions():
        yield "blocked", precision, blocked(settings.block)
    for name, play in kernels(settings, size).items():
        yield name, "float32", play


def more_forms(settings: Settings, size: Size) -> Iterator[Form]:
    """The mesh and the scan."""
    for precision in precisions():
        yield "mesh", precision, mesh_of_one(settings.block)
        yield "scan", precision, scan


def _held(
    settings: Settings,
    record: Record,
    size: Size,
    name: str,
    forms: Iterator[Form],
    cpu: dict[str, Trace],
) -> None:
    """Holds forms against the CPU, which plays its rounds once."""
    learner, found = LEARNERS[name](), problem(size, size.checked)
    args, group = (start(learner, found), found.stream), _group(size, name)

    def trace(play, args=args):
        def run(state, stream):
            return play(learner, state, stream, jax.random.key(0))[1]

        return jax.device_get(jax.jit(run)(*args))

    def on_cpu():
        where = jax.devices("cpu")[0]
        with jax.default_device(where):
            cpu[group] = trace(blocked(settings.block), jax.device_put(args, where))
        return {"accuracy": float(cpu[group].success.mean()), "rounds": size.checked}

    def held(precision, play) -> dict[str, Any]:
        with jax.default_matmul_precision(PRECISIONS[precision]):
            shown = trace(play)
        other = np.flatnonzero(shown.item != cpu[group].item)
        return {
            "first": int(other[0]) if len(other) else None,
            "same": 1 - len(other) / size.checked,
            "accuracy": float(shown.success.mean()),
            "rounds": size.checked,
        }

    if group not in cpu and record.attempt(f"{group}/cpu", on_cpu) is None:
        return
    for form, precision, play in forms:
        record.attempt(f"{group}/{form}/{precision}", partial(held, precision, play))


def _torch(size: Size, precision: str) -> dict[str, float]:
    found = accuracy(problem(size, size.checked), size.checked, precision)
    return {"accuracy": found, "rounds": size.checked}


def _group(size: Size, name: str) -> str:
    return f"agreement/{size.name}/{name}"
