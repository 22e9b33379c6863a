"""The main job, end to end on a small world."""

import shutil

import numpy as np
import pytest

from experiments import orag
from experiments.common import comparator
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from jaxret import data, encoders, load_embeddings
from jaxret.data import near_duplicates
from jaxret.data.hops import as_hops
from jaxret.data.templates import template
from jaxret.evaluation import metrics
from jaxret.runtime.files import write_json_lines
from jaxret.runtime.tracking import read_results
from jaxret.testing import quick_jit
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import rows_of, step_of, values_of
from tests.experiments.processes import stopped_at

SMALL = [
    *("exposures=1", "seeds=2", "chunk=128", "learner=[frozen,mapped]"),
    *("learners.mapped.tau=[0.04]", "learners.mapped.eta_over_tau=[0.1,0.3]"),
]
METRICS = ("accuracy", "recall@10", "ndcg@10", "completeness@10")


@pytest.fixture(scope="module", autouse=True)
def some_are_near():
    """Count queries as near-duplicates that share fewer words, so that each seed has some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "NEAR", 0.2)
        yield


@pytest.fixture(scope="module", autouse=True)
def given_comparator():
    """Give the losses of the comparator, which takes seconds to compile (test_comparator.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparator, "proximal_losses", lambda *_, counts, **__: (None, 0.1 * counts))
        yield


@pytest.fixture(scope="module")
def configure(world):
    return lambda directory, *more: config_of("orag", *SMALL, *in_world(world, directory), *more)


@pytest.fixture(scope="module")
def small_run(configure, tmp_path_factory):
    directory = tmp_path_factory.mktemp("orag")
    return directory, orag.main(configure(directory))


@pytest.fixture(scope="module")
def task(configure, small_run):
    return task_of(configure(small_run[0]))


def test_results_have_the_documented_names(small_run):
    _, results = small_run
    for learner in ("frozen", "mapped"):
        for protocol in ("final", "heldout"):
            for metric in METRICS:
                assert 0.0 <= results[f"{learner}/{protocol}/{metric}"] <= 1.0
        for metric in ("accuracy", "loss", "regret"):
            assert np.isfinite(results[f"{learner}/online/{metric}"])


def test_static_retrieval_is_the_ranking_of_the_documents(world, small_run):
    """Rank the same queries with NumPy."""
    directory, results = small_run
    dataset = data.load("jsonl", world / "data")
    encoder = encoders.load_encoder("minilm", world / "encoder")
    texts = [template("full")(document) for document in dataset.documents]
    options = {"cache": None, "progress": False}
    theta = encoders.encode(encoder, texts, kind="document", **options)
    queries = encoders.encode(encoder, dataset.queries, kind="query", **options)
    streamed = step_of(directory, "frozen")["order"].ravel()  # equally many queries per seed
    scores, labels = queries[streamed] @ theta.T, dataset.labels[streamed]
    right = np.where(labels >= 0, np.take_along_axis(scores, labels, axis=1), -np.inf)
    ranks = (scores[:, None] > right[:, :, None]).sum(axis=2)  # of padding: all tools
    found = ((ranks < 10).sum(axis=1) / (labels >= 0).sum(axis=1)).mean()
    best = (ranks == 0).any(axis=1).mean()
    assert results["frozen/final/recall@10"] == pytest.approx(found, abs=1e-3)
    assert results["frozen/final/accuracy"] == pytest.approx(best, abs=1e-3)
    assert results["frozen/online/accuracy"] == pytest.approx(best, abs=1e-3)


def test_one_reward_per_query_improves_retrieval(small_run):
    """A query map also improves queries that were never streamed."""
    directory, results = small_run
    assert results["mapped/final/ndcg@10"] > results["frozen/final/ndcg@10"] + 0.01
    gain = results["mapped/heldout/ndcg@10"] - results["frozen/heldout/ndcg@10"]
    assert results["mapped/heldout/gain"] == pytest.approx(gain)
    untouched = read_results(directory)["frozen/heldout/gain"]["values"]  # one value per seed
    assert untouched == pytest.approx([0, 0], abs=1e-6)
    assert gain > 0.01


