"""Describes the machine of a benchmark and measures its limits.

    pin_torch()             before anything is timed against PyTorch
    print(measured())       2 cores (CPUs 0-1) of AMD EPYC, L2 512 KB, L3 32 MB, 29.0 GB/s in a copy
    in_place(4 * I * d)     bytes per second, over an array of the size of Theta

The copy reads and writes more than fits in any cache; the rate is that of a product of two large
matrices. Both use all cores and are medians.

The bandwidth of a copy does not limit updates in place: a CPU reads a line before it writes it, so
a copy moves three bytes for the two that are counted. `in_place` measures that limit, of memory or
of the cache that the array fits in.
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
from jax.typing import DTypeLike

PASSED = 2**29  # bytes per call of `in_place`, so that the start of a call is negligible


class Machine(NamedTuple):
    """A machine, described by its operating system, and its limits."""

    processor: str
    cores: int
    cpus: str  # numbers, as "0-1"; "" if the system does not report them
    caches: str  # per core, as "L2 1 MB, L3 32 MB"; "" if the system does not report them
    bandwidth: float  # bytes per second in a copy
    rate: float  # operations per second, in float32

    def __str__(self) -> str:
        which = f" (CPUs {self.cpus})" if self.cpus else ""
        caches = f", {self.caches}" if self.caches else ""
        limits = f"{self.bandwidth / 1e9:.1f} GB/s in a copy, {self.rate / 1e9:.0f} GFLOP/s"
        return f"{self.cores} cores{which} of {self.processor}{caches}, {limits}"


def measured(repeats: int = 7, copied: int = 2**25, side: int = 1024) -> Machine:
    """Describe and measure this machine."""
    processor = field("/proc/cpuinfo", "model name") or platform.processor()
    return Machine(
        processor=processor or "an unnamed processor",
        cores=cores(),
        cpus=field("/proc/self/status", "Cpus_allowed_list"),
        caches=", ".join(f"L{level} {size}" for level, size in sorted(_caches().items())),
        bandwidth=copying(copied, repeats),
        rate=multiplying(side, repeats),
    )


def copying(numbers: int, repeats: int) -> float:
    """Measure the bandwidth of a copy of float32 numbers, in bytes per second read and written.

    The target is the same array each time: fresh pages would cost more than the copy.
    """
    source, target = jnp.ones(numbers, jnp.float32), jnp.zeros(numbers, jnp.float32)
    copy = jax.jit(lambda source, _: source + 1.0, donate_argnums=1, keep_unused=True)

    def call():
        nonlocal target
        target = copy(source, target)
        return target

    return 2 * source.nbytes / _seconds(call, repeats)


def multiplying(side: int, repeats: int, dtype: DTypeLike = jnp.float32) -> float:
    """Measure the rate of a product of two square matrices, in operations per second.

    The matrices are random and of any type, their product is float32.
    """
    a, b = jax.random.normal(jax.random.key(0), (2, side, side)).astype(dtype)
    product = jax.jit(partial(jnp.matmul, preferred_element_type=jnp.float32))
    return 2 * side**3 / _seconds(partial(product, a, b), repeats)


def in_place(size: float, repeats: int = 7) -> float:
    """Measure the bandwidth of passes that update float32 numbers in place, in bytes per second.

    ``size`` is that of the array in bytes; a small one stays in a cache.
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
    """Give PyTorch as many threads as XLA has; return whether PyTorch is installed."""
    try:
        import torch
    except ImportError:
        return False
    torch.set_num_threads(cores())
    return True


def cores() -> int:
    """Count the CPUs that this process may run on; XLA starts one thread on each.

    Ignore OMP_NUM_THREADS, as XLA does; `jaxret.runtime.sharding.cores` heeds it.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def memory(name: str) -> float:
    """Read the bytes of memory of this process; NaN where the system does not report them.

    ``VmRSS`` is what the process has now, ``VmHWM`` its peak (``ru_maxrss`` counts its parent's).
    """
    kilobytes = field("/proc/self/status", name).removesuffix(" kB")
    return 1024 * float(kilobytes or "nan")


def field(file: str, name: str) -> str:
    """Read the first field of a name from a file in which Linux describes itself; "" elsewhere."""
    lines = Path(file).read_text().splitlines() if Path(file).is_file() else []
    return next((x.partition(":")[2].strip() for x in lines if x.startswith(name)), "")


def _seconds(call: Callable[[], jax.Array], repeats: int) -> float:
    call().block_until_ready()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call().block_until_ready()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


def _caches() -> dict[int, str]:
    """Map the level of each data cache to its size."""
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
