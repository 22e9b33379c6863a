import json

import numpy as np
import pytest

from jaxret.documents import audit
from jaxret.llm import Chat, Endpoint, Malformed
from tests.fake_llm import Reply, serving

PAY = {"name": "make_payment", "description": "Sends money to a friend.", "is_transactional": True}


@pytest.mark.parametrize(
    ("document", "stated", "guided"),
    [
        (PAY, True, True),
        ({"name": "make_payment", "description": "Make payment."}, False, False),
        ({"name": "make_payment", "description": "-", "example_code": "pay()"}, False, True),
        ({"name": "make_payment", "parameters": {"to": "text"}}, False, False),
        ("Sends money to a friend.", True, False),
        ({"name": "x", "tool_profile": {"function": "Pays.", "when_to_use": "Debts."}}, True, True),
    ],
)
def test_rules_look_for_a_statement_beyond_the_name_and_for_guidance(document, stated, guided):
    found = audit.by_rules(document)
    assert found == (stated, guided)
    assert found.complete == (stated and guided)


def test_the_profile_is_shown_only_for_the_expanded_document():
    document = PAY | {"terse": "Pays.", "tool_profile": {"function": 'Pays "anyone" $5.'}}
    bare, grown = (audit.question(document, expanded=x)[-1]["content"] for x in (False, True))
    assert json.dumps(PAY, indent=1) in bare
    assert json.dumps(PAY | {"tool_profile": document["tool_profile"]}, indent=1) in grown
    assert "terse" not in grown


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("true", True),
        (" False.\n", False),
        ("**True**", True),
        ("It says what, not when.\n\nfalse", False),
        ("Both hold, so the answer is true.", True),
        ("Final verdict: `false`", False),
        ("<think>true? no, false.</think>\ntrue", True),
    ],
)
def test_a_clear_verdict_is_read(answer, verdict):
    assert audit.parse(answer) is verdict


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "yes",
        "true or false",
        "The answer is not true",
        "answer: false, or rather answer: true",
        "false\nbut one could argue",
        "<think>it is true",
        "untrue",
        "That the answer is clear is hardly true",
    ],
)
def test_what_is_neither_true_nor_false_is_malformed(answer):
    with pytest.raises(Malformed, match="ends neither in true nor in false"):
        audit.parse(answer)


def test_a_model_is_asked_and_one_without_a_verdict_is_left_out(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")

    def answer(messages, _):
        text = messages[-1]["content"]
        return Reply("true" if "fine" in text else "false" if "poor" in text else "who knows")

    documents = [{"description": word} for word in ("fine", "poor", "poor", "odd")]
    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, attempts=2))
        asked = [audit.question(document, expanded=False) for document in documents]
        verdicts = chat.ask_all(asked, audit.parse, progress=False)
    assert verdicts == [True, False, False, None]
    found = audit.incomplete(verdicts, range(4), ["web"] * 4)
    assert found.mean == pytest.approx(2 / 3)
    assert found.documents == 3


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
    """Drawn again and again, the share spreads as the standard error says, on the average."""
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


def test_whoever_judges_all_has_no_sampling_error_and_of_one_no_error_is_known():
    assert audit.incomplete([True, False], [0, 1], ["a", "a"]).stderr == 0.0
    assert audit.incomplete([True], [0], ["a", "a"]).stderr is None
    with pytest.raises(ValueError, match="no document of domain 'b' was judged"):
        audit.incomplete([True, None], [0, 1], ["a", "b"])
