"""A round of Algorithm 1 in each form and precision, and what its block and tile sizes do.

Keys ``simulation/<I>x<d>/<form>/<precision>``, microseconds a round:

    scan        `jaxret.online.rounds.scan_rounds`
    blocked     `jaxret.online.blocked.simulate_blocked`
    mesh        the same on a mesh of one device
    kernel      `jaxret.online.tile_kernel.simulate_tiled`, where the catalogue is small enough
    products    the two products of a block alone: what no blocked form can save
    torch_..    PyTorch in place: see `experiments.benchmarks.gpu.torch_simulation`
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from experiments.benchmarks.gpu.problem import (
    ETA,
    Problem,
    algorithm_1,
    on_gpu,
    precisions,
    problem,
    start,
    usual,
)
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.timing import Build, compare
from experiments.benchmarks.gpu.torch_simulation import torch_forms
from jaxret import sharding
from jaxret.online.blocked import TILE, simulate_blocked, simulate_on_mesh
from jaxret.online.environment import Environment
from jaxret.online.rounds import scan_rounds
from jaxret.online.tile_kernel import LARGEST, simulate_tiled

KEY = 0


def measure(settings: Settings, record: Record) -> None:
    """All forms of each size, in turn; the middle size first, whose goal is the hardest."""
    for size in sorted(settings.sizes, key=lambda size: size.width, reverse=True):
        found = problem(size, size.blocked)
        builds = forms(size, found, settings) | torch_forms(found, size.scan)
        group, repeats = f"simulation/{size.name}", settings.repeats
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def sweep(settings: Settings, record: Record) -> None:
    """``sweeps/<I>x<d>/block_B`` and ``/tile_b`` in TF32; the kernel's tiles and warps."""
    for size in settings.sizes:
        found = problem(size, size.blocked)
        builds: dict[str, Build] = {}
        for tile in settings.tiles:
            builds[f"tile_{tile}"] = partial(blocked, size, found, settings.block, tile)
        for block in settings.blocks:
            builds[f"block_{block}"] = partial(blocked, size, found, block, TILE)
        if size.items <= LARGEST:
            for tile in settings.kernel_tiles:
                builds[f"kernel_tile_{tile}"] = partial(kernel, size, found, settings, tile=tile)
            for warps in settings.kernel_warps:
                builds[f"kernel_warps_{warps}"] = partial(
                    kernel, size, found, settings, warps=warps
                )
        builds = {name: precisely(usual(), build) for name, build in builds.items()}
        group, repeats = f"sweeps/{size.name}", settings.repeats
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def forms(size: Size, found: Problem, settings: Settings) -> dict[str, Build]:
    """Ours and the floor, those first that would be missed most."""
    first: dict[str, Build] = {
        "blocked": partial(blocked, size, found, settings.block, TILE),
        "products": partial(products, size, found, settings.block),
    }
    if size.items <= LARGEST:
        first["kernel"] = partial(kernel, size, found, settings)
    builds = {
        f"{name}/{precision}": precisely(said, build)
        for precision, said in precisions().items()
        for name, build in first.items()
    }
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


def kernel(size: Size, found: Problem, settings: Settings, tile: int = TILE, warps: int = 16):
    """A tile of rounds as one kernel; interpreted where there is no GPU."""
    learner, key = algorithm_1(), jax.random.key(KEY)
    tile = min(tile, min(settings.kernel_tiles)) if not on_gpu() else tile
    sizes: dict[str, Any] = {
        "block": settings.block,
        "tile": tile,
        "warps": warps,
        "interpret": not on_gpu(),
    }

    def run(state, stream):
        return simulate_tiled(learner, state, stream, key, **sizes)

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
