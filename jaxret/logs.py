"""The log of a live system: slates and their feedback, line by line.

    log = load_log("logs/seed_0.jsonl", task)        arrays, for `jaxret.offline`

A log is an append-only file of JSON lines. The first line identifies the learner; each other line
records a slate, the answer to an earlier slate, or both:

    {"round": 7, "query": "q12", "slate": ["mail"], "propensities": [0.8], "version": 7,
     "confidence": 0.6, ...}
    {"round": 7, "item": "mail", "propensity": 0.8, "reward": 1.0, ...}

``query`` is a query id of the task, or a vector, whose prior scores are in ``prior`` if the learner
read any; ``confidence`` is the probability that the first tool works, calibrated before its
feedback, if the learner has one (`jaxret.learners.confidence`). Each line ends with a checksum
(CRC-32) that continues the checksum of the line above, so changed, missing and inserted lines are
detected. An incomplete last line, as a crash leaves it, is dropped with a warning; other bad lines
are errors.

A live index (`jaxret.serving.journal`) writes further lines. Those that a reader needs are

    {"round": 8, "slate": ["mail", "maps"], .., "drawn": 1, "listed": [1, 0.9], "allowed": "5f.."}
    {"set": "5f..", "ids": ["mail", "maps"]}                          before its name is used
    {"add": [..], "vectors": [..], ..}   {"redescribe": [..], "vectors": [..], ..}
    {"remove": [..]}
    {"index": "..", "absent": ["weather"], ..}                        tools that were removed before

The policy draws the first ``drawn`` positions of a slate; the others hold the best of the remaining
tools by score. ``listed`` is the probability that each tool is on the slate at all.

Letters: I items, d width, T rounds, k items shown, n some of the rounds, M sets of tools.
"""

import json
import os
import threading
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.runtime.files import existing
from jaxret.runtime.owners import own
from jaxret.runtime.validate import require_different
from jaxret.task import Task
from jaxret.types import Prior

VERSION = 1
_TAIL = len(',"crc32":"00000000"}')


class Log(NamedTuple):
    """The rounds of a log, in the order in which they were shown.

    ``item`` is the used item of the slate, and ``reward`` its reward; in unanswered rounds ``item``
    is the first of the slate. The learner divided by ``propensity``, the probability that the item
    was on the slate. Off-policy evaluation divides by ``by_position``, the probability of each item
    given the items above, ``p_j / (1 - sum of p above)``, whose product is the probability of the
    slate.
    """

    query: Float[np.ndarray, "T d"]
    slate: Int[np.ndarray, "T k"]  # rows of the catalogue, -1 pads
    by_position: Float[np.ndarray, "T k"]  # probability given the items above; NaN: unknown
    item: Int[np.ndarray, " T"]
    propensity: Float[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]  # in [0, 1]; NaN: no answer
    version: Int[np.ndarray, " T"]  # updates of the learner before the round; -1: unknown
    round: Int[np.ndarray, " T"]
    theta: Float[np.ndarray, "I d"] | None = None  # initial rows of the catalogue
    available: Bool[np.ndarray, " I"] | None = None  # mask of the available items; None: all
    probabilities: Float[np.ndarray, "T I"] | None = None  # of each tool; only for k = 1
    prior: Prior | None = None  # prior scores of the queries, fields [T, K]
    confidence: Float[np.ndarray, " T"] | None = None  # that the first works; NaN: unknown
    sets: Bool[np.ndarray, "M I"] | None = None  # tools that could be shown; None: ``available``
    shown_from: Int[np.ndarray, " T"] | None = None  # row of ``sets`` of each round
    drawn: Int[np.ndarray, " T"] | None = None  # first positions, which were drawn; None: all
    listed: Float[np.ndarray, "T k"] | None = None  # probability that a tool is on the list at all

    @property
    def rounds(self) -> int:
        return len(self.reward)


def take(log: Log, rows: slice | Int[np.ndarray, " n"] | Sequence[bool]) -> Log:
    """Select rounds of a log, with the whole catalogue."""
    return Log._make(
        part if name in ("theta", "available", "sets") else jax.tree.map(lambda x: x[rows], part)
        for name, part in log._asdict().items()
    )


