"""Loads the BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv``.

The layout is that of github.com/beir-cellar/beir (Thakur et al. 2021). In it come ToolLens
(github.com/quchangle1/COLT, ``datasets/ToolLens``; Qu et al. 2024, 'Towards
Completeness-Oriented Tool Retrieval for Large Language Models'; no licence stated, for
research), FiQA and others, each under a licence of its own.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from jaxret.data.dataset import Dataset, Document, Query, build
from jaxret.runtime.files import existing, json_lines

HEADER = ["query-id", "corpus-id", "score"]


def load(path: str | Path, *, name: str | None = None) -> Dataset:
    """Load a folder of the BEIR layout; 464 tools and 18,770 queries for ToolLens.

    A document is its title and its text, joined by a newline. Labels are the documents that are
    judged with a score above 0; the split is the name of the judgements' file. Queries without a
    label are left out, as in BEIR.

    Args:
      path: folder of the data set.
      name: name of the data set; None: name of the folder.

    Raises:
      ValueError: if a line is damaged, a query is judged in two files, or a judged query
        does not exist.
    """
    folder = existing(path, "a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv")
    queries = folder / "queries.jsonl"
    judged = _judgements(existing(folder / "qrels", "the judgements, one .tsv a split"))
    texts = {
        str(row["_id"]): row["text"]
        for row in json_lines(queries, holds="one BEIR query a line", fields=("_id", "text"))
    }
    if unknown := [query for query in judged if query not in texts]:
        raise ValueError(f"{folder / 'qrels'} judges queries {unknown[:3]} not in {queries}")
    kept = (
        Query(id=query, text=text, labels=tuple(judged[query][1]), split=judged[query][0])
        for query, text in texts.items()
        if query in judged
    )
    return build(name or folder.resolve().name, _tools(folder / "corpus.jsonl"), kept)


def _tools(corpus: Path) -> Iterator[tuple[str, Document]]:
    for row in json_lines(corpus, holds="one BEIR document a line", fields=("_id", "text")):
        yield str(row["_id"]), f"{row.get('title') or ''}\n{row['text']}".strip()


def _judgements(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Read the judgements: query id -> (split, ids of its documents)."""
    judged: dict[str, tuple[str, list[str]]] = {}
    files = sorted(folder.glob("*.tsv"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no .tsv file; expected one a split")
    for file in files:
        for query, document in _positives(file):
            split, documents = judged.setdefault(query, (file.stem, []))
            if split != file.stem:
                raise ValueError(f"query {query!r} is judged in {split}.tsv and in {file.name}")
            documents.append(document)
    return judged


def _positives(file: Path) -> Iterator[tuple[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        for number, row in enumerate(rows, start=1):
            if not row or (number == 1 and row == HEADER):
                continue
            try:
                query, document, score = row
                positive = float(score) > 0
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: expected {HEADER}, got {row}") from error
            if positive:
                yield query, document
