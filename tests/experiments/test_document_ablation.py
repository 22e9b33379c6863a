"""Ablation and dilution of document fields: by hand, and end to end with a tiny encoder."""

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from experiments import document_ablation
from experiments.document_ablation import sign_flips, similarity, triples
from jaxret import data, encoders
from jaxret.data.templates import PROFILE_FIELDS, template, with_profile
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import write_data
from tests.problems import unit

FIELDS = ("function", "when_to_use", "limitation", "tags")
PICTURES = {"gains_bm25.png", "gains_dense.png", "dilution.png"}


def configure(world, directory, *overrides):
    return config_of("document_ablation", *in_world(world, directory), "draws=199", *overrides)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ablation")
    return directory, document_ablation.main(configure(world, directory))


@pytest.fixture(scope="module")
def oracle(world):
    """Return queries, label sets, and a function from profile fields to document vectors."""
    dataset = data.load("jsonl", world / "data")
    encoder = encoders.load_encoder("minilm", world / "encoder")
    options = {"cache": None, "progress": False}
    queries = encoders.encode(encoder, dataset.queries, kind="query", **options)

    def documents(fields):
        texts = []
        for document in dataset.documents:
            text = template("full")(document)
            for field in fields:
                value = document["tool_profile"][field]
                value = ", ".join(value) if field == "tags" else value
                text += f" {field.capitalize().replace('_', ' ')}: {value}"
            texts.append(text)
        return encoders.encode(encoder, texts, kind="document", **options)

    labels = [{int(label) for label in row if label >= 0} for row in dataset.labels]
    return queries, labels, documents


@pytest.mark.parametrize(
    ("variant", "fields"),
    [
        ("original", ()),
        ("full", FIELDS),
        ("add/limitation", ("limitation",)),
        ("out/function", ("when_to_use", "limitation", "tags")),
    ],
)
def test_variants_are_ranked_as_numpy_ranks_them(finished, oracle, variant, fields):
    _, results = finished
    queries, labels, documents = oracle
    order = np.argsort(-(queries @ documents(fields).T), axis=1)
    for k in (1, 5, 10):
        first = [set(row[:k].tolist()) for row in order]
        recall = [len(needed & f) / len(needed) for needed, f in zip(labels, first, strict=True)]
        assert results[f"dense/{variant}/recall@{k}"] == pytest.approx(np.mean(recall), abs=1e-3)
    whole = [needed <= f for needed, f in zip(labels, first, strict=True)]
    assert results[f"dense/{variant}/completeness@10"] == pytest.approx(np.mean(whole), abs=1e-3)


def test_the_tools_that_rise_and_fall_are_those_that_numpy_finds(finished, oracle):
    directory, results = finished
    queries, labels, documents = oracle
    ranks = [
        np.argsort(np.argsort(-(queries @ documents(fields).T), axis=1), axis=1) + 1
        for fields in ((), FIELDS)
    ]
    before, after = np.array(
        [[of[row, tool] for of in ranks] for row, needed in enumerate(labels) for tool in needed]
    ).T
    risen, fallen = (before > 10) & (after <= 10), (before <= 10) & (after > 10)
    assert results["dense/risen"] == pytest.approx(risen.mean(), abs=2e-3)
    assert results["dense/fallen"] == pytest.approx(fallen.mean(), abs=2e-3)
    assert results["dense/fallen"] == pytest.approx(results["dense/fallen/count"] / len(before))
    best = json.loads((directory / "risen.json").read_text())["dense"]
    largest = np.sort((before - after)[risen])[::-1][:3]
    np.testing.assert_allclose([x["before"] - x["after"] for x in best], largest, atol=1)


