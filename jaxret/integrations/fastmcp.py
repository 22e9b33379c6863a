"""FastMCP: a search over the tools of a server, which learns from the outcomes of calls.

    server = FastMCP("gateway")                    with its own, mounted and proxied tools
    LearnedSearch(folder="search").install(server)

An agent then sees two tools in place of all:

    search_tools(query)                       {"ticket": .., "tools": [..]}, the best tools
    call_tool(name, arguments, ticket)        the tool's result; its outcome is learnt
    rate_tool(ticket, name, worked)           with ``rate=True``: the agent says whether it helped

Only a ticket ties a call to its search: since the protocol of 2026-07-28 each request has a session
of its own. A call without a ticket, or with one that expired, is of another index or lacks the
tool, works, but nothing is learnt from it. Each tool of a ticket is answered once.

A call without an error may still have used the wrong tool. An index that learns from `no_error`
learns to avoid tools that fail, and to trust those that do not. If wrong tools never fail, nothing
can be learnt: give an ``outcome`` that knows more, or ``rate=True``.

Install on one server, the gateway, and last: middleware that is added afterwards is between this
one and the tools. Ids of the index are the names that this server lists, namespaces included. A
search shows only what its request may see; the other tools stay in the index. One process uses a
folder; its first search compiles, which takes seconds.

Needs ``jaxret[mcp]`` (FastMCP 4.2).
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, cast

try:
    import anyio.to_thread
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
    from fastmcp.server.transforms.search.base import BaseSearchTransform
    from fastmcp.tools import Tool, ToolResult
    from fastmcp.tools.base import InputRequiredToolResult
    from mcp import MCPError
except ImportError as error:
    raise ImportError(
        "jaxret.integrations.fastmcp needs FastMCP 4.2: pip install 'jaxret[mcp]'"
    ) from error

from pydantic import Field

from jaxret.encoders import Encoder
from jaxret.integrations.agent_index import AgentIndex
from jaxret.integrations.outcomes import Outcome, causes, reward
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require
from jaxret.serving.index import Index

GIVEN = cast(Context, None)  # the default of an argument that FastMCP fills in


class _Call(NamedTuple):
    """A call that `call_tool` is about to make."""

    name: str
    ticket: str


def no_error(result: Any) -> float | None:
    """Return the reward of a call: 1 if the tool gave no error, 0 if it failed.

    Args:
      result: a `ToolResult`, or the exception that the tool raised.

    Returns:
      None, which teaches nothing, for calls that are not over and for what says nothing about the
      choice of the tool (`jaxret.integrations.outcomes.reward`).
    """
    if isinstance(result, InputRequiredToolResult):
        return None
    if isinstance(result, ToolResult):
        words = " ".join(getattr(block, "text", "") for block in result.content)
        return reward(words if result.is_error else None)
    if not isinstance(result, ToolError) or any(isinstance(x, MCPError) for x in causes(result)):
        return None
    return reward(result)


def only_errors(result: Any) -> float | None:
    """Return 0 if the tool failed, else None; the rating of the agent supplies the success.

    Args:
      result: a `ToolResult`, or the exception that the tool raised.
    """
    return None if no_error(result) == 1 else no_error(result)


class LearnedSearch(BaseSearchTransform):
    """A search over the tools of a server that learns from the outcomes of their calls.

    Args:
      index: index to search, which needs an encoder of texts. Tools that it lacks are added; those
        that it has keep their descriptions until the server changes its own. None: that of the
        folder, or a new one of the server's tools.
      outcome: function of a `ToolResult`, or of the exception that the tool raised, to a reward in
        [0, 1], or None, which teaches nothing; may be asynchronous, and then the call waits. None:
        `no_error`, or `only_errors` with ``rate``.
      folder: folder of the index and its log, from which a restart continues: no answer is lost.
        None: what is learnt ends with the process, unless ``index`` has a log.
      k: tools that a search returns.
      rate: whether agents get ``rate_tool``.
      learner: learner of a new index; None: `jaxret.mixture`.
      encoder: encoder of a new index; a callable is also needed to load it.
      **names: further arguments of FastMCP's search transforms: ``always_visible``,
        ``search_tool_name``, ``call_tool_name``, ``search_result_serializer``.

    Raises:
      ValueError: if both index and folder are given, the index has no encoder, k < 1, or the folder
        is damaged or used by another process.
    """

    def __init__(
        self,
        index: Index | None = None,
        outcome: Outcome | None = None,
        folder: str | Path | None = None,
        *,
        k: int = 5,
        rate: bool = False,
        learner: Learner | None = None,
        encoder: str | Encoder = "minilm",
        **names: Any,
    ):
        require("k", k, ">= 1", lambda n: n >= 1)
        super().__init__(max_results=k, **names)
        self.outcome = outcome or (only_errors if rate else no_error)
        self.rate_tool_name = "rate_tool" if rate else None
        self.searched = AgentIndex(
            index, folder, learner, encoder, fingerprint=_fingerprint, read=_read
        )
        self._calling: ContextVar[_Call | None] = ContextVar("call with a ticket", default=None)
        self._installed = False

    @property
    def index(self) -> Index | None:
        """Index that is searched; None before the first search of a new one."""
        return self.searched.index

    def install(self, server: FastMCP) -> Self:
        """Put the search in place of a server's list of tools, and watch its calls.

        Args:
          server: gateway, with its middleware added before.

        Raises:
          ValueError: if it is installed already.
        """
        if self._installed:
            raise ValueError("installed already: make a LearnedSearch for each server")
        self._installed = True
        server.add_transform(self)
        server.add_middleware(_Watch(self))
        return self

    def learn(self, ticket: str, name: str, worked: float) -> None:
        """Answer a tool of a ticket.

        Args:
          ticket: key of the ticket of the search.
          name: tool that was called.
          worked: reward in [0, 1].

        Raises:
          ValueError: if the ticket is not open for the tool, or the reward is outside [0, 1].
        """
        self.searched.learn(ticket, name, worked)

    async def _search(self, tools: Sequence[Tool], query: str) -> Sequence[Tool]:
        return (await self._ticket(tools, query))[1]

    async def _ticket(self, tools: Sequence[Tool], query: str) -> tuple[str | None, list[Tool]]:
        """Return the key of a search, and the tools that it found."""
        if not tools:
            return None, []
        if not query.strip():
            raise ToolError("the query is empty: say what the tool should do")
        # Encoding takes milliseconds, in which the server answers other requests.
        by_name, find = {tool.name: tool for tool in tools}, self.searched.find
        ticket = await anyio.to_thread.run_sync(find, by_name, query, self._max_results)
        return ticket.key, [by_name[name] for name in ticket.ids]

    async def transform_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return what agents see: the tools that are always visible, and those of the search."""
        shown = await super().transform_tools(tools)
        return shown if self.rate_tool_name is None else [*shown, self._make_rate_tool()]

    async def get_tool(self, name, call_next, *, version=None) -> Tool | None:
        """Return a tool by name, those of the search included."""
        if name == self.rate_tool_name:
            return self._make_rate_tool()
        return await super().get_tool(name, call_next, version=version)

    def _make_search_tool(self) -> Tool:
        async def search_tools(
            query: Annotated[str, Field(description="What the tool should do, in plain words")],
            ctx: Context = GIVEN,
        ) -> dict[str, Any]:
            """Search for tools that can do something.

            Returns a ticket and the matching tool definitions, best first. Give the ticket to
            call_tool.
            """
            ticket, found = await self._ticket(await self._get_visible_tools(ctx), query)
            return {"ticket": ticket, "tools": await self._render_results(found)}

        return Tool.from_function(fn=search_tools, name=self._search_tool_name)

    def _make_call_tool(self) -> Tool:
        plain: Any = super()._make_call_tool()

        async def call_tool(
            name: Annotated[str, Field(description="Name of the tool to call")],
            arguments: Annotated[
                dict[str, Any] | None, Field(description="Arguments of the tool")
            ] = None,
            ticket: Annotated[
                str | None, Field(description="Ticket of the search that found the tool")
            ] = None,
            ctx: Context = GIVEN,
        ) -> ToolResult:
            """Call a tool by name with the given arguments.

            Use this to execute tools discovered via search_tools, with its ticket.
            """
            before = self._calling.set(_Call(name, ticket) if ticket else None)
            try:
                return await plain.fn(name, arguments, ctx)
            finally:
                self._calling.reset(before)

        return Tool.from_function(fn=call_tool, name=self._call_tool_name)

    def _make_rate_tool(self) -> Tool:
        async def rate_tool(
            ticket: Annotated[str, Field(description="Ticket of the search that found the tool")],
            name: Annotated[str, Field(description="Name of the tool that was called")],
            worked: Annotated[
                float, Field(ge=0, le=1, description="1: it did what was needed; 0: wrong tool")
            ],
        ) -> str:
            """Say whether a tool did what was needed, so that later searches find better ones.

            Rate the choice of the tool: not errors that better arguments would have avoided.
            """
            try:
                await anyio.to_thread.run_sync(self.learn, ticket, name, worked)
            except ValueError as error:
                raise ToolError(str(error)) from error
            return "noted"

        return Tool.from_function(fn=rate_tool, name=self.rate_tool_name)


class _Watch(Middleware):
    """Sees what a tool really did, before other middleware rewrites its errors."""

    def __init__(self, search: LearnedSearch):
        self.search = search

    async def on_call_tool(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult]
    ) -> ToolResult:
        calling = self.search._calling
        call = calling.get()
        if call is None or call.name != context.message.name:
            return await call_next(context)

        async def learn(outcome: Any) -> None:
            search = self.search
            await search.searched.awatch(search.outcome, call.ticket, call.name, outcome)

        before = calling.set(None)  # the ticket is not for tools that this tool calls
        try:
            result = await call_next(context)
        except Exception as error:
            await learn(error)
            raise
        finally:
            calling.reset(before)
        await learn(result)
        return result


def _fingerprint(tool: Tool) -> str:
    return repr((tool.title, tool.description, tool.parameters))


def _read(tool: Tool) -> Mapping[str, Any]:
    """Return the fields of a tool, whose name is that which the server lists."""
    return {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.parameters,
    }
