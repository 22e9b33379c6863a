"""What documents say, end to end on DeskBank and a few documents of our own."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from experiments import document_fields
from jaxret import data, encoders
from jaxret.data.templates import template
from tests.experiments.configs import config_of
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
    (folder / "other").mkdir()
    tools = [json.dumps({"id": str(i), "documentation": x}) for i, x in enumerate(OTHER)]
    (folder / "other" / "tools.jsonl").write_text("\n".join(tools))
    query = {"id": "q", "query": "Pay Ann", "labels": ["0"]}
    (folder / "other" / "queries.jsonl").write_text(json.dumps(query))
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
    assert results["other/states_function"] == pytest.approx(2 / 3)  # 'Pay.' repeats the name
    assert results["other/incomplete/original"] == pytest.approx(2 / 3)
    assert "other/incomplete/expanded" not in results
    forms = json.loads((directory / "fields.json").read_text())["other"]
    assert forms == {"kinds": {"object": 1, "python": 1, "text": 1}, "unknown": {"colour": 1}}


def test_lengths_are_those_of_huggingface_and_nothing_is_cut_before(finished):
    _, results = finished
    tokenizer = AutoTokenizer.from_pretrained(encoders.load_encoder("minilm").directory)
    texts = {
        text: [template(name)(document) for document in data.load("deskbank").documents]
        for text, name in (("original", "full"), ("expanded", "expanded"))
    }
    for text, some in texts.items():
        lengths = np.array([len(tokenizer(one)["input_ids"]) for one in some])
        assert results[f"deskbank/tokens/{text}"] == pytest.approx(lengths.mean())
        assert results[f"deskbank/cut/{text}"] == pytest.approx((lengths > 256).mean())
    gap = results["deskbank/tokens/expanded"] - results["deskbank/tokens/original"]
    assert results["deskbank/tokens/profile"] == pytest.approx(gap)


def test_expansion_makes_deskbank_complete_by_rules(finished):
    _, results = finished
    assert results["deskbank/incomplete/original"] == 1.0
    assert results["deskbank/incomplete/expanded"] == 0.0


def test_figures_are_there_and_a_finished_run_is_only_read(finished, folder, capsys):
    directory, results = finished
    assert {path.name for path in directory.glob("*.png")} == {"coverage.png", "tokens.png"}
    cfg = configure(directory, f"folder={folder}", "more=[other]")
    assert document_fields.main(cfg) == results
    assert "finished before" in capsys.readouterr().out


def test_a_language_model_judges_a_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")

    def answer(messages, _):
        return Reply("true" if "tool_profile" in messages[-1]["content"] else "false")

    with serving(answer) as server:
        results = document_fields.main(
            configure(
                tmp_path / "run",
                *("judge=llm", "sample=5", f"llm.base_url={server.url}"),
                f"cache={tmp_path / 'cache'}",
            )
        )
    assert len(server.requests) == 10
    assert results["deskbank/judged/original"] == 5
    assert results["deskbank/incomplete/original"] == 1.0
    assert results["deskbank/incomplete/expanded"] == 0.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("judge=me", "judge must be one of rules, llm, got me"),
        ("sample=0", "sample must be >= 1, got 0"),
        ("more=[ultratool]", r"more=\['ultratool'\] needs folder="),
    ],
)
def test_wrong_settings_are_refused_before_the_run(tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        document_fields.main(configure(tmp_path / "run", override))
    assert not (tmp_path / "run").exists()
