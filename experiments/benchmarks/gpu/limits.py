"""What the machine can do: the bandwidth of a copy, and the rate of a product in each precision."""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from experiments.benchmarks.gpu.problem import precisions
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings
from experiments.benchmarks.gpu.timing import summary


def measure(settings: Settings, record: Record) -> None:
    """``limits/bandwidth`` in bytes a second, ``limits/PRECISION`` in operations a second."""
    record.attempt("limits/bandwidth", partial(_bandwidth, settings))
    for name, algorithm in precisions().items():
        record.attempt(f"limits/{name}", partial(_rate, settings, algorithm))


def _bandwidth(settings):
    x = jax.random.normal(jax.random.key(0), (settings.copied,))
    copied = jax.jit(lambda x: x + 1.0)
    return summary([2 * x.nbytes / s for s in _seconds(lambda: copied(x), settings)], "B/s")


def _rate(settings, algorithm):
    n = settings.product
    keys = jax.random.split(jax.random.key(0))
    a, b = (jax.random.normal(key, (n, n)) for key in keys)
    if algorithm.startswith("BF16"):
        a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    with jax.default_matmul_precision(algorithm):
        product = jax.jit(partial(jnp.matmul, preferred_element_type=jnp.float32))
        return summary([2 * n**3 / s for s in _seconds(lambda: product(a, b), settings)], "FLOP/s")


def _seconds(call: Callable[[], jax.Array], settings: Settings, calls: int = 4) -> list[float]:
    """Seconds a call, several calls in a row, so that launches do not count."""
    call().block_until_ready()
    found = []
    for _ in range(settings.repeats):
        begin = time.perf_counter()
        results = [call() for _ in range(calls)]
        jax.block_until_ready(results)
        found.append((time.perf_counter() - begin) / calls)
    return found
