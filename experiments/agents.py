"""What does a server's search gain by learning from agents' calls, and when does it gain nothing?

    uv run python -m experiments.agents                          # 60 tools of DeskBank, terse texts
    uv run python -m experiments.agents skill=0.7 traffic=[skewed]
    uv run python -m experiments.agents dataset=ultratool dataset.path=FILE \\
        document=name_description tools=null                     # 436 tools

A fake server has the tools of a data set. A scripted agent sends a request to the search, calls one
of the k tools that it finds, and the index learns from the outcome (`jaxret.integrations.fastmcp`):
1 if there was no error, 0 if there was. The right tool never fails; of the calls of wrong tools a
share ``fails`` gives an error. The agent takes the right tool if it sees it on the list, which it
does with probability ``skill``, and else the first.

    skewed      tools are asked for by Zipf's law, each time by one of their requests
    repeated    the same few requests come again and again
    uniform     every request comes once

``bm25`` is FastMCP's own search, ``frozen`` the encoder without learning; neither depends on
``fails``. Reported, for each traffic, rule and share:

    first, last       the first tool of the list is right, in the first and last fifth of the calls
    listed            the right tool is on the list, in the last fifth
    before, heldout   the first tool is right for requests that are never streamed, drawn as the
                      traffic draws (`repeated`: uniformly), before and after all calls
    protocol          how many of the calls through a FastMCP client, server and middleware get
                      another list than the index alone gives: 0

Needs ``jaxret[mcp]``; without it ``rules=[frozen,greedy,mixture] protocol=null``. Beside encoding,
a run takes 1 to 3 minutes of CPU. Expect on DeskBank, with skewed traffic in the last fifth:
bm25 0.072, frozen 0.178; at the shares 0, 0.5 and 1 greedy 0.139, 0.267, 0.311 and mixture 0.106,
0.206, 0.322. Numbers: experiments/results/agents.md.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret import encoders
from jaxret.data.templates import normalise
from jaxret.learners.registry import factories
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import Task

KINDS = ("skewed", "repeated", "uniform")
METRICS = ("first", "last", "listed", "before", "heldout")
LEARN_NOTHING = ("bm25", "frozen")
PARTS = 5  # the first and the last of them are reported


class Server(NamedTuple):
    """The tools of a fake server, and the requests of its agents.

    Attributes:
      tools: tools as an MCP server lists them.
      requests: texts of the N requests.
      right: name of the right tool of each request.
      groups: number of the question of each request [N]; questions are held out as a whole.
      encoder: looks up the vectors of the requests, and encodes the tools.
    """

    tools: list[dict[str, Any]]
    requests: list[str]
    right: list[str]
    groups: Int[np.ndarray, " N"]
    encoder: Callable[[list[str]], Float[np.ndarray, "n d"]]


class Life(NamedTuple):
    """What happens in T calls.

    Attributes:
      asked: number of the request of each call [T].
      probes: numbers of held-out requests [H].
      sees: whether the agent sees the right tool on the list [T].
      fails: whether a wrong tool gives an error [T].
    """

    asked: Int[np.ndarray, " T"]
    probes: Int[np.ndarray, " H"]
    sees: Bool[np.ndarray, " T"]
    fails: Bool[np.ndarray, " T"]


@experiment("agents")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Let agents call tools under every rule, traffic and share; draw what is gained."""
    server = server_of(task_of(cfg), cfg.tools)
    shares, seeds = list(cfg.fails), range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    cells = [(kind, rule, share) for kind in cfg.traffic for rule in cfg.rules for share in shares]
    for kind, rule, share in (bar := Progress(cells, unit="cell")):
        bar.set_postfix_str(f"{kind} {rule} {share:g}")
        run.pause(0)
        live = shares[0] if rule in LEARN_NOTHING else share
        compute = partial(lived, cfg, server, rule, kind, live, seeds)
        found = run.result(f"{kind}-{rule}-{live:g}", compute)
        results |= {f"{kind}/{rule}/{share:g}/{name}": found[name] for name in METRICS}
    if cfg.protocol is not None:
        results["protocol"] = run.result("protocol", partial(compared, cfg, server))["differ"]
    run.save_figure(figure(cfg, results), "agents")
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range, and unknown rules and traffic."""
    for name in ("calls", "repeated", "probes"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("calls", cfg.calls, f">= {PARTS}", lambda x: x >= PARTS)
    require("tools", cfg.tools, ">= 2, or null", lambda x: x is None or x >= 2)
    require("fails", cfg.fails, "shares in [0, 1]", lambda xs: 0 <= min(xs) <= max(xs) <= 1)
    require("skill", cfg.skill, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("traffic", cfg.traffic, f"some of {KINDS}", lambda xs: len(xs) and set(xs) <= {*KINDS})
    known = {"bm25", *factories()}
    require("rules", cfg.rules, "bm25 or presets", lambda xs: len(xs) and set(xs) <= known)
    if ("bm25" in cfg.rules or cfg.protocol is not None) and find_spec("fastmcp") is None:
        raise ImportError(
            "bm25 and protocol need FastMCP 4.2: pip install 'jaxret[mcp]', or leave them out with "
            "rules=[frozen,greedy,mixture] protocol=null"
        )


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line for each traffic and rule."""
    rows = [f"{kind}/{rule}" for kind in cfg.traffic for rule in cfg.rules]
    ends = [f"{share:g}" for share in cfg.fails]
    columns = [
        *(f"{ends[-1]}/{name}" for name in ("first", "before")),
        *(f"{share}/{name}" for name in ("last", "heldout") for share in ends),
        f"{ends[-1]}/listed",
    ]
    title = (
        f"{cfg.dataset.name}, {cfg.calls} calls, skill {cfg.skill:g}: share of failures / metric"
    )
    results_table(results, rows, columns, title)
    if "protocol" in results:
        print(f"calls in which the protocol differs: {results['protocol']['mean']:g}")


