"""A round of Algorithm 1 in each form and precision, and what its block and tile sizes do.

Keys ``simulation/<I>x<d>/<form>/<precision>``, microseconds a round:

    scan        `jaxret.simulation.scan.scan_rounds`
    blocked     `jaxret.simulation.blocked.simulate.simulate_blocked`
    mesh        the same on a mesh of one device
    .._kernel   Pallas kernels: see `experiments.benchmarks.gpu.kernels`
    products    the two products of a block alone: what no blocked form can save
    torch_..    PyTorch in place: see `experiments.benchmarks.gpu.torch_simulation`
"""

from collections.abc import Callable
from functools import partial

import jax

from experiments.benchmarks.gpu.kernels import Play, kernels, swept
from experiments.benchmarks.gpu.problem import (
    ETA,
    PRECISIONS,
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
from experiments.benchmarks.gpu.timing import Build, compare, within
from experiments.benchmarks.gpu.torch_simulation import torch_forms
from jaxret.environments.environment import Environment
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import TILE, simulate_blocked, simulate_on_mesh
from jaxret.simulation.scan import scan_rounds

KEY = 0


def measure(settings: Settings, record: Record) -> None:
    """All forms of each size, in turn; mesh and PyTorch in float32."""
    _each_size(settings, record, "simulation", forms)


def others(settings: Settings, record: Record) -> None:
    """Mesh and PyTorch in the other precisions."""
    _each_size(settings, record, "simulation", other_forms)


def sweep(settings: Settings, record: Record) -> None:
    """``sweeps/<I>x<d>/..`` in TF32: the kernels' sizes, ``block_B`` and ``tile_b``."""
    _each_size(settings, record, "sweeps", sizes_of_forms)


def _each_size(settings: Settings, record: Record, part: str, made: Callable) -> None:
    """The middle size first, whose goal is the hardest; the smallest, which has none, last."""
    for size in sorted(settings.sizes, key=lambda size: size.width, reverse=True):
        builds = made(size, problem(size, size.blocked), settings)
        group, repeats = f"{part}/{size.name}", settings.repeats
        compare(record, group, builds, unit="us a round", scale=1e6, repeats=repeats)


def forms(size: Size, found: Problem, settings: Settings) -> dict[str, Build]:
    """Ours, the floor and PyTorch's, those first that would be missed most."""
    plays = {"blocked": blocked(settings.block), **kernels(settings, size)}
    first: dict[str, Build] = {
        name: partial(played, found, play, size.blocked) for name, play in plays.items()
    }
    first["products"] = partial(products, size, found, settings.block)
    by_precision = {
        f"{name}/{precision}": precisely(said, build)
        for precision, said in precisions().items()
        for name, build in first.items()
    }
    goals = {name: build for name, build in by_precision.items() if name.endswith(usual_name())}
    builds = goals | torch_forms(found, size.scan, "float32") | by_precision
    builds |= _mesh(size, found, settings, "float32")
    for precision, said in precisions().items():
        builds[f"scan/{precision}"] = precisely(said, partial(played, found, scan, size.scan))
    return builds


def other_forms(size: Size, found: Problem, settings: Settings) -> dict[str, Build]:
    """What `forms` has in float32 alone."""
    builds: dict[str, Build] = {}
    for precision in [name for name in precisions() if name != "float32"]:
        builds |= torch_forms(found, size.scan, precision)
        builds |= _mesh(size, found, settings, precision)
    return builds


def sizes_of_forms(size: Size, found: Problem, settings: Settings) -> dict[str, Build]:
    """The kernels and the blocked form in their sizes."""
    plays = dict(swept(settings, size))
    plays |= {f"tile_{tile}": blocked(settings.block, tile) for tile in settings.tiles}
    plays |= {f"block_{block}": blocked(block) for block in settings.blocks}
    return {
        name: precisely(usual(), partial(played, found, play, size.blocked))
        for name, play in plays.items()
    }


def precisely(algorithm: str, build: Build) -> Build:
    """The form with its products in a precision, in which its first call compiles."""
    return within(partial(jax.default_matmul_precision, algorithm), build)


def blocked(block: int, tile: int = TILE) -> Play:
    """Rounds in blocks."""

    def play(learner, state, stream, key):
        return simulate_blocked(learner, state, Environment(), stream, key, block=block, tile=tile)

    return play


def mesh_of_one(block: int) -> Play:
    """The form for many devices, on one."""
    mesh = sharding.make_mesh(item=1)

    def play(learner, state, stream, key):
        return simulate_on_mesh(learner, state, Environment(), stream, key, mesh=mesh, block=block)

    return play


def scan(learner, state, stream, key):
    """Round by round."""
    return scan_rounds(learner, state, Environment(), stream, key)


def _mesh(size: Size, found: Problem, settings: Settings, precision: str) -> dict[str, Build]:
    build = partial(played, found, mesh_of_one(settings.block), size.blocked)
    return {f"mesh/{precision}": precisely(PRECISIONS[precision], build)}


def played(found: Problem, play: Play, rounds: int):
    """The first rounds of a problem in a form."""
    learner, key = algorithm_1(), jax.random.key(KEY)
    stream = found.stream._replace(order=found.stream.order[:rounds])

    def run(state, stream):
        return play(learner, state, stream, key)

    return _whole(run, start(learner, found), stream), rounds


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


def floor(items: int, width: int, block: int, bandwidth: float, rate: float) -> tuple:
    """Seconds a round of a blocked form at least: for its bytes, and for its operations.

    Theta in float32 is read twice and written once a block; two products are ``4 I d`` a round.
    ``block=1`` is the scan.
    """
    numbers = items * width
    return 3 * 4 * numbers / block / bandwidth, 4 * numbers / rate
