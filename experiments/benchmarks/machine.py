"""What a machine is and what it can do at most: a benchmark's numbers mean little without it.

    pin_torch()             before anything is timed against PyTorch
    print(measured())       2 cores (CPUs 0-1) of AMD EPYC, L2 512 KB, L3 32 MB, 29.0 GB/s in a copy
    in_place(4 * I * d)     bytes a second, over an array as large as Theta

The copy reads and writes more than fits any cache; the rate is that of a product of two matrices of
a thousand rows. All with all cores, the median of several.

A copy is no limit of what updates in place: it moves three bytes for the two that it counts, since
a machine reads a place before it writes there. `in_place` is one, of memory or of the cache that
an array fits.
"""

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PASSED = 2**29  # bytes that `in_place` goes over: a call takes far longer than its start


class Machine(NamedTuple):
    """A machine, as its operating system calls it, and its limits."""

    processor: str
    cores: int
    cpus: str  # which they are, as "0-1"; "" where the system does not say
    caches: str  # a core's, as "L2 1 MB, L3 32 MB"; "" where the system does not say
    bandwidth: float  # bytes a second, in a copy
    rate: float  # operations a second, in float32

    def __str__(self) -> str:
        which = f" (CPUs {self.cpus})" if self.cpus else ""
        caches = f", {self.caches}" if self.caches else ""
        limits = f"{self.bandwidth / 1e9:.1f} GB/s in a copy, {self.rate / 1e9:.0f} GFLOP/s"
        return f"{self.cores} cores{which} of {self.processor}{caches}, {limits}"


def measured(repeats: int = 7, copied: int = 2**25, side: int = 1024) -> Machine:
    """The machine that this runs on, its limits as medians.

    Args:
      repeats: of each measurement.
      copied: float32 numbers that are read and written for the bandwidth.
      side: rows of the two matrices whose product gives the rate.
    """
    a, product = jnp.ones((side, side), jnp.float32), jax.jit(jnp.matmul)
    return Machine(
        processor=_processor(),
        cores=cores(),
        cpus=_cpus(),
        caches=", ".join(f"L{level} {size}" for level, size in sorted(_caches().items())),
        bandwidth=_copying(copied, repeats),
        rate=2 * side**3 / _seconds(partial(product, a, a), repeats),
    )


def _copying(numbers: int, repeats: int) -> float:
    """Bytes a second from one place to another; always the same, as a fresh one costs more."""
    source, place = jnp.ones(numbers, jnp.float32), jnp.zeros(numbers, jnp.float32)
    copy = jax.jit(lambda source, _: source + 1.0, donate_argnums=1, keep_unused=True)

    def call():
        nonlocal place
        place = copy(source, place)
        return place

    return 2 * source.nbytes / _seconds(call, repeats)


def in_place(size: float, repeats: int = 7) -> float:
    """Bytes a second where float32 numbers are read and written in place, pass after pass.

    Args:
      size: of the array, in bytes: those of a cache are quicker than those of memory.
      repeats: whose median counts.
    """
    x = jnp.ones(int(size) // 4, jnp.float32)
    passes = int(np.clip(PASSED // x.nbytes, 1, 1000))
    more = jax.jit(lambda x: lax.fori_loop(0, passes, lambda _, x: x + 1.0, x), donate_argnums=0)

    def call():
        nonlocal x
        x = more(x)
        return x

    return 2 * x.nbytes * passes / _seconds(call, repeats)


def pin_torch() -> bool:
    """Gives PyTorch as many threads as XLA has; the CPUs of the process stay as they are.

    Returns:
      whether PyTorch is installed.
    """
    try:
        import torch
    except ImportError:
        return False
    torch.set_num_threads(cores())
    return True


def cores() -> int:
    """How many CPUs this process may run on: XLA starts a thread on each.

    Unlike `jaxret.runtime.sharding.cores` it does not heed OMP_NUM_THREADS, since XLA does not.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


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


def _cpus() -> str:
    """Those of `cores`, as `taskset -c` takes them."""
    known = Path("/proc/self/status")
    lines = known.read_text().splitlines() if known.is_file() else []
    found = [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")]
    return found[0] if found else ""


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
