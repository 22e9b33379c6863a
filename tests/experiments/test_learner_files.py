"""Learners from user files: valid and invalid files, and the file's content as part of a run."""

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore

from experiments.common import learner_files
from experiments.common.config import fingerprint, learner_grids, register_learner_files
from tests.experiments.configs import composed

LEARNERS = """
import jaxret as jr

one = jr.greedy(tau=0.02, eta=0.01)

def many(tau=0.02, eta=0.01, k=1):
    return jr.greedy(tau=tau, eta=eta, k=k)

def nothing():
    return 3

number = 4
greedy = one
"""


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Remove the learners that a test registered with Hydra."""
    repo = ConfigStore.instance().repo
    monkeypatch.setitem(repo, "learner", dict(repo["learner"]))


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_learner.py").write_text(LEARNERS)
    return tmp_path / "my_learner.py"


def config(learner, *overrides):
    words = [f"learner={learner}", *overrides]
    register_learner_files(words)
    return composed("orag", *words)


def test_learners_and_functions_of_a_file_run_beside_configured_learners(file):
    cfg = config(f"[frozen,my_learner.py:one,{file}:many]", "learners.many.tau=[0.1,0.2,0.4]")
    frozen, one, many = learner_grids(cfg)
    assert (frozen.name, one.name, many.name) == ("frozen", "one", "many")
    assert (one.settings.shape, many.names) == ((1, 0), ("tau",))
    np.testing.assert_array_equal(many.settings, [[0.1], [0.2], [0.4]])
    assert many.learner(1).structure == learner_grids(cfg)[2].learner(1).structure
    assert many.learner(1).name == "many"


def test_a_runs_name_depends_on_the_content_of_the_file(file):
    names = set()
    for content in (LEARNERS, LEARNERS + "# other\n"):
        file.write_text(content)
        names.add(fingerprint(_root_=config("[my_learner.py:one]")))
    assert len(names) == 2


def test_a_file_that_changes_under_a_run_is_refused(file):
    cfg = config("[my_learner.py:one]")
    file.write_text(LEARNERS + "# changed\n")
    learner_files._maker.cache_clear()  # as in a fresh process
    with pytest.raises(ValueError, match=r"my_learner\.py has changed since the command began"):
        learner_grids(cfg)


def test_a_file_without_a_usable_learner_gives_a_one_line_error(file):
    file.with_name("broken.py").write_text("x\n")
    file.with_name("other.py").write_text(LEARNERS)
    for learner, message in {
        "[gone.py:learner]": r"gone\.py does not exist: learner 'gone\.py:learner' is to be read",
        "my_learner.py": r"py needs the name of a learner in it, as in my_learner\.py:NAME",
        "[my_learner.py:no]": r"my_learner\.py has no 'no'; it has one, many, nothing, greedy",
        "[my_learner.py:number]": r"py:number must be a learner or a function .*, got int",
        "[my_learner.py:nothing]": r"my_learner\.py:nothing must return a learner, got int",
        "[my_learner.py:greedy]": "a learner of configs/learners.yaml are both called 'greedy'",
        "[broken.py:learner]": r"broken\.py cannot be run: NameError: name 'x' is not defined",
        "[my_learner.py:one,other.py:one]": r"other.py:one and a learner of my_learner.py:one are",
    }.items():
        with pytest.raises(ValueError, match=message) as error:
            learner_grids(config(learner))
        assert "\n" not in str(error.value)
