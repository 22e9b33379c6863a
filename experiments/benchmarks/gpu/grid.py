"""A grid of runs as one program, against one run, and against all in turn.

Keys ``grid/<form>/<who>``, milliseconds for all rounds: forms ``blocked`` and ``kernel``; ``one``
run, the grid as one ``program``, the runs ``in_turn`` through the program of one.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.gpu.kernels import tile_kernel
from experiments.benchmarks.gpu.problem import algorithm_1, problem, start, usual
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings
from experiments.benchmarks.gpu.simulation import blocked, precisely
from experiments.benchmarks.gpu.timing import Build, compare
from jaxret.runtime import sharding


def measure(settings: Settings, record: Record) -> None:
    """Both forms, in TF32."""
    size = settings.grid
    found = problem(size, size.blocked)
    taus, etas = np.geomspace(0.01, 0.1, settings.taus), np.geomspace(1e-5, 1e-3, settings.etas)
    points = list(product(taus, etas, range(settings.seeds)))
    tau, eta, seed = (jnp.asarray(x) for x in zip(*points, strict=True))
    runs = tau.astype(jnp.float32), eta.astype(jnp.float32), seed

    builds: dict[str, Build] = {}
    plays = {"blocked": blocked(settings.block), "kernel": tile_kernel(settings)}
    for name in [name for name in plays if name not in settings.broken]:

        def run(tau, eta, seed, play=plays[name]):
            learner, key = algorithm_1(tau, eta), jax.random.key(seed)
            return play(learner, start(learner, found), found.stream, key)[1].success.mean()

        builds[f"{name}/one"] = partial(_one, run, runs)
        builds[f"{name}/program"] = partial(_program, run, runs)
        builds[f"{name}/in_turn"] = partial(_in_turn, run, runs)
    builds = {name: precisely(usual(), build) for name, build in builds.items()}
    compare(record, "grid", builds, unit="ms", scale=1e3, repeats=settings.repeats)


def _one(run: Callable, runs: tuple):
    compiled, first = jax.jit(run), tuple(x[0] for x in runs)
    return lambda: compiled(*first).block_until_ready(), 1


def _program(run: Callable, runs: tuple):
    compiled = jax.jit(lambda *runs: sharding.sweep(run, *runs))
    return lambda: compiled(*runs).block_until_ready(), 1


def _in_turn(run: Callable, runs: tuple):
    compiled, each = jax.jit(run), list(zip(*runs, strict=True))
    return lambda: jax.block_until_ready([compiled(*one) for one in each]), 1
