"""Interruption of experiments, in subprocesses or in the test's own process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest

from experiments.common.config import CONFIGS
from jaxret.runtime.checkpoint import Interrupted
from jaxret.simulation.engine import Simulation

ROOT = Path(CONFIGS).parent


def start(module: str, *overrides: str, **environment: str) -> subprocess.Popen:
    """Start ``python -m module``; by default it shares the cache of compiled programs."""
    names = {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", module, *overrides],
        cwd=ROOT,
        env=os.environ | names | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def stopped_in(owner: type, name: str, count: int) -> Iterator[list]:
    """Send SIGTERM in the given call of a method, and expect the enclosed run to stop.

    Yields the list of the calls, each as the object it was made on.
    """
    calls, method = [], getattr(owner, name)

    def stopped(called, *args):
        calls.append(called)
        if len(calls) == count:
            signal.raise_signal(signal.SIGTERM)
        return method(called, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stopped)
        with pytest.raises(Interrupted) as stop:
            yield calls
    assert stop.value.code == 143


@contextmanager
def stopped_at(count: int) -> Iterator[None]:
    """Send SIGTERM when the enclosed run reaches a chunk, and expect the run to stop there."""
    with stopped_in(Simulation, "step", count) as steps:
        yield
    assert len(steps) == count
