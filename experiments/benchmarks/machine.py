"""What a machine is and what it can do at most: a benchmark's numbers mean little without it.

    machine = measured()
    print(machine)                           2 cores of AMD EPYC, L2 1 MB, L3 32 MB, 14 GB/s, ..
    machine.floor(read=.., operations=..)    seconds that no form can save, and what limits it

Bandwidth is that of an addition that reads and writes more than fits any cache, rate that of a
product of two matrices of a thousand rows; both with all cores, the median of several.
"""

import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxret import sharding


class Machine(NamedTuple):
    """A machine, as its operating system calls it, and its limits."""

    processor: str
    cores: int
    caches: str  # a core's, as "L2 1 MB, L3 32 MB"; "" where the system does not say
    bandwidth: float  # bytes a second
    rate: float  # operations a second, in float32

    def __str__(self) -> str:
        caches = f", {self.caches}" if self.caches else ""
        limits = f"{self.bandwidth / 1e9:.1f} GB/s, {self.rate / 1e9:.0f} GFLOP/s"
        return f"{self.cores} cores of {self.processor}{caches}, {limits}"

    def floor(self, *, read: float, operations: float) -> tuple[float, str]:
        """The least time for so many bytes and operations.

        Returns:
          seconds, and whether "memory" or "arithmetic" takes them.
        """
        seconds = {"memory": read / self.bandwidth, "arithmetic": operations / self.rate}
        limit = max(seconds, key=seconds.__getitem__)
        return seconds[limit], limit


def measured(repeats: int = 7, copied: int = 2**25, side: int = 1024) -> Machine:
    """The machine that this runs on, its limits as medians.

    Args:
      repeats: of each measurement.
      copied: float32 numbers that are read and written for the bandwidth.
      side: rows of the two matrices whose product gives the rate.
    """
    x = jnp.ones(copied, jnp.float32)
    a = jnp.ones((side, side), jnp.float32)
    more, product = jax.jit(lambda x: x + 1.0), jax.jit(jnp.matmul)
    return Machine(
        processor=_processor(),
        cores=sharding.cores(),
        caches=", ".join(f"L{level} {size}" for level, size in sorted(_caches().items())),
        bandwidth=2 * x.nbytes / _seconds(partial(more, x), repeats),
        rate=2 * side**3 / _seconds(partial(product, a, a), repeats),
    )


def _seconds(call: Callable[[], jax.Array], repeats: int) -> float:
    call().block_until_ready()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call().block_until_ready()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


def _processor() -> str:
    known = Path("/proc/cpuinfo")  # Linux has it
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "an unnamed processor"


def _caches() -> dict[int, str]:
    """Level -> size, of the caches that hold data."""
    found = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            kilobytes = int(size.removesuffix("K"))
            whole = kilobytes >= 1024
            found[int(level)] = f"{kilobytes // 1024} MB" if whole else f"{kilobytes} KB"
    return found
