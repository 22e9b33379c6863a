"""A round of Algorithm 1 in each form and precision, and what its block and tile sizes do.

Keys ``simulation/<I>x<d>/<form>/<precision>``, microseconds a round:

    scan        `jaxret.online.rounds.scan_rounds`
    blocked     `jaxret.online.blocked.simulate_blocked`
    mesh        the same on a mesh of one device
    .._kernel   Pallas kernels: see `experiments.benchmarks.gpu.kernels`
    products    the two products of a block alone: what no blocked form can save
    torch_..    PyTorch in place: see `experiments.benchmarks.gpu.torch_simulation`
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from experiments.benchmarks.gpu.kernels import Play, kernels, swept
from experiments.benchmarks.gpu.problem import (
    ETA,
    Problem,
    algorithm_1,
    precisions,
    problem,
    start,
    usual,
    usual_name,
)
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.timing import Build, compare
from experiments.benchmarks.gpu.torch_simulation import torch_forms
from jaxret import sharding
from jaxret.online.blocked import TILE, simulate_blocked, simulate_on_mesh
from jaxret.online.environment import Environment
from jaxret.online.rounds import scan_rounds

KEY = 0


def measure(settings: Settings, record: Record) -> None:
    """All forms of each size, in turn."""
    for size in by_need(settings.sizes):
        found = problem(size, size.blocked)
        builds = forms(size, found, settings)
        group, repeats = f"simulation/{size.name}", settings.repeats
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def sweep(settings: Settings, record: Record) -> None:
    """``sweeps/<I>x<d>/..`` in TF32: the kernels' sizes, ``block_B`` and ``tile_b``."""
    for size in by_need(settings.sizes):
        found = problem(size, size.blocked)
        builds: dict[str, Build] = {
            name: partial(played, size, found, play) for name, play in swept(settings, size)
        }
        for tile in settings.tiles:
            builds[f"tile_{tile}"] = partial(blocked, size, found, settings.block, tile)
        for block in settings.blocks:
            builds[f"block_{block}"] = partial(blocked, size, found, block, TILE)
        builds = {name: precisely(usual(), build) for name, build in builds.items()}
        group, repeats = f"sweeps/{size.name}", settings.repeats
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def by_need(sizes: tuple[Size, ...]) -> list[Size]:
    """The middle size first, whose goal is the hardest; the smallest, which has none, last."""
    return sorted(sizes, key=lambda size: size.width, reverse=True)


def forms(size: Size, found: Problem, settings: Settings) -> dict[str, Build]:
    """Ours, the floor and PyTorch's, those first that would be missed most."""
    first: dict[str, Build] = {
        "blocked": partial(blocked, size, found, settings.block, TILE),
        **{
            name: partial(played, size, found, play)
            for name, play in kernels(settings, size).items()
        },
        "products": partial(products, size, found, settings.block),
    }
    by_precision = {
        f"{name}/{precision}": precisely(said, build)
        for precision, said in precisions().items()
        for name, build in first.items()
    }
    goals = {name: build for name, build in by_precision.items() if name.endswith(usual_name())}
    builds = goals | torch_forms(found, size.scan) | by_precision
    mesh = partial(mesh_of_one, size, found, settings.block)
    builds["mesh/float32"] = precisely(precisions()["float32"], mesh)
    for precision, said in precisions().items():
        builds[f"scan/{precision}"] = precisely(said, partial(scan, size, found))
    return builds


def precisely(algorithm: str, build: Build) -> Build:
    """The form with its products in a precision, in which its first call compiles."""

    def built():
        call, count = build()

        def precise():
            with jax.default_matmul_precision(algorithm):
                return call()

        return precise, count

    return built


def blocked(size: Size, found: Problem, block: int, tile: int):
    """Rounds in blocks."""
    learner, key = algorithm_1(), jax.random.key(KEY)

    def run(state, stream):
        sizes: dict[str, Any] = {"block": block, "tile": tile}
        return simulate_blocked(learner, state, Environment(), stream, key, **sizes)

    return _whole(run, start(learner, found), found.stream), size.blocked


def mesh_of_one(size: Size, found: Problem, block: int):
    """The form for many devices, on one."""
    learner, key, mesh = algorithm_1(), jax.random.key(KEY), sharding.make_mesh(item=1)

    def run(state, stream):
        return simulate_on_mesh(learner, state, Environment(), stream, key, mesh=mesh, block=block)

    return _whole(run, start(learner, found), found.stream), size.blocked


def scan(size: Size, found: Problem):
    """Round by round."""
    learner, key = algorithm_1(), jax.random.key(KEY)
    stream = found.stream._replace(order=found.stream.order[: size.scan])

    def run(state, stream):
        return scan_rounds(learner, state, Environment(), stream, key)

    return _whole(run, start(learner, found), stream), size.scan


def played(size: Size, found: Problem, play: Play):
    """Rounds by a kernel."""
    learner, key = algorithm_1(), jax.random.key(KEY)

    def run(state, stream):
        return play(learner, state, stream, key)

    return _whole(run, start(learner, found), found.stream), size.blocked


def products(size: Size, found: Problem, block: int):
    """S = Q Theta^T and Theta - E^T Q, a block."""

    def run(theta, stream):
        def both(theta, queries):
            scores = queries @ theta.T
            return theta - (ETA * scores).T @ queries, None

        blocks = stream.queries[stream.order].reshape(-1, block, size.width)
        return jax.lax.scan(both, theta, blocks)[0]

    return _whole(run, found.theta, found.stream), size.blocked


def _whole(run: Callable, *args) -> Callable[[], object]:
    compiled = jax.jit(run)
    return lambda: jax.block_until_ready(compiled(*args))


def floor(size: Size, block: int, bandwidth: float, rate: float) -> tuple[float, float]:
    """Seconds a round of a blocked form at least: for its bytes, and for its operations.

    Theta in float32 is read twice and written once a block; two products are ``4 I d`` a round.
    ``block=1`` is the scan.
    """
    numbers = size.items * size.width
    return 3 * 4 * numbers / block / bandwidth, 4 * numbers / rate
