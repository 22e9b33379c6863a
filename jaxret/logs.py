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

Letters: I items, d width, T rounds, k items shown, n some of the rounds.
"""

import json
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.runtime.files import existing
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

    @property
    def rounds(self) -> int:
        return len(self.reward)


def take(log: Log, rows: slice | Int[np.ndarray, " n"] | Sequence[bool]) -> Log:
    """Select rounds of a log, with the whole catalogue."""
    return Log._make(
        part if name in ("theta", "available") else jax.tree.map(lambda x: x[rows], part)
        for name, part in log._asdict().items()
    )


def load_log(path: str | Path, catalogue: Task | Sequence[str]) -> Log:
    """Read a log.

    Args:
      path: file of the log.
      catalogue: task with the tools and queries of the log, and their prior scores if it has any;
        or just the ids of the tools, in the order of their rows.

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
    tools = {one: row for row, one in enumerate(ids)}
    queries = {} if task is None else {one: row for row, one in enumerate(task.query_ids)}
    read = _read(existing(path, "a log"))
    if read.torn:
        warnings.warn(f"{path}: the last line is torn, and was left out", stacklevel=2)
    rows: list[dict[str, Any]] = []
    open_rounds: dict[int, int] = {}  # round -> its row, while there is no answer
    strays = 0

    def place(table, one, kind, line):
        if one not in table:
            raise ValueError(f"{path}, line {line}: the catalogue has no {kind} {one!r}")
        return table[one]

    for line, record in enumerate(read.records[1:], start=2):
        if "slate" in record:
            slate = [place(tools, one, "tool", line) for one in record["slate"]]
            query = record["query"]
            row = {**record, "slate": slate, "reward": None, "position": None}
            if isinstance(query, str):
                row["position"] = place(queries, query, "query", line)
            elif "prior" in record:
                scores = record["prior"].items()
                row["prior"] = {place(tools, one, "tool", line): x for one, x in scores}
            row |= {"item": slate[0], "propensity": record["propensities"][0]}
            row["version"] = -1 if record["version"] is None else record["version"]
            open_rounds[record["round"]] = len(rows)
            rows.append(row)
        if "item" in record:
            if (number := open_rounds.pop(record["round"], None)) is None:
                strays += 1  # shown before this log began, or answered already
                continue
            answer = {name: record[name] for name in ("propensity", "reward")}
            rows[number] |= answer | {"item": place(tools, record["item"], "tool", line)}
    if strays:
        warnings.warn(
            f"{path}: {strays} answers to rounds that the log does not show as open were left out",
            stacklevel=2,
        )
    return _arrays(rows, task)


def _arrays(rows: list[dict[str, Any]], task: Task | None) -> Log:
    k = max((len(row["slate"]) for row in rows), default=1)
    for row in rows:
        if row["position"] is not None and task is not None:
            row["query"] = task.queries[row["position"]]
    width = len(rows[0]["query"]) if rows else 0 if task is None else task.theta.shape[1]

    def column(name, kind):
        return np.array([row[name] for row in rows], kind)  # None becomes NaN

    def padded(name, fill, kind):
        lists = [[*row[name], *[fill] * (k - len(row[name]))] for row in rows]
        return np.array(lists, kind).reshape(-1, k)

    known = any(row.setdefault("confidence", None) is not None for row in rows)
    return Log(
        query=np.array([row["query"] for row in rows], np.float32).reshape(len(rows), width),
        slate=padded("slate", -1, np.int64),
        by_position=padded("propensities", 1.0, np.float64),
        item=column("item", np.int64),
        propensity=column("propensity", np.float64),
        reward=column("reward", np.float64),
        version=column("version", np.int64),
        round=column("round", np.int64),
        theta=None if task is None else task.theta,
        available=None if task is None else task.available,
        prior=_prior(rows, task),
        confidence=column("confidence", np.float64) if known else None,
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


class LogWriter:
    """Appends to a log after its last complete line, or begins a new log.

    Args:
      path: file of the log.
      facts: first line of the log, which identifies the learner; JSON values, the same each time.

    Raises:
      ValueError: if the file is damaged, or the log of something else.
    """

    def __init__(self, path: str | Path, facts: Mapping[str, Any]):
        self.path = Path(path)
        header = json.loads(json.dumps({"log": "jaxret", "version": VERSION, **facts}))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        read = _read(self.path) if self.path.exists() else _Read([], 0, 0, torn=False)
        self._size, self._crc = read.size, read.crc
        self.lines = len(read.records) - 1  # without the first line
        if read.torn:
            warnings.warn(f"{self.path}: the last line is torn, and was dropped", stacklevel=2)
            with self.path.open("r+b") as file:
                file.truncate(self._size)
        if not read.records:
            self.append([header])
        elif read.records[0] != header:
            raise ValueError(
                f"{self.path} is the log of something else ({read.records[0]}): give another place"
            )

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write lines and flush them to the operating system.

        Raises:
          ValueError: if another process has written to the file.
        """
        lines = []
        crc = self._crc
        for record in records:
            body = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
            crc = zlib.crc32(body, crc)
            lines.append(b'%s,"crc32":"%08x"}\n' % (body[:-1], crc))
        with self.path.open("ab") as file:
            if file.tell() != self._size:
                raise ValueError(f"{self.path} was written to by another: a log has one writer")
            file.write(b"".join(lines))
            self._size = file.tell()
        self._crc, self.lines = crc, self.lines + len(lines)


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
        "query": query if isinstance(query, str) else [_number(x) for x in query],
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


def _number(x: float) -> float | None:
    """Convert a number for JSON; nine digits restore a float32 bit for bit."""
    return None if np.isnan(x) else float(f"{x:.9g}")


class _Read(NamedTuple):
    """The complete lines of a file."""

    records: list[dict[str, Any]]
    size: int  # bytes
    crc: int
    torn: bool  # whether an incomplete line follows


def _read(path: Path) -> _Read:
    *lines, rest = path.read_bytes().split(b"\n")
    records, size, crc = [], 0, 0
    for number, line in enumerate(lines, start=1):
        body = line[:-_TAIL] + b"}"
        now = zlib.crc32(body, crc)
        if line[-_TAIL:] != b',"crc32":"%08x"}' % now:
            if number == len(lines) and not rest:
                return _Read(records, size, crc, torn=True)
            raise ValueError(
                f"{path}, line {number}: does not match its checksum: it was changed, or a line "
                "above it has gone"
            )
        records.append(json.loads(body))
        size, crc = size + len(line) + 1, now
    return _Read(records, size, crc, torn=bool(rest))
