"""Experiments as subprocesses: bad input ends with a one-line error."""

import re
import subprocess
import sys

import pytest
from hydra.errors import HydraException

from experiments.common.experiment import one_line
from tests.experiments.processes import ROOT


def run(*words, module="experiments.orag"):
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["learner=[greddy]"], "unknown learner 'greddy'; known: frozen, hybrid, "),
        pytest.param(
            ["+learners.greedy.policy=bold"],
            "learner 'greedy': unknown policy 'bold'; known: ",
            marks=pytest.mark.slow,  # each starts JAX and Hydra
        ),
        pytest.param(["foo=1"], "Could not override 'foo'. ", marks=pytest.mark.slow),
    ],
)
def test_wrong_input_ends_in_one_line_and_status_2(tmp_path, words, line):
    """Cover bad names, bad values and errors that Hydra raises."""
    ended = run(*words, f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 2
    [said] = ended.stderr.splitlines()
    assert said.startswith(line)
    assert ended.stdout == ""


@pytest.mark.slow
def test_the_traceback_is_there_for_who_asks(tmp_path):
    ended = run("document=bad", "-v", f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ValueError: document must be one of" in ended.stderr


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
