"""Eight simulated CPU devices, strict numerics, and the way to the shared data sets."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

import jaxret as jr
from jaxret.types import Catalogue, Stream
from tests.problems import make_problem, make_task

# Most of the suite's time is compilation: half of that is the MLIR pipeline that emits a fusion,
# for which XLA has an older and quicker way, a tenth is parting small programs among threads, and
# some is what `optimised` keeps. From jax 0.11 on XLA has no such flag.
FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
# A second run finds its programs here, and each worker those of the others, however small.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not look at it again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="module")
def optimised():
    """For what runs longer than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of benchmark data sets, whose licences keep them out of this repository."""
    path = Path(os.environ.get("JAXRET_SHARED", "../shared")) / "data"
    if not path.is_dir():
        pytest.skip(f"no benchmark data at {path}: set JAXRET_SHARED to a folder that has data/")
    return path


@pytest.fixture(scope="session")
def problem() -> Callable[..., tuple[Catalogue, Stream]]:
    """Call it, inside `jax.enable_x64` where float64 is wanted, for a catalogue and a stream."""
    return make_problem


@pytest.fixture(scope="session")
def small() -> Callable[..., jr.Task]:
    """Call it for a task."""
    return make_task


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task()
