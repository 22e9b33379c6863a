"""Document expansion end to end against a server, and the review page of its profiles."""

import hashlib
import json
import os
import signal
import threading
import time
import urllib.request
from functools import partial

import numpy as np
import pytest

from experiments.expand_documents import __main__ as expand_documents
from experiments.review_documents import __main__ as review_documents
from experiments.review_documents.page import QUESTIONS
from jaxret import data
from jaxret.data.templates import template
from jaxret.runtime.files import write_json_lines
from tests.experiments.configs import config_of
from tests.experiments.conftest import rows_of, write_data
from tests.experiments.processes import start
from tests.fake_llm import Reply, serving

pytestmark = pytest.mark.usefixtures("key")
TOOLS = 8
BAD = {"tool-2": "no JSON", "tool-5": '{"function": "", "tags": []}'}  # answers of the first model
HOPELESS = "tool-5"  # fails with the second model, too


def documented(i):
    return {"id": f"tool-{i}", "documentation": {"name": f"tool-{i}", "description": f"Does {i}."}}


@pytest.fixture
def folder(tmp_path):
    """Write tools, one with an old profile, one with plain text and one with JSON as a string."""
    tools = [documented(i) for i in range(TOOLS)]
    tools[0] |= {"tool_profile": {"function": "Old news."}, "terse": "Short.", "domain": "things"}
    tools[3]["documentation"] = "This is tool-3."
    tools[4]["documentation"] = json.dumps(tools[4]["documentation"])
    queries = [
        {"id": f"q{i}", "query": f"do {i}", "labels": [f"tool-{i}"], "split": "test", "question": i}
        for i in range(TOOLS)
    ]
    write_data(tmp_path / "data", tools, queries)
    return tmp_path


def profile(tool):
    example = {"query": f"run {tool}", "api_call": f"{tool}()"}
    tags = [tool, "doing", "things"]
    return {"function": f"Does what {tool} does.", "tags": tags, "example_usage": [example]}


def answer(messages, number):
    text = messages[1]["content"]
    [tool] = [f"tool-{i}" for i in range(TOOLS) if f"tool-{i}" in text]
    if "A profile that was written from it" in text:
        return Reply("true")
    if tool in BAD and (len(messages) == 2 or tool == HOPELESS):
        return Reply(BAD[tool])
    return Reply(json.dumps(profile(tool)))


def overrides(folder, server):
    return [
        "dataset=jsonl",
        f"dataset.path={folder / 'data'}",
        f"cache={folder / 'cache'}",
        "tracking=files",
        f"llm.base_url={server.url}",
        "llm.concurrency=1",
        "price.judge={prompt: 1.0, completion: 2.0}",
        "sample=4",
    ]


def configure(folder, server, *more):
    where = f"directory={folder / 'run'}"
    return config_of("expand_documents", where, *overrides(folder, server), *more)


def provenance(folder):
    return json.loads((folder / "run/expanded/provenance.json").read_text())["stages"]


def test_bad_documents_are_expanded_from_their_one_line_alone_up_to_the_limit(folder):
    tools = [documented(i) | {"terse": f"Short {i}."} for i in range(TOOLS)]
    write_json_lines(folder / "data" / "tools.jsonl", tools)
    with serving(answer) as server:
        results = expand_documents.main(configure(folder, server, "terse=true", "limit=2"))
        asked = [request["messages"][1]["content"] for request in server.requests]
    assert all("Short " in text and "Does 0." not in text for text in asked)
    assert (results["expanded"], results["failed/not_asked"]) == (2, 6)
    expanded = data.load("jsonl", folder / "run/expanded").documents
    assert len(expanded) == TOOLS
    bad = "Name: tool-0 Description: Short 0."
    assert template("full")(expanded[0]) == bad
    assert template("expanded")(expanded[0]).startswith(f"{bad} Function: Does what")


def test_the_data_set_is_read_as_it_is_and_failures_keep_their_document(folder, capsys):
    with serving(answer) as server:
        results = expand_documents.main(configure(folder, server))
    before, after = (data.load("jsonl", folder / where) for where in ("data", "run/expanded"))
    assert after.tool_ids == before.tool_ids
    assert (after.queries, after.split) == (before.queries, before.split)
    np.testing.assert_array_equal(after.labels, before.labels)
    full, expanded = template("full"), template("expanded")
    for tool, old, new in zip(before.tool_ids, before.documents, after.documents, strict=True):
        added = f" Function: Does what {tool} does. Tags: {tool}, doing, things"
        assert full(new) == full(old)
        assert expanded(new) == full(old) + ("" if tool == HOPELESS else added)
    assert template("terse")({"name": "tool-0"} | after.documents[0]) == "tool-0: Short."

    tools = rows_of(folder / "run/expanded/tools.jsonl")
    assert tools[1]["tool_profile"]["example_usage"] == profile("tool-1")["example_usage"]
    [failure] = rows_of(folder / "run/expanded/failures.jsonl")
    assert (failure["id"], failure["kind"], failure["rounds"]) == (HOPELESS, "rules", 2)
    assert "function says nothing" in failure["reason"]

    assert (results["tools"], results["expanded"], results["refined"]) == (8, 7, 1)
    assert all(results[name] == 1 for name in ("failed/rules", "expand/bad_json", "expand/rules"))
    assert results["judge/prompt_tokens"] == 7 * 7
    assert results["judge/cost"] == pytest.approx((49 * 1.0 + 21 * 2.0) / 1e6)
    assert "expand/cost" not in results
    assert "cost unknown; problems: bad_json 1, rules 1" in capsys.readouterr().out

    sample = rows_of(folder / "run/sample.jsonl")
    assert len({one["id"] for one in sample}) == 4
    assert HOPELESS not in {one["id"] for one in sample}
    for one in sample:
        assert one["profile"] == profile(one["id"])
    refine = provenance(folder)["refine"]
    assert refine["model"] == "gpt-4o-2024-08-06"
    assert set(refine["prompts"]) == {"expand.txt", "refine.txt", "shorten.txt"}


