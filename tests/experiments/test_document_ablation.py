"""Field ablations, end to end: a tiny encoder, a few of DeskBank's tools."""

import numpy as np
import pytest

from experiments import document_ablation
from jaxret import data, encoders
from jaxret.data.templates import template
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world

FIELDS = ("function", "when_to_use", "limitation", "tags")
PICTURES = {"gains_bm25.png", "gains_dense.png", "dilution.png"}


def configure(world, directory, *overrides):
    given = [
        *in_world(world, directory),
        "draws=199",
    ]
    return config_of("document_ablation", *given, *overrides)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ablation")
    return directory, document_ablation.main(configure(world, directory))


@pytest.fixture(scope="module")
def oracle(world):
    """Queries, label sets, and (fields of the profile) -> documents' vectors, with NumPy."""
    dataset = data.load("jsonl", world / "data")
    encoder = encoders.load_encoder("minilm", world / "encoder")
    queries = encoders.encode(encoder, dataset.queries, kind="query", cache=None, progress=False)

    def documents(fields):
        texts = []
        for document in dataset.documents:
            text = template("full")(document)
            for field in fields:
                value = document["tool_profile"][field]
                value = ", ".join(value) if field == "tags" else value
                text += f" {field.capitalize().replace('_', ' ')}: {value}"
            texts.append(text)
        return encoders.encode(encoder, texts, kind="document", cache=None, progress=False)

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


@pytest.mark.parametrize("method", ["bm25", "dense"])
@pytest.mark.parametrize("field", FIELDS)
def test_gains_are_differences_of_variants(finished, method, field):
    _, results = finished

    def ndcg(variant):
        return results[f"{method}/{variant}/ndcg@10"]

    added, kept = (
        results[f"{method}/gain/{protocol}/{field}/ndcg@10"] for protocol in ("add", "out")
    )
    assert added == pytest.approx(ndcg(f"add/{field}") - ndcg("original"))
    assert kept == pytest.approx(ndcg("full") - ndcg(f"out/{field}"))


def test_errors_are_over_tools_and_p_values_are_corrected(finished):
    directory, results = finished
    kept = read_results(directory)
    tools = kept["bm25/gain/full/ndcg@10"]["n"]
    assert 1 < tools <= 24
    p = {name: x for name, x in results.items() if name.endswith("ndcg@10/p")}
    assert len(p) == 2 * (1 + 2 * len(FIELDS))
    for name, value in p.items():
        assert 0.005 <= value <= results[name.removesuffix("p") + "holm"] <= 1.0
    assert results["bm25/gain/full/ndcg@10"] > 0  # profiles are written in the users' words
    assert results["bm25/gain/full/ndcg@10/p"] == 1 / 200


def test_the_change_of_the_cosine_is_that_of_numpy(finished, oracle):
    _, results = finished
    queries, labels, documents = oracle
    before = queries @ documents(()).T
    after = queries @ documents(FIELDS).T
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


def test_figures_are_there_and_a_field_that_nobody_has_is_left_out(finished, world, capsys):
    directory, results = finished
    assert {path.name for path in directory.glob("*.png")} == PICTURES
    assert not [name for name in results if "example_usage" in name]
    assert document_ablation.main(configure(world, directory)) == results
    assert "finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("retrievers=[bm26]", r"retrievers: unknown \['bm26'\]; known: bm25, dense"),
        ("negatives=[near]", r"negatives: unknown \['near'\]; known: random, hard"),
        ("cuts=[]", "cuts must be one or more numbers >= 1"),
        ("fields=[tag]", r"fields: unknown \['tag'\]; known: function"),
    ],
)
def test_wrong_settings_are_refused(world, tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        document_ablation.main(configure(world, tmp_path / "run", override))
