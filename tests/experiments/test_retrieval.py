"""Training and evaluation of retrievers, end to end with a tiny encoder on few DeskBank tools."""

import shutil

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments import ablate_refiner, evaluate_retrieval
from jaxret import data
from jaxret.data.split import own_split
from jaxret.retrieval.runs import load_run
from jaxret.runtime.files import write_json_lines
from jaxret.training.batches import Batches
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import rows_of, step_of
from tests.experiments.processes import stopped_in

TOOLS = 24
TRAINED = ("mlc", "refiner_tool2vec", "refiner_mlc", "query2query", "query2desc", "dpr")
TRAINED += ("cross_encoder",)
METHODS = ("bm25", "documents", "tool2vec_raw", "tool2vec", "nudge_m", "nudge_n", *TRAINED)
METHODS += ("refiner_tool2vec+first", "refiner_mlc+first")
EACH = ("epochs=6", "validate=2", "learning_rate=3e-3", "limit=16")  # one length: one program each
SMALL = [
    *("document=terse", "seeds=1", "recipes.cross_encoder.layers=1"),
    *(f"recipes.{name}.{setting}" for name in TRAINED for setting in EACH),
    *(f"recipes.refiner_{first}.layers=1" for first in ("tool2vec", "mlc")),
    *(f"recipes.refiner_{first}.candidates=8" for first in ("tool2vec", "mlc")),
    *(f"recipes.{name}.document_limit=16" for name in ("query2desc", "dpr", "cross_encoder")),
]


