"""Construction of learners and environments from plain data, and learners from a user's file."""

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore

import jaxret as jr
from experiments.common import learner_files
from experiments.common.config import fingerprint, learner_grids, register_learner_files
from experiments.common.environments import environment_of
from experiments.common.learners import PARTS, learner_grid, shared_grid
from jaxret.learners import grid, presets
from jaxret.learners.mixture import blend_of, default_experts, mixture
from jaxret.learners.rank_one import rule_of
from tests.experiments.configs import composed

GREEDY = {
    "policy": "greedy",
    "estimator": "bandit_likelihood",
    "projection": "sphere",
    "schedule": "constant",
    "tau": [0.02, 0.04],
    "eta_over_tau": [0.1, 0.3],
}
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


def test_the_grid_is_the_product_and_eta_is_in_units_of_tau_but_not_for_a_trainer():
    grid = learner_grid("mine", GREEDY)
    assert grid.family(0.1, 0.1).name == grid.name == "mine"
    expected = [(0.02, 0.002), (0.02, 0.006), (0.04, 0.004), (0.04, 0.012)]
    np.testing.assert_allclose(grid.settings, expected, rtol=1e-12)
    found = learner_grid("t", {"preset": "paper_adamw", "eta": [1e-5, 1e-3]})
    np.testing.assert_array_equal(found.settings, [[1e-5], [1e-3]])


def test_a_name_alone_and_a_mapping_of_that_name_are_the_same():
    one, other = (
        learner_grid("x", GREEDY | {"projection": spec}).family(0.1, 0.01)
        for spec in ("sphere", {"name": "sphere"})
    )
    assert rule_of(one) == rule_of(other)


def test_an_unknown_name_is_answered_with_those_there_are():
    for kind, parts in PARTS.items():
        message = f"learner 'x': unknown {kind} 'bold'; known: {', '.join(parts)}"
        with pytest.raises(ValueError, match=message):
            learner_grid("x", GREEDY | {kind: "bold"})


