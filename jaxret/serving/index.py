"""A live index: searches for tools, and learns from reports of whether they worked.

    index = Index(greedy(), task)
    ticket = index.search("is the 8:40 to Basel late?", k=3)      ids and scores, best first
    tickets = index.search(["first text", "second text"])        one encoding, a ticket each
    index.feedback(ticket, worked=True)                          on the first; item= for another
    index.search(.., at_least=0.5)               no tools where none is likely enough to work
    index.add(ids, texts); index.remove(ids); index.redescribe(ids, texts, how="carry")
    index.save(folder); index = Index.load(folder)
    Index(greedy(), task, log="log.jsonl")                       logs searches, feedback, changes

The learner's policy chooses the first tool of a ticket (or as many as it shows); the rest follow by
score. Each tool of a ticket is answered once, until the ticket expires: the update is applied to
the state at that time. The catalogue may grow, and the rows of removed tools are kept.

**Threads.** Any number of threads may use an index; their calls are run one after the other, except
that texts are encoded outside of the lock. Only one process at a time may write a log or a folder.

**Crashes.** With a log nothing that was acknowledged is lost: a line is written before a call
returns, and `Index.load` replays the log from the last save on. Call `save` after creating an
index, and after loading one with a new log, which can be replayed only from a later save. Ctrl-C
waits until an answer is complete.

Letters: I items, d width, k items shown, n queries.
"""

import math
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, overload
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from jaxret import logs
from jaxret.encoders import Encoder
from jaxret.learners.confidence import require_calibrated
from jaxret.learners.learner import Learner, require_learner, vector_of
from jaxret.logs import End, LogWriter
from jaxret.runtime import interrupts
from jaxret.runtime.owners import own
from jaxret.runtime.validate import require
from jaxret.serving import files, journal, program
from jaxret.serving.allowed import NamedSet, Sets, named, rows_of
from jaxret.serving.catalogue import LiveCatalogue
from jaxret.serving.files import Stored
from jaxret.serving.tickets import AGE, OPEN, Open, Ticket, Tickets, key_of, number_and_key
from jaxret.task import Task
from jaxret.types import EMPTY, Choice, Query, State