def load_log(path: str | Path, catalogue: Task | Sequence[str]) -> Log:
    """Read a log.

    Args:
      path: file of the log.
      catalogue: task with the tools and queries of the log, and their prior scores if it has any;
        or just the ids of the tools, in the order of their rows. Tools that were added to a live
        index follow, with the vectors of their last description.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a line is damaged, or names an unknown tool or query.
    """
    path = Path(path)
    if path.is_dir():
        inside = sorted(one.name for one in path.glob("*.jsonl"))
        raise ValueError(f"{path} is a folder with a log for each seed: read one of {inside}")
    task = catalogue if isinstance(catalogue, Task) else None
    ids = catalogue.ids if isinstance(catalogue, Task) else catalogue
    if isinstance(ids, str) or not all(isinstance(one, str) for one in ids):
        raise ValueError("the catalogue must be a task or a list of tool ids, which are strings")
    require_different("the catalogue's ids", ids)
    queries = {} if task is None else {one: row for row, one in enumerate(task.query_ids)}
    records, torn = _read(existing(path, "a log"))
    if torn:
        warnings.warn(f"{path}: the last line is torn, and was left out", stacklevel=2)
    tools = _Tools(list(ids), task, records)
    rows: list[dict[str, Any]] = []
    open_rounds: dict[int, int] = {}  # round -> its row, while there is no answer
    strays = 0

    def place(table, one, kind, line):
        if one not in table:
            raise ValueError(f"{path}, line {line}: the catalogue has no {kind} {one!r}")
        return table[one]

    for line, record in enumerate(records[1:], start=2):
        if "round" not in record:
            tools.change(record)
        if "slate" in record:
            slate = [place(tools.rows, one, "tool", line) for one in record["slate"]]
            query = record["query"]
            row = {**record, "slate": slate, "reward": None, "position": None}
            if isinstance(query, str):
                row["position"] = place(queries, query, "query", line)
            elif "prior" in record:
                scores = record["prior"].items()
                row["prior"] = {place(tools.rows, one, "tool", line): x for one, x in scores}
            row |= {"item": slate[0], "propensity": record["propensities"][0]}
            row["version"] = -1 if record["version"] is None else record["version"]
            row["set"] = tools.shown_from(record.get("allowed"))
            open_rounds[record["round"]] = len(rows)
            rows.append(row)
        if "item" in record:
            if (number := open_rounds.pop(record["round"], None)) is None:
                strays += 1  # shown before this log began, or answered already
                continue
            answer = {name: record[name] for name in ("propensity", "reward")}
            rows[number] |= answer | {"item": place(tools.rows, record["item"], "tool", line)}
    if strays:
        warnings.warn(
            f"{path}: {strays} answers to rounds that the log does not show as open were left out",
            stacklevel=2,
        )
    return _arrays(rows, task, tools)


class _Tools:
    """The tools of a log, which come and go: rows, vectors, and sets that could be shown.

    Args:
      ids: ids of the catalogue, in the order of their rows; some may be added only later.
      task: task of the catalogue, if there is one.
      records: all lines of the log.
    """

    def __init__(self, ids: list[str], task: Task | None, records: list[dict[str, Any]]):
        first: dict[str, bool] = {}  # tool -> whether it is there before its first change
        for record in records:
            for kind in ("add", "remove", "redescribe"):
                for one in record.get(kind, ()):
                    first.setdefault(one, kind != "add")
        self.rows = {one: row for row, one in enumerate(ids)}
        for one in first:
            self.rows.setdefault(one, len(self.rows))
        self.changes = bool(first) or any("set" in one or "absent" in one for one in records)
        self.vectors: dict[int, Any] = {}  # row -> its last description
        self.named: dict[str, list[int]] = {}
        self.sets: list[np.ndarray] = []
        self._now = np.zeros(len(self.rows), bool)
        self._now[: len(ids)] = True if task is None or task.available is None else task.available
        for one, there in first.items():
            self._now[self.rows[one]] = there
        self.first = self._now.copy()
        self._index = next((one["index"] for one in records if "index" in one), None)
        self._places: dict[str | None, int] = {}  # name of a set -> its place, until a change

    def change(self, record: Mapping[str, Any]) -> None:
        """Apply a line that changes tools or names a set of them."""
        if record.get("index", self._index) != self._index:  # a later index on the same log
            self._now = self.first.copy()
        self._index = record.get("index", self._index)
        if "set" in record:
            self.named[record["set"]] = [self.rows[x] for x in record["ids"] if x in self.rows]
            return
        removed = [*record.get("remove", ()), *record.get("absent", ())]
        for there, some in ((True, record.get("add", ())), (False, removed)):
            self._now[[self.rows[one] for one in some if one in self.rows]] = there
        described = record.get("add") or record.get("redescribe") or ()
        for one, vector in zip(described, record.get("vectors", ()), strict=True):
            self.vectors[self.rows[one]] = vector
        self._places = {}

    def shown_from(self, name: str | None) -> int:
        """Return the place of the set of tools that can be shown now."""
        if name not in self._places:
            mask = self._now.copy()
            if name is not None:
                mask[:] = False
                mask[self.named[name]] = self._now[self.named[name]]
            self._places[name] = len(self.sets)
            self.sets.append(mask)
        return self._places[name]

    def theta(self, task: Task | None) -> np.ndarray | None:
        """Return the vectors of all tools [I, d]; None without a task."""
        if task is None or not self.vectors:
            return None if task is None else task.theta
        theta = np.zeros((len(self.rows), task.theta.shape[1]), np.float32)
        theta[: len(task.theta)] = task.theta
        for row, vector in self.vectors.items():
            theta[row] = vector
        return theta


