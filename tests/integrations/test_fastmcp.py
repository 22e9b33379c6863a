"""A server whose agents search with an index: what they see, and what their calls teach."""

import asyncio
import json
import logging
import re
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

import jaxret as jr

pytest.importorskip("fastmcp", minversion="4.2", reason="FastMCP: install jaxret[mcp]")

import uvicorn
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server import create_proxy
from fastmcp.tools import ToolResult

from jaxret.integrations.fastmcp import LearnedSearch, no_error, only_errors
from tests.integrations.shared import answered, encoder

PLACES = ("own", "mounted", "proxied")


def bank(name="bank"):
    """Make a server with a tool for each way in which a call can end."""
    server = FastMCP(name)

    @server.tool
    def pays(amount: int) -> str:
        "Pay an amount."
        return f"paid {amount}"

    @server.tool
    def breaks(amount: int) -> str:
        "Find a lost amount."
        raise RuntimeError(f"no account of {amount}")

    @server.tool
    def says_so(amount: int) -> str:
        "Lend an amount."
        raise ToolError(f"nobody lends {amount}")

    @server.tool
    def refuses(amount: int) -> str:
        "Wire an amount."
        raise PermissionError(f"permission denied: {amount}")

    @server.tool(timeout=0.01)
    async def dawdles(amount: int) -> str:
        "Count an amount."
        await asyncio.sleep(5)
        return str(amount)

    @server.tool
    def offline(amount: int) -> str:
        "Send an amount abroad."
        raise ConnectionRefusedError(f"timed out: {amount}")

    @server.tool
    async def pays_twice(amount: int, ctx: Context) -> str:
        "Pay an amount two times, by another tool."
        await ctx.fastmcp.call_tool("pays", {"amount": amount})
        return "paid twice"

    return server


def gateway(place, **settings):
    """Make a gateway with the bank, own, mounted or proxied, and its search."""
    if place == "own":
        server = bank()
    else:
        server = FastMCP("gateway")
        inner = bank() if place == "mounted" else create_proxy(bank())
        server.mount(inner, namespace="bank")
    settings = {"learner": jr.greedy(), "encoder": encoder, "k": 10} | settings
    return server, LearnedSearch(**settings).install(server)


def named(place, tool):
    return tool if place == "own" else f"bank_{tool}"


async def searched(client, query="pay an amount"):
    return (await client.call_tool("search_tools", {"query": query})).data


async def called(client, name, ticket, **arguments):
    given = {"name": name, "arguments": arguments or {"amount": 3}, "ticket": ticket}
    return await client.call_tool("call_tool", given, raise_on_error=False)


async def outcomes(client, place):
    """Call every tool once, with the ticket of a search."""
    ticket = (await searched(client))["ticket"]
    results = {}
    for tool in ("pays", "breaks", "says_so", "refuses", "dawdles", "offline", "nothing"):
        results[tool] = await called(client, named(place, tool), ticket)
    wrong = (await searched(client))["ticket"]
    results["wrong"] = await called(client, named(place, "pays"), wrong, amount="three")
    return results


def check_outcomes(results, folder, place):
    assert not results.pop("pays").is_error
    assert all(result.is_error for result in results.values())
    learnt = {("pays", 1.0), ("breaks", 0.0), ("says_so", 0.0)}
    assert sorted(answered(folder)) == sorted((named(place, tool), x) for tool, x in learnt)


@pytest.mark.parametrize("place", PLACES)
def test_only_the_tools_own_success_and_failure_teach(place, tmp_path):
    server, _ = gateway(place, folder=tmp_path)

    async def run():
        async with Client(server) as client:
            return await outcomes(client, place)

    check_outcomes(asyncio.run(run()), tmp_path, place)


@asynccontextmanager
async def served(server):
    """Serve on a free port of this machine, and close its socket."""
    app = server.http_app(path="/mcp")
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    task = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    web.should_exit = True
    await task


