"""Writes the outcomes of an expansion as a data set of the general layout (`jaxret.data.jsonl`).

tools.jsonl       with ``tool_profile``, empty if none was accepted
queries.jsonl     unchanged
failures.jsonl    id, kind, reason and rounds of every tool without a profile
provenance.json   models, prompts and rules, from which the same profiles follow
sample.jsonl      tools drawn for human review (`experiments.review_documents`)
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxret.data.dataset import Dataset
from jaxret.documents import Outcome, Prompts, expand, original
from jaxret.documents.expansion import STAGE_PROMPTS
from jaxret.runtime.files import write_json_lines


def save(folder: Path, dataset: Dataset, outcomes: Sequence[Outcome]) -> None:
    """Write tools with their outcomes, queries and failures; each file whole or not at all."""
    tools = zip(dataset.tool_ids, dataset.documents, outcomes, strict=True)
    write_json_lines(folder / "tools.jsonl", (_tool(*one) for one in tools))
    write_json_lines(folder / "queries.jsonl", _queries(dataset))
    failures = [
        {"id": tool, **outcome.problem._asdict(), "rounds": outcome.rounds}
        for tool, outcome in zip(dataset.tool_ids, outcomes, strict=True)
        if outcome.problem is not None
    ]
    write_json_lines(folder / "failures.jsonl", failures)


def sample(dataset: Dataset, outcomes: Sequence[Outcome], n: int, seed: int) -> list[dict]:
    """Draw n tools with a profile without replacement; return rows in the order of the draw."""
    rows = [row for row, outcome in enumerate(outcomes) if outcome.profile is not None]
    return [
        {
            "id": dataset.tool_ids[row],
            "document": original(dataset.documents[row]),
            "profile": outcomes[row].profile,
            "rounds": outcomes[row].rounds,
        }
        for row in np.random.default_rng(seed).permutation(rows)[:n].tolist()
    ]


def prompt_hashes(prompts: Prompts) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of every prompt's file, by stage and the name of our file."""
    return {
        stage: {f"{name}.txt": getattr(prompts, name).sha256 for name in names}
        for stage, names in STAGE_PROMPTS.items()
    }


def _tool(tool: str, document: Any, outcome: Outcome) -> dict[str, Any]:
    """Build a line that `jaxret.data.jsonl` reads as the expanded document."""
    fields = expand(document, outcome.profile or {})
    beside = {key: fields.pop(key) for key in ("terse", "tool_profile") if key in fields}
    text = fields.get("documentation")
    if len(fields) == 1 and isinstance(text, str):
        fields = text
    return {"id": tool, "documentation": fields, **beside}


def _queries(dataset: Dataset) -> Iterable[dict[str, Any]]:
    for row, query in enumerate(dataset.query_ids):
        line: dict[str, Any] = {
            "id": query,
            "query": dataset.queries[row],
            "labels": [dataset.tool_ids[i] for i in dataset.labels[row] if i >= 0],
            "question_index": int(dataset.groups[row]),
        }
        if dataset.split is not None:
            line["split"] = dataset.split[row]
        if dataset.steps is not None:
            steps = dataset.steps[row]
            line["steps"] = [{"query": s.query, "label": dataset.tool_ids[s.label]} for s in steps]
        yield line
