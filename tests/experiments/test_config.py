"""Names of learners, encoders and environments in configs, and the names of run folders."""

import inspect
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException

from experiments.common import config
from experiments.common.config import CONFIGS, NAMES, learner_grids, plain, settings, table
from experiments.common.environments import environment_of
from experiments.common.help import TABLES
from experiments.common.loading import read_dataset
from experiments.report import jobs
from experiments.retrieval import recipes  # noqa: F401  it registers the group "recipe"
from jaxret import data, encoders
from jaxret.environments.environment import Environment
from jaxret.simulation.scan import scan_rounds
from tests.experiments.configs import composed, config_of
from tests.problems import make_problem


def configure(*overrides, name="orag"):
    return config_of(name, *overrides)


@pytest.fixture(scope="module")
def everyone():
    names = ",".join(NAMES["learner"])
    return {grid.name: grid for grid in learner_grids(configure(f"learner=[{names}]"))}


#: one learner of each kind that no quick test of an experiment runs
KINDS = {"whitened", "reranked_greedy", "paper_adamw"}
LEARNERS = [
    pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in NAMES["learner"]
]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_of_the_file_runs(everyone, name):
    """Run three rounds with the first setting of the learner's grid."""
    catalogue, stream = make_problem(items=12, width=6, queries=3, times=1)
    learner = everyone[name].family(*everyone[name].settings[0])

    @jax.jit
    def run(theta):
        start = learner.init(theta)
        return scan_rounds(learner, start, Environment(), stream, jax.random.key(0))

    state, trace = run(catalogue.theta)
    assert trace.item.shape == (3,)
    assert np.isfinite(state.theta).all()
    assert state.t == 3


def test_lists_with_a_comma_between_them_are_swept_and_one_list_is_a_grid():
    parse = OverridesParser.create().parse_override
    assert not parse("learners.orag.tau=[0.02,0.04]").is_sweep_override()
    swept = parse("learners.orag.tau=[0.02],[0.04]")
    assert [*swept.sweep_iterator()] == [[0.02], [0.04]]


def test_every_environment_of_the_file_can_be_made():
    for block in NAMES["environment"].values():
        environment_of(block, items=20, rounds=100, seed=0)


def test_every_data_set_of_the_table_names_a_loader_and_options_of_that_loader():
    for name, block in NAMES["dataset"].items():
        options = inspect.signature(data.SOURCES[block["name"]]).parameters
        assert set(block["options"]) <= set(options), name


def test_a_block_is_chosen_by_name_and_its_settings_can_be_changed():
    cfg = configure("dataset=toolbank", "dataset.path=here", "dataset.options.bank=aws")
    assert plain(cfg.dataset) == {"name": "toolbank", "path": "here", "options": {"bank": "aws"}}
    assert configure(name="document_ablation").dataset.options == {"part": "all"}

    assert set(encoders.ENCODERS) < set(NAMES["encoder"])
    cfg = configure("encoder=qwen3_4b", "encoder.path=here", "encoder.layers=2")
    expected = {"name": "qwen3_4b", "path": "here", "layers": 2, "dtype": "bfloat16", "devices": 1}
    assert plain(cfg.encoder) == expected | {"instruction": None, "width": None}

    cfg = configure("learner=[greedy,orag]", "learners.orag.tau=[0.5]")
    assert list(cfg.learners) == ["greedy", "orag"]
    assert list(cfg.learners.orag.tau) == [0.5]
    assert NAMES["learner"]["orag"]["tau"] == [0.01, 0.02, 0.04]


@pytest.mark.parametrize(
    ("name", "based_on", "changed"),
    [
        ("rules", "orag", {"learners", "exposures"}),
        ("latency", "baselines", {"experiment", "methods", "queries"}),
        ("train_refiner", "evaluate_retrieval", {"experiment", "methods", "recipe", "recipes"}),
    ],
)
def test_a_variant_is_another_config_with_some_settings_changed(name, based_on, changed):
    one, other = (plain(configure(name=x), resolve=False) for x in (name, based_on))
    differing = {key for key in one if one[key] != other.get(key)}
    assert differing <= changed
    assert {"experiment", "methods", "exposures"} & differing


def test_a_sweep_changes_learners_and_lists_values():
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        cfg = compose("orag", ["+sweep=noise"], return_hydra_config=True)
    assert list(cfg.learners) == ["frozen", "orag", "clipped", "debiased", "greedy"]
    assert cfg.exposures == 1
    assert cfg.hydra.sweeper.params == {"environment.noise_rate": "0.0,0.1,0.2,0.3,0.4"}


