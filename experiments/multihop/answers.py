"""Final answers: a language model answers a task from the documents of its hops   (ORAG C.4).

Letters: S seeds, N hops, k documents a hop.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from omegaconf import DictConfig

from experiments.common.run_directory import RunDirectory
from experiments.multihop import prompts
from jaxret.data.dataset import Dataset
from jaxret.llm import Chat, Prompt
from jaxret.runtime.files import json_lines

RULES = {"exact": prompts.exact, "contains": prompts.contains}


def gold(cfg: DictConfig) -> dict[str, list[str]]:
    """Read the right answers: query id -> equivalent texts; empty if none is known.

    They are the field ``answer``, a text or a list of texts, in the lines of ``cfg.gold_answers``,
    or without that file in the data set's ``queries.jsonl``.
    """
    path = None if cfg.dataset.path is None else Path(cfg.dataset.path) / "queries.jsonl"
    fields: tuple[str, ...] = ("id",)
    if cfg.gold_answers is not None:
        path, fields = Path(cfg.gold_answers), ("id", "answer")
    elif path is None or not path.is_file():
        return {}
    rows = json_lines(path, holds="one query a line", fields=fields)
    answers = {row["id"]: row["answer"] for row in rows if row.get("answer") is not None}
    ways = {key: x if isinstance(x, list) else [x] for key, x in answers.items()}
    return {key: [str(text) for text in texts] for key, texts in ways.items()}


def refuse_unknown(right: Collection[str], ids: Collection[str]) -> None:
    """Raise ValueError if an answer belongs to no task of the data set."""
    if unknown := sorted(set(right) - set(ids)):
        raise ValueError(
            f"gold_answers has {unknown[0]!r} and {len(unknown) - 1} more ids that the data set "
            "has not: give the data set that they answer, or leave them out"
        )


def collect(items: Int[np.ndarray, "N k"], tasks: Int[np.ndarray, " N"]) -> list[list[int]]:
    """Collect the distinct items of each task's hops, in the order in which they were found."""
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
    only: Collection[str] | None = None,
    *,
    prompt: Prompt = prompts.PROMPTS["answer"],
) -> list[dict[str, Any]]:
    """Ask for every task's answer, once per seed; failed answers are empty.

    Returns:
      One object for each seed and task, as in ``answers.jsonl``.
    """
    rows, seeds = np.unique(tasks), range(len(items))
    found = [dict(zip(rows, collect(some, tasks), strict=True)) for some in items]
    rows = [row for row in rows if only is None or dataset.query_ids[row] in only]
    questions = [
        prompt.messages(
            query=dataset.queries[row],
            documents=prompts.numbered(documents[i] for i in found[seed][row]),
        )
        for seed in seeds
        for row in rows
    ]

    def ask():
        said = chat.ask_all(
            questions, prompts.final_answer, schema=prompts.ANSWER_SCHEMA, title=f"{name}, answers"
        )
        return {"said": [text or "" for text in said]}

    said = run.result(f"{name}-answers", ask)["said"].reshape(len(items), len(rows))
    return [
        {
            "learner": name,
            "seed": seed,
            "id": dataset.query_ids[row],
            "question": dataset.queries[row],
            "answer": str(said[seed, place]),
            "documents": [dataset.tool_ids[i] for i in found[seed][row]],
        }
        for seed in seeds
        for place, row in enumerate(rows)
    ]


def scores(lines: Sequence[dict[str, Any]], right: dict[str, list[str]]) -> dict[str, list[float]]:
    """Compute each seed's share of right answers by each of `RULES`; empty without gold answers.

    An answer of `answer` is right if it agrees with one of those of `gold`.
    """
    known = [line for line in lines if line["id"] in right]

    def agrees(line, same):
        return any(same(line["answer"], text) for text in right[line["id"]])

    return {
        f"answer/{rule}": [
            float(np.mean([agrees(line, same) for line in known if line["seed"] == seed]))
            for seed in sorted({line["seed"] for line in known})
        ]
        for rule, same in RULES.items()
        if known
    }
