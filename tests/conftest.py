"""Shared pytest setup: eight simulated CPU devices, strict numerics and the data folder."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

import jaxret as jr
from jaxret.types import Catalogue, Stream
from tests.problems import make_problem, make_task

# Compilation takes most of the suite's time. About half of it is the MLIR fusion emitter, for which
# XLA has an older and faster alternative (no such flag from jax 0.11 on); a tenth is splitting
# small programs among threads; some is optimisation, which the fixture `optimised` turns on again.
FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Locations of the deep stacks of pytest lengthen every program.
jax.config.update("jax_traceback_in_locations_limit", 0)
# Caches even the smallest programs on disk, so that later runs and parallel workers reuse them.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_collection_finish():
    """Exempt all objects that exist after collection from garbage collection."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(autouse=True)
def closed_figures():
    """Close the figures of a test, since matplotlib warns of many open ones."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture(scope="module")
def optimised():
    """Turn XLA optimisation on, for modules that run longer than they compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of benchmark data, whose licences forbid copies in this repository."""
    path = Path(os.environ.get("JAXRET_SHARED", "../shared")) / "data"
    if not path.is_dir():
        pytest.skip(f"no benchmark data at {path}: set JAXRET_SHARED to a folder that has data/")
    return path


@pytest.fixture(scope="session")
def problem() -> Callable[..., tuple[Catalogue, Stream]]:
    """Return `make_problem`, which makes a catalogue and a stream."""
    return make_problem


@pytest.fixture(scope="session")
def small() -> Callable[..., jr.Task]:
    """Return `make_task`, which makes a small task."""
    return make_task


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task()
