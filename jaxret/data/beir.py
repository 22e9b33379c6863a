"""Loads the BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv``.

The layout is that of github.com/beir-cellar/beir (Thakur et al. 2021). In it come ToolLens
(github.com/quchangle1/COLT, ``datasets/ToolLens``; Qu et al. 2024, 'Towards
Completeness-Oriented Tool Retrieval for Large Language Models'; no licence stated, for
research), FiQA and others, each under a licence of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from jaxret.data.dataset import Dataset, Document, Empty, Query, Unknown, build
from jaxret.runtime.files import existing, json_rows, text_lines
from jaxret.runtime.rows import id_of, query_of, text_of

SUFFIXES = (".tsv", ".txt", ".qrels", ".trec")  # of files of judgements


def load(
    path: str | Path,
    *,
    name: str | None = None,
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load a folder of the BEIR layout; 464 tools and 18,770 queries for ToolLens.

    A document is its title and its text, joined by a newline. Labels are the documents that are
    judged with a score above 0; the split is the name of the judgements' file. Queries without a
    label are left out, as in BEIR.

    Args:
      path: folder of the data set.
      name: name of the data set; None: name of the folder.
      unknown: "refuse" judgements of a document or query that does not exist, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      ValueError: if a line is damaged, a query is judged in two files, or a judged query or
        document does not exist.
    """
    folder = existing(path, "a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv")
    queries = folder / "queries.jsonl"
    judged = _judgements(existing(folder / "qrels", "the judgements, one .tsv a split"))
    rows = json_rows(queries, holds="one BEIR query a line", fields=("_id", "text"))
    texts = {id_of(where, row["_id"]): (where, row["text"]) for where, row in rows}
    strangers = [query for query in judged if query not in texts]
    if strangers and unknown != "drop":
        raise ValueError(
            f"{folder / 'qrels'} judges queries {strangers[:3]} not in {queries}; "
            "unknown='drop' leaves them out"
        )
    kept = (
        Query(
            id=query,
            text=query_of(where, query, text),
            labels=tuple(judged[query][1]),
            split=judged[query][0],
        )
        for query, (where, text) in texts.items()
        if query in judged
    )
    tools = _tools(folder / "corpus.jsonl")
    return build(name or folder.resolve().name, tools, kept, unknown=unknown, empty=empty)


def _tools(corpus: Path) -> Iterator[tuple[str, Document]]:
    rows = json_rows(corpus, holds="one BEIR document a line", fields=("_id", "text"))
    for where, row in rows:
        document = id_of(where, row["_id"])
        title, text = (text_of(where, document, row.get(key)) for key in ("title", "text"))
        yield document, f"{title}\n{text}".strip()


def _judgements(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Read the judgements: query id -> (split, ids of its documents)."""
    judged: dict[str, tuple[str, list[str]]] = {}
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    if not files:
        suffixes = ", ".join(SUFFIXES)
        raise FileNotFoundError(f"{folder} holds no file of {suffixes}; expected one a split")
    for file in files:
        for query, document in _positives(file):
            split, documents = judged.setdefault(query, (file.stem, []))
            if split != file.stem:
                raise ValueError(f"query {query!r} is judged in {split} and in {file.stem}")
            documents.append(document)
    return judged


def _positives(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (query, document) of each positive judgement.

    A line has the query, the document and the score, with TREC's unused number in the second place
    or without it, separated by tabs or else by spaces. A first line without a score is a header.
    """
    for number, line in enumerate(text_lines(file, "judgements"), start=1):
        row = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
        if not any(row):
            continue
        try:
            query, *_, document, score = row
            if len(row) > 4 or not (query and document):
                raise ValueError
            positive = float(score) > 0
        except ValueError as error:
            if number == 1 and len(row) in (3, 4):
                continue
            raise ValueError(
                f"{file}, line {number}: expected query, document, score, or TREC's query, 0, "
                f"document, score, got {row}"
            ) from error
        if positive:
            yield query, document
