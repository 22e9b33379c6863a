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
def stopped_at(count: int) -> Iterator[None]:
    """Send SIGTERM when the enclosed run reaches a chunk, and expect the run to stop there."""
    steps, step = [], Simulation.step

    def stopped(simulation, *args):
        steps.append(simulation)
        if len(steps) == count:
            signal.raise_signal(signal.SIGTERM)
        return step(simulation, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "step", stopped)
        with pytest.raises(Interrupted):
            yield
    assert len(steps) == count