@pytest.mark.parametrize("learner", ["frozen", "mapped"])
def test_the_saved_embeddings_rank_as_the_final_ranking(small_run, task, learner):
    """Compare the first seed; a different order of summation may break a tie differently."""
    directory, results = small_run
    saved = load_embeddings(directory / "embeddings" / learner)
    step = step_of(directory, learner)
    streamed = np.unique(step["order"][0])
    final = [step[f"final/{name}"][0] for name in METRICS]
    labels = task.labels[streamed]
    items = saved.rank(task.queries[streamed], k=len(task.ids))
    ranks = metrics.ranks_in(items, labels)
    measures = metrics.recall_at_k, metrics.ndcg_at_k, metrics.completeness_at_k
    measured = quick_jit(
        lambda *given: [metrics.accuracy(*given), *(of(*given, 10) for of in measures)]
    )(ranks, labels)
    means = [np.asarray(values, np.float64).mean() for values in measured]
    np.testing.assert_allclose(means, final, atol=1e-6)
    assert saved.ids == list(task.ids)
    assert saved.facts["learner"] == learner
    assert saved.facts["settings"]["tau"] == results[f"{learner}/online/tau"]
    assert saved.facts["settings"]["seed"] == 0


def test_a_finished_run_is_not_repeated_and_one_of_other_settings_refused(
    configure, small_run, capsys
):
    directory, results = small_run
    before = (directory / "results.json").stat().st_mtime_ns
    assert orag.main(configure(directory)) == results
    assert (directory / "results.json").stat().st_mtime_ns == before
    assert "finished before" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"other settings \(seeds differ\)"):
        orag.main(configure(directory, "seeds=3"))


def test_files_hold_the_curves_and_figures(small_run):
    directory, results = small_run
    with np.load(directory / "curves.npz") as curves:
        regret = curves["mapped/regret"]
    assert regret.shape[0] == 2
    assert regret[:, -1].mean() == pytest.approx(results["mapped/online/regret"])
    for name in ("accuracy", "regret"):
        assert (directory / f"{name}.png").stat().st_size > 10_000
    assert any("regret/mapped" in line for line in rows_of(directory / "metrics.jsonl"))


def test_near_duplicates_and_new_queries_are_the_held_out_part_in_two(small_run, task):
    directory, _ = small_run
    parts = task.parts(validation=0.1, heldout=0.2, seeds=[0, 1])
    near = near_duplicates.near(task.texts, parts.heldout, parts.training)
    share = near.sum(axis=1) / parts.heldout.sum(axis=1)
    assert ((share > 0) & (share < 1)).all()
    found = values_of(directory)
    for metric in ("recall@10", "ndcg@10"):
        kinds = ("heldout", "heldout_near", "heldout_new")
        whole, old, new = (found[f"mapped/{part}/{metric}"] for part in kinds)
        np.testing.assert_allclose(whole, share * old + (1 - share) * new, atol=1e-6)
        assert (old != new).all()


def test_settings_of_other_exposures_are_streamed_with_the_exposures(
    configure, tmp_path, monkeypatch
):
    """One exposure chooses large steps, and 8 small ones."""
    monkeypatch.setattr(RunDirectory, "save_figure", lambda *figure: None)

    def run(name, ratios, *more):
        grid = ["~learners.frozen", f"learners.mapped.eta_over_tau={ratios}"]
        return orag.main(configure(tmp_path / name, *grid, *more))

    def chosen(results):
        return [results[f"mapped/{protocol}/eta"] / 0.04 for protocol in ("online", "heldout")]

    ratios = [0.01, 1.0]
    assert chosen(run("once", ratios)) == pytest.approx([1.0, 1.0])
    mixed = run("mixed", ratios, "sweep_exposures=8")
    assert chosen(mixed) == pytest.approx([0.01, 0.01])
    assert mixed == run("by_hand", [0.01])


