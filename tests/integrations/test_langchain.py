"""LangChain agents: the tools that the model is shown, and what the calls teach."""

import asyncio
import logging
import re
from itertools import count
from typing import Any

import pytest

import jaxret as jr

pytest.importorskip("langchain", minversion="1.2.11", reason="install jaxret[langchain]")

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import Field

from jaxret.integrations.langchain import LearnedTools, no_error, only_errors
from tests.integrations.shared import answered, encoder


class Scripted(BaseChatModel):
    """A model that gives its replies in turn, and notes the tools that it is shown."""

    replies: list[Any]
    shown: list[list[str]] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        self.shown.append([one.name for one in tools])
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        return ChatResult(generations=[ChatGeneration(message=self.replies.pop(0))])


NUMBERS = count()


def call(name, /, **arguments):
    """Return the reply of a model that calls a tool."""
    wanted = {"name": name, "args": arguments or {"amount": 3}, "id": f"call-{next(NUMBERS)}"}
    return AIMessage("", tool_calls=[wanted])


@tool
def pays(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool
def breaks(amount: int) -> str:
    """Find a lost amount."""
    raise RuntimeError(f"no account of {amount}")


@tool
def says_so(amount: int) -> str:
    """Lend an amount."""
    raise ToolException(f"nobody lends {amount}")


@tool
def refuses(amount: int) -> str:
    """Wire an amount."""
    raise PermissionError(f"account {amount}")


@tool
def dawdles(amount: int) -> str:
    """Count an amount."""
    raise TimeoutError


@tool
def asks(amount: int) -> str:
    """Check an amount."""
    return f"checked by {interrupt('who are you?')}"


says_so.handle_tool_error = True  # the error becomes a message for the model
BANK = (pays, breaks, says_so, refuses, dawdles, asks)
THREAD = {"configurable": {"thread_id": "1"}}


def agent_of(replies, tools=BANK, **settings):
    """Return an agent, its search and its model."""
    settings = {"learner": jr.greedy(), "encoder": encoder, "k": 10} | settings
    learned, model = LearnedTools(**settings), Scripted(replies=replies)
    agent = create_agent(model, tools, middleware=[learned], checkpointer=InMemorySaver())
    return agent, learned, model


def run(agent, text, waits=False, config=THREAD):
    """Send an agent a message, by either of its two ways."""
    given = {"messages": [HumanMessage(text)]}
    return asyncio.run(agent.ainvoke(given, config)) if waits else agent.invoke(given, config)


@pytest.mark.parametrize("waits", [False, True])
def test_the_model_sees_the_best_tools_of_the_turn_from_one_search(waits):
    replies = [call("pays"), call("pays"), AIMessage("paid"), AIMessage("lent")]
    agent, learned, model = agent_of(replies, k=2, always=["asks"])
    run(agent, "pay an amount", waits)
    assert model.shown == [model.shown[0]] * 3
    assert (model.shown[0][0], model.shown[0][2:]) == ("pays", ["asks"])
    assert learned.index.next_ticket == 1
    run(agent, "lend me something", waits)
    assert model.shown[3][0] == "says_so"
    assert learned.index.next_ticket == 2
    assert "asks" not in learned.index.ids


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("name", "arguments", "reward"),
    [
        ("pays", {}, 1),
        ("says_so", {}, 0),
        ("breaks", {}, 0),
        ("refuses", {}, None),
        ("dawdles", {}, None),
        ("pays", {"amount": "three"}, None),
        ("no_such_tool", {}, None),
    ],
)
def test_only_the_tools_own_success_and_failure_teach(tmp_path, waits, name, arguments, reward):
    agent, _, _ = agent_of([call(name, **arguments), AIMessage("so")], folder=tmp_path)
    if name in ("breaks", "refuses", "dawdles"):
        with pytest.raises((RuntimeError, PermissionError, TimeoutError)):
            run(agent, "pay an amount", waits)
    else:
        run(agent, "pay an amount", waits)
    assert answered(tmp_path) == ([] if reward is None else [(name, reward)])


def test_a_tool_is_answered_once_and_several_tools_of_a_turn_each(tmp_path):
    replies = [call("pays"), call("says_so"), call("pays"), AIMessage("so")]
    agent, _, _ = agent_of(replies, folder=tmp_path)
    run(agent, "pay an amount")
    assert answered(tmp_path) == [("pays", 1), ("says_so", 0)]


