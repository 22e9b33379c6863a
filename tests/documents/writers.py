"""Models that expand documents: three of one server, and what they are asked about."""

from contextlib import contextmanager

from jaxret.documents.pipeline import Stages, expand_documents
from jaxret.documents.tool_profile import Rules
from jaxret.llm import Chat, Endpoint, Stage
from tests.fake_llm import Reply, serving

PROFILE = {"function": "Does it.", "tags": ["one", "two", "three"]}
BETTER = {"function": "Does it well.", "tags": ["one", "two", "three"]}
DOCUMENTS = [{"name": f"tool {i}", "description": f"Does thing {i}."} for i in range(3)]
BUSY = Reply("slow down", status=429, headers=(("Retry-After", "0.01"),))


def models(server, cache=None, *, patience=25, before=lambda: None, **settings):
    """Three models of one server, by their names."""
    settings = {"retries": 0, "timeout": 60.0, "attempts": 1} | settings

    def stage(name):
        chat = Chat(Endpoint(model=name, base_url=server.url, **settings), cache)
        return Stage(chat, patience=patience, before=before)

    return Stages(stage("writer"), stage("judge"), stage("editor"))


@contextmanager
def serve(**said):
    """A server with an answer for each model: a text, a `Reply`, or a function of the messages."""

    def answer(messages, number):
        reply = said[server.requests[number]["model"]]
        reply = reply(messages) if callable(reply) else reply
        return reply if isinstance(reply, Reply) else Reply(reply)

    with serving(answer) as server:
        yield server


def asked(server):
    return [request["model"] for request in server.requests]


def run(stages, documents=DOCUMENTS, **settings):
    return expand_documents(documents, stages, Rules(), **settings)


def about(messages, number):
    return f"Does thing {number}." in messages[1]["content"]