def _arrays(rows: list[dict[str, Any]], task: Task | None, tools: _Tools) -> Log:
    k = max((len(row["slate"]) for row in rows), default=1)
    for row in rows:
        if row["position"] is not None and task is not None:
            row["query"] = task.queries[row["position"]]
    width = len(rows[0]["query"]) if rows else 0 if task is None else task.theta.shape[1]

    def column(name, kind):
        return np.array([row[name] for row in rows], kind)  # None becomes NaN

    def padded(name, fill, kind):
        found = [row.get(name, row["propensities"]) for row in rows]  # a lone tool: its propensity
        lists = [[*line, *[fill] * (k - len(line))] for line in found]
        return np.array(lists, kind).reshape(-1, k)

    known = any(row.setdefault("confidence", None) is not None for row in rows)
    if tools.changes:
        available = tools.first
        sets = np.array(tools.sets, bool).reshape(-1, len(available))
    else:
        available, sets = None if task is None else task.available, None
    lists = any("drawn" in row for row in rows)
    drawn = [row.get("drawn", len(row["slate"])) for row in rows]
    return Log(
        query=np.array([row["query"] for row in rows], np.float32).reshape(len(rows), width),
        slate=padded("slate", -1, np.int64),
        by_position=padded("propensities", 1.0, np.float64),
        item=column("item", np.int64),
        propensity=column("propensity", np.float64),
        reward=column("reward", np.float64),
        version=column("version", np.int64),
        round=column("round", np.int64),
        theta=tools.theta(task),
        available=available,
        prior=_prior(rows, task),
        confidence=column("confidence", np.float64) if known else None,
        sets=sets,
        shown_from=None if sets is None else column("set", np.int64),
        drawn=np.array(drawn) if lists else None,
        listed=padded("listed", 1.0, np.float64) if lists else None,
    )


def _prior(rows: list[dict[str, Any]], task: Task | None) -> Prior | None:
    """Collect the prior scores of all rounds: those of the lines, or of the task's queries."""
    if not any("prior" in row for row in rows):
        if task is None or any(row["position"] is None for row in rows) or task.prior is None:
            return None
        return Prior._make(np.asarray(x)[[row["position"] for row in rows]] for x in task.prior)
    of_lines = [row.get("prior", {}) for row in rows]
    width = max(map(len, of_lines))
    items = np.full((len(rows), width), -1, np.int32)
    scores = np.zeros((len(rows), width), np.float32)
    for row, found in enumerate(of_lines):
        items[row, : len(found)], scores[row, : len(found)] = [*found], [*found.values()]
    return Prior._make((items, scores))


class End(NamedTuple):
    """The end of a complete line of a log."""

    size: int = 0  # bytes up to it
    crc: int = 0  # their checksum
    lines: int = 0  # lines up to it


