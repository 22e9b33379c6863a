"""Experiments as processes of their own, which can be interrupted."""

import os
import subprocess
import sys
from pathlib import Path

import jax

from experiments.parts.config import CONFIGS

ROOT = Path(CONFIGS).parent


def start(module: str, *overrides: str, cached: bool = True) -> subprocess.Popen:
    """Starts ``python -m module``; what others have compiled is found, unless it may not be."""
    names = {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", module, *overrides],
        cwd=ROOT,
        env=os.environ | (names if cached else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
