"""Experiments as commands: wrong input ends in one line, in processes of their own."""

import os
import re
import subprocess
import sys

import pytest
from hydra.errors import HydraException

from experiments.common.experiment import one_line
from tests.experiments.configs import in_world
from tests.experiments.processes import ROOT


def run(*words, module="experiments.orag", env=None):
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=ROOT, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["learner=[greddy]"], "unknown learner 'greddy'; known: frozen, orag, "),
        pytest.param(
            ["learners.greedy.policy=bold"],
            "learner 'greedy': unknown policy 'bold'; known: ",
            marks=pytest.mark.slow,  # a start of JAX and Hydra each
        ),
        pytest.param(["foo=1"], "Could not override 'foo'. ", marks=pytest.mark.slow),
    ],
)
def test_wrong_input_ends_in_one_line_and_status_2(tmp_path, words, line):
    """Of names, of values, of what Hydra does not know."""
    ended = run(*words, f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 2
    [said] = ended.stderr.splitlines()
    assert said.startswith(line)
    assert ended.stdout == ""


def test_the_traceback_is_there_for_who_asks(tmp_path):
    ended = run("document=bad", "-v", f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ValueError: document must be one of" in ended.stderr


@pytest.mark.slow
def test_programs_are_kept_beside_the_vectors_where_nothing_is_said_of_them(world, tmp_path):
    """In a process of its own: the tests of this one say where theirs are kept."""
    cache, said = tmp_path / "cache", tmp_path / "run"
    unsaid = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    small = ["learner=[greedy]", "rounds=8", "repeats=1", f"hydra.run.dir={said}"]
    words = [*in_world(world, said), *small, f"cache={cache}"]
    ended = run(*words, module="experiments.benchmarks.rules", env=unsaid)
    assert ended.returncode == 0, ended.stderr
    folders = {path.relative_to(cache).parts[0] for path in cache.rglob("*") if path.is_file()}
    assert "programs" in folders
    assert folders - {"programs"}  # the vectors


def test_an_error_is_one_line():
    text = (
        "In 'orag': Could not find 'world/x'\n\nAvailable options in 'world':\n\tcalm\n\twild\n"
        "Config search path:\n\tprovider=hydra, path=pkg://hydra.conf"
    )
    assert one_line(HydraException(text)) == (
        "In 'orag': Could not find 'world/x'. Available options in 'world': calm, wild"
    )
    for group in ("dataset", "sweep"):
        error = HydraException(text.replace("world", group))
        assert re.match(f"unknown {group} 'x'; known: .*(deskbank|exposures)", one_line(error))
    assert one_line(KeyError("tau")) == "KeyError: 'tau'"
