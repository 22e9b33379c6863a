"""Loads BFCL: single-turn questions of the Berkeley Function-Calling Leaderboard.

From github.com/ShishirPatil/gorilla, ``berkeley-function-call-leaderboard/bfcl_eval/data``
(Patil et al. 2025; Apache-2.0). BFCL offers a few functions with each question; here all functions
of all questions form one catalogue, which makes it a retrieval task.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Empty, Query, build
from jaxret.runtime.files import existing, json_lines

CATEGORIES = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)  # single-turn categories with a right function


def load(path: str | Path, *, empty: Empty = "keep") -> Dataset:
    """Load the single-turn categories whose files are in the folder.

    A query is the user's messages, without system messages. Its labels are the functions in the
    possible answer, with the documentation of that question. Functions of one name with equal JSON
    are one tool; further documentations of a name are ``name#2``, ... in order of appearance. The
    split is the category. A question that occurs in two categories is merged, with the labels of
    both, since both are right answers.

    Args:
      path: a folder with ``BFCL_v4_<category>.json`` and the same under ``possible_answer/``.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      FileNotFoundError: if the folder is missing or has no category, or a category has no possible
        answers.
      ValueError: if a line is damaged, a question has no answer, or an answer calls a function
        that its question does not offer.
    """
    folder = existing(path, "a folder with BFCL_v4_*.json and possible_answer/")
    present = [c for c in CATEGORIES if (folder / _file(c)).exists()]
    if not present:
        raise FileNotFoundError(f"{folder} holds none of {[_file(c) for c in CATEGORIES]}")
    questions = [(c, row) for c in present for row in _questions(folder / _file(c))]
    answers = {c: _answers(folder / "possible_answer" / _file(c)) for c in present}
    ids = _number(function for _, row in questions for function in row["function"])
    tools = ((ids[_key(f)], f) for _, row in questions for f in row["function"])
    queries = (_query(row, c, answers[c], ids) for c, row in questions)
    return build("bfcl", tools, queries, empty=empty)


def _query(
    row: dict[str, Any], category: str, answers: dict[str, list[str]], ids: dict[str, str]
) -> Query:
    if row["id"] not in answers:
        raise ValueError(f"possible_answer/{_file(category)} has no answer to {row['id']!r}")
    offered = {function["name"]: ids[_key(function)] for function in row["function"]}
    called = answers[row["id"]]
    if unknown := [name for name in called if name not in offered]:
        raise ValueError(f"the answer to {row['id']!r} calls {unknown}; offered: {list(offered)}")
    labels = tuple(offered[name] for name in called)
    return Query(id=row["id"], text=_user_text(row["question"]), labels=labels, split=category)


def _key(function: dict[str, Any]) -> str:
    return json.dumps(function, sort_keys=True)


def _number(functions: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Map the key of each distinct function to its id: ``name``, ``name#2``, ..."""
    ids: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for function in functions:
        if (key := _key(function)) not in ids:
            name = function["name"]
            seen[name] += 1
            ids[key] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return ids


def _file(category: str) -> str:
    return f"BFCL_v4_{category}.json"


def _questions(file: Path) -> Iterator[dict[str, Any]]:
    return json_lines(file, holds="one question a line", fields=("id", "question", "function"))


def _answers(file: Path) -> dict[str, list[str]]:
    """Read the answers: question id -> names of the functions."""
    rows = json_lines(file, holds="one answer a line", fields=("id", "ground_truth"))
    return {row["id"]: [name for call in row["ground_truth"] for name in call] for row in rows}


def _user_text(question: list[list[dict[str, str]]]) -> str:
    turns = (message for turn in question for message in turn)
    return "\n".join(turn["content"] for turn in turns if turn["role"] == "user")
