"""Judging every pair of query and tool: requests, saved verdicts and later additions."""

import numpy as np
import pytest

from experiments.real_judge import ask, table
from jaxret.llm import OutOfReach
from jaxret.runtime.files import write_json_lines
from tests.experiments.configs import config_of
from tests.fake_llm import Reply, serving

pytestmark = pytest.mark.usefixtures("key")
DOMAINS = {"weather": ("rain", "wind"), "travel": ("train", "plane", "boat")}


@pytest.fixture
def folder(tmp_path):
    """Write five tools in two domains, with three queries each and one query for two tools."""
    tools, queries = [], []
    for domain, names in DOMAINS.items():
        for name in names:
            about = {"name": name, "description": f"All about {name}."}
            tools.append({"id": name, "domain": domain, "documentation": about})
            queries += [
                {"id": f"{name}-{i}", "query": f"number {i} of {name}", "labels": [name]}
                for i in range(3)
            ]
    queries.append({"id": "both", "query": "rain and wind", "labels": ["rain", "wind"]})
    for name, rows in {"tools": tools, "queries": queries}.items():
        write_json_lines(tmp_path / "data" / f"{name}.jsonl", rows)
    return tmp_path


def configure(folder, server, *more):
    where = ["dataset=jsonl", f"dataset.path={folder / 'data'}", f"cache={folder / 'cache'}"]
    where += [f"table={folder / 'table.npz'}", f"llm.base_url={server.url}"]
    small = ["domains=[travel]", "llm.retries=0", "llm.concurrency=1", "batch=4"]
    return config_of("real_judge_ask", *where, *small, *more)


def confident(messages, number):
    """Say yes with probability 0.75 for the query's tool, otherwise with probability 0.125."""
    tool, query = messages[-1]["content"].split("User: ")
    fits = tool.split()[2] in query.split()
    return Reply("yes", first=(("yes", 0.6), ("no", 0.2)) if fits else (("No", 0.7), ("Yes", 0.1)))


def said(server):
    return [request["messages"][-1]["content"] for request in server.requests]


def test_every_pair_of_the_domains_is_asked_once_tool_by_tool(folder):
    with serving(confident) as server:
        found = ask.main(configure(folder, server))
        again = ask.main(configure(folder, server))
    assert found.tools == DOMAINS["travel"]
    assert found.queries == tuple(f"{tool}-{i}" for tool in found.tools for i in range(3))
    right = [[query.startswith(tool) for tool in found.tools] for query in found.queries]
    np.testing.assert_allclose(found.yes, np.where(right, 0.75, 0.125))
    np.testing.assert_array_equal(again.yes, found.yes)
    assert len(server.requests) == 9 * 3
    beginnings = [text.split("User: ")[0] for text in said(server)]
    assert len(dict.fromkeys(beginnings[:9])) == 1  # requests about one tool are consecutive
    assert "All about train." in beginnings[0]
    assert "User: number 1 of train\n" in said(server)[1]
    kept = table.load(folder / "table.npz")
    assert (kept.tools, kept.queries, kept.judge) == (found.tools, found.queries, found.judge)
    np.testing.assert_allclose(kept.yes, found.yes, atol=1e-3)


def test_a_table_grows_by_domains_each_of_them_whole_before_the_next(folder):
    with serving(confident) as server:
        found = ask.main(configure(folder, server, "domains=[travel,weather]", "batch=27"))
    assert found.tools == DOMAINS["travel"] + DOMAINS["weather"]
    assert found.share == 1.0
    assert len(server.requests) == 15 * 5
    words = [(text.split("about ")[1].split(".")[0], text.split()) for text in said(server)]
    travel, weather = set(DOMAINS["travel"]), set(DOMAINS["weather"])
    first = [tool in travel and not weather & set(text[-12:]) for tool, text in words]
    assert first == [True] * 27 + [False] * 48  # the first domain's block comes first
    tools = [tool for tool, _ in words[27:]]
    assert tools == sorted(tools, key=found.tools.index)  # grouped by tool


def test_a_call_that_ends_early_is_gone_on_with_and_asks_nothing_twice(folder):
    def failing(messages, number):
        return Reply("busy", status=500) if number in (3, 13) else confident(messages, number)

    with serving(failing) as server:
        assert ask.main(configure(folder, server, "minutes=1e-9")).share == 0.0
        assert not server.requests
        first = ask.main(configure(folder, server))
        assert np.isnan(first.yes).sum() == 2  # a server error loses only its own request
        assert ask.main(configure(folder, server)).share == 1.0
    questions = said(server)
    assert sorted(questions.count(one) for one in set(questions)) == [1] * 25 + [2] * 2


def test_an_endpoint_that_dies_stops_the_run_and_its_answers_are_kept(folder):
    def dying(messages, number):
        return confident(messages, number) if number < 10 else Reply("gone", status=500)

    with serving(dying) as server:
        with pytest.raises(OutOfReach, match=r"none of 4 questions .* 10 of 27 pairs"):
            ask.main(configure(folder, server))
        assert len(server.requests) == 16
    assert np.isfinite(table.load(folder / "table.npz").yes).sum() == 10


def test_a_table_with_other_questions_is_not_extended(folder):
    with serving(confident) as server:
        ask.main(configure(folder, server))
        for override, message in (
            ("llm.model=another", r"answers to other questions \(judge differ\)"),
            ("domains=[weather]", r"answers to other questions \(tools differ\)"),
            ("domains=[moon]", "domains must be some of weather, travel, got moon"),
        ):
            with pytest.raises(ValueError, match=message):
                ask.main(configure(folder, server, override))


def test_a_damaged_table_is_named(tmp_path):
    (tmp_path / "table.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"table.npz is not a table of verdicts"):
        table.load(tmp_path / "table.npz")
    with pytest.raises(FileNotFoundError, match=r"python -m experiments.real_judge.ask"):
        table.load(tmp_path / "elsewhere.npz")
