"""Exported embeddings: round trips, and the same ranking as the learner."""

import importlib.util
import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners.grid import traced
from jaxret.learners.learner import prior_for, query_for
from jaxret.testing import quick_jit
from tests import tiny
from tests.slow import slowly

SETTINGS = {"tau": 0.2, "eta": 0.01}
LEARNERS = {
    "greedy": jr.greedy(**SETTINGS),
    "mapped": jr.mapped(**SETTINGS),
    "low_rank": jr.low_rank(**SETTINGS, rank=4),
    "centred": jr.centred(**SETTINGS),
    "centred_replayed": jr.centred_replayed(**SETTINGS),
    "whitened": jr.whitened(**SETTINGS),
    "paper_adamw": jr.paper_adamw(tau=0.2, eta=1e-3, batch=4),
}
MAPPED = ("mapped", "low_rank", "centred", "centred_replayed")


@pytest.fixture(scope="module")
def still(task):
    """Return a run without updates, whose states `moved` replaces."""
    return jr.simulate(jr.frozen(), task, seeds=(3, 5))


def moved(still, learner, task):
    """Return a run whose states are first states plus noise: to learn takes seconds to compile."""
    rng, mask = np.random.default_rng(0), np.ones(12, bool)
    start = quick_jit(learner.init)(task.theta, mask if task.available is None else task.available)

    def noisy(leaf):
        leaves = np.stack([leaf, leaf])
        floats = np.issubdtype(leaves.dtype, np.floating)
        return (leaves + 0.3 * rng.random(leaves.shape) * floats).astype(leaf.dtype)

    family, numbers = traced(learner)
    numbers, states = np.tile(numbers, (2, 1)), jax.tree.map(noisy, jax.device_get(start))
    return replace(still, learner=learner, family=family, numbers=numbers, task=task, states=states)


@partial(jax.jit, static_argnames="learner")
def scores_of(learner, state, queries, prior=None):
    return learner.scores(state, query_for(learner, queries, prior))


def ranked(scores):
    return np.argsort(-np.asarray(scores), axis=1, kind="stable")


@pytest.mark.parametrize("name", slowly(LEARNERS, {"mapped", "centred"}))
def test_saved_and_loaded_it_ranks_as_the_learner_does(still, task, tmp_path, name):
    run = moved(still, LEARNERS[name], task)
    run.save(tmp_path / "learnt", seed=5)
    saved, state = jr.load_embeddings(tmp_path / "learnt"), run.state(5)
    np.testing.assert_array_equal(state.theta, run.states.theta[1])
    np.testing.assert_array_equal(saved.theta, state.theta)
    scores = scores_of(run.learner, state, task.queries)
    np.testing.assert_array_equal(saved.rank(task.queries, k=12), ranked(scores))
    np.testing.assert_allclose(saved.scores(task.queries), scores, atol=1e-5)
    assert (saved.query_matrix is not None) == (name in MAPPED)
    if saved.query_matrix is not None:
        assert np.abs(saved.query_matrix - np.eye(8)).max() > 1e-4  # the map has changed
    of_saved = jr.evaluate(saved, task)["ndcg@10"].mean
    assert of_saved == pytest.approx(jr.evaluate(run, task)["ndcg@10"].values[1])


INFORMED = {
    "lexical": jr.with_lexical(jr.greedy(**SETTINGS), 0.4),
    "balance": jr.with_balance(jr.mapped(**SETTINGS), 0.7),
    "both": jr.with_balance(jr.with_lexical(jr.centred_replayed(**SETTINGS))),
}


@pytest.mark.parametrize("name", slowly(INFORMED, {"lexical", "balance"}))
def test_offsets_are_exported_and_the_folder_says_how_to_rank_with_them(
    still, small, tmp_path, name
):
    from safetensors.numpy import load_file

    rng = np.random.default_rng(1)
    task = small(prior=np.where(rng.random((60, 12)) < 0.4, rng.random((60, 12)), 0))
    run = moved(still, INFORMED[name], task)
    run.save(tmp_path)
    saved, prior = jr.load_embeddings(tmp_path), task.prior_scores()
    of_run, of_saved = jr.evaluate(run, task), jr.evaluate(saved, task)
    assert {k: x.mean for k, x in of_saved.items()} == {k: x.values[0] for k, x in of_run.items()}
    ranks = saved.rank(task.queries, 12, None if name == "balance" else prior)
    read = prior_for(run.learner, task)
    scores = scores_of(run.learner, run.state(3), task.queries, read)
    np.testing.assert_allclose(saved.scores(task.queries, prior), scores, atol=1e-5)
    # the formula of the folder, with the arrays of its files
    arrays = load_file(tmp_path / "embeddings.safetensors")
    formula = (tmp_path / "embeddings.md").read_text().partition("scores = ")[2].partition("\n")[0]
    for q, x, expected in zip(task.queries, prior, ranks, strict=True):
        scores = eval(formula, {**arrays, "q": q, "x": x})
        np.testing.assert_array_equal(np.argsort(-scores, kind="stable"), expected)
    by_rows = saved.map_queries(task.queries) @ saved.theta.T
    assert (np.argsort(-by_rows, axis=1) != ranks).any()
    if name != "balance":
        with pytest.raises(ValueError, match=r"need prior scores.*prior=task.prior_scores"):
            saved.scores(task.queries)
        with pytest.raises(ValueError, match=r"shape of prior must be \(60, 12\), got \(60, 5\)"):
            saved.scores(task.queries, prior[:, :5])