def test_tools_that_this_turn_did_not_find_teach_nothing(tmp_path):
    replies = [call("asks"), AIMessage("so"), call("pays"), AIMessage("so")]
    tools = [pays, says_so, tool("asks", lambda amount: "fine", description="Count.")]
    agent, _, model = agent_of(replies, tools, folder=tmp_path, k=1, always=["asks"])
    run(agent, "pay an amount")
    assert model.shown[0] == ["pays", "asks"]
    run(agent, "lend me an amount please lend")
    assert model.shown[2] == ["says_so", "asks"]
    assert answered(tmp_path) == []


def test_an_interrupted_call_is_learnt_when_it_is_over(tmp_path):
    agent, learned, _ = agent_of([call("asks"), AIMessage("so")], folder=tmp_path)
    run(agent, "check an amount")
    assert answered(tmp_path) == []
    agent.invoke(Command(resume="Ann"), THREAD)
    assert answered(tmp_path) == [("asks", 1)]
    assert learned.index.next_ticket == 1


def test_threads_answer_their_own_tickets_and_none_comes_from_outside(tmp_path):
    replies = [call("pays"), AIMessage("so"), call("says_so"), AIMessage("so")]
    agent, learned, _ = agent_of(replies, folder=tmp_path)
    first = run(agent, "pay an amount")["learned_tools"]
    other = {"configurable": {"thread_id": "2"}}
    stolen = first | {"turn": "a turn"}
    message = HumanMessage("lend an amount", id="a turn")
    given = {"messages": [message], "learned_tools": stolen}
    second = agent.invoke(given, other)["learned_tools"]
    assert first["ticket"] != second["ticket"]
    assert answered(tmp_path) == [("pays", 1), ("says_so", 0)]
    assert learned.index.next_ticket == 2


def test_a_message_without_words_keeps_the_tools_and_teaches_nothing(tmp_path):
    replies = [AIMessage("so"), call("pays"), AIMessage("so")]
    agent, learned, model = agent_of(replies, folder=tmp_path, k=1)
    run(agent, "pay an amount")
    run(agent, " ")
    assert model.shown == [["pays"]] * 3
    assert learned.index.next_ticket == 1
    assert answered(tmp_path) == []


def test_a_summary_of_older_messages_is_no_request():
    agent, _, model = agent_of([AIMessage("so")], k=1)
    summary = HumanMessage("lend", additional_kwargs={"lc_source": "summarization"})
    agent.invoke({"messages": [HumanMessage("pay an amount"), summary]}, THREAD)
    assert model.shown == [["pays"]]


def test_models_rate_with_the_ticket_of_the_turn(tmp_path):
    replies = [
        call("pays"),
        call("rate_tool", name="pays", worked=0.5),
        call("rate_tool", name="pays", worked=1),
        call("rate_tool", name="nothing", worked=1),
        AIMessage("so"),
    ]
    agent, _, model = agent_of(replies, folder=tmp_path, rate=True)
    told = [x for x in run(agent, "pay an amount")["messages"] if isinstance(x, ToolMessage)]
    assert [x.status for x in told] == ["success", "success", "error", "error"]
    assert "answered before" in told[2].text
    assert "'nothing' was not found" in told[3].text
    assert model.shown[0][-1] == "rate_tool"
    assert answered(tmp_path) == [("pays", 0.5)]


def test_users_say_what_an_outcome_is_worth(tmp_path):
    async def later(result):
        return 0.25

    for n, (outcome, waits) in enumerate([(lambda result: 0.25, False), (later, True)]):
        agent, _, _ = agent_of(
            [call("pays"), AIMessage("so")], folder=tmp_path / str(n), outcome=outcome
        )
        run(agent, "pay an amount", waits)
        assert answered(tmp_path / str(n)) == [("pays", 0.25)]
    agent, learned, _ = agent_of([call("pays"), AIMessage("so")], outcome=lambda result: None)
    answer = run(agent, "pay an amount")
    assert int(learned.index.state.t) == 0
    learned.learn(answer["learned_tools"]["ticket"], "pays", 1.0)
    assert int(learned.index.state.t) == 1


