"""The count of limitations that a run kept, by a reader's verdicts."""

import pytest

from experiments.limitation_agreement import kept
from jaxret.runtime.files import write_json_lines


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