def test_the_files_can_be_read_without_jaxret(task, tmp_path):
    from safetensors.numpy import load_file

    run = jr.simulate(jr.centred(**SETTINGS), task, seeds=2)
    (tmp_path / "README.md").write_text("of the owner of the folder\n")
    run.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "of the owner of the folder\n"
    (tmp_path / "README.md").unlink()
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"theta.npy", "embeddings.safetensors", "embeddings.json", "embeddings.md"}
    theta = np.load(tmp_path / "theta.npy")
    np.testing.assert_array_equal(theta, run.states.theta[0])
    arrays = load_file(tmp_path / "embeddings.safetensors")
    assert sorted(arrays) == ["query_matrix", "query_offset", "theta"]
    mapped = task.queries @ arrays["query_matrix"].T + arrays["query_offset"]
    scores = scores_of(run.learner, run.state(0), task.queries)
    np.testing.assert_allclose(mapped @ theta.T, scores, atol=1e-5)
    described = json.loads((tmp_path / "embeddings.json").read_text())
    assert described.pop("ids") == list(task.ids)
    assert described == {
        "learner": "centred",
        "settings": {"tau": 0.2, "eta": 0.01, "seed": 0},
        "encoder": None,
        "document": None,
        "data": "small",
        "jaxret": jr.__version__,
    }


def test_encoder_template_and_chosen_settings_are_named(still, small, tmp_path):
    task = replace(small(), encoder=tiny.encoder(tmp_path), document="terse")
    grid = jr.sweep(jr.greedy, task, tau=0.1, eta=[0.001, 0.01])
    facts = grid.runs[1].embeddings().facts
    assert (facts["encoder"], facts["document"]) == ("tiny", "terse")
    assert facts["settings"] == {"tau": 0.1, "eta": 0.01, "seed": 0}
    hybrid = moved(still, jr.hybrid(tau=0.1, lexical=0.4), small(prior=np.eye(60, 12)))
    assert hybrid.embeddings().facts["settings"]["tau"] == pytest.approx(0.1)


def test_absent_tools_are_kept_and_not_ranked(small, tmp_path):
    there = np.arange(12) % 4 > 0
    task = small(available=there)
    run = jr.simulate(jr.greedy(**SETTINGS), task)
    run.save(tmp_path)
    saved = jr.load_embeddings(tmp_path)
    np.testing.assert_array_equal(saved.available, there)
    assert saved.theta.shape == (12, 8)
    best = ranked(scores_of(run.learner, run.state(0), task.queries))[:, :9]
    np.testing.assert_array_equal(saved.rank(task.queries, k=9), best)
    assert there[best].all()
    with pytest.raises(ValueError, match=r"in 1 .. 9, the number of available tools, got 10"):
        saved.rank(task.queries)


def test_a_mesh_leaves_no_padding(small, tmp_path):
    run = jr.simulate(jr.greedy(**SETTINGS), small(items=13), devices=8)
    run.save(tmp_path)
    assert np.load(tmp_path / "theta.npy").shape == (13, 8)
    assert jr.load_embeddings(tmp_path).available is None


def test_damaged_files_and_arrays_of_another_shape_are_named(still, task, tmp_path):
    missing = r"holds no embeddings.json: write it with run.save"
    with pytest.raises(FileNotFoundError, match=missing):
        jr.load_embeddings(tmp_path)
    still.save(tmp_path)
    saved = jr.load_embeddings(tmp_path)
    with pytest.raises(ValueError, match=r"queries must be \[N, 8\], got the shape \[60, 5\]"):
        saved.rank(np.ones((60, 5)))
    for k in (0, 13):
        with pytest.raises(ValueError, match=r"k must be in 1 .. 12"):
            saved.rank(task.queries, k=k)
    words, tensors = tmp_path / "embeddings.json", tmp_path / "embeddings.safetensors"
    text, data = words.read_text(), tensors.read_bytes()
    fewer = json.dumps(json.loads(text) | {"ids": ["a"]})
    for file, content in ((words, text[:50]), (words, "{}"), (words, fewer), (tensors, data[:90])):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=r"is damaged .*save it again"):
            jr.load_embeddings(tmp_path)
        words.write_text(text)
        tensors.write_bytes(data)
    tensors.unlink()
    with pytest.raises(ValueError, match="is damaged"):
        jr.load_embeddings(tmp_path)


def test_a_faiss_index_finds_the_same_tools_or_says_what_it_needs(still, small):
    task = small(available=np.arange(12) % 4 > 0)
    saved = moved(still, jr.mapped(**SETTINGS), task).embeddings()
    if importlib.util.find_spec("faiss") is None:
        with pytest.raises(ImportError, match=r"a FAISS index needs faiss: pip install"):
            saved.faiss()
        return
    _, found = saved.faiss().search(saved.map_queries(task.queries), 5)
    np.testing.assert_array_equal(found, saved.rank(task.queries, k=5))
