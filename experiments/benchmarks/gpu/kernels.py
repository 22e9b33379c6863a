"""The two GPU kernels as forms of a simulation; interpreted where there is no GPU, in few rounds.

    kernel          `jaxret.simulation.blocked.tile_kernel.simulate_tiled`, a launch a tile, of
    small catalogues round_kernel    `jaxret.simulation.blocked.round_kernel.simulate_in_pieces`, a
    launch a round, of any

and the sizes in which each is swept, one at a time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from experiments.benchmarks.gpu.problem import on_gpu
from experiments.benchmarks.gpu.settings import Settings, Size
from jaxret.simulation.blocked.round_kernel import PIECE, simulate_in_pieces
from jaxret.simulation.blocked.simulate import TILE
from jaxret.simulation.blocked.tile_kernel import LARGEST, simulate_tiled
from jaxret.types import State, Trace

Play = Callable[..., tuple[State, Trace]]  # learner, state, stream, key


def round_kernel(
    settings: Settings, *, tile: int = TILE, piece: int = PIECE, warps: int = 4
) -> Play:
    """A launch a round."""
    sizes: dict[str, Any] = {"tile": _tile(settings, tile), "warps": warps}
    sizes["piece"] = piece if on_gpu() else min(piece, *settings.pieces)
    return partial(simulate_in_pieces, **sizes, **_usual(settings))


def tile_kernel(settings: Settings, *, tile: int = TILE, warps: int = 16) -> Play:
    """The rounds of a tile in one launch."""
    return partial(simulate_tiled, tile=_tile(settings, tile), warps=warps, **_usual(settings))


KERNELS: dict[str, Callable[..., Play]] = {"round_kernel": round_kernel, "kernel": tile_kernel}


def kernels(settings: Settings, size: Size) -> dict[str, Play]:
    """Those that do a catalogue of this size, and did not fail."""
    able = ["round_kernel", "kernel"] if size.items <= LARGEST else ["round_kernel"]
    return {name: KERNELS[name](settings) for name in able if name not in settings.broken}


def swept(settings: Settings, size: Size) -> Iterator[tuple[str, Play]]:
    """Names ``<kernel>_<size>_<value>``, and the kernel so."""
    of_round = {"piece": settings.pieces, "warps": settings.piece_warps}
    own = {"round_kernel": of_round, "kernel": {"warps": settings.kernel_warps}}
    for kernel in kernels(settings, size):
        for name, values in ({"tile": settings.kernel_tiles} | own[kernel]).items():
            for value in values:
                yield f"{kernel}_{name}_{value}", KERNELS[kernel](settings, **{name: value})


def _tile(settings: Settings, tile: int) -> int:
    return tile if on_gpu() else min(tile, *settings.kernel_tiles)


def _usual(settings: Settings) -> dict[str, Any]:
    return {"block": settings.block, "interpret": not on_gpu()}
