"""Content and audit of documents: by hand, and the experiment end to end."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from experiments.document_fields import __main__ as document_fields
from experiments.document_fields import audit
from experiments.document_fields.__main__ import coverage, lengths
from jaxret import data, encoders
from jaxret.data.templates import template
from jaxret.documents import original
from tests.experiments.configs import config_of
from tests.experiments.conftest import write_data
from tests.fake_llm import Reply, serving

OTHER = [
    {"name": "pay", "description": "Pay.", "url": "/pay", "colour": "red"},
    "{'name': 'send', 'description': 'Sends money.', 'limitation': 'None abroad.'}",
    "Running text about a tool.",
]


def configure(directory, *overrides):
    return config_of("document_fields", "tracking=files", f"directory={directory}", *overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    tools = [{"id": str(i), "documentation": document} for i, document in enumerate(OTHER)]
    write_data(folder / "other", tools, [{"id": "q", "query": "Pay Ann", "labels": ["0"]}])
    return folder


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    directory = tmp_path_factory.mktemp("fields")
    cfg = configure(directory, f"folder={folder}", "more=[other]")
    return directory, document_fields.main(cfg)


def test_coverage_and_audit_of_a_data_set_are_those_by_hand(finished):
    directory, results = finished
    found = {name: results[f"other/{name}"] for name in ("name", "description", "method")}
    assert found == pytest.approx({"name": 2 / 3, "description": 1.0, "method": 1 / 3})
    assert results["other/limitations"] == results["other/guides_use"] == pytest.approx(1 / 3)
    assert results["other/states_function"] == pytest.approx(2 / 3)  # 'Pay.' only repeats the name
    assert results["other/incomplete/original"] == pytest.approx(2 / 3)
    assert "other/incomplete/expanded" not in results
    forms = json.loads((directory / "fields.json").read_text())["other"]
    assert forms == {"kinds": {"object": 1, "python": 1, "text": 1}, "unknown": {"colour": 1}}


def test_lengths_are_those_of_huggingface_and_nothing_is_cut_before(finished):
    _, results = finished
    tokenizer = AutoTokenizer.from_pretrained(encoders.load_encoder("minilm").directory)
    documents = data.load("deskbank").documents
    for text, name in (("original", "full"), ("expanded", "expanded")):
        lengths = np.array([len(tokenizer(template(name)(x))["input_ids"]) for x in documents])
        assert results[f"deskbank/tokens/{text}"] == pytest.approx(lengths.mean())
        assert results[f"deskbank/cut/{text}"] == pytest.approx((lengths > 256).mean())
    gap = results["deskbank/tokens/expanded"] - results["deskbank/tokens/original"]
    assert results["deskbank/tokens/profile"] == pytest.approx(gap)


def test_expansion_completes_deskbank(finished):
    directory, results = finished
    assert results["deskbank/incomplete/original"] == 1.0  # by rules
    assert results["deskbank/incomplete/expanded"] == 0.0
    assert {path.name for path in directory.glob("*.png")} == {"coverage.png", "tokens.png"}


def test_a_language_model_judges_a_sample(tmp_path, key):
    def answer(messages, _):
        return Reply("true" if "tool_profile" in messages[-1]["content"] else "false")

    with serving(answer) as server:
        asked = ("judge=llm", "sample=5", f"llm.base_url={server.url}")
        cfg = configure(tmp_path / "run", *asked, f"cache={tmp_path / 'cache'}")
        results = document_fields.main(cfg)
    assert len(server.requests) == 10
    assert results["deskbank/judged/original"] == 5
    assert results["deskbank/incomplete/original"] == 1.0
    assert results["deskbank/incomplete/expanded"] == 0.0


DOCUMENTS = (
    {"name": "a", "description": "One two.", "framework": "x"},
    "{'name': 'b', 'inputs': [], 'api_call': 'b()', 'framework': 'y', 'year': 1}",
    "Running text.",
    {"name": "d", "tool_profile": {"function": "Does it.", "tags": ["x y"]}},
)


def test_shares_are_those_of_a_count_by_hand():
    found = coverage(DOCUMENTS)
    assert found.kinds == {"object": 2, "python": 1, "text": 1}
    expected = {"name": 3 / 4, "description": 3 / 4, "category": 1 / 4, "method": 1 / 4}
    assert {name: share for name, share in found.share.items() if share} == expected
    assert list(found.unknown.items()) == [("framework", 2), ("year", 1)]
    with pytest.raises(ValueError, match="document 1 of 2: a document must hold something"):
        coverage(["text", ""])
    with pytest.raises(ValueError, match="there are no documents"):
        coverage([])


def test_lengths_add_up_as_in_table_1():
    found = lengths(DOCUMENTS, lambda text: len(text.split()))
    # The texts are "Name: a Description: One two. Framework: x", "Running text." and "Name: d"; the
    # profile is "Function: Does it. Tags: x y".
    np.testing.assert_array_equal(found.original[[0, 2, 3]], [7, 2, 2])
    np.testing.assert_array_equal(found.profile, [0, 0, 0, 6])
    np.testing.assert_array_equal(found.original + found.profile, found.expanded)


def test_every_document_of_deskbank_has_what_its_readme_says():
    documents = data.load("deskbank").documents
    bare = coverage([original(document) for document in documents]).share
    full = {name for name, share in bare.items() if share == 1}
    assert full == {"name", "description", "category", "parameters", "responses"}
    assert {name for name, share in bare.items() if share == 0} == set(bare) - full
    grown = coverage(documents).share
    assert grown["example_usage"] == grown["limitations"] == 1.0


def test_figure_1_of_what_toolbench_leaves_out(shared_data):
    documents = data.load("jsonl", shared_data / "toolbench-stable").documents
    described = sum(bool(document["api_description"].strip()) for document in documents)
    found = coverage(documents)
    assert found.share["description"] == described / len(documents) < 1
    assert found.share["method"] == 1.0
    assert not found.unknown


SENDING = {"name": "pay", "description": "Sends money to a friend.", "is_transactional": True}


def test_the_profile_is_shown_only_for_the_expanded_document():
    document = SENDING | {"terse": "Pays.", "tool_profile": {"function": 'Pays "anyone" $5.'}}
    bare, grown = (audit.as_json(document, expanded=x) for x in (False, True))
    assert bare == json.dumps(SENDING, indent=1)
    assert grown == json.dumps(SENDING | {"tool_profile": document["tool_profile"]}, indent=1)


def test_a_sample_takes_so_many_of_each_domain_and_all_of_a_small_one():
    domains = ["web"] * 50 + ["code"] * 3 + ["web"] * 10
    rows = audit.sample(domains, 5, seed=1)
    assert [domains[row] for row in rows].count("web") == 5
    assert set(range(50, 53)) <= set(rows.tolist())
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, audit.sample(domains, 5, seed=1))
    assert set(rows.tolist()) != set(audit.sample(domains, 5, seed=2).tolist())
    with pytest.raises(ValueError, match="n must be >= 1, got 0"):
        audit.sample(domains, 0, seed=1)


def test_the_share_is_the_mean_over_domains_and_its_error_that_of_the_draw():
    """Over repeated samples, the mean standard error matches the spread of the share."""
    rng = np.random.default_rng(0)
    domains = ["web"] * 300 + ["code"] * 60
    complete = np.concatenate([rng.random(300) < 0.7, rng.random(60) < 0.4])
    shares, errors = [], []
    for seed in range(400):
        rows = audit.sample(domains, 30, seed)
        found = audit.incomplete(complete[rows].tolist(), rows.tolist(), domains)
        assert found.documents == 60
        shares.append(found.mean)
        errors.append(found.stderr)
    truth = 1 - (complete[:300].mean() + complete[300:].mean()) / 2
    assert np.mean(shares) == pytest.approx(truth, abs=0.01)
    assert np.mean(errors) == pytest.approx(np.std(shares), rel=0.1)


def test_documents_without_a_verdict_are_left_out():
    found = audit.incomplete([True, False, False, None], range(4), ["web"] * 4)
    assert found.mean == pytest.approx(2 / 3)
    assert found.documents == 3
    with pytest.raises(ValueError, match="no document of domain 'b' was judged"):
        audit.incomplete([True, None], [0, 1], ["a", "b"])


def test_judging_all_documents_has_no_sampling_error_and_judging_one_has_an_unknown_error():
    assert audit.incomplete([True, False], [0, 1], ["a", "a"]).stderr == 0.0
    assert audit.incomplete([True], [0], ["a", "a"]).stderr is None
