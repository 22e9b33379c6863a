"""The cache of compiled programs, in subprocesses, because the test process has its own cache."""

import os
import subprocess
import sys

import pytest

SMALL = """
import jaxret as jr
from tests.problems import make_task
jr.simulate(jr.greedy(), make_task(), seeds=1)
"""


def run(environment):
    unsaid = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    ended = subprocess.run(
        [sys.executable, "-c", SMALL], env=unsaid | environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_programs_are_kept_in_the_cache_folder_unless_another_is_chosen(tmp_path):
    cache, chosen = tmp_path / "cache", tmp_path / "chosen"
    run({"JAXRET_CACHE": str(cache)})
    assert any((cache / "programs").rglob("*-cache"))
    run({"JAXRET_CACHE": str(tmp_path / "other"), "JAX_COMPILATION_CACHE_DIR": str(chosen)})
    assert not (tmp_path / "other").exists()
