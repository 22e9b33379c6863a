"""The cache of compiled programs, in subprocesses, because the test process has its own cache."""

import os
import subprocess
import sys

import pytest

SMALL = """
import jax, jaxret as jr
from tests.problems import make_task
found = {"compile_requests_use_cache": 0, "cache_hits": 0}
def count(name, **_):
    if (last := name.rpartition("/")[2]) in found:
        found[last] += 1
jax.monitoring.register_event_listener(count)
jr.simulate(jr.greedy(), make_task(), seeds=1)
print(*found.values())
"""


def run(environment):
    """Simulate in a new process, and return the numbers of programs needed and read."""
    unsaid = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    ended = subprocess.run(
        [sys.executable, "-c", SMALL], env=unsaid | environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return tuple(map(int, ended.stdout.split()))


@pytest.mark.slow
def test_programs_are_kept_in_the_cache_folder_unless_another_is_chosen(tmp_path):
    cache, chosen = tmp_path / "cache", tmp_path / "chosen"
    needed, read = run({"JAXRET_CACHE": str(cache)})
    assert needed > read
    assert run({"JAXRET_CACHE": str(cache)}) == (needed, needed)  # a second process compiles none
    assert any((cache / "programs").rglob("*-cache"))
    run({"JAXRET_CACHE": str(tmp_path / "other"), "JAX_COMPILATION_CACHE_DIR": str(chosen)})
    assert not (tmp_path / "other").exists()