def configure(world, directory, *more, name="evaluate_retrieval"):
    given = [*SMALL, *in_world(world, directory), f"models={world / 'models'}"]
    if name == "ablate_refiner":  # has a single recipe
        given = [x for x in given if not x.startswith("recipes") or ".refiner_tool2vec" in x]
    else:
        given += [f"recipe=[{','.join(TRAINED)}]", f"methods=[{','.join(METHODS)}]"]
    return config_of(name, *given, *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "run"
    return directory, evaluate_retrieval.main(configure(world, directory))


def test_every_method_is_in_the_results(world, finished):
    _, results = finished
    assert {name.split("/")[0] for name in results} == set(METHODS)
    assert all(0 <= value <= 1 for name, value in results.items() if "@" in name)


@pytest.mark.parametrize("name", TRAINED)
def test_the_loss_falls_in_every_recipe(world, finished, name):
    [file] = (world / "models").glob(f"{name}-jsonl-*/metrics.jsonl")
    seed = file.parent.name.split("-")[2]
    loss = [line[f"{name}-{seed}/loss"] for line in rows_of(file)]
    assert loss[-1] < 0.97 * loss[0]


def test_rankings_are_sorted_whole_and_read_back_from_their_run_files(world, finished):
    directory, results = finished
    step = step_of(directory, "documents-0-test")
    assert (np.diff(step["scores"], axis=1) <= 0).all()
    assert all(len(set(row)) == TOOLS for row in step["items"].tolist())
    assert results["documents/recall@3"] <= results["documents/recall@5"]
    path = directory / "rankings" / "documents-0.run"
    known = dict.fromkeys(line.split()[0] for line in path.read_text().splitlines())
    ranking = load_run(path, list(known), data.load("jsonl", world / "data").tool_ids)
    np.testing.assert_array_equal(ranking.items, step["items"])


def test_models_are_trained_once_and_found_again(world, finished, capsys):
    def written():
        return {path: path.stat().st_mtime_ns for path in (world / "models").rglob("_CHECKPOINT*")}

    before = written()
    again = evaluate_retrieval.main(configure(world, world / "again", "methods=[mlc]"))
    assert before == written()
    assert again["mlc/recall@3"] == finished[1]["mlc/recall@3"]


@pytest.mark.slow
def test_the_training_part_can_be_ranked_too(world):
    """Count recall by hand over the queries in the training part of the split."""
    cfg = configure(world, world / "trained_on", "methods=[documents]", "part=train")
    recall = evaluate_retrieval.main(cfg)["documents/recall@3"]
    dataset = data.load("jsonl", world / "data")
    rows = own_split(dataset, validation=0.1, test=0.2, seed=0).train
    best = step_of(world / "trained_on", "documents-0-train")["items"][:, :3]
    right = [set(labels[labels >= 0].tolist()) for labels in dataset.labels[rows]]
    hits = [len(tools & set(items)) / len(tools) for tools, items in zip(right, best, strict=True)]
    assert recall == pytest.approx(np.mean(hits))


def assert_sorts_the_best(directory, name, first, candidates):
    """Assert that a reranker ranks the best tools of a first stage, and no others."""
    given, now = (step_of(directory, f"{one}-0-test")["items"] for one in (first, name))
    np.testing.assert_array_equal(np.sort(given[:, :candidates]), np.sort(now))


def test_a_refiner_ranks_the_candidates_of_its_first_stage(finished):
    for first in ("tool2vec", "mlc"):
        assert_sorts_the_best(finished[0], f"refiner_{first}", first, 8)


@pytest.mark.slow
def test_ablations_change_one_setting_at_a_time(world):
    more = ["at_test=[8,12]", "budget.layers=1", "budget.epochs=2"]
    more += ["+variants.tools=[documents]", "+variants.tools_and_first=[documents]"]
    more += ["variants.places=[shared]", "variants.leave_out=[true]"]
    more += ["variants.inject_missing=[false]", "variants.projection=[identity]"]
    more += ["variants.prior=[10.0]", "variants.layers=[1]"]
    cfg = configure(world, world / "ablation", *more, name="ablate_refiner")
    results = ablate_refiner.main(cfg)
    names = {name.split("/")[0] for name in results}
    base = {"tool2vec", "refiner_tool2vec", "unchanged"}
    given = {f"refiner_tool2vec, N={n}" for n in (8, 12)}
    changed = {"tools=documents", "tools_and_first=documents", "prior=10.0"}
    assert names == base | given | changed
    assert results["refiner_tool2vec, N=8/recall@7"] == results["refiner_tool2vec/recall@7"]
    assert (world / "ablation" / "candidates.png").stat().st_size > 5_000
    for variant, first in (("tools", "tool2vec"), ("tools_and_first", "documents")):
        assert_sorts_the_best(world / "ablation", f"{variant}=documents", first, 8)


@pytest.mark.slow
def test_the_number_of_candidates_of_mlc_is_varied(world, tmp_path):
    recipes = [x for x in SMALL if x.startswith(("recipes.mlc.", "recipes.refiner_mlc."))]
    where = [*in_world(world, tmp_path), f"models={tmp_path / 'models'}", "document=terse"]
    short = ["at_test=[8,12]", "budget={layers:1,epochs:2}", "variants.candidates=[8,12]"]
    results = ablate_refiner.main(config_of("ablate_mlc", *recipes, *where, *short))
    given = {f"refiner_mlc, N={n}" for n in (8, 12)}
    names = {name.split("/")[0] for name in results}
    assert names == {"mlc", "refiner_mlc", "unchanged", "candidates=12"} | given
    assert results["refiner_mlc, N=8/recall@7"] == results["refiner_mlc/recall@7"]
    assert_sorts_the_best(tmp_path, "candidates=12", "mlc", 12)


def test_the_whole_ablations_train_no_recipe_twice():
    cfg = config_of("ablate_whole")
    variants = ablate_refiner.named(cfg)
    sizes = [f"candidates={n}" for n in (8, 16, 64, 128)]
    assert list(variants) == ["tools=documents", "tools_and_first=documents", *sizes]
    recipe = OmegaConf.to_container(cfg.recipes.refiner_tool2vec)
    documents = {**recipe, "tools": "documents"}
    assert variants["tools=documents"] == documents
    assert variants["tools_and_first=documents"] == {**documents, "first": "documents"}
    mlc = config_of("ablate_mlc")
    variants = ablate_refiner.named(mlc)
    assert list(variants) == sizes
    recipe = OmegaConf.to_container(mlc.recipes.refiner_mlc)
    assert variants["candidates=8"] == {**recipe, "candidates": 8}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("methods=[bm26]", "unknown method 'bm26'; known: bm25"),
        ("part=all", "part must be one of train, validation, test, got all"),
        ("recipes.mlc.head=best", "head must be one of"),
        ("recipes.refiner_tool2vec.layers=9", r"layers must be in 1 .. 2, got 9"),
        ("recipes.query2query.model=best", "recipes.query2query.model must be one of"),
    ],
)
def test_wrong_settings_are_refused_by_name(world, tmp_path, override, message):
    name = override.split(".")[1] if override.startswith("recipes") else "bm26"
    cfg = configure(world, tmp_path / "run", f"methods=[{name}]", override)
    with pytest.raises(ValueError, match=message):
        evaluate_retrieval.main(cfg)


def test_training_that_is_stopped_resumes_and_ends_with_the_same_bits(world, finished, tmp_path):
    """SIGTERM arrives in the first of three stretches of training, two epochs each."""
    cfg = configure(world, tmp_path / "cut", "methods=[mlc]", f"models={tmp_path / 'models'}")
    with stopped_in(Batches, "__call__", 1) as batches:
        evaluate_retrieval.main(cfg)
    assert len(batches) == 2 * batches[0].epoch
    assert list(tmp_path.glob("models/*/checkpoints/[0-9]*"))
    assert not list(tmp_path.glob("models/*/best/[0-9]*"))

    evaluate_retrieval.main(cfg)
    a, b = (step_of(folder, "mlc-0-test") for folder in (finished[0], tmp_path / "cut"))
    for field in ("items", "scores"):
        np.testing.assert_array_equal(a[field], b[field])


def test_a_split_that_overlaps_is_refused(world, tmp_path):
    folder = shutil.copytree(world / "data", tmp_path / "data")
    lines = rows_of(folder / "queries.jsonl")
    for i, line in enumerate(lines):
        line["split"] = "test" if i % 4 == 0 else "train"
    lines[1]["query"] = lines[0]["query"]
    write_json_lines(folder / "queries.jsonl", lines)
    cfg = configure(world, tmp_path / "run", f"dataset.path={folder}", "methods=[documents]")
    with pytest.raises(ValueError, match="also in a later part of the split"):
        evaluate_retrieval.main(cfg)