async def _later(result):
    return 1.0


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (lambda result: 7, "a reward in \\[0, 1\\] or None"),
        (lambda result: 1 / 0, "ZeroDivisionError"),
        (_later, "asynchronous"),
    ],
)
def test_a_wrong_outcome_fails_no_call(outcome, words, caplog):
    agent, learned, _ = agent_of([call("pays"), AIMessage("so")], outcome=outcome)
    with caplog.at_level(logging.ERROR, "jaxret.integrations.agent_index"):
        assert run(agent, "pay an amount")["messages"][-1].text == "so"
    assert int(learned.index.state.t) == 0
    assert re.search(words, caplog.text)


def test_a_restart_continues_with_every_answer_and_an_open_turn(tmp_path):
    agent, learned, _ = agent_of([call("pays"), AIMessage("so")], folder=tmp_path)
    answer = run(agent, "pay an amount")
    learned.index.close()
    _, after, _ = agent_of([], folder=tmp_path)
    assert int(after.index.state.t) == 1
    after.learn(answer["learned_tools"]["ticket"], "breaks", 0.0)
    assert answered(tmp_path) == [("pays", 1), ("breaks", 0)]


def test_new_and_changed_tools_enter_the_index():
    agent, learned, _ = agent_of([AIMessage("so")], [pays])
    run(agent, "pay an amount")
    changed = tool("pays", lambda amount: "paid", description="Pay a bill.")
    model = Scripted(replies=[AIMessage("so")])
    run(create_agent(model, [changed, says_so], middleware=[learned]), "pay a bill")
    assert learned.index.ids == ["pays", "says_so"]
    assert "Pay a bill." in learned.index.texts[0]


def test_a_tool_that_is_hidden_takes_no_place_and_stays_in_the_index():
    @wrap_model_call
    def hides(request, handler):
        return handler(request.override(tools=[x for x in request.tools if x.name != "pays"]))

    learned = LearnedTools(learner=jr.greedy(), encoder=encoder, k=1)
    shown = []
    for others in ([], [hides]):
        model = Scripted(replies=[AIMessage("so")])
        run(create_agent(model, [pays, says_so], middleware=[*others, learned]), "pay an amount")
        shown += model.shown
    assert shown == [["pays"], ["says_so"]]
    assert "pays" in learned.index.ids


def test_a_tool_that_fails_is_found_less_than_one_that_works():
    tools = [
        tool("first", says_so.func, description="Send money."),
        tool("second", pays.func, description="Send money!"),
    ]
    tools[0].handle_tool_error = True
    learned = LearnedTools(learner=jr.greedy(), encoder=encoder, k=1)
    found = []
    for _ in range(12):
        model = Scripted(replies=[AIMessage("so")])
        agent = create_agent(model, tools, middleware=[learned])
        answer = agent.invoke({"messages": "send money"})["learned_tools"]
        found += answer["tools"]
        model = Scripted(replies=[call(answer["tools"][0]), AIMessage("so")])
        create_agent(model, tools, middleware=[learned]).invoke({"messages": "send money"})
    assert found[-3:] == ["second"] * 3
    assert found[0] == "first"


def test_wrong_settings_are_refused_in_a_line(tmp_path):
    index = jr.Index.from_tools([{"name": "pays", "description": "Pay."}], encoder=encoder)
    for settings, words in (
        ({"k": 0}, "k must be >= 1"),
        ({"always": "pays"}, "always must be a list of names"),
        ({"index": index, "folder": tmp_path}, "an index or a folder, not both"),
    ):
        with pytest.raises(ValueError, match=words):
            LearnedTools(**settings)


def message(text, status):
    return ToolMessage(text, tool_call_id="1", status=status)


@pytest.mark.parametrize(
    ("result", "reward"),
    [
        (message("done", "success"), 1),
        (message("no such account", "error"), 0),
        (message("1 validation error for call[pays]", "error"), None),
        (message("timed out", "error"), None),
        (Command(update={"messages": [message("no such account", "error")]}), 0),
        (Command(update={"messages": [message("done", "success")]}), 1),
        (Command(goto="end"), 1),
        ([message("done", "success"), message("no such account", "error")], 0),
        (RuntimeError("no such account"), 0),
        (ConnectionError(), None),
        (type("Slow", (TimeoutError,), {})("later"), None),
    ],
)
def test_what_each_outcome_says(result, reward):
    assert no_error(result) == reward
    assert only_errors(result) == (None if reward == 1 else reward)