def test_the_small_configs_of_tests_are_those_that_hydra_composes():
    overrides = ["learner=[greedy]", "learners.greedy.tau=[0.1]", "directory='a, b'", "~project"]
    for chosen in ([*overrides, "seeds=1"], overrides):  # the second finds a copy of the first
        assert configure(*chosen) == composed("orag", *chosen)
    with pytest.raises(ConfigCompositionException, match=r"Could not override 'learners\.gredy"):
        configure("learners.gredy.tau=[0.1]")


def test_every_config_with_learners_names_some_that_can_be_made(everyone):
    """Make those anew that a config itself changes."""
    files = [path.stem for path in Path(CONFIGS).glob("*.yaml")]
    blocks = {name: table(name) for name in files if name not in TABLES.values()}
    blocks |= blocks.pop("variants")
    listed = {
        name: names
        for name, block in blocks.items()
        for default in block.get("defaults", ())
        for key, names in (default.items() if isinstance(default, dict) else ())
        if key.split()[-1] == "learner"
    }
    assert {"orag", "rerank", "real_judge_learn", "baselines", "rules"} <= {*listed}
    for name, names in listed.items():
        assert {*names} <= {*everyone}, name
    own = {
        name: learner_grids(configure(name=name)) for name in listed if "learners" in blocks[name]
    }
    names = [grid.name for grid in own["rerank"]]
    assert names == ["frozen", "reranked", "reranked_paper", "reranked_greedy"]


def test_unknown_names_are_refused_in_one_sentence():
    for override, message in {
        "document=bad": "document must be one of .*, got bad",
        "tracking=no": "tracking must be",
    }.items():
        with pytest.raises(ValueError, match=message) as error:
            config.check_shared(configure(override))
        assert "\n" not in str(error.value)


def test_a_run_is_named_by_its_settings_the_content_of_its_data_and_the_version(
    world, tmp_path, monkeypatch
):
    copied = shutil.copytree(world / "data", tmp_path / "data")

    def directory(*more):
        overrides = ["dataset=jsonl", f"dataset.path={copied}", *more]
        return jobs.composed("orag", overrides).directory

    first = directory()
    assert first.startswith("runs/orag/jsonl-")
    assert directory("again=true", "tracking=files", "cache=there") == first
    assert directory("seeds=3") != first
    (copied / "queries.jsonl").touch()
    assert directory() == first
    with (copied / "queries.jsonl").open("a") as file:
        file.write("\n")
    second = directory()
    assert second != first
    monkeypatch.setattr(config, "__version__", "9.9")
    assert directory() not in (first, second)


def test_built_in_data_have_a_content_too_and_data_that_are_missing_none(tmp_path):
    assert settings(configure())["data"] is not None
    assert settings(configure("dataset=jsonl", f"dataset.path={tmp_path / 'no'}"))["data"] is None


def test_a_run_depends_on_the_text_of_its_prompts(tmp_path):
    file, runs = tmp_path / "plan.txt", []
    assert "prompt_files" not in settings(configure(name="multihop"))
    for text in ("$query", "$query?"):
        file.write_text(text)
        cfg = configure(f"prompts.plan={file}", name="multihop")
        runs.append((config.fingerprint(_root_=cfg), settings(cfg)["prompt_files"]))
    assert runs[0][0] != runs[1][0]
    assert runs[0][1] != runs[1][1]
    nested = {"models": {"tool_rank": {"prompt": str(file), "price": {"prompt": 1.0}}}}
    assert config.prompt_files(nested) == runs[1][1]


def test_a_list_of_tools_is_a_data_set_whose_queries_name_the_run(tmp_path):
    tools, queries = tmp_path / "tools.csv", tmp_path / "queries.csv"
    tools.write_text("name,description\nf,does f\n")
    queries.write_text("query,labels\ndo f,f\n")
    given = f"dataset.path={tools}", f"dataset.options.queries={queries}"
    cfg = configure("dataset=tools", *given)
    assert read_dataset(cfg).queries == ("do f",)
    before = settings(cfg)
    queries.write_text("query,labels\nplease do f,f\n")
    after = settings(configure("dataset=tools", *given))
    assert [key for key in after if after[key] != before[key]] == ["queries"]
    assert "queries" not in settings(configure("dataset=tools", f"dataset.path={tools}"))