class LogWriter:
    """Appends to a log after its last complete line, or begins a new log.

    Any number of threads may append, but only in one process at a time.

    Args:
      path: file of the log.
      facts: first line of the log, which identifies the learner; JSON values, the same each time.
      fsync: whether lines are on the disk before `append` returns, so that they survive the loss
        of power too; without it they survive the end of the process.
      since: a value of `end` that was kept earlier; the lines after it are read into ``later``.

    Attributes:
      end: end of the last line.
      later: number and content of each line after ``since``; None if the log does not continue it.
      next_round: one more than the round of the last slate or empty ticket; 0 before the first.

    Raises:
      ValueError: if the file is damaged, the log of something else, or written by another process.
    """

    def __init__(
        self,
        path: str | Path,
        facts: Mapping[str, Any],
        *,
        fsync: bool = False,
        since: End | None = None,
    ):
        self.path, self._fsync = Path(path), fsync
        header = json.loads(json.dumps({"log": "jaxret", "version": VERSION, **facts}))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.close = own(self.path, self, "log")
        self._lock = threading.Lock()
        self.end, self.next_round, torn = End(), 0, False
        self.later: list[tuple[int, dict[str, Any]]] | None = None
        first = slate = None
        for body, end in _walk(self.path) if self.path.exists() else ():
            if body is None:
                torn = True
                continue
            first = body if first is None else first
            given = b'"slate":' in body or b'"withheld":' in body
            slate = body if given else slate
            if self.later is not None:
                self.later.append((end.lines, json.loads(body)))
            self.end = end
            if end == since:
                self.later = []
        if torn:
            warnings.warn(f"{self.path}: the last line is torn, and was dropped", stacklevel=2)
            os.truncate(self.path, self.end.size)
        if slate is not None:
            self.next_round = json.loads(slate)["round"] + 1
        if first is None:
            self.append([header])
        elif (found := json.loads(first)) != header:
            self.close()
            raise ValueError(
                f"{self.path} is the log of something else ({found}): give another place"
            )

    @property
    def lines(self) -> int:
        """Lines without the first."""
        return self.end.lines - 1

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write lines and flush them to the operating system, and with ``fsync`` to the disk.

        Raises:
          ValueError: if another process has written to the file.
        """
        bodies = [
            json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
            for record in records
        ]
        with self._lock, self.path.open("ab", buffering=0) as file:
            size, crc, count = self.end
            lines = []
            for body in bodies:
                crc = zlib.crc32(body, crc)
                lines.append(b'%s,"crc32":"%08x"}\n' % (body[:-1], crc))
            if file.tell() != size:
                raise ValueError(f"{self.path} was written to by another: a log has one writer")
            whole = b"".join(lines)
            try:
                if file.write(whole) != len(whole):
                    raise OSError(f"{self.path}: no room for another line")
                if self._fsync:
                    os.fsync(file.fileno())
            except BaseException:
                os.truncate(self.path, size)  # so that the next line follows a whole one
                raise
            self.end = End(size + len(whole), crc, count + len(lines))


def shown(
    round: int,
    query: str | Float[np.ndarray, " d"],
    slate: Sequence[str],
    propensities: Sequence[float],
    version: int | None,
    confidence: float | None = None,
) -> dict[str, Any]:
    """Return the line of a slate.

    Args:
      round: number of the round.
      query: query id of the task, or a vector.
      slate: ids of the tools.
      propensities: probability of each item given the items above; NaN: unknown.
      version: updates of the learner before the round; None: unknown.
      confidence: calibrated probability that the first tool works; None or NaN: unknown.
    """
    sure = None if confidence is None else _number(confidence)
    known = {} if sure is None else {"confidence": sure}
    return known | {
        "round": int(round),
        "query": query if isinstance(query, str) else _numbers(query),
        "slate": list(slate),
        "propensities": [_number(p) for p in propensities],
        "version": version,
    }


def answered(round: int, item: str, propensity: float, reward: float) -> dict[str, Any]:
    """Return the line of the answer to a slate.

    Args:
      round: number of the round in which the slate was shown.
      item: id of the tool that was used.
      propensity: probability that the tool was shown, by which the learner divided; NaN: unknown.
      reward: reward of the tool, in [0, 1].

    Returns:
      the fields of the line, as JSON can hold them.
    """
    numbers = {"propensity": _number(propensity), "reward": _number(reward)}
    return {"round": int(round), "item": item, **numbers}


def _numbers(vector: Any) -> list[float]:
    """Convert a finite vector for JSON, each entry as in `_number`."""
    return [float(f"{x:.9g}") for x in np.asarray(vector, np.float64).tolist()]


def _number(x: float) -> float | None:
    """Convert a number for JSON; nine digits restore a float32 bit for bit."""
    return None if np.isnan(x) else float(f"{x:.9g}")


def _read(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Return the complete lines of a log, and whether an incomplete one follows."""
    bodies = [body for body, _ in _walk(path)]
    torn = bool(bodies) and bodies[-1] is None
    return [json.loads(body) for body in bodies if body is not None], torn


def _walk(path: Path) -> Iterator[tuple[bytes | None, End]]:
    """Yield the body and the end of each line; the body of an incomplete last line is None."""
    end = End()
    with path.open("rb") as file:
        for line in file:
            body = line[: -_TAIL - 1] + b"}"
            crc = zlib.crc32(body, end.crc)
            if line[-_TAIL - 1 :] == b',"crc32":"%08x"}\n' % crc:
                end = End(end.size + len(line), crc, end.lines + 1)
                yield body, end
            elif file.read(1):
                raise ValueError(
                    f"{path}, line {end.lines + 1}: does not match its checksum: it was changed, "
                    "or a line above it has gone"
                )
            else:
                yield None, end