def test_the_same_is_learnt_over_http(tmp_path):
    server, _ = gateway("mounted", folder=tmp_path)

    async def run():
        async with served(server) as url, Client(url) as client:
            return await outcomes(client, "mounted")

    check_outcomes(asyncio.run(run()), tmp_path, "mounted")


def test_agents_see_the_search_alone_and_find_tools_by_their_listed_names():
    server, search = gateway("mounted", rate=True, always_visible=["bank_pays"])

    async def run():
        async with Client(server) as client:
            seen = [tool.name for tool in await client.list_tools()]
            return seen, await searched(client, "lend an amount")

    seen, found = asyncio.run(run())
    assert seen == ["bank_pays", "search_tools", "call_tool", "rate_tool"]
    assert found["tools"][0]["name"] == "bank_says_so"
    assert found["tools"][0]["inputSchema"]["properties"] == {"amount": {"type": "integer"}}
    assert "bank_pays" not in search.index.ids  # it needs no search
    text = search.index.texts[search.index.names.index("bank_says_so")]
    assert text == "Name: bank says so Description: Lend an amount. Parameters: amount"


def test_only_a_ticket_ties_a_call_to_its_search(tmp_path, caplog):
    server, _ = gateway("own", folder=tmp_path)

    async def run():
        async with Client(server) as client:
            ticket = (await searched(client))["ticket"]
            results = [await called(client, "pays", None), await client.call_tool("pays", AMOUNT)]
            with caplog.at_level(logging.INFO):
                results += [await called(client, "pays", one) for one in ("0-none", "mine")]
            assert not answered(tmp_path)
            results += [await called(client, "pays", ticket) for _ in range(2)]
            return results

    AMOUNT = {"amount": 3}
    assert all(result.data == "paid 3" for result in asyncio.run(run()))
    assert answered(tmp_path) == [("pays", 1.0)]  # a tool of a ticket is answered once
    said = [record.getMessage() for record in caplog.records if "jaxret" in record.name]
    assert len(said) == 2
    assert all(line.startswith("the call of pays teaches nothing: ") for line in said)


def test_a_ticket_is_not_for_tools_that_the_tool_calls(tmp_path):
    server, _ = gateway("own", folder=tmp_path)

    async def run():
        async with Client(server) as client:
            await called(client, "pays_twice", (await searched(client))["ticket"])

    asyncio.run(run())
    assert answered(tmp_path) == [("pays_twice", 1.0)]


def test_a_ticket_ends_with_its_call(tmp_path):
    server, _ = gateway("own", folder=tmp_path)

    async def run():  # in one task, which a client would not be
        found = (await server.call_tool("search_tools", {"query": "pay"})).structured_content
        call = {"name": "pays", "arguments": {"amount": "x"}, "ticket": found["ticket"]}
        with pytest.raises(ValidationError):
            await server.call_tool("call_tool", call)
        await server.call_tool("pays", {"amount": 3})

    asyncio.run(run())
    assert not answered(tmp_path)


def test_a_request_finds_what_it_may_see_and_the_rest_stays():
    server, search = gateway("own")

    async def run():
        async with Client(server) as client:
            before = await searched(client)
            server.disable(names={"pays"})
            hidden = await searched(client)
            refused = await called(client, "pays", before["ticket"])
            server.enable(names={"pays"})
            return [{t["name"] for t in one["tools"]} for one in (before, hidden)], refused

    (before, hidden), refused = asyncio.run(run())
    assert before - hidden == {"pays"}
    assert refused.is_error
    assert "pays" in search.index.ids
    assert int(search.index.state.t) == 0


def test_new_and_changed_tools_enter_the_index():
    server, search = gateway("own")

    async def run():
        async with Client(server) as client:
            await searched(client)

            @server.tool
            def trains(day: str) -> str:
                "Find trains to Basel"
                return day

            found = await searched(client, "trains to Basel")
            server.local_provider.remove_tool("trains")
            server.tool(lambda day: day, name="trains", description="Buy tickets of the zoo")
            return found, await searched(client, "tickets of the zoo")

    found, after = asyncio.run(run())
    assert found["tools"][0]["name"] == "trains"
    assert "zoo" in search.index.texts[search.index.names.index("trains")]
    assert after["tools"][0]["name"] == "trains"


