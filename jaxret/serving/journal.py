"""Journal of an index: replays what was logged after the last save.

`jaxret.logs` has the lines of searches and answers. An index adds to the line of a search

    {"round": 7, .., "time": 1.7e9, "drawn": 1, "listed": [..], "allowed": "5f0e.."}

It always has ``time``; it has ``drawn`` and ``listed`` if the ticket has several tools, ``allowed``
if a set was given, and ``prior`` if the learner reads prior scores. The line of an answer also has
``time``. The other lines are

    {"round": 8, "withheld": 0.2}                                    for an empty ticket
    {"index": "<identity>", "begins": 7, "open_tickets": .., "expire": .., "absent": [..]}
    {"set": "5f0e..", "ids": [..]}                                   before a set is used
    {"add": [ids], "vectors": [..], "texts": [..], "reset": false}   before the catalogue changes
    {"remove": [ids]}    {"redescribe": [ids], "vectors": [..], "texts": [..], "how": "carry"}

Each line is written before the change that it describes. The draws of searches are not repeated:
what was shown is in the log. Updates are computed again by the same program from the same numbers,
which gives the same state bit for bit.

Letters: d width.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxret.serving.allowed import NamedSet, named
from jaxret.serving.tickets import Open, key_of
from jaxret.types import Prior, Query


def begins(index: Any) -> dict[str, Any]:
    """Return the line with which an index begins to write a log."""
    limits = {"open_tickets": index._open.most, "expire": _finite(index._open.age)}
    limits["time"] = round(time.time(), 3)
    absent = [one for one, there in zip(index.names, index._available, strict=False) if not there]
    line = {"index": index.identity, "begins": index.next_ticket, **limits}
    return line | ({"absent": absent} if absent else {})


def named_set(some: NamedSet, names: list[str]) -> dict[str, Any]:
    """Return the line of a set of tools."""
    return {"set": some.name, "ids": [names[row] for row in some.rows]}


def withheld(number: int, confidence: float | None) -> dict[str, Any]:
    """Return the line of an empty ticket; the confidence is None if it is not known."""
    return {"round": number, "withheld": None if confidence is None else _short(confidence)}


def shown_with(ticket: Open, drawn: int, listed: list[float], names: list[str]) -> dict[str, Any]:
    """Return the fields that the journal adds to the line of a search.

    Args:
      ticket: the new ticket.
      drawn: number of positions that the policy drew.
      listed: probability that each tool is on the list.
      names: tool of each row.
    """
    more: dict[str, Any] = {"time": ticket.time}
    if isinstance(ticket.query, Query):
        pairs = zip(*map(np.asarray, ticket.query.prior), strict=True)
        more["prior"] = {names[row]: float(x) for row, x in pairs if row >= 0}
    if len(ticket.rows) > 1:
        more |= {"drawn": drawn, "listed": [None if np.isnan(p) else _short(p) for p in listed]}
    if ticket.allowed is not None:
        more["allowed"] = ticket.allowed.name
    return more


def replay(index: Any, lines: Iterable[tuple[int, dict[str, Any]]]) -> None:
    """Apply the lines of a log to an index in its state before them.

    Args:
      index: a `jaxret.serving.index.Index`.
      lines: number and content of each line.

    Raises:
      ValueError: if a line is that of another index.
    """
    for number, line in lines:
        if "index" in line:
            if line["index"] != index.identity:
                raise ValueError(
                    f"line {number} of the log begins another index: a log has one index, so give "
                    "a new log= to continue from the save alone"
                )
            index._open.limit(line["open_tickets"], _number(line["expire"], np.inf))
            index._open.expire(line["time"])
        elif "set" in line:
            index._sets.keep(named([index._row_of[one] for one in line["ids"]]))
        elif "slate" in line:
            index.next_ticket = line["round"] + 1
            index._open.add(line["round"], _ticket(index, line))
        elif "withheld" in line:
            index.next_ticket = line["round"] + 1
            index._open.withhold(line["round"])
        elif "item" in line:
            _answer(index, line)
        else:
            index._change(line)


def _ticket(index: Any, line: Mapping[str, Any]) -> Open:
    """Return the ticket of a search."""
    vector = np.asarray(line["query"], np.float32)
    drawn, first = line.get("drawn", 1), line["propensities"]
    propensities = [_number(p, np.nan) for p in line.get("listed", first)]
    if drawn == 1:
        propensities[0] = _number(first[0], np.nan)
    return Open(
        query=_query(index, vector, line),
        rows=[index._row_of[one] for one in line["slate"]],
        propensities=propensities,
        key=key_of(index.identity, line["round"], vector, line["slate"]),
        time=line["time"],
        allowed=index._sets.keep(index._sets.kept[line["allowed"]]) if "allowed" in line else None,
    )


def _query(index: Any, vector: np.ndarray, line: Mapping[str, Any]) -> Any:
    if not (width := index.learner.facts.prior_width):
        return vector
    items, scores = np.full(width, -1, np.int32), np.zeros(width, np.float32)
    for place, (one, score) in enumerate(line["prior"].items()):
        items[place], scores[place] = index._row_of[one], score
    return Query._make((vector, Prior._make((items, scores))))


def _answer(index: Any, line: Mapping[str, Any]) -> None:
    number = line["round"]
    index._open.expire(line["time"])
    ticket = index._open.waiting.get(number) or index._open.partly[number]
    position = ticket.rows.index(index._row_of[line["item"]])
    index._learn(ticket, position, line["reward"])
    index._open.answer(number, position)


def _short(x: float) -> float:
    return float(f"{x:.9g}")


def _number(x: float | None, missing: float) -> float:
    return missing if x is None else x


def _finite(x: float) -> float | None:
    return x if np.isfinite(x) else None


def as_json(line: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the line of a change of the catalogue; nine digits restore a float32 bit for bit."""
    if "vectors" not in line:
        return dict(line)
    return {**line, "vectors": [[_short(x) for x in row] for row in line["vectors"].tolist()]}