def test_a_wrong_learner_is_refused_in_one_sentence():
    for spec, message in [
        (GREEDY | {"step": [1.0]}, r"needs a preset, or exactly policy.*see \['step'\]"),
        ({k: v for k, v in GREEDY.items() if k != "tau"}, r"or exactly .*tau.*see \['tau'\]"),
        (GREEDY | {"tau": [0.0]}, r"needs tau > 0, got tau=\[0.0\]"),
        (GREEDY | {"eta_over_tau": []}, r"needs eta >= 0, got eta=\[\]"),
        (GREEDY | {"policy": {"name": "greedy", "wide": 1}}, r"policy .greedy.: got an unexpected"),
        ({"preset": "greedy_replayed", "per_round": 0}, "per_round must be >= 1"),
        ({"preset": "paper_adamw", "batch": 0}, "batch must be >= 1, got 0"),
        ({"preset": "mixture", "experts": {"offset": False}}, "learner 'x': .*'offset'"),
        ({"preset": "greedy", "experts": {}}, "learner 'x': .*'experts'"),
        ({"preset": "bold"}, "learner 'x': unknown preset 'bold'; known: frozen, hybrid, orag"),
        ({"preset": "greedy", "speed": 3}, "learner 'x': .*'speed'"),
        ({"preset": "greedy", "k": [1, 2]}, r"k=\[1, 2\] cannot vary within one program"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            learner_grid("x", spec)
        assert "\n" not in str(error.value)


def test_a_shared_grid_is_given_once():
    specs = {n: {"policy": n, "estimator": "bandit_likelihood"} for n in ("greedy", "softmax")}
    shared = {key: GREEDY[key] for key in ("projection", "schedule", "tau", "eta_over_tau")}
    first, second = shared_grid(specs, shared)
    np.testing.assert_array_equal(first.settings, second.settings)
    with pytest.raises(ValueError, match=r"'greedy' needs policy and estimator, got .* given once"):
        shared_grid({"greedy": specs["greedy"] | {"tau": [0.1]}}, shared)


def test_times_of_an_environment_are_shares_of_the_stream():
    spec = {"noise_rate": 0.1, "availability": {"name": "later", "share": 0.5, "at": 0.25}}
    environment = environment_of(spec, items=10, rounds=200, seed=0)
    assert environment.noise_rate == 0.1
    assert environment.reranker is None
    assert sorted(np.asarray(environment.arrives).tolist()) == [0] * 5 + [50] * 5


def test_a_wrong_environment_is_refused_in_one_sentence():
    later = {"name": "later", "share": 0.5}
    for spec, message in [
        ({"presence": None}, r"environment: unknown \['presence'\]; known: noise_rate, reranker"),
        ({"noise_rate": 0.7}, r"noise_rate must be in \[0, 0.5\], got 0.7"),
        ({"reranker": "oracle"}, "environment: unknown reranker 'oracle'; known: simulated"),
        ({"availability": "never"}, "environment: unknown availability 'never'; known: later"),
        ({"availability": later | {"at": 2}}, "shares of the stream in"),
        ({"availability": later}, "'later': missing a required argu"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            environment_of(spec, items=10, rounds=200, seed=0)
        assert "\n" not in str(error.value)


def test_a_preset_is_a_learner_of_the_given_name_and_lists_are_its_grid():
    grid = learner_grid("mine", {"preset": "mapped", "rate": [1.0, 3.0], "tau": 0.1, "eta": [0.01]})
    assert grid.names == ("rate", "eta")
    np.testing.assert_allclose(grid.settings, [(1.0, 0.01), (3.0, 0.01)])
    learner = grid.learner(1)
    assert (learner.name, rule_of(learner).tau, rule_of(learner).eta) == ("mine", 0.1, 0.01)
    assert grid.label(grid.settings[1]) == "rate=3, eta=0.01"
    np.testing.assert_allclose(grid.columns(grid.settings)["rate"], [1.0, 3.0])
    grid = learner_grid("mixed", {"preset": "mixture"})
    assert grid.settings.shape == (1, 0)
    assert grid.learner(0).name == "mixed"


def test_a_line_can_add_a_memory(small):
    settings = {"bandwidth": 0.1, "strength": 0.5, "discount": 0.8}
    spec = {"preset": "greedy", "tau": 0.1, "eta": [0.01, 0.02], "memory": settings}
    read, task = learner_grid("remembering", spec), small()
    assert read.names == ("eta",)
    own = jr.with_memory(jr.greedy(tau=0.1, eta=0.02), **settings)
    runs = [jr.simulate(one, task, exposures=2) for one in (read.learner(1), own)]
    np.testing.assert_array_equal(runs[0].trace.item, runs[1].trace.item)
    assert read.learner(0).name == "remembering"
    with pytest.raises(ValueError, match=r"strength must be > 0, got -1"):
        learner_grid("remembering", spec | {"memory": {"strength": -1}}).learner(0)


def test_a_mixture_can_name_the_arguments_of_its_default_experts():
    experts = {"offsets": False, "map_every": 1}
    grid = learner_grid("vectors", {"preset": "mixture", "experts": experts})
    same = mixture(default_experts(**experts))
    assert blend_of(grid.learner(0)).experts == blend_of(same).experts
    assert blend_of(mixture()).experts != blend_of(same).experts


def test_paired_lists_go_number_by_number():
    found = grid.paired(presets.mapped, tau=[0.02, 0.04], eta=[0.001, 0.004], rate=2.0)
    assert found.names == ("tau", "eta")
    np.testing.assert_allclose(found.settings, [(0.02, 0.001), (0.04, 0.004)])
    assert rule_of(found.learner(1)).eta == 0.004
    with pytest.raises(ValueError, match=r"lists of one length, got \{'tau': 2, 'eta': 1\}"):
        grid.paired(presets.mapped, tau=[0.02, 0.04], eta=[0.001])


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write a file of learners; those that a test registers with Hydra are removed again."""
    repo = ConfigStore.instance().repo
    monkeypatch.setitem(repo, "learner", dict(repo["learner"]))
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