def test_wrong_settings_are_refused_before_any_step(configure, tmp_path):
    """The task is loaded inside the run, so a folder may exist."""
    wrong = {
        "dataset=ultratool dataset.path=null": "'ultratool' needs path=",
        "+learners.greedy.projection=cube": "'greedy': unknown projection 'cube'; known: none",
        "environment=away environment.availability.back=2": r"in \[0, 1\], got {'back': 2}",
        "environment=reranked environment.reranker.accuracy=2": r"accuracy must be in \[0, 1\]",
        "sweep_exposures=0": "sweep_exposures must be null or >= 1, got 0",
        "sweep_on=none": "sweep_on must be all or validation, got none",
        "encoder.path=nowhere": "nowhere",
    }
    for n, (override, message) in enumerate(wrong.items()):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            orag.main(configure(tmp_path / str(n), *override.split()))
        assert not (tmp_path / str(n) / "steps").exists()


@pytest.mark.slow
def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_bits(
    configure, small_run, tmp_path, capsys
):
    """Only one learner remains; SIGTERM arrives in the first of its many chunks."""
    whole = small_run[0]
    for folder in ("steps", "embeddings"):
        shutil.copytree(whole / folder, tmp_path / folder)
    (tmp_path / "steps" / "mapped.npz").unlink()
    shutil.rmtree(tmp_path / "embeddings" / "mapped")
    with stopped_at(1):
        orag.main(configure(tmp_path))
    assert "the same command resumes" in capsys.readouterr().err
    assert not (tmp_path / "results.json").exists()
    assert not (tmp_path / "steps" / "mapped.npz").exists()
    saved = tmp_path / "checkpoints" / "mapped" / "heldout" / "0" / "checkpoints"
    assert [path.name for path in saved.glob("[0-9]*")] == ["1"]

    assert orag.main(configure(tmp_path)) == small_run[1]
    a, b = (step_of(folder, "mapped") for folder in (whole, tmp_path))
    for field in a:
        np.testing.assert_array_equal(a[field], b[field], err_msg=field)
    a, b = (load_embeddings(folder / "embeddings" / "mapped") for folder in (whole, tmp_path))
    np.testing.assert_array_equal(a.theta, b.theta)


@pytest.mark.slow
def test_hops_are_streamed_question_by_question(world, tmp_path):
    """Use the oracle, which learns both hops of a question even with random vectors."""
    more = ["learner=[full_information]", "learners.full_information.tau=[0.04,0.2]"]
    more += ["learners.full_information.eta_over_tau=[0.01,0.05,0.1]", "+dataset.hops=true"]
    more += ["exposures=20", "seeds=2", "chunk=256"]
    bank = data.load("deskbank", part="multi")
    steps = dict(zip(bank.query_ids, bank.steps or (), strict=True))
    lines = rows_of(world / "data" / "queries.jsonl")
    for line in lines:
        plan = steps.get(line["id"], ())
        line["steps"] = [{"query": text, "label": bank.tool_ids[tool]} for text, tool in plan]
    folder = shutil.copytree(world / "data", tmp_path / "data")
    write_json_lines(folder / "queries.jsonl", lines)
    where = [*in_world(world, tmp_path), f"dataset.path={folder}"]
    results = orag.main(config_of("orag", *more, *where))
    online = "full_information/online"
    assert 0 < results[f"{online}/complete"] < results[f"{online}/accuracy"]
    order = step_of(tmp_path, "full_information")["order"]
    groups = as_hops(data.load("jsonl", folder)).groups
    for seed in (groups[some[some >= 0]] for some in order):
        assert np.count_nonzero(np.diff(seed)) == 20 * len(np.unique(seed)) - 1
