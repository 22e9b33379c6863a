"""The verdicts of a judge on pairs of query and tool: their file, their task, their environment.

Letters: N queries, I tools.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxret.environments.environment import Environment, judged
from jaxret.runtime.files import existing
from jaxret.task import Task

#: The table in the repository: experiments that learn from it need no server.
TABLE = Path(__file__).with_name("deskbank.npz")


class JudgeTable(NamedTuple):
    """The verdicts of a judge."""

    judge: dict[str, str]  # its model, and the hash of the prompt
    tools: tuple[str, ...]  # ids
    queries: tuple[str, ...]  # ids
    yes: Float[np.ndarray, "N I"]  # probability of yes; NaN for a pair that has not been asked

    @property
    def share(self) -> float:
        """Share of the pairs with a verdict."""
        return float(np.isfinite(self.yes).mean())

    def save(self, path: Path) -> None:
        """Write or replace a file in one piece; probabilities are rounded to 16 bits."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{os.getpid()}-{path.name}")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                judge=json.dumps(self.judge),
                tools=np.array(self.tools),
                queries=np.array(self.queries),
                yes=self.yes.astype(np.float16),
            )
        os.replace(part, path)


class Pairs(NamedTuple):
    """The task that was judged, and the verdicts in its order."""

    task: Task
    yes: Float[np.ndarray, "N I"]  # probability of yes
    right: Bool[np.ndarray, "N I"]  # whether the tool is the query's


def empty(judge: dict[str, str], tools: Sequence[str], queries: Sequence[str]) -> JudgeTable:
    """Make a table in which no pair has been asked."""
    unasked = np.full((len(queries), len(tools)), np.nan, np.float32)
    return JudgeTable(judge, tuple(tools), tuple(queries), unasked)


def load(path: Path = TABLE) -> JudgeTable:
    """Read a table."""
    existing(path, "a judge's verdicts: python -m experiments.real_judge.ask writes them")
    try:
        with np.load(path) as file:
            return JudgeTable(
                judge=json.loads(str(file["judge"])),
                tools=tuple(file["tools"].tolist()),
                queries=tuple(file["queries"].tolist()),
                yes=file["yes"].astype(np.float32),
            )
    except (OSError, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a table of verdicts ({error})") from error


def joined(task: Task, table: JudgeTable) -> Pairs:
    """Join verdicts to a task that has the queries and tools of the table.

    Returns:
      The longest sequence of first tools with verdicts for all queries, and the queries that one of
      these tools answers.
    """
    if unknown := sorted(set(table.tools) - set(task.ids)):
        raise ValueError(f"the table has tools that {task.name} lacks: {', '.join(unknown[:5])}")
    position = {query: n for n, query in enumerate(task.query_ids)}
    rows = np.array([position[query] for query in table.queries])
    columns = np.array([task.ids.index(tool) for tool in table.tools])
    position = np.full(len(task.ids) + 1, len(columns), np.int32)
    position[columns] = np.arange(len(columns))
    labels = position[task.labels[rows, :1]]
    known = np.isfinite(table.yes)
    whole = [m for m in range(1, len(columns) + 1) if known[labels[:, 0] < m, :m].all()]
    tools = max(whole, default=0)
    if tools < 2:
        raise ValueError(
            f"the table has all verdicts on {tools} of {len(columns)} tools: two are needed"
        )
    columns, kept = columns[:tools], labels[:, 0] < tools
    labels = labels[kept]
    some = replace(
        task.select(rows[kept]),
        ids=tuple(task.ids[row] for row in columns),
        theta=task.theta[columns],
        documents=None,  # from now on only vectors are used
        labels=labels,
    )
    return Pairs(some, table.yes[kept][:, :tools], labels == np.arange(tools))


def parted(pairs: Pairs, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Split the queries by question: a share chooses a threshold, the rest is used otherwise."""
    apart = pairs.task.parts(validation=share, seeds=[seed]).validation[0]
    some, rest = (
        Pairs(pairs.task.select(rows), pairs.yes[rows], pairs.right[rows])
        for rows in (apart, ~apart)
    )
    return some, rest


def judge_environment(pairs: Pairs, kind: str, threshold: float) -> Environment:
    """Make the environment that rewards by a kind of verdict: labels, hard, soft or threshold."""
    if kind == "labels":
        return Environment()
    if kind == "soft":
        return judged(pairs.yes)
    return judged(pairs.yes > (threshold if kind == "threshold" else 0.5))
