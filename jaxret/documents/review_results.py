"""The answers of reviewers on disk: a line of JSON each, of which a tool's last one counts."""

import json
import os
from pathlib import Path
from typing import Any

from jaxret.runtime.files import json_lines

QUESTIONS = ("faithfulness", "completeness", "hallucination", "consistency")
ANSWERS = ("ok", "problem")
VERDICTS = ("pass", "fail")
FIELDS = ("id", *QUESTIONS, "verdict", "note")
NOTE_CHARACTERS = 2_000


def latest(results: Path, reviewer: str | None = None) -> dict[str, dict[str, Any]]:
    """Tool -> the answer that counts, of one reviewer or of whoever was last."""
    if not results.exists():
        return {}
    rows = json_lines(results, holds="answers of a reviewer", fields=(*FIELDS, "reviewer"))
    return {row["id"]: row for row in rows if reviewer in (None, row["reviewer"])}


def summary(results: Path) -> dict[str, float]:
    """How many tools were reviewed, and the shares that passed and that a question troubled."""
    answers = latest(results).values()
    shares = {"reviewed": float(len(answers))}
    if answers:
        shares["passed"] = sum(one["verdict"] == "pass" for one in answers) / len(answers)
        for question in QUESTIONS:
            troubled = sum(one[question] == "problem" for one in answers)
            shares[f"problem/{question}"] = troubled / len(answers)
    return shares


def append(path: Path, row: dict[str, Any]) -> None:
    """Adds a line to a file; a write that fails takes back what it had begun.

    Raises:
      OSError: the disk is full, or the file may not be written.
    """
    line = (json.dumps(row) + "\n").encode()
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(f"{path}: only a part of the answer could be written")
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def drop_torn_line(path: Path) -> None:
    """Cuts what a process that was killed within a line has left."""
    if path.exists():
        whole, end, torn = path.read_bytes().rpartition(b"\n")
        if torn:
            os.truncate(path, len(whole + end))


def checked(answer: Any, tools: dict[str, Any]) -> dict[str, Any]:
    """The fields of an answer, if it is one to these tools.

    Raises:
      ValueError: it is not; says why.
    """
    if not isinstance(answer, dict) or set(answer) != set(FIELDS):
        raise ValueError(f"an answer must be an object with {', '.join(FIELDS)} and nothing else")
    if not isinstance(answer["id"], str) or answer["id"] not in tools:
        raise ValueError(f"id must be that of a tool in the sample, got {answer['id']!r:.60}")
    allowed = dict.fromkeys(QUESTIONS, ANSWERS) | {"verdict": VERDICTS}
    for field, values in allowed.items():
        if answer[field] not in values:
            raise ValueError(f"{field} must be {' or '.join(values)}, got {answer[field]!r:.60}")
    note = answer["note"]
    if not isinstance(note, str) or len(note) > NOTE_CHARACTERS:
        raise ValueError(f"note must be a text of at most {NOTE_CHARACTERS:,} characters")
    return {field: answer[field] for field in FIELDS}
