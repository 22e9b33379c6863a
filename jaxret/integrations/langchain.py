"""LangChain: middleware that gives an agent the best tools for a request, and learns from calls.

    learned = LearnedTools(folder="search", k=5)
    agent = create_agent(model, tools, middleware=[learned])

At the first model call of a turn the tools are searched for the text of the last human message; the
turn's later calls see the same ones. The ticket is in the state of the agent's thread, under
``learned_tools``: threads and runs cannot mix, and a turn goes on after an interrupt or a restart.
A call of a tool that is on the ticket answers it, once per tool. Other calls work and teach
nothing: of tools that are always shown, and of those that an earlier turn had found.

A call without an error may still have used the wrong tool. An index that learns from `no_error`
learns to avoid tools that fail, and to trust those that do not. If wrong tools never fail, nothing
can be learnt: give an ``outcome`` that knows more; or ``rate=True``, which lets the model say it;
or call `learn` when the user has judged the answer:

    answer = agent.invoke({"messages": "charge my client"})
    learned.learn(answer["learned_tools"]["ticket"], "send_invoice", 1.0)

Place it after middleware that adds or hides tools or rewrites errors, so that it sees the remaining
tools and the original errors; and before middleware that retries. Errors that no middleware catches
end the run, and are learnt as well. A search shows only what its request may see; the other tools
stay in the index. One process uses a folder; its first search compiles, which takes seconds.

Needs ``jaxret[langchain]`` (LangChain 1.2.11 or later).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

try:
    import anyio.to_thread
    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        ToolCallRequest,
    )
    from langchain.agents.middleware.types import OmitFromInput
    from langchain.tools import ToolRuntime, tool
    from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
    from langchain_core.tools import BaseTool, ToolException
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command
except ImportError as error:
    raise ImportError(
        "jaxret.integrations.langchain needs LangChain 1.2.11: pip install 'jaxret[langchain]'"
    ) from error

from pydantic import Field

from jaxret.encoders import Encoder
from jaxret.integrations.agent_index import AgentIndex
from jaxret.integrations.outcomes import Outcome, reward
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require
from jaxret.serving.index import Index

Called: TypeAlias = Any  # what a call of a tool gives: a ToolMessage, a Command, or a list of them

KEY = "learned_tools"  # of the agent's state


class Shown(TypedDict):
    """The search of a turn, as the state of a thread keeps it.

    Attributes:
      turn: id of the human message that was searched for.
      ticket: key of the ticket; None: the message has no words, and the tools are those of the turn
        before.
      tools: names of the tools that were found, best first.
    """

    turn: str
    ticket: str | None
    tools: list[str]


class LearnedState(AgentState[Any]):
    """State of an agent with a search, which is not an input of the agent."""

    learned_tools: NotRequired[  # ty: ignore[invalid-type-form]
        Annotated[Shown | None, OmitFromInput]
    ]


def no_error(result: Called | Exception) -> float | None:
    """Return the reward of a call: 1 if the tool gave no error, 0 if it failed.

    Args:
      result: the `ToolMessage` or `Command` that the tool returned, or the exception that it
        raised. A message of status "error" is one.

    Returns:
      None, which teaches nothing, for what says nothing about the choice of the tool
      (`jaxret.integrations.outcomes.reward`).
    """
    if isinstance(result, Exception):
        return reward(result)
    wrong = [message.text for message in _messages(result) if message.status == "error"]
    return reward(" ".join(wrong) if wrong else None)


def only_errors(result: Called | Exception) -> float | None:
    """Return 0 if the tool failed, else None; the rating of the model or user supplies the success.

    Args:
      result: the `ToolMessage` or `Command` that the tool returned, or the exception that it
        raised.
    """
    return None if no_error(result) == 1 else no_error(result)


class LearnedTools(AgentMiddleware[LearnedState, Any, Any]):
    """A search over the tools of an agent that learns from the outcomes of their calls.

    One object may serve any number of agents and threads.

    Args:
      index: index to search, which needs an encoder of texts. Tools that it lacks are added; those
        that it has keep their descriptions until the agent's change. None: that of the folder, or a
        new one of the agent's tools.
      outcome: function of the result of a call to a reward in [0, 1], or None, which teaches
        nothing. The result is a `ToolMessage`, a `Command`, or the exception that the tool raised.
        May be asynchronous if the agent is called so, and then the call waits. None: `no_error`, or
        `only_errors` with ``rate``.
      folder: folder of the index and its log, from which a restart continues: no answer is lost.
        None: what is learnt ends with the process, unless ``index`` has a log.
      k: tools that a search finds.
      always: names of tools that are shown in every turn, and are not searched; so are the tools of
        a provider, which are not functions.
      rate: whether the model gets ``rate_tool``.
      learner: learner of a new index; None: `jaxret.mixture`.
      encoder: encoder of a new index; a callable is also needed to load it.

    Raises:
      ValueError: if both index and folder are given, the index has no encoder, k < 1, or the folder
        is damaged or used by another process.
    """

    state_schema = LearnedState

    def __init__(
        self,
        index: Index | None = None,
        outcome: Outcome | None = None,
        folder: str | Path | None = None,
        *,
        k: int = 5,
        always: Sequence[str] = (),
        rate: bool = False,
        learner: Learner | None = None,
        encoder: str | Encoder = "minilm",
    ):
        super().__init__()
        require("k", k, ">= 1", lambda n: n >= 1)
        require("always", always, "a list of names", lambda x: not isinstance(x, str))
        self.searched = AgentIndex(
            index, folder, learner, encoder, fingerprint=_fingerprint, read=_read
        )
        self.outcome = outcome or (only_errors if rate else no_error)
        self.tools = [self._rate_tool()] if rate else []
        self._k, self._always = k, {*always, *(one.name for one in self.tools)}

    @property
    def index(self) -> Index | None:
        """Index that is searched; None before the first search of a new one."""
        return self.searched.index

    def learn(self, ticket: str, name: str, worked: float) -> None:
        """Answer a tool of a ticket, as the user judged it.

        Args:
          ticket: key of the ticket: ``state["learned_tools"]["ticket"]`` of the agent's answer.
          name: tool that was called.
          worked: reward in [0, 1].

        Raises:
          ValueError: if the ticket is not open for the tool, such as when its call was learnt
            already, or the reward is outside [0, 1].
        """
        self.searched.learn(ticket, name, worked)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Show the model the tools of the turn.

        Args:
          request: the model call.
          handler: makes the call.
        """
        request, new = self._selected(request)
        return _noted(handler(request), new)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Show the model the tools of the turn.

        Args:
          request: the model call.
          handler: makes the call.
        """
        # Encoding takes milliseconds, in which the loop serves other runs.
        request, new = await anyio.to_thread.run_sync(self._selected, request)
        return _noted(await handler(request), new)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Called]
    ) -> Called:
        """Call a tool, and learn from the outcome if it is on the ticket of the turn.

        Args:
          request: the call.
          handler: makes the call.
        """
        name = request.tool_call["name"]
        ticket = _ticket(request.state, name)
        try:
            result = handler(request)
        except GraphBubbleUp:  # an interrupt: the call is not over
            raise
        except Exception as error:
            if ticket is not None:
                self.searched.watch(self.outcome, ticket, name, error)
            raise
        if ticket is not None:
            self.searched.watch(self.outcome, ticket, name, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Called]]
    ) -> Called:
        """Call a tool, and learn from the outcome if it is on the ticket of the turn.

        Args:
          request: the call.
          handler: makes the call.
        """
        name = request.tool_call["name"]
        ticket = _ticket(request.state, name)
        try:
            result = await handler(request)
        except GraphBubbleUp:  # an interrupt: the call is not over
            raise
        except Exception as error:
            if ticket is not None:
                await self.searched.awatch(self.outcome, ticket, name, error)
            raise
        if ticket is not None:
            await self.searched.awatch(self.outcome, ticket, name, result)
        return result

    def _selected(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], Shown | None]:
        """Return the request with the tools of its turn, and the search if it is new."""
        tools = {x.name: x for x in request.tools if isinstance(x, BaseTool)}
        some = {name: one for name, one in tools.items() if name not in self._always}
        message, shown, new = _human_message(request.messages), _shown(request.state), None
        if message is not None and (shown is None or shown["turn"] != _turn(message)):
            if some and message.text.strip():
                ticket = self.searched.find(some, message.text, self._k)
                new = shown = Shown(turn=_turn(message), ticket=ticket.key, tools=ticket.ids)
            elif shown is not None:  # nothing to search for: the tools stay, and nothing is learnt
                new = shown = Shown(turn=_turn(message), ticket=None, tools=shown["tools"])
        if shown is None:
            return request, None
        found = [some[name] for name in shown["tools"] if name in some]
        rest = [x for x in request.tools if not isinstance(x, BaseTool) or x.name in self._always]
        return request.override(tools=[*found, *rest]), new

    def _rate_tool(self) -> BaseTool:
        @tool
        def rate_tool(
            name: Annotated[str, Field(description="Name of the tool that was called")],
            worked: Annotated[
                float, Field(ge=0, le=1, description="1: it did what was needed; 0: wrong tool")
            ],
            runtime: ToolRuntime,
        ) -> str:
            """Say whether a tool did what was needed, so that later searches find better ones.

            Rate the choice of the tool: not errors that better arguments would have avoided.
            """
            ticket = _ticket(runtime.state, name)
            if ticket is None:
                raise ToolException(f"{name!r} was not found for this request")
            try:
                self.learn(ticket, name, worked)
            except ValueError as error:
                raise ToolException(str(error)) from error
            return "noted"

        rate_tool.handle_tool_error = True  # the model reads it
        return rate_tool


def _noted(response: Any, new: Shown | None) -> Any:
    """Put a new search into the state of the thread, together with the response."""
    return response if new is None else ExtendedModelResponse(response, Command(update={KEY: new}))


def _human_message(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the last message that a human wrote; summaries of older messages are left out."""
    for message in reversed(messages):
        written = message.additional_kwargs.get("lc_source") != "summarization"
        if isinstance(message, HumanMessage) and written:
            return message
    return None


def _turn(message: HumanMessage) -> str:
    return message.id or message.text


def _shown(state: Any) -> Shown | None:
    """Return the search in a thread's state, which is a mapping or an object with attributes."""
    return state.get(KEY) if isinstance(state, Mapping) else getattr(state, KEY, None)


def _ticket(state: Any, name: str) -> str | None:
    """Return the ticket that found a tool in this turn."""
    shown = _shown(state)
    return shown["ticket"] if shown is not None and name in shown["tools"] else None


def _messages(result: Any) -> list[ToolMessage]:
    """Return the messages of a result to the model."""
    if isinstance(result, Command):
        update = result.update
        result = update.get("messages") if isinstance(update, Mapping) else None
    if isinstance(result, list):
        return [message for one in result for message in _messages(one)]
    return [result] if isinstance(result, ToolMessage) else []


def _fingerprint(one: BaseTool) -> Any:
    """Return what changes with the description; the schema itself takes long to make."""
    return one.description, one.args_schema


def _read(one: BaseTool) -> Mapping[str, Any]:
    """Return the fields of a tool as a model sees them."""
    return convert_to_openai_tool(one)["function"]