def server_of(task: Task, count: int | None) -> Server:
    """Make a server of the first tools of a task, and the requests for them.

    Args:
      task: task with texts; the first label of a query is the right tool.
      count: number of tools; None: all.
    """
    assert task.documents is not None
    assert task.texts is not None
    assert task.encoder is not None
    ids = list(task.ids)[:count]
    tools = [
        {"name": one, "description": text.removeprefix(f"{one.rpartition('.')[2]}: ")}
        for one, text in zip(ids, task.documents, strict=False)
    ]
    rows = np.flatnonzero(task.labels[:, 0] < len(ids))
    vectors = {normalise(task.texts[row]): task.queries[row] for row in rows}
    encoder = task.encoder

    def encode(texts: list[str]) -> Float[np.ndarray, "n d"]:
        new = [one for one in dict.fromkeys(texts) if one not in vectors]
        if new:
            rows = encoders.encode(encoder, new, kind="document", cache=None, progress=False)
            vectors.update(zip(new, rows, strict=True))
        return np.stack([vectors[one] for one in texts])

    texts = [task.texts[row] for row in rows]
    right = [ids[task.labels[row, 0]] for row in rows]
    return Server(tools, texts, right, task.groups[rows], encode)


def life(
    cfg: DictConfig, server: Server, kind: str, share: float, seed: int, calls: int | None = None
) -> Life:
    """Draw the calls of agents; those of two shares are the same but for the failures.

    Args:
      cfg: settings.
      server: tools and requests.
      kind: traffic, of `KINDS`.
      share: share of wrong calls that fail.
      seed: random seed.
      calls: number of calls; None: that of the settings.

    Raises:
      ValueError: if each request comes once and there are fewer than calls.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    groups = rng.permutation(np.unique(server.groups))
    held = np.isin(server.groups, groups[: round(cfg.heldout * len(groups))])
    streamed, rest = np.flatnonzero(~held), np.flatnonzero(held)
    size = cfg.calls if calls is None else calls
    if kind == "skewed":
        names = np.array(server.right)
        order = rng.permutation(np.unique(names[streamed]))
        asked = by_popularity(order, names, streamed, size, rng)
        probes = by_popularity(order, names, rest, cfg.probes, rng)
    else:
        known = f"at most {len(streamed):,}, the requests that are not held out"
        needed = size if kind == "uniform" else cfg.repeated
        require("calls or repeated", needed, known, lambda n: n <= len(streamed))
        asked = rng.permutation(streamed)[:needed]
        asked = asked if kind == "uniform" else rng.choice(asked, size)
        probes = rng.permutation(rest)[: cfg.probes]
    draws = rng.random((size, 2))
    return Life(asked, probes, draws[:, 0] < cfg.skill, draws[:, 1] < share)


def by_popularity(
    order: np.ndarray,
    names: np.ndarray,
    pool: Int[np.ndarray, " n"],
    size: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " size"]:
    """Draw requests of a pool: a tool by Zipf's law, then one of its requests.

    Args:
      order: names of tools, the most popular first; one without requests in the pool is left out.
      names: right tool of each request.
      pool: numbers of the requests.
      size: number of draws.
      rng: generator of the draws.
    """
    weights = np.array([np.isin(one, names[pool]) / n for n, one in enumerate(order, start=1)])
    tools = rng.choice(order, size, p=weights / weights.sum())
    return np.array([rng.choice(pool[names[pool] == tool]) for tool in tools])


def chosen(found: Sequence[str], right: str, sees: bool) -> str:
    """Return the tool that the agent calls."""
    return right if sees and right in found else found[0]


def lived(
    cfg: DictConfig, server: Server, rule: str, kind: str, share: float, seeds: range
) -> dict[str, np.ndarray]:
    """Let agents call tools; return the metrics [S]."""
    found = {name: [] for name in METRICS}
    for seed in seeds:
        its = life(cfg, server, kind, share, seed)
        search, learn = bm25(server, cfg.k) if rule == "bm25" else index(server, rule, cfg.k)
        before = share_right(server, search(its.probes), its.probes)[0]
        lists = called(server, its, search, learn)
        after = share_right(server, search(its.probes), its.probes)[0]
        part = len(lists) // PARTS
        first = share_right(server, lists[:part], its.asked[:part])[0]
        last, listed = share_right(server, lists[-part:], its.asked[-part:])
        for name, value in zip(METRICS, (first, last, listed, before, after), strict=True):
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


def called(server: Server, its: Life, search: Any, learn: Any) -> list[list[str]]:
    """Make all calls; return the list that each search found."""
    lists = []
    for asked, sees, fails in zip(its.asked, its.sees, its.fails, strict=True):
        (names,) = search([asked])
        right = server.right[asked]
        if names:
            name = chosen(names, right, sees)
            learn(name, name == right or not fails)
        lists.append(names)
    return lists


def share_right(
    server: Server, lists: list[list[str]], asked: Int[np.ndarray, " n"]
) -> tuple[float, float]:
    """Return how often the first tool is right, and how often the right tool is listed."""
    pairs = [(names, server.right[one]) for names, one in zip(lists, asked, strict=True)]
    first = np.mean([names[:1] == [right] for names, right in pairs])
    return float(first), float(np.mean([right in names for names, right in pairs]))


def index(server: Server, rule: str, k: int) -> tuple[Any, Any]:
    """Return the search and the answer of an index, as `LearnedSearch` uses it."""
    live = jr.Index.from_tools(server.tools, factories()[rule](), server.encoder)
    last: list[jr.Ticket] = []

    def search(asked: Sequence[int]) -> list[list[str]]:
        if len(asked) == 1:
            last[:] = [live.search(server.requests[asked[0]], k=k)]
            return [last[0].ids]
        return [one.ids for one in live.search([server.requests[n] for n in asked], k=k)]

    def learn(name: str, worked: bool) -> None:
        if rule not in LEARN_NOTHING:
            live.feedback(last[0], worked, name)

    return search, learn


def bm25(server: Server, k: int) -> tuple[Any, Any]:
    """Return the search of FastMCP, and an answer that teaches nothing."""
    from fastmcp.server.transforms.search import BM25SearchTransform

    transform, tools = BM25SearchTransform(max_results=k), fake_tools(server, lambda *_: False)

    def search(asked: Sequence[int]) -> list[list[str]]:
        async def all_of_them():
            return [await transform._search(tools, server.requests[n]) for n in asked]

        return [[tool.name for tool in found] for found in asyncio.run(all_of_them())]

    return search, lambda name, worked: None


def fake_tools(server: Server, fails: Callable[[str, int], bool]) -> list[Any]:
    """Make FastMCP tools of which some calls fail.

    Args:
      server: names and descriptions.
      fails: whether a tool fails in a call of that number.
    """
    from fastmcp.exceptions import ToolError
    from fastmcp.tools import Tool, ToolResult

    class Fake(Tool):
        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            if fails(self.name, arguments["call"]):
                raise ToolError(f"{self.name} cannot do that", log_level=logging.DEBUG)
            return ToolResult("done")

    return [Fake(**one, parameters={"type": "object"}) for one in server.tools]


def compared(cfg: DictConfig, server: Server) -> dict[str, np.ndarray]:
    """Count the calls in which the protocol finds another list than the index alone."""
    row = cfg.protocol
    its = life(cfg, server, row.traffic, row.fails, cfg.seed, row.calls)
    alone = called(server, its, *index(server, row.rule, cfg.k))
    over = asyncio.run(by_protocol(server, its, row.rule, cfg.k))
    return {"differ": np.array([sum(a != b for a, b in zip(alone, over, strict=True))])}


async def by_protocol(server: Server, its: Life, rule: str, k: int) -> list[list[str]]:
    """Make all calls through a FastMCP client; return the list that each search found."""
    from fastmcp import Client, FastMCP

    from jaxret.integrations.fastmcp import LearnedSearch

    def fails(name: str, call: int) -> bool:
        return name != server.right[its.asked[call]] and bool(its.fails[call])

    gateway = FastMCP("agents")
    for tool in fake_tools(server, fails):
        gateway.add_tool(tool)
    learner = factories()[rule]()
    LearnedSearch(k=k, learner=learner, encoder=server.encoder).install(gateway)
    lists = []
    async with Client(gateway) as client:
        for call, (asked, sees) in enumerate(zip(its.asked, its.sees, strict=True)):
            found = await client.call_tool("search_tools", {"query": server.requests[asked]})
            names = [tool["name"] for tool in found.data["tools"]]
            name = chosen(names, server.right[asked], sees)
            given = {"name": name, "arguments": {"call": call}, "ticket": found.data["ticket"]}
            await client.call_tool("call_tool", given, raise_on_error=False)
            lists.append(names)
    return lists


def figure(cfg: DictConfig, results: dict[str, np.ndarray]) -> Figure:
    """Draw success over the share of failures, a column for each traffic."""
    drawn = Figure(figsize=(3.0 * len(cfg.traffic) + 0.8, 5.4), layout="constrained")
    panels = drawn.subplots(2, len(cfg.traffic), sharex=True, sharey="row", squeeze=False)
    rows = {"last": "last fifth of the calls", "heldout": "requests held out"}
    for row, (metric, label) in zip(panels, rows.items(), strict=True):
        for panel, kind in zip(row, cfg.traffic, strict=True):
            for rule in cfg.rules:
                cells = [results[f"{kind}/{rule}/{share:g}/{metric}"] for share in cfg.fails]
                means = [cell.mean() for cell in cells]
                errors = [jr.Estimate.of(cell).error for cell in cells]
                style = "--" if rule in LEARN_NOTHING else "-"
                panel.errorbar(list(cfg.fails), means, errors, ls=style, marker="o", label=rule)
        row[0].set_ylabel(f"first tool right,\n{label}")
    for panel, kind in zip(panels[0], cfg.traffic, strict=True):
        panel.set_title(kind)
    for panel in panels[-1]:
        panel.set_xlabel("share of wrong calls that fail")
    panels[0][0].legend()
    return drawn


if __name__ == "__main__":
    main.cli()