def test_rises_and_falls_of_three_tools_are_those_found_by_hand(world, tmp_path, capsys):
    """A query without a known word ranks the tools in their order."""
    words = {"a": ("apples", ["quinces"]), "b": ("beets", []), "c": ("corn", ["dates", "eggs"])}
    tools = [
        {"id": x, "documentation": word, "tool_profile": {"tags": tags}}
        for x, (word, tags) in words.items()
    ]
    labels = {"dates": ["c"], "eggs": ["b"], "quinces": ["a"], "beets dates": ["b", "c"]}
    queries = [{"id": text, "query": text, "labels": right} for text, right in labels.items()]
    queries += [{"id": "plums", "query": "plums", "labels": ["a"]}]
    write_data(tmp_path / "data", tools, queries)
    given = ["retrievers=[bm25]", "fields=[tags]", "cuts=[1,2]", "cases=1"]
    cfg = configure(world, tmp_path / "run", *given, f"dataset.path={tmp_path / 'data'}")
    results = document_ablation.main(cfg)
    # ranks before and after of the right tools: dates c 3, 1; eggs b 2, 3; quinces a 1, 1;
    # beets dates b 1, 1 and c 3, 2; plums a 1, 1
    assert results["bm25/risen/count"] == 2
    assert results["bm25/risen"] == pytest.approx(2 / 6)
    assert results["bm25/fallen/count"] == 1
    assert results["bm25/fallen"] == pytest.approx(1 / 6)
    case = {"query": "dates", "tool": "c", "before": 3, "after": 1}
    assert json.loads((tmp_path / "run" / "risen.json").read_text()) == {"bm25": [case]}
    assert "bm25: c, 3 -> 1: dates" in capsys.readouterr().out


def test_gains_are_differences_of_variants(finished):
    _, results = finished
    for method, field in itertools.product(("bm25", "dense"), FIELDS):
        without, added, left_out, full = (
            results[f"{method}/{variant}/ndcg@10"]
            for variant in ("original", f"add/{field}", f"out/{field}", "full")
        )
        gain = f"{method}/gain/{{}}/{field}/ndcg@10".format
        assert results[gain("add")] == pytest.approx(added - without)
        assert results[gain("out")] == pytest.approx(full - left_out)


def test_errors_are_over_tools_and_p_values_are_corrected(finished):
    directory, results = finished
    kept = read_results(directory)
    tools = kept["bm25/gain/full/ndcg@10"]["n"]
    assert 1 < tools <= 24
    p = {name: x for name, x in results.items() if name.endswith("ndcg@10/p")}
    assert len(p) == 2 * (1 + 2 * len(FIELDS))
    for name, value in p.items():
        assert 0.005 <= value <= results[name.removesuffix("p") + "holm"] <= 1.0
    assert results["bm25/gain/full/ndcg@10"] > 0  # profiles contain the users' words
    assert results["bm25/gain/full/ndcg@10/p"] == 1 / 200


def test_sign_flips_agree_with_scipy_and_with_enumeration():
    values = np.random.default_rng(1).normal(0.4, 1.0, 30)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=0
    ).pvalue
    assert sign_flips(values, draws=20_000, seed=0) == pytest.approx(expected, abs=0.01)
    assert sign_flips(np.ones(4), draws=50_000, seed=0) == pytest.approx(2 / 16, abs=0.01)
    assert sign_flips(np.zeros(5), draws=99, seed=0) == 1.0
    assert sign_flips(np.ones(50), draws=99, seed=0) == 0.01


def test_the_change_of_the_cosine_is_that_of_numpy(finished, oracle):
    _, results = finished
    queries, labels, documents = oracle
    before, after = (queries @ documents(fields).T for fields in ((), FIELDS))
    for number, needed in enumerate(labels):
        before[number, list(needed)] = -2.0
    hard = before.argmax(axis=1)
    rows = np.arange(len(queries))
    change = (after[rows, hard] - before[rows, hard]).mean()
    assert results["dilution/hard/+tags/negative"] == pytest.approx(change, abs=1e-5)
    for kind in ("hard", "random"):
        right, wrong, margin = (
            results[f"dilution/{kind}/+tags/{side}"] for side in document_ablation.SIDES
        )
        assert margin == pytest.approx(right - wrong, abs=1e-9)


def test_figures_are_drawn_and_a_field_that_no_document_has_is_left_out(finished):
    directory, results = finished
    assert {path.name for path in directory.glob("*.png")} == PICTURES
    assert not [name for name in results if "example_usage" in name]


DOCUMENT = {
    "name": "pay",
    "description": "Sends money.",
    "terse": "Payment entity.",
    "tool_profile": {
        "function": "Pays.",
        "tags": ["money", "debt"],
        "when_to_use": "",
        "example_usage": [{"query": "pay Ann", "api_call": "pay('Ann')"}],
    },
}


