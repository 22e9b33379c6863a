"""End answers: a language model answers a task from the documents of all its hops   (ORAG C.4).

Letters: S seeds, N hops, k documents a hop.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from omegaconf import DictConfig

from experiments.common.run_directory import RunDirectory
from jaxret.data.dataset import Dataset
from jaxret.files import json_lines
from jaxret.llm import Chat
from jaxret.retrieval import multihop

RULES = {"exact": multihop.exact, "contains": multihop.contains}


def gold(cfg: DictConfig) -> dict[str, str]:
    """Query id -> the field ``answer`` in the data set's ``queries.jsonl``; empty without one."""
    path = None if cfg.dataset.path is None else Path(cfg.dataset.path) / "queries.jsonl"
    if path is None or not path.is_file():
        return {}
    rows = json_lines(path, holds="one query a line", fields=("id",))
    return {row["id"]: str(row["answer"]) for row in rows if row.get("answer") is not None}


def collect(items: Int[np.ndarray, "N k"], tasks: Int[np.ndarray, " N"]) -> list[list[int]]:
    """The different items of each task's hops, in the order in which they were found."""
    ends = np.flatnonzero(np.diff(tasks)) + 1
    return [list(dict.fromkeys(some.ravel().tolist())) for some in np.split(items, ends)]


def answer(
    run: RunDirectory,
    chat: Chat,
    name: str,
    dataset: Dataset,
    documents: Sequence[str],
    items: Int[np.ndarray, "S N k"],
    tasks: Int[np.ndarray, " N"],
) -> list[dict[str, Any]]:
    """Asks for every task's answer, once a seed; the answer is empty where none came.

    Args:
      run: keeps the answers as a unit.
      chat: who is asked.
      name: of the learner.
      dataset: the tasks, whole.
      documents: in words.
      items: that were found at each hop.
      tasks: of the hops, as rows of ``dataset``; ascending.

    Returns:
      one object for each seed and task, as ``answers.jsonl`` holds it.
    """
    rows, seeds = np.unique(tasks), range(len(items))
    found = [collect(some, tasks) for some in items]
    questions = [
        multihop.answer_question(dataset.queries[row], [documents[i] for i in some])
        for seed in seeds
        for row, some in zip(rows, found[seed], strict=True)
    ]

    def ask():
        said = chat.ask_all(questions, multihop.final_answer, title=f"{name}, answers")
        return {"said": [text or "" for text in said]}

    said = run.result(f"{name}-answers", ask)["said"].reshape(len(items), len(rows))
    return [
        {
            "learner": name,
            "seed": seed,
            "id": dataset.query_ids[row],
            "question": dataset.queries[row],
            "answer": str(said[seed, place]),
            "documents": [dataset.tool_ids[i] for i in found[seed][place]],
        }
        for seed in seeds
        for place, row in enumerate(rows)
    ]


def scores(lines: Sequence[dict[str, Any]], right: dict[str, str]) -> dict[str, list[float]]:
    """The share of right answers of each seed by each of `RULES`; empty if none is known."""
    known = [line for line in lines if line["id"] in right]
    return {
        f"answer/{rule}": [
            float(np.mean([same(x["answer"], right[x["id"]]) for x in known if x["seed"] == seed]))
            for seed in sorted({line["seed"] for line in known})
        ]
        for rule, same in RULES.items()
        if known
    }