def test_a_users_model_and_prompt_replace_those_of_the_stages(folder):
    file = folder / "mine.txt"
    file.write_text("Mine.\n---\n$document")
    settings = ["llm.model=one", "llm.format=schema", "+stages.judge.max_tokens=8"]
    with serving(answer) as server:
        given = [*settings, "limit=1", f"prompts.expand={file}"]
        expand_documents.main(configure(folder, server, *given))
    writer, judge = server.requests
    assert writer["model"] == judge["model"] == "one"
    assert "max_tokens" not in writer
    assert judge["max_tokens"] == 8
    assert writer["response_format"]["type"] == "json_schema"
    assert writer["messages"][0]["content"] == "Mine."
    assert {stage["model"] for stage in provenance(folder).values()} == {"one"}
    used, ours = provenance(folder)["expand"]["prompts"], expand_documents.OURS.expand.sha256
    assert used["expand.txt"] == hashlib.sha256(file.read_bytes()).hexdigest() != ours


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_and_asks_nothing_twice(folder):
    def slow(messages, number):
        return answer(messages, number)._replace(delay=600.0 if number > 4 else 0.0)

    with serving(slow) as server:
        where = f"hydra.run.dir={folder / 'run'}"
        with start("experiments.expand_documents", *overrides(folder, server), where) as process:
            end = time.monotonic() + 300  # a busy machine starts slowly
            while len(server.requests) < 6:
                assert process.poll() is None, process.stdout.read()
                assert time.monotonic() < end
                time.sleep(0.02)
            process.kill()
        unanswered = server.requests.pop()  # was being answered when the process died
        killed_at = len(server.requests)
        assert not (folder / "run" / "expanded").exists()
        server._answer = answer
        results = expand_documents.main(configure(folder, server))
    questions = [json.dumps(request, sort_keys=True) for request in server.requests]
    assert json.dumps(unanswered, sort_keys=True) in questions
    assert len(questions) == len(set(questions)) > killed_at >= 5
    assert results["expanded"] == 7
    assert results["expand/prompt_tokens"] == 8 * 7  # counts both processes


def test_a_finished_run_asks_again_only_for_what_had_no_answer(folder):
    def busy(messages, number):
        reply = answer(messages, number)
        return Reply("no", status=400) if "tool-1" in messages[1]["content"] else reply

    with serving(busy) as server:
        first = expand_documents.main(configure(folder, server))
        assert first["failed/bad_request"] == 1
        asked = len(server.requests)
        assert expand_documents.main(configure(folder, server)) == first
        assert len(server.requests) == asked
        server._answer = answer
        again = expand_documents.main(configure(folder, server, "again=true"))
        assert len(server.requests) == asked + 2  # a profile and its verdict
    assert again["expanded"] == 7


def test_a_dry_run_shows_the_first_prompt_and_sends_nothing(folder, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving(answer) as server:
        price = "price.expand={prompt: 1e6, completion: 0}"
        planned = expand_documents.main(configure(folder, server, "dry_run=true", "limit=3", price))
    assert server.requests == []
    assert not (folder / "run").exists()
    said = capsys.readouterr().out
    assert planned["expand/calls"] == 3
    assert f"cost {planned['expand/prompt_tokens']:.4f}" in said
    assert "refine, gpt-4o-2024-08-06: up to 2 calls a tool that fails" in said
    assert '"description": "Does 0."' in said
    assert "Old news" not in said
    assert "nothing was sent" in said


def test_wrong_settings_are_refused_before_anything_is_asked(folder):
    wrong = {
        "prompts.judge=LICENSE": r"LICENSE: .* lack .*\['document', 'profile'\]",
        "limit=0": "limit must be >= 1 or null, got 0",
        "sample=-1": "sample must be >= 0, got -1",
        "rounds=-1": "rounds must be >= 0, got -1",
        "verdicts=0": "verdicts must be >= 1, got 0",
        "confirm=[tags]": r"confirm must be some of when_to_use, limitation, got tags",
        "+stages.judge.temperature=-1": "temperature must be >= 0, got -1",
        "terse=true": "without a terse version",
    }
    with serving(answer) as server:
        for override, message in wrong.items():
            with pytest.raises(ValueError, match=message):
                expand_documents.main(configure(folder, server, override, "again=true"))
            assert not (folder / "run").exists(), override
    assert server.requests == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_review_page_is_served_until_it_is_ended_and_sums_up(folder, monkeypatch, capsys, end):
    if signal.getsignal(end) is signal.SIG_IGN:
        pytest.skip(f"{end.name} is ignored, as in a shell's background jobs")
    sample = {"id": "a", "document": {"name": "a"}, "profile": profile("tool-1")}
    write_json_lines(folder / "sample.jsonl", [sample])
    line = {"id": "a", **dict.fromkeys(QUESTIONS, "ok"), "verdict": "pass", "note": ""}

    def answer_and_end(url):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}answers", json.dumps(line).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.read() == b"{}"
        os.kill(os.getpid(), end)

    visitor = partial(threading.Thread, target=answer_and_end)
    monkeypatch.setattr("webbrowser.open", lambda url: visitor(args=(url,)).start())
    before = signal.getsignal(signal.SIGTERM)
    try:
        review_documents.main([str(folder), "--reviewer", "B"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "reviewed 1, passed 1" in capsys.readouterr().out
    assert rows_of(folder / "reviews.jsonl") == [line | {"reviewer": "B"}]
