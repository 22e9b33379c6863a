"""Tickets: the results of searches, until they are answered or expire.

    ticket = index.search("is the 8:40 to Basel late?", k=3)
    text = ticket.to_json()                      # may leave the process and come back
    index.feedback(Ticket.from_json(text), worked=True)
    index.feedback(ticket.key, worked=False, item=ticket.ids[1])     # another tool of the ticket

A key is the number of the ticket and a keyed hash (BLAKE2) of the query and the tools shown, so
that a key of another index, or one that this index gave before its log was lost, is not accepted.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float

from jaxret.runtime.validate import require
from jaxret.serving.allowed import NamedSet

CLOSED = 10_000  # closed tickets of which it is known why
OPEN, AGE = 10_000, 3600.0  # open tickets, and seconds until a ticket expires


class Ticket(NamedTuple):
    """The result of a search, to be answered by feedback.

    Attributes:
      number: number of the ticket.
      ids: k tools, the learner's choice first.
      scores: scores of the tools.
      propensities: for the first tool, the probability that it is chosen; for each other one, that
        it is on the ticket at all; NaN: unknown.
      key: what identifies the ticket in place of the whole, also after a restart.
      confidence: probability that the first tool works, calibrated by the feedback so far; None for
        a learner that does not predict it (`jaxret.learners.confidence`). An empty ticket has that
        of the tool that was withheld; None if the learner itself abstained.
    """

    number: int
    ids: list[str]
    scores: list[float]
    propensities: list[float]
    key: str
    confidence: float | None = None

    def to_json(self) -> str:
        """Return the ticket as a JSON object; unknown propensities are null."""
        unknown = [None if math.isnan(p) else p for p in self.propensities]
        return json.dumps(self._asdict() | {"propensities": unknown}, allow_nan=False)

    @classmethod
    def from_json(cls, given: str | bytes | Mapping[str, Any]) -> Self:
        """Read a ticket that `to_json` wrote, as a text or as the object in it.

        Raises:
          ValueError: if it is not a ticket.
        """
        try:
            found = given if isinstance(given, Mapping) else json.loads(given)
            known = [math.nan if p is None else float(p) for p in found["propensities"]]
            fields = {name: found[name] for name in ("number", "ids", "scores", "key")}
            return cls(**fields, propensities=known, confidence=found.get("confidence"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"a ticket must be the JSON that Ticket.to_json wrote, got {given!r:.80}"
            ) from error


class Open(NamedTuple):
    """An open ticket: at least one of its tools has no feedback yet."""

    query: Any  # vector [d], with its prior if the learner reads it
    rows: list[int]  # rows of the tools on the ticket
    propensities: list[float]  # propensities of the tools on the ticket
    key: str
    time: float  # of the search, in seconds since 1970
    allowed: NamedSet | None = None  # tools that could be shown; None: all that were available
    answered: tuple[int, ...] = ()  # positions with feedback


class Tickets:
    """The open tickets of an index, of which the oldest expire.

    Args:
      most: largest number of tickets without feedback, and of tickets with feedback on some of
        their tools; >= 1.
      age: seconds after which a ticket expires, > 0; infinity: never.

    Attributes:
      waiting: tickets without feedback, oldest first.
      partly: tickets with feedback on some of their tools.
      closed: reason for which each of the last `CLOSED` closed tickets was closed.

    Raises:
      ValueError: if a number is out of its range.
    """

    def __init__(self, most: int = OPEN, age: float = AGE):
        self.limit(most, age)
        self.waiting: dict[int, Open] = {}
        self.partly: dict[int, Open] = {}
        self.closed: dict[int, str] = {}

    def limit(self, most: int, age: float) -> None:
        """Set how many tickets are kept open, and for how many seconds.

        Raises:
          ValueError: if ``most`` is below 1, or the age is not positive.
        """
        require("open_tickets", most, ">= 1", lambda n: n >= 1)
        require("expire", age, "> 0 seconds", lambda x: x > 0)
        self.most, self.age = most, age

    def add(self, number: int, ticket: Open) -> None:
        """Add a ticket, and let others expire."""
        self.waiting[number] = ticket
        self.expire(ticket.time)

    def withhold(self, number: int) -> None:
        """Close an empty ticket."""
        self._close(number, "empty")

    @property
    def all(self) -> dict[int, Open]:
        """All open tickets, by number."""
        return self.waiting | self.partly

    def copy(self) -> Self:
        """Return a copy, which later changes leave as it is."""
        other = type(self)(self.most, self.age)
        other.waiting, other.partly = dict(self.waiting), dict(self.partly)
        other.closed = dict(self.closed)
        return other

    def expire(self, now: float) -> None:
        """Close tickets that are too old or too many.

        Args:
          now: seconds since 1970.
        """
        for table in (self.waiting, self.partly):
            while table:
                number, oldest = next(iter(table.items()))
                if len(table) <= self.most and now - oldest.time <= self.age:
                    break
                self._close(number, "age" if now - oldest.time > self.age else "count")

    def find(self, number: int, key: str, given: int, now: float) -> Open:
        """Return an open ticket.

        Args:
          number: number of the ticket.
          key: its key.
          given: number of tickets given so far.
          now: seconds since 1970.

        Raises:
          ValueError: if the ticket is closed, was never given, or is that of another index.
        """
        self.expire(now)
        found = self.waiting.get(number) or self.partly.get(number)
        if found is not None and now - found.time > self.age:
            self._close(number, "age")
            found = None
        if found is None:
            raise ValueError(f"ticket {number} is not open: {self._why(number, given)}")
        if found.key != key:
            raise ValueError(f"ticket {number} comes from another index")
        return found

    def answer(self, number: int, position: int) -> None:
        """Note the feedback on a tool of an open ticket.

        Args:
          number: number of the ticket.
          position: position of the tool on the ticket.
        """
        ticket = self.waiting.pop(number, None) or self.partly.pop(number)
        ticket = ticket._replace(answered=(*ticket.answered, position))
        if len(ticket.answered) < len(ticket.rows):
            self.partly[number] = ticket
        else:
            self._close(number, "answered")

    def _close(self, number: int, why: str) -> None:
        self.waiting.pop(number, None)
        self.partly.pop(number, None)
        self.closed[number] = why
        while len(self.closed) > CLOSED:
            self.closed.pop(next(iter(self.closed)))

    def _why(self, number: int, given: int) -> str:
        known = {
            "answered": "it was answered before",
            "empty": "it is empty, no tool was used that could be judged",
            "age": f"it expired, as tickets do after {self.age:,.0f} seconds (expire=)",
            "count": f"it expired, since {self.most:,} later ones were open (open_tickets=)",
        }
        if number in self.closed:
            return known[self.closed[number]]
        if not 0 <= number < given:
            return f"this index has not given it, its tickets are the {given:,} from 0"
        return "it was answered, empty or expired long ago, or is of an earlier index on this log"


def key_of(identity: str, number: int, vector: Float[np.ndarray, " d"], ids: Sequence[str]) -> str:
    """Return the key of a ticket.

    Args:
      identity: secret of the index.
      number: number of the ticket.
      vector: the query.
      ids: tools on the ticket.
    """
    content = b"\0".join([vector.astype(np.float32).tobytes(), *(one.encode() for one in ids)])
    mark = hashlib.blake2b(content, digest_size=8, key=f"{identity}{number}".encode())
    return f"{number}-{mark.hexdigest()}"


def number_and_key(ticket: Any) -> tuple[int, str]:
    """Return the number and the key of a ticket, of its JSON object, or of a key.

    Raises:
      ValueError: if it is none of these.
    """
    if isinstance(ticket, Mapping) or (isinstance(ticket, str) and ticket.startswith("{")):
        ticket = Ticket.from_json(ticket)
    if isinstance(ticket, Ticket):
        return ticket.number, ticket.key
    number = ticket.partition("-")[0] if isinstance(ticket, str) else ""
    if not number.isdecimal():
        raise ValueError(f"a ticket or its key is needed, got {ticket!r:.80}")
    return int(number), ticket