def test_an_index_that_is_given_keeps_its_own_words():
    server = bank()
    tools = [{"name": "pays", "description": "Settles debts."}]
    index = jr.Index.from_tools(tools, jr.greedy(), encoder)
    LearnedSearch(index, k=1).install(server)

    async def run():
        async with Client(server) as client:
            return await searched(client, "settles debts")

    assert asyncio.run(run())["tools"][0]["name"] == "pays"
    assert "Settles debts." in index.texts[0]
    assert len(index) == 7  # the others were added


def test_agents_rate_with_a_ticket(tmp_path):
    server, _ = gateway("own", folder=tmp_path, rate=True)

    async def run():
        async with Client(server) as client:
            ticket = (await searched(client))["ticket"]
            await called(client, "pays", ticket)  # no error: the agent says whether it helped
            await called(client, "breaks", ticket)
            rate = {"ticket": ticket, "name": "pays"}
            await client.call_tool("rate_tool", rate | {"worked": 0.25})
            for wrong in (rate | {"worked": 1}, rate | {"worked": 2}, rate | {"name": "none"}):
                with pytest.raises(ToolError):
                    await client.call_tool("rate_tool", {"worked": 1} | wrong)

    asyncio.run(run())
    assert answered(tmp_path) == [("breaks", 0.0), ("pays", 0.25)]


@pytest.mark.parametrize("waits", [False, True])
def test_users_say_what_an_outcome_is_worth(waits, tmp_path):
    def outcome(result):
        return 0.5 if isinstance(result, ToolResult) else 0.125

    async def judged(result):
        await asyncio.sleep(0)
        return outcome(result)

    server, _ = gateway("own", folder=tmp_path, outcome=judged if waits else outcome)

    async def run():
        async with Client(server) as client:
            ticket = (await searched(client))["ticket"]
            for tool in ("pays", "refuses"):
                await called(client, tool, ticket)

    asyncio.run(run())
    assert answered(tmp_path) == [("pays", 0.5), ("refuses", 0.125)]


@pytest.mark.parametrize("outcome", [lambda result: 3.0, lambda result: 1 / 0])
def test_a_wrong_outcome_fails_no_call(outcome, caplog):
    server, search = gateway("own", outcome=outcome)

    async def run():
        async with Client(server) as client:
            return await called(client, "pays", (await searched(client))["ticket"])

    assert asyncio.run(run()).data == "paid 3"
    assert "the call of pays teaches nothing" in caplog.text
    assert int(search.index.state.t) == 0


def test_two_clients_at_once_answer_their_own_tickets(tmp_path):
    server, search = gateway("mounted", folder=tmp_path, outcome=lambda result: 1.0)
    calls = 20

    async def agent(tool):
        async with Client(server) as client:
            for _ in range(calls):
                await called(client, tool, (await searched(client, tool))["ticket"])

    async def run():
        await asyncio.gather(agent("bank_pays"), agent("bank_breaks"))

    asyncio.run(run())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    queries = {one["round"]: one["query"] for one in lines if "slate" in one}
    used = [(queries[one["round"]], one["item"]) for one in lines if "item" in one]
    assert len(used) == 2 * calls == int(search.index.state.t)
    for tool in ("bank_pays", "bank_breaks"):
        own = encoder([tool])[0]
        assert sum(item == tool and np.allclose(query, own) for query, item in used) == calls


