"""Agreement of automatic audits with a reader's verdicts, and the limitations that a run kept."""

import numpy as np
import pytest

from experiments.audit_agreement import __main__ as audit_agreement
from experiments.limitation_agreement import kept
from jaxret.runtime.files import json_lines, write_json_lines
from tests.experiments.configs import config_of, refused
from tests.experiments.conftest import write_data
from tests.fake_llm import Reply, serving

pytestmark = pytest.mark.usefixtures("key")
DOCUMENTS = [
    {"name": "a", "description": "Adds two numbers."},
    {"name": "b", "description": "B", "limitations": "Only on Mondays."},
    {"name": "c", "description": "Counts sheep.", "limitations": "At most nine."},
    {"name": "d", "description": "Draws a line."},
]
STATES, GUIDES = (True, False, True, True), (False, True, True, True)


@pytest.fixture
def folder(tmp_path):
    """Write a data set and a reader's verdicts; only the last document had a profile then."""
    rows = [{"id": x["name"], "name": x["name"], "documentation": x} for x in DOCUMENTS]
    profile = {"function": "Draws.", "tags": ["line"], "when_to_use": "A line is missing."}
    rows[-1]["tool_profile"] = profile
    write_data(tmp_path / "sets" / "few", rows, [{"id": "q", "query": "draw", "labels": ["d"]}])
    verdicts = [
        {"dataset": "few", "id": row["id"], "expanded": row["id"] == "d"}
        | {"states_function": states, "guides_use": guides}
        for row, states, guides in zip(rows, STATES, GUIDES, strict=True)
    ]
    write_json_lines(tmp_path / "verdicts.jsonl", verdicts)
    return tmp_path


def configure(folder, url, *more):
    settings = [
        "tracking=files",
        f"folder={folder / 'sets'}",
        f"verdicts={folder / 'verdicts.jsonl'}",
        f"cache={folder / 'cache'}",
        f"directory={folder / 'run'}",
        f"llm.base_url={url}",
        "llm.retries=0",
        "bootstrap=50",
    ]
    return config_of("audit_agreement", *settings, *more)


def says(messages, number):
    """Say yes to the function criterion; for guidance, p(yes) grows with the text's length."""
    text = messages[-1]["content"]
    if audit_agreement.CRITERIA["states_function"] in text:
        return Reply("yes", first=(("yes", 0.9), ("no", 0.1)))
    p = min(0.9, len(text) / 1000)
    return Reply("no", first=(("Yes", p), ("no", 1 - p)))


def test_judges_are_compared_with_the_reader_by_criterion(folder):
    with serving(says) as server:
        found = audit_agreement.main(configure(folder, server.url))
        assert len(server.requests) == 8
        texts = [request["messages"][-1]["content"] for request in server.requests]
    assert sum("A line is missing." in text for text in texts) == 2  # the reader saw this profile
    assert found["reader/states_function/yes"] == found["reader/guides_use/yes"] == 0.75
    assert found["rules/states_function/kappa"] == found["rules/guides_use/kappa"] == 1
    assert found["llm/states_function/yes"] == 1
    assert found["llm/states_function/agreement"] == 0.75
    assert found["llm/states_function/kappa"] == 0  # its answer is constant
    assert found["llm/guides_use/area_under_roc"] == 1  # the unguided document is shortest
    kappa, low, high = (found[f"llm/guides_use/{x}"] for x in ("kappa", "low", "high"))
    assert low <= kappa <= high


def test_kappa_is_agreement_beyond_chance():
    """Compare with scikit-learn, and by hand: 35 of 50 agree, and 50 % would by chance."""
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn: install jaxret[tsne]")
    one = np.repeat([True, True, False, False], [20, 5, 10, 15])
    other = np.repeat([True, False, True, False], [20, 5, 10, 15])
    assert audit_agreement.cohens_kappa(one, other) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = rng.random((2, 40)) < rng.random((2, 1))
        assert audit_agreement.cohens_kappa(a, b) == pytest.approx(metrics.cohen_kappa_score(a, b))
    assert audit_agreement.cohens_kappa(one, one) == 1
    assert audit_agreement.cohens_kappa(np.ones(3, bool), np.ones(3, bool)) == 0


def test_the_sixty_verdicts_can_be_read():
    rows = list(json_lines(audit_agreement.BY_EYE, holds="verdicts", fields=audit_agreement.FIELDS))
    assert len({(row["dataset"], row["id"], row["expanded"]) for row in rows}) == 60
    for criterion in audit_agreement.CRITERIA:
        assert {row[criterion] for row in rows} == {True, False}


def test_wrong_settings_are_refused(folder):
    for override, message in {
        "folder=null": "folder is null",
        "bootstrap=0": "bootstrap must be >= 1",
        "llm.key_variable=NO_KEY": "set the variable NO_KEY",
    }.items():
        cfg = configure(folder, "http://127.0.0.1:1/v1", override)
        refused(audit_agreement.main, cfg, message)
    (folder / "verdicts.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"number of verdicts in .*jsonl must be >= 1, got 0"):
        audit_agreement.main(configure(folder, "http://127.0.0.1:1/v1"))


def test_limitations_that_were_kept_are_counted_by_the_readers_verdict(tmp_path):
    with_limit, without = {"function": "f", "limitation": "l"}, {"function": "f"}
    profiles = [with_limit, without, with_limit, {}]
    tools = [{"id": str(i), "tool_profile": profile} for i, profile in enumerate(profiles)]
    write_json_lines(tmp_path / "tools.jsonl", tools)
    seen = [(True, True), (True, True), (True, False), (False, False)]
    rows = [{"id": str(i), "tried": t, "stated": s} for i, (t, s) in enumerate(seen)]
    write_json_lines(tmp_path / "eye.jsonl", rows)
    found = kept(tmp_path / "tools.jsonl", tmp_path / "eye.jsonl")
    assert found == {(True, True): (1, 2), (True, False): (1, 1), (False, False): (0, 1)}
    write_json_lines(tmp_path / "eye.jsonl", [rows[0] | {"id": "moon"}])
    with pytest.raises(ValueError, match="no tool 'moon'"):
        kept(tmp_path / "tools.jsonl", tmp_path / "eye.jsonl")
