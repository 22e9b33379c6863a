"""Loads UltraTool: the plan steps of 1,000 questions, each with one tool.

From github.com/JoeYing1019/UltraTool, ``data/English-dataset/test.json`` (Huang et al. 2024,
arXiv 2401.17167). The repository states no licence, so the data is not distributed
here.

Steps become queries as in ORAG (Appendix C.1.1).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Empty, Query, Unknown, build
from jaxret.runtime.files import existing, json_lines

TEMPLATE = (
    'Given the following task:"{question}", select the best tool provided in the context '
    'to solve the following substep:"{step}".'
)
CALL = re.compile(r"\s*([\w.-]+)\s*\(")


def load(path: str | Path, *, unknown: Unknown = "refuse", empty: Empty = "keep") -> Dataset:
    """Load the questions of one file: 436 tools and 2,381 queries for ``test.json``.

    A step is a query if its ``tool`` is a call; the tool called is its label. The steps of a
    question are one group.

    Args:
      path: the file, or the folder with ``test.json``.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.
    """
    path = existing(path, "UltraTool's test.json or the folder that holds it")
    file = path / "test.json" if path.is_dir() else path
    fields = ("question", "plan", "tools")
    rows = list(json_lines(file, holds="one UltraTool question a line", fields=fields))
    tools = ((tool["name"], tool) for row in rows for tool in row["tools"])
    queries = _queries(rows, split=file.stem)
    return build("ultratool", tools, queries, unknown=unknown, empty=empty)


def _queries(rows: list[dict[str, Any]], split: str) -> Iterator[Query]:
    for number, row in enumerate(rows):
        question = row["question"].strip()
        for place, step in enumerate(row["plan"]):
            if call := CALL.match(step["tool"]):
                yield Query(
                    id=f"ultratool_{number}_{place}",
                    text=TEMPLATE.format(question=question, step=step["step"]),
                    labels=(call[1],),
                    group=number,
                    split=split,
                )
