"""The index of an integration: creates or loads it, and keeps it equal to the list of tools.

    searched = AgentIndex(None, None, "search", None, "minilm", fingerprint=.., read=..)
    ticket = searched.find({"send_invoice": tool, ..}, "charge my client", k=5)
    searched.watch(reward, ticket.key, "send_invoice", result)

Independent of frameworks: ``fingerprint`` and ``read`` interpret a tool, an outcome its result.
"""

import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread

from jaxret.encoders import Encoder
from jaxret.integrations.outcomes import Outcome
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require
from jaxret.serving.index import Index, Ticket
from jaxret.tools.tool import tool_of

log = logging.getLogger(__name__)

SAVE_EVERY = 1000  # answers between two saves; a restart replays the later ones


class AgentIndex:
    """An index of the tools that agents are shown.

    Args:
      index: index to search; None: that of the folder, or a new one of the first tools.
      folder: folder of the index and its log; None: what is learnt ends with the process, unless
        ``index`` has a log.
      learner: learner of a new index; None: `jaxret.mixture`.
      encoder: encoder of a new index; a callable is also needed to load it.
      fingerprint: function from a tool to a value that changes when the tool changes.
      read: the fields of a tool, as `jaxret.tools` reads them, without its id.

    Raises:
      ValueError: if both index and folder are given, the index has no encoder, or the folder is
        damaged or used by another process.
    """

    def __init__(
        self,
        index: Index | None,
        folder: str | Path | None,
        learner: Learner | None,
        encoder: str | Encoder,
        *,
        fingerprint: Callable[[Any], Any],
        read: Callable[[Any], Mapping[str, Any]],
    ):
        if index is not None and folder is not None:
            raise ValueError(
                "give an index or a folder, not both: an index that is given has its own log= and "
                "is saved by its owner"
            )
        if index is not None and index.encoder is None:
            raise ValueError(
                "the index has no encoder for the agents' texts: make it of a task with an "
                "encoder, or with Index.from_tools"
            )
        self.index, self.folder = index, None if folder is None else Path(folder)
        self._learner, self._encoder = learner, encoder
        self._fingerprint, self._read = fingerprint, read
        self._seen: dict[str, Any] = {}  # name -> last fingerprint of the tool
        self._given = set() if index is None else set(index.ids)
        self._changing = threading.Lock()  # of the catalogue
        self._answers = itertools.count(1)
        if self.folder is not None and (self.folder / "index.json").is_file():
            given = None if isinstance(encoder, str) else encoder
            self.index = Index.load(self.folder, learner, given, log=self.folder / "log.jsonl")

    def find(self, tools: Mapping[str, Any], query: str, k: int) -> Ticket:
        """Search the given tools; new and changed ones are first added to the index.

        Args:
          tools: tools that may be shown, by name; at least one.
          query: text of the agent or its user.
          k: tools on the ticket.
        """
        return self._synced(tools).search(query, k=k, allowed=list(tools))

    def learn(self, ticket: str, name: str, worked: float) -> None:
        """Give feedback on a tool of a ticket; save the folder after every `SAVE_EVERY` answers.

        Args:
          ticket: key of the ticket.
          name: tool that was called.
          worked: reward in [0, 1].

        Raises:
          ValueError: if the ticket is not open for the tool, or the reward is outside [0, 1].
        """
        if self.index is None:
            raise ValueError(f"ticket {ticket!r:.80} is unknown: nothing was searched yet")
        self.index.feedback(ticket, worked, name)
        if next(self._answers) % SAVE_EVERY == 0 and self.folder is not None:
            self.index.save(self.folder)

    def watch(self, outcome: Outcome, ticket: str, name: str, result: Any) -> None:
        """Learn from the result of a call. Errors of learning are logged and never raised.

        Args:
          outcome: function of the result to a reward in [0, 1] or None, which teaches nothing.
          ticket: key of the ticket that found the tool.
          name: tool that was called.
          result: what the tool returned or raised.
        """
        with _failing_no_call(name):
            worked = outcome(result)
            self._answer(ticket, name, _present(worked))

    async def awatch(self, outcome: Outcome, ticket: str, name: str, result: Any) -> None:
        """Learn from the result of a call, as `watch` does, with an outcome that may be awaited.

        Args:
          outcome: function of the result to a reward in [0, 1] or None; may be asynchronous.
          ticket: key of the ticket that found the tool.
          name: tool that was called.
          result: what the tool returned or raised.
        """
        with _failing_no_call(name):
            worked = outcome(result)
            if inspect.isawaitable(worked):
                worked = await worked
            await anyio.to_thread.run_sync(self._answer, ticket, name, worked)

    def _answer(self, ticket: str, name: str, worked: float | None) -> None:
        if worked is None:
            return
        require("outcome", worked, "a reward in [0, 1] or None", lambda x: 0 <= x <= 1)
        try:
            self.learn(ticket, name, worked)
        except ValueError as error:  # such as a second call with one ticket
            log.info("the call of %s teaches nothing: %s", name, error)

    def _synced(self, tools: Mapping[str, Any]) -> Index:
        """Return the index, with the tools as they are described now."""
        with self._changing:
            now, seen = {name: self._fingerprint(tool) for name, tool in tools.items()}, self._seen
            new = [name for name, one in now.items() if name not in seen or seen[name] != one]
            if self.index is None:
                self.index = self._made([self._tool(name, tools[name]) for name in new])
            else:
                # A given index keeps its description of a tool until the agent's tool changes.
                known = self._given - seen.keys()
                if news := [self._tool(name, tools[name]) for name in new if name not in known]:
                    self.index.sync(news)
            seen |= now
            return self.index

    def _tool(self, name: str, tool: Any) -> Any:
        return tool_of("the agent's tools", {**self._read(tool), "id": name, "name": name})

    def _made(self, tools: list[Any]) -> Index:
        """Make an index; its first save is what a restart continues from."""
        where = None if self.folder is None else self.folder / "log.jsonl"
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        index = Index.from_tools(tools, self._learner, self._encoder, log=where)
        if self.folder is not None:
            index.save(self.folder)
        return index


def _present(worked: Any) -> float | None:
    if inspect.isawaitable(worked):
        if inspect.iscoroutine(worked):
            worked.close()
        raise TypeError("outcome= is asynchronous, and the call is not")
    return worked


@contextmanager
def _failing_no_call(name: str) -> Generator[None]:
    try:
        yield
    except Exception:
        log.exception("the call of %s teaches nothing", name)