class Index(LiveCatalogue):
    """A learner that serves searches and learns from their feedback.

    Args:
      learner: a preset, or any learner that learns from rewards.
      task: task with the catalogue and, for texts, the encoder; its queries are ignored.
      seed: seed of the learner's draws.
      log: file to which searches, feedback and changes of the catalogue are appended
        (`jaxret.logs`), with queries as vectors; the positions after the learner's choice are
        deterministic and get probability 1. Numbers of tickets continue those of the file.
      open_tickets: number of tickets without feedback beyond which the oldest expires.
      expire: seconds after which a ticket expires; infinity: never.
      fsync: whether lines of the log survive the loss of power, too; this costs milliseconds.

    Raises:
      ValueError: if ``learner`` is not a learner or is an oracle, the task has no vectors, a number
        is out of its range, or the log has another learner or is written by another process.
    """

    def __init__(
        self,
        learner: Learner,
        task: Task,
        *,
        seed: int = 0,
        log: str | Path | None = None,
        open_tickets: int = OPEN,
        expire: float = AGE,
        fsync: bool = False,
    ):
        require_learner(learner)
        if learner.facts.oracle:
            raise ValueError(f"{learner.name!r} is an oracle: live use has no labels for it")
        super().__init__(learner, task)
        self.seed, self.identity = seed, uuid4().hex
        self._open, self.next_ticket = Tickets(open_tickets, expire), 0
        self._begin()
        if log is not None:
            self.log = self._writer(log, fsync)
            self.next_ticket = self.log.next_round
            self.log.append([journal.begins(self)])

    @overload
    def search(
        self,
        query: str | Float[ArrayLike, " d"],
        k: int = 1,
        prior: Mapping[str, float] | None = None,
        *,
        at_least: float | None = None,
        allowed: Sequence[str] | Bool[np.ndarray, " I"] | None = None,
    ) -> Ticket: ...

    @overload
    def search(
        self,
        query: list[str] | Float[ArrayLike, "n d"],
        k: int = 1,
        prior: Sequence[Mapping[str, float]] | None = None,
        *,
        at_least: float | None = None,
        allowed: Sequence[str] | Bool[np.ndarray, " I"] | None = None,
    ) -> list[Ticket]: ...

    def search(self, query, k=1, prior=None, *, at_least=None, allowed=None):
        """Find tools for a text or a vector, or for a list of them.

        Args:
          query: a text, if the task has an encoder, or a vector [d]; or a list of n of them, which
            are encoded together and answered by one state.
          k: tools on the ticket; fewer if fewer are available.
          prior: score of each tool id, for a learner that reads prior scores; tools left out have
            0. None: the match of the words of a text. For a list a mapping each.
          at_least: smallest confidence in [0, 1] with which tools are returned; below it the ticket
            is empty and closed. None: as the learner decides (`jaxret.abstaining`). Do not use it
            if the log will evaluate other policies, since withheld tools are not logged.
          allowed: ids of the tools that may be shown, or a mask over `ids`; removed ones are left
            out. None: all. How rare a word is depends on all available tools.

        Raises:
          ValueError: if the width of the query differs, k is below the learner's slate, prior
            scores are missing, no allowed tool is available, or ``at_least`` is given and the
            learner has no confidence.
        """
        require("k", k, ">= 1", lambda x: x >= 1)
        if at_least is not None:
            require("at_least", at_least, "in [0, 1]", lambda x: 0 <= x <= 1)
            require_calibrated(self.learner)
        several = not isinstance(query, str) and _are_several(query)
        given = list(query) if several else [query]
        vectors = self._encode(given, "query", len(given))
        priors = list(prior) if several and prior is not None else [prior] * len(given)
        require("the number of priors", len(priors), f"{len(given)}", lambda n: n == len(given))
        with self._lock:
            some, available = self._allowed(allowed)
            mask = None if some is None else available
            queries = []
            for one, vector, scores in zip(given, vectors, priors, strict=True):
                its_prior = self._prior(one, scores, mask)
                queries.append(vector if its_prior is None else Query(vector, its_prior))
            found = [
                self._withheld(self.next_ticket + i, one, answer)
                if answer[0].items[0] == EMPTY or answer[-1] < (at_least or 0.0)
                else self._ticket(self.next_ticket + i, one, answer, k, some, available)
                for i, (one, answer) in enumerate(
                    zip(queries, self._answers(queries, available), strict=True)
                )
            ]
            self._commit(found, some)
        tickets = [ticket for ticket, _, _ in found]
        return tickets if several else tickets[0]

    def feedback(
        self, ticket: Ticket | Mapping[str, Any] | str, worked: float, item: str | None = None
    ) -> None:
        """Learn from the outcome of a ticket; refused feedback leaves the ticket open.

        Args:
          ticket: ticket from `search`, its JSON, or its key. Each of its tools is answered once;
            feedback on a removed tool is ignored.
          worked: reward in [0, 1]: whether, or how well, the tool worked.
          item: id of the tool that was used; None: the first of the ticket.

        Raises:
          ValueError: if the reward is outside [0, 1], the item is not on the ticket, the ticket is
            not open or is empty, the item was answered before, or a probability is unknown.
        """
        require("worked", worked, "in [0, 1]", lambda x: 0 <= float(x) <= 1)
        reward = float(np.float32(worked))  # as a replay reads it from the log
        number, key = number_and_key(ticket)
        with self._lock:
            now = _now()
            found = self._open.find(number, key, self.next_ticket, now)
            position = self._position(number, found, item)
            used, propensity = self.names[found.rows[position]], found.propensities[position]
            self._require_learnable(found, position, reward)
            with interrupts.held():
                if self.log is not None:
                    line = logs.answered(number, used, propensity, reward)
                    self.log.append([line | {"time": now}])
                self._open.answer(number, position)
                self._learn(found, position, reward)

    def save(self, folder: str | Path) -> None:
        """Save the index and its open tickets, for `Index.load`.

        Other threads may continue; what they do meanwhile is only in the log.

        Args:
          folder: folder to write; an existing index in it is replaced. It is owned by this process
            until the index is closed or deleted.

        Raises:
          ValueError: if another process writes the folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
        with self._saving:
            if place not in self._folders:
                self._folders[place] = own(folder, self, "folder of an index")
            with self._lock:
                stored = Stored(
                    learner=self.learner,
                    encoder=self.encoder,
                    state=self.state,
                    names=list(self.names),
                    starts=self.starts.copy(),
                    texts=list(self.texts),
                    tickets=self._open.copy(),
                    sets=list(self._sets.kept.values()),
                    next_ticket=self.next_ticket,
                    seed=self.seed,
                    identity=self.identity,
                    log=None if self.log is None else self.log.path,
                    end=None if self.log is None else self.log.end,
                )
            files.save(stored, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        learner: Learner | None = None,
        encoder: Encoder | None = None,
        log: str | Path | None = None,
        *,
        open_tickets: int | None = None,
        expire: float | None = None,
        fsync: bool = False,
    ) -> Self:
        """Read an index that `save` wrote, and replay its log from there on.

        Args:
          folder: folder that `save` wrote.
          learner: learner of the index, required unless a preset made it.
          encoder: encoder to use, required if the index was made with a callable; None: the encoder
            that the index names.
          log: log to write: the index's log, at its current path, or a new one, which continues
            from the save alone; None: the index's log, or, with a warning, a new one if it is
            missing.
          open_tickets: number of tickets without feedback beyond which the oldest expires; None: as
            before.
          expire: seconds after which a ticket expires; None: as before.
          fsync: whether lines of the log survive the loss of power, too.

        Raises:
          FileNotFoundError: if there is no index.
          ValueError: if the index is damaged, its learner is unknown or not ``learner``, its
            encoder was a callable and is not given, or the log is damaged, that of another index,
            or written by another process.
        """
        index = cls.__new__(cls)
        stored = files.load(Path(folder), learner, encoder)
        for name in ("learner", "encoder", "state", "names", "starts", "texts", "next_ticket"):
            setattr(index, name, getattr(stored, name))
        index.seed, index.identity, index._open = stored.seed, stored.identity, stored.tickets
        index._prepare()
        index._begin()
        for some in stored.sets:
            index._sets.keep(some)
        if log is not None or stored.log is not None:
            index._continue(index._writer(log or stored.log, fsync, stored.end), stored.end)
        begun = index.log is not None and index.log.lines == 0
        if begun and log is None and stored.end is not None:
            warnings.warn(
                f"the log {stored.log} is missing, and answers after the save with it: a new one "
                "is begun; give log= where it is now",
                stacklevel=2,
            )
        before = index._open.most, index._open.age
        limits = (
            before[0] if open_tickets is None else open_tickets,
            before[1] if expire is None else expire,
        )
        index._open.limit(*limits)
        index._open.expire(_now())
        if index.log is not None and (begun or limits != before):
            index.log.append([journal.begins(index)])
        return index

    def close(self) -> None:
        """Let other processes write the log and the folders of this index; then use it no more."""
        for release in self._folders.values():
            release()
        self._folders = {}
        if self.log is not None:
            self.log.close()

    @property
    def tickets(self) -> dict[int, Open]:
        """Tickets that had no feedback on any of their tools, by number."""
        with self._lock:
            return dict(self._open.waiting)

    def __repr__(self) -> str:
        with self._lock:
            answers = int(self._state.t)
        return (
            f"<index of {self.learner.name}: {len(self):,} tools, {answers:,} answers, "
            f"{len(self.tickets):,} open tickets>"
        )

    def _begin(self) -> None:
        """Make what is not saved."""
        self.log: LogWriter | None = None
        self._saving, self._folders = threading.Lock(), {}
        self._sets, self._key = Sets(), jax.random.key(self.seed)
        self._search = program.search_of(self.learner)
        self._searches = program.searches_of(self.learner)
        self._update, self._tried = program.update_of(self.learner), (0, 0)

    def _writer(self, log: Any, fsync: bool, since: End | None = None) -> LogWriter:
        return LogWriter(log, {"learner": self.learner.name}, fsync=fsync, since=since)

    def _continue(self, writer: LogWriter, end: End | None) -> None:
        """Replay a log from the last save; start a log that is empty."""
        if writer.later is not None:
            journal.replay(self, writer.later)
        elif writer.lines:
            writer.close()
            raise ValueError(
                f"{writer.path} does not continue this index"
                + (f", which was saved at line {end.lines}" if end else ", saved without a log")
                + ": give its own log, or a new one"
            )
        else:
            self._sets = Sets()  # the new log has not named any
        self.log = writer

    def _record(self, line: Mapping[str, Any]) -> None:
        if self.log is not None:
            self.log.append([journal.as_json(line)])

    def _allowed(self, allowed: Any) -> tuple[NamedSet | None, Any]:
        """Return the allowed set, and the mask [I] of the tools that can be shown."""
        available = self._available
        if not available.any():
            raise ValueError("the catalogue is empty: add tools first")
        if allowed is None:
            return None, available
        some = named(rows_of(allowed, self._row_of, available))
        return some, some.mask(len(available)) & available

    def _answers(self, queries: list[Any], available: Any) -> list[Any]:
        """Search for each query, by the program for one query or the batched one."""
        first, found = self.next_ticket, []
        if len(queries) == 1:
            number = np.uint32(first)
            return [
                jax.device_get(self._search(self._state, available, queries[0], self._key, number))
            ]
        for start in range(0, len(queries), program.SIZES[-1]):
            some = queries[start : start + program.SIZES[-1]]
            size = next(n for n in program.SIZES if n >= len(some))
            numbers = np.arange(first + start, first + start + size).astype(np.uint32)
            stacked = program.padded(some, size)
            got = self._searches(self._state, available, stacked, self._key, numbers)
            got = jax.device_get(got)
            found += [jax.tree.map(lambda x, i=i: x[i], got) for i in range(len(some))]
        return found

    def _ticket(
        self, number: int, query: Any, answer: Any, k: int, some: NamedSet | None, available: Any
    ) -> tuple[Ticket, Open, dict[str, Any]]:
        """Make the ticket of an answer, its `Open` record, and its line in the log."""
        (items, propensity), scores, p, by_position, sure = answer
        sure = _known(sure)
        own = {int(row): float(x) for row, x in reversed([*zip(items, propensity, strict=True)])}
        own = {
            row: own[row] for row in dict.fromkeys(items.tolist())
        }  # short slates repeat an item
        if k < len(own):
            raise ValueError(f"{self.learner.name!r} shows {len(own)} tools: k must be as many")
        count = int(np.count_nonzero(available))
        ranked = program.best_first(scores, min(k + len(own), count))
        rest = [int(row) for row in ranked if row not in own][: k - len(own)]
        rows = [*own, *rest]
        listed = [program.on_list(row, ranked, p, k) for row in rest]
        propensities = [*own.values(), *listed]
        ids = [self.names[row] for row in rows]
        vector: Any = vector_of(query)
        key = key_of(self.identity, number, vector, ids)
        ticket = Ticket(number, ids, [float(scores[row]) for row in rows], propensities, key, sure)
        kept = Open(query, rows, propensities, key, _now(), some)
        if self.log is None:
            return ticket, kept, {}
        positions = [*by_position[: len(own)].tolist(), *(1.0 for _ in rest)]
        line = logs.shown(number, vector, ids, positions, int(self._state.t), sure)
        if len(own) == 1:
            listed = [program.on_list(rows[0], ranked, p, k), *listed]
        else:
            listed = propensities
        return ticket, kept, line | journal.shown_with(kept, len(own), listed, self.names)

    def _withheld(
        self, number: int, query: Any, answer: Any
    ) -> tuple[Ticket, None, dict[str, Any]]:
        """Make an empty ticket, of which nothing is kept, and its line in the log."""
        vector: Any = vector_of(query)
        key, sure = key_of(self.identity, number, vector, []), _known(answer[-1])
        return Ticket(number, [], [], [], key, sure), None, journal.withheld(number, sure)

    def _commit(
        self, found: Sequence[tuple[Ticket, Open | None, dict[str, Any]]], some: NamedSet | None
    ) -> None:
        """Log new tickets, and keep them open."""
        sets = []
        if some is not None:
            sets = [] if some in self._sets else [journal.named_set(some, self.names)]
        with interrupts.held():
            if self.log is not None:
                self.log.append([*sets, *(line for _, _, line in found)])
            some = None if some is None else self._sets.keep(some)
            for ticket, kept, _ in found:
                self.next_ticket = ticket.number + 1
                if kept is None:
                    self._open.withhold(ticket.number)
                else:
                    self._open.add(ticket.number, kept._replace(allowed=some))

    def _position(self, number: int, ticket: Open, item: str | None) -> int:
        """Return the position of an item on a ticket, which was not answered before."""
        ids = [self.names[row] for row in ticket.rows]
        if item is not None and item not in ids:
            raise ValueError(f"item must be on the ticket, one of {ids}, got {item!r}")
        position = 0 if item is None else ids.index(item)
        if position in ticket.answered:
            raise ValueError(
                f"ticket {number} is not open: it was answered before for {ids[position]!r} "
                "(item= is another of its tools)"
            )
        return position

    def _require_learnable(self, ticket: Open, position: int, reward: float) -> None:
        """Raise what learning would raise, or ValueError if it needs an unknown probability.

        The update is first tried on a copy if the probability is unknown or the size of the state
        is new, which also compiles it, so that no failed update is logged.
        """
        unknown = math.isnan(ticket.propensities[position])
        there = self._available[ticket.rows[position]]
        if not there or not (unknown or self._tried != self.starts.shape):
            return
        shown, *rest = self._lesson(ticket, position, reward)
        new = jax.block_until_ready(self._update(jax.tree.map(jnp.array, shown), *rest))
        number = np.uint32(0)  # only the scores of this search are read
        arguments = (self._available, ticket.query, self._key, number)
        if unknown and np.isnan(self._search(new, *arguments)[1]).any():
            raise ValueError(
                f"{self.learner.name!r} needs the probability of "
                f"{self.names[ticket.rows[position]]!r}, which it does not know: give feedback "
                "on its own choice, the first of the ticket"
            )
        self._tried = self.starts.shape

    def _learn(self, ticket: Open, position: int, reward: float) -> None:
        """Learn from the feedback on a tool; for a removed tool only count the round."""
        state = self._state
        if not self._available[ticket.rows[position]]:
            self._state = state._replace(t=state.t + 1)
            return
        # With an allowed set the update consumes that mask, not the state's own.
        own = None if ticket.allowed is None else state.available
        new = self._update(*self._lesson(ticket, position, reward))
        self._state = new if own is None else new._replace(available=own)
        jax.block_until_ready(new)

    def _lesson(
        self, ticket: Open, position: int, reward: float
    ) -> tuple[State, Any, Choice, np.floating]:
        """Return the arguments of the update, in a state with the allowed tools of the ticket."""
        shown, dtype = self._state, self.starts.dtype.type
        if ticket.allowed is not None:
            mask = ticket.allowed.mask(len(shown.available)) & self._available
            shown = shown._replace(available=mask)
        choice = (np.int32(ticket.rows[position]), dtype(ticket.propensities[position]))
        return shown, ticket.query, Choice._make(choice), dtype(reward)


def _known(x: Any) -> float | None:
    """Return a number, None for NaN."""
    return None if math.isnan(x) else float(x)


def _now() -> float:
    return round(time.time(), 3)


def _are_several(query: Any) -> bool:
    """Return whether a query that is not a text is a list of texts or vectors."""
    if isinstance(query, list | tuple) and any(isinstance(one, str) for one in query):
        return True
    return np.ndim(query) == 2 or (isinstance(query, list | tuple) and not len(query))