def test_fields_are_added_in_the_order_given_and_empty_ones_are_not():
    text = with_profile(("tags", "when_to_use", "function"))(DOCUMENT)
    assert text == "Name: pay Description: Sends money. Tags: money, debt Function: Pays."
    assert with_profile(())(DOCUMENT) == template("full")(DOCUMENT)
    shown = with_profile(("example_usage",), base=template("terse"))(DOCUMENT)
    assert shown == "pay: Payment entity. Example usage: query: pay Ann, api_call: pay('Ann')"
    for document in data.load("deskbank").documents[:20]:
        assert with_profile(PROFILE_FIELDS)(document) == template("expanded")(document)


def test_only_fields_that_a_document_has_are_ablated():
    assert document_ablation.present([DOCUMENT]) == ("function", "tags", "example_usage")
    documents = data.load("deskbank").documents
    assert document_ablation.present(documents, ("tags", "example_usage")) == ("tags",)
    with pytest.raises(ValueError, match="no document has a tool_profile with one of function"):
        document_ablation.present([{"name": "pay"}])


def test_each_protocol_changes_one_field():
    alone = {"add/a": ("a",), "add/b": ("b",), "add/c": ("c",)}
    without = {"out/a": ("b", "c"), "out/b": ("a", "c"), "out/c": ("a", "b")}
    expected = {"original": (), "full": ("a", "b", "c")} | alone | without
    assert document_ablation.variants(("a", "b", "c")) == expected
    gains = document_ablation.gains_of(("a", "b"))
    assert gains["add/a"] == ("add/a", "original")
    assert gains["out/b"] == ("full", "out/b")


QUERIES, THETA = (
    unit(np.random.default_rng(seed).standard_normal(shape))
    for seed, shape in enumerate([(40, 8), (12, 8)])
)
LABELS = np.stack(
    [np.arange(40) % 12, np.where(np.arange(40) % 3, -1, (np.arange(40) + 5) % 12)], 1
)


def test_the_positive_is_needed_and_the_negative_is_not():
    """Both kinds of negatives are chosen for the same queries and positives."""
    easy, hard = (triples(QUERIES, LABELS, THETA, negatives=kind) for kind in ("random", "hard"))
    np.testing.assert_array_equal(easy.query, np.arange(40))
    np.testing.assert_array_equal(hard.query, np.arange(40))
    np.testing.assert_array_equal(easy.positive, hard.positive)
    for query, right in enumerate(LABELS):
        wrong = sorted(set(range(12)) - {*right})
        assert easy.positive[query] in set(right) - {-1}
        assert easy.negative[query] in wrong
        assert hard.negative[query] == max(wrong, key=lambda x: QUERIES[query] @ THETA[x])
    easy, hard = (
        triples(QUERIES, LABELS, THETA, negatives=kind, n=7, seed=3) for kind in ("random", "hard")
    )
    assert len(set(easy.query.tolist())) == 7
    np.testing.assert_array_equal(easy.query, hard.query)
    np.testing.assert_array_equal(easy.positive, hard.positive)


def test_every_right_and_every_wrong_tool_can_be_drawn():
    labels = np.array([[3, 1, -1]])
    drawn = [triples(QUERIES[:1], labels, THETA, negatives="random", seed=s) for s in range(300)]
    assert {int(one.positive[0]) for one in drawn} == {1, 3}
    assert {int(one.negative[0]) for one in drawn} == set(range(12)) - {1, 3}


def test_the_change_of_the_cosine_by_hand():
    queries = np.array([[1.0, 0.0]], np.float32)
    before = np.array([[0.8, 0.6], [0.6, 0.8]], np.float32)
    after = np.array([[0.6, 0.8], [0.0, 1.0]], np.float32)
    chosen = triples(queries, np.array([[0]]), before, negatives="hard")
    first, then = (similarity(queries, theta, chosen) for theta in (before, after))
    np.testing.assert_allclose(then.positive - first.positive, [-0.2], atol=1e-7)
    np.testing.assert_allclose(then.negative - first.negative, [-0.6], atol=1e-7)
    np.testing.assert_allclose(then.margin - first.margin, [0.4], atol=1e-7)


def test_wrong_settings_of_triples_are_refused():
    with pytest.raises(ValueError, match=r"n must be None or in 1 .. 40, got 41"):
        triples(QUERIES, LABELS, THETA, negatives="hard", n=41)
    with pytest.raises(ValueError, match="query 1 needs every tool"):
        triples(QUERIES[:2], np.array([[0, -1], [1, 0]]), THETA[:2], negatives="random")