def test_a_restart_continues_with_every_answer(tmp_path):
    async def run(server, rounds):
        async with Client(server) as client:
            for _ in range(rounds):
                ticket = (await searched(client))["ticket"]
                await called(client, "pays", ticket)
            return (await searched(client))["ticket"]

    first, search = gateway("own", folder=tmp_path)
    ticket = asyncio.run(run(first, 3))
    before = np.asarray(search.index.state.theta)
    search.index.close()  # as the end of the process does; nothing is saved
    second, search = gateway("own", folder=tmp_path)
    np.testing.assert_array_equal(np.asarray(search.index.state.theta), before)
    assert int(search.index.state.t) == 3

    async def again():
        async with Client(second) as client:
            await called(client, "breaks", ticket)  # of the first life
            return await searched(client)

    assert asyncio.run(again())["tools"]
    assert answered(tmp_path) == [("pays", 1.0)] * 3 + [("breaks", 0.0)]


def test_a_tool_that_fails_is_found_less_than_one_that_works():
    server, _ = gateway("own", learner=jr.greedy(tau=0.1, eta=0.05), k=3)

    async def run():
        tops = []
        async with Client(server) as client:
            for _ in range(30):
                found = await searched(client, "breaks: find a lost amount")
                tops.append(found["tools"][0]["name"])
                await called(client, tops[-1], found["ticket"])
        return tops

    tops = asyncio.run(run())
    assert tops[0] == "breaks"
    assert "breaks" not in tops[-10:]


def test_wrong_settings_are_refused_in_a_line():
    index = jr.Index.from_tools([{"name": "pays", "description": "Pays."}], jr.greedy(), encoder)
    with pytest.raises(ValueError, match="give an index or a folder, not both"):
        LearnedSearch(index, folder="somewhere")
    with pytest.raises(ValueError, match="k must be >= 1, got 0"):
        LearnedSearch(k=0)
    blind = jr.Index(jr.greedy(), jr.Task.from_arrays(np.eye(3), np.eye(3), np.arange(3)))
    with pytest.raises(ValueError, match="no encoder for the agents' texts"):
        LearnedSearch(blind)
    search = LearnedSearch(index).install(FastMCP("one"))
    with pytest.raises(ValueError, match="installed already"):
        search.install(FastMCP("two"))


def error_of(cause):
    try:
        raise ToolError("Error calling tool") from cause
    except ToolError as error:
        return error


class Refused(Exception):
    def __init__(self, status):
        self.response = type("Response", (), {"status_code": status})


@pytest.mark.parametrize(
    ("result", "reward"),
    [
        (ToolResult("done"), 1.0),
        (ToolResult("no such invoice", is_error=True), 0.0),
        (ToolResult("1 validation error for call[pays]", is_error=True), None),
        (ToolResult("Input validation error: 'x' is required", is_error=True), None),
        (ToolResult("Unknown tool: 'pays'", is_error=True), None),
        (ToolResult("Error calling tool 'set_permission': no such user", is_error=True), 0.0),
        (ToolResult("Error calling tool 'add': permission denied", is_error=True), None),
        (ToolResult("HTTP error 404: Not Found", is_error=True), 0.0),
        (ToolResult("HTTP error 503: Service Unavailable", is_error=True), None),
        (ToolError("no such invoice"), 0.0),
        (ToolError("Upstream request timed out, please retry"), None),
        (error_of(TimeoutError()), None),
        (error_of(PermissionError()), None),
        (error_of(Refused(403)), None),
        (error_of(Refused(429)), None),
        (error_of(Refused(500)), None),
        (error_of(Refused(404)), 0.0),
        (error_of(KeyError("invoice")), 0.0),
        (ValidationError("1 validation error"), None),
        (NotFoundError("Unknown tool: 'pays'"), None),
    ],
    ids=str,
)
def test_what_each_outcome_says(result, reward):
    assert no_error(result) == reward
    assert only_errors(result) == (None if reward == 1 else reward)


@pytest.mark.slow  # encodes with MiniLM
def test_the_example_of_the_page_runs_and_learns(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "experiments" / "results" / "agents.md"
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", page.read_text(), re.S)
    assert len([line for line in code.splitlines() if line]) <= 14
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page.name, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == shown
    assert answered(tmp_path / "search") == [("send_invoice", 1.0)]
