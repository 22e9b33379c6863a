"""The failure analysis, end to end without training on the small world."""

import sys

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from experiments import analyse_retrieval as analysis
from jaxret import data, encoders
from jaxret.data.split import own_split
from jaxret.data.templates import template
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import TOOLS, step_of

K = 2
PICTURES = {"cosines.png", "tsne.png", "failures.png", "lengths.png"}


def configure(world, directory, *more):
    small = ["methods=[documents,tool2vec]", f"k={K}", "tsne.queries=40", "tsne.tools=20"]
    return config_of("analyse_retrieval", *in_world(world, directory), *small, *more)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("analysis")
    return directory, analysis.main(configure(world, directory))


@pytest.fixture(scope="module")
def oracle(world):
    """Return test queries with label sets and lengths, and tools by document and by usage."""
    dataset = data.load("jsonl", world / "data")
    encoder = encoders.load_encoder("minilm", world / "encoder")
    options = {"cache": None, "progress": False}
    texts = [template("full")(document) for document in dataset.documents]
    documents = encoders.encode(encoder, texts, kind="document", **options)
    queries = encoders.encode(encoder, dataset.queries, kind="query", **options)
    train, _, test = own_split(dataset)
    usage = documents.copy()
    for tool in range(TOOLS):
        if (used := (dataset.labels[train] == tool).any(axis=1)).any():
            mean = queries[train][used].mean(axis=0)
            usage[tool] = mean / np.linalg.norm(mean)
    labels = [{int(label) for label in dataset.labels[row] if label >= 0} for row in test]
    tokens = [len(encoder.tokenizer.encode(dataset.queries[row]).ids) for row in test]
    return queries[test], labels, {"documents": documents, "tool2vec": usage}, np.array(tokens)


def test_failures_are_those_of_a_count_query_by_query(finished, oracle):
    _, results = finished
    queries, labels, rows, tokens = oracle
    for name, tools in rows.items():
        first = [set(best[:K].tolist()) for best in np.argsort(-(queries @ tools.T), axis=1)]
        needs, misses = np.zeros(TOOLS), np.zeros(TOOLS)
        for needed, found in zip(labels, first, strict=True):
            needs[list(needed)] += 1
            misses[list(needed - found)] += 1
        rates = misses[needs > 0] / needs[needs > 0]
        assert misses.sum() > 5
        assert results[f"{name}/label"] == pytest.approx(misses.sum() / needs.sum())
        assert results[f"{name}/rate"] == pytest.approx(rates.mean())
        assert results[f"{name}/sd"] == pytest.approx(rates.std())

        fails = np.array([not needed <= found for needed, found in zip(labels, first, strict=True)])
        for side, where in (("missed", fails), ("found", ~fails)):
            assert results[f"{name}/{side}/n"] == where.sum() > 0
            assert results[f"{name}/{side}/tokens"] == pytest.approx(tokens[where].mean())
            assert results[f"{name}/{side}/sd"] == pytest.approx(tokens[where].std())
            needed = [len(labels[i]) for i in np.flatnonzero(where)]
            assert results[f"{name}/{side}/tools"] == pytest.approx(np.mean(needed))


def test_the_overlap_is_the_area_under_the_roc_curve(finished, oracle):
    _, results = finished
    queries, labels, rows, _ = oracle
    right = np.array([[tool in needed for tool in range(TOOLS)] for needed in labels])
    for name, tools in rows.items():
        cosines = queries @ tools.T
        expected = roc_auc_score(right.ravel(), cosines.ravel())
        assert results[f"cosine/{name}/auc"] == pytest.approx(expected, abs=1e-5)
        median = np.median(cosines[right])
        assert results[f"cosine/{name}/positive/median"] == pytest.approx(median, abs=1e-5)


def test_ties_count_one_half():
    assert analysis.auc(np.array([1.0, 2.0]), np.array([1.0, 1.0, 0.0, 3.0])) == 5 / 8
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(2, 9, 50), rng.integers(0, 8, 300)
    expected = roc_auc_score([1] * 50 + [0] * 300, np.concatenate([positive, negative]))
    assert analysis.auc(positive, negative) == pytest.approx(expected)


def test_half_of_the_misses_by_hand():
    # Missed: 4 of 4 for tool 0, 1 of 2 for tool 1, 1 of 4 for tool 3, 0 of 1 for tool 4; tool 2 has
    # no query.
    tools = np.array([0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 4])
    miss = np.array([1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0], bool)
    rates, half = analysis.by_tool(tools, miss)
    np.testing.assert_allclose(rates, [1.0, 0.5, 0.25, 0.0])
    assert half == 1 / 4  # tool 0 has 4 of the 6 misses
    assert analysis.by_tool(np.arange(10), np.ones(10, bool))[1] == 0.5


def test_chance_alone_gives_the_deviation_of_a_binomial():
    """Simulate 200 tools with five queries each and one probability of a miss."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(200), 5)[:, None]
    items = np.where(rng.random(1000)[:, None] < 0.3, 999, labels)
    found = analysis.missed(items, labels, np.ones(1000, int)).numbers
    p = found["label"]
    assert found["sd_chance"] == pytest.approx(np.sqrt(p * (1 - p) / 5), rel=0.02)
    assert found["sd"] == pytest.approx(found["sd_chance"], rel=0.15)


def test_a_method_that_misses_nothing_has_no_lengths_of_failures():
    labels = np.array([[0, 1], [2, -1]])
    found = analysis.missed(labels, labels, np.array([7, 9]))
    assert not found.queries.any()
    assert found.numbers["rate"] == 0.0
    assert found.numbers["found/tokens"] == 8.0
    assert not {"half", "half_chance", "missed/tokens"} & found.numbers.keys()


def test_another_run_has_the_same_points_and_figures(finished, world, tmp_path):
    directory, results = finished
    assert {path.name for path in directory.glob("*.png")} == PICTURES
    points = step_of(directory, "tsne")["points"]
    assert points.shape == (40 + 2 * 20, 2)
    assert np.isfinite(points).all()
    for name in ("query", "Tool2Vec", "document"):
        assert 0 < results[f"nearest/{name}"] <= 1
    again = tmp_path / "again"
    assert analysis.main(configure(world, again)) == results
    np.testing.assert_array_equal(step_of(again, "tsne")["points"], points)


def test_without_scikit_learn_the_extra_is_named_and_the_picture_can_be_left_out(
    world, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    message = r"jaxret\[tsne\], or leave it out by tsne.queries=0"
    refused(analysis.main, configure(world, tmp_path / "run"), message, ImportError)
    analysis.main(configure(world, tmp_path / "run", "tsne.queries=0", "methods=[documents]"))
    assert {path.name for path in (tmp_path / "run").glob("*.png")} == PICTURES - {"tsne.png"}


def test_a_cut_beyond_what_is_ranked_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match=f"k must be in 1 .. {TOOLS}, got {TOOLS + 1}"):
        analysis.main(configure(world, tmp_path, f"k={TOOLS + 1}"))
