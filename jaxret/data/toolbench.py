"""Loads ToolBench: the retrieval files of G1, G2 and G3.

From github.com/OpenBMB/ToolBench, ``data/retrieval/`` (Qin et al. 2024, 'ToolLLM'; Apache-2.0):

    corpus.tsv                             docid, document_content (the JSON text of an API)
    train.query.txt, test.query.txt        qid, query
    qrels.train.tsv, qrels.test.tsv        qid, 0, docid, 1

separated by tabs, quoted as CSV, with a header only in the corpus. The files list an API once for
every query that offers it and a query once for every API that answers it: in G1 87,322 queries take
432,394 rows.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from jaxret.data.dataset import Dataset, Document, Empty, Query, Unknown, build
from jaxret.runtime.files import existing, text_lines

PARTS = ("train", "test")
CORPUS = ("docid", "document_content")
QUERIES = ("qid", "query")
JUDGEMENTS = ("qid", "0", "docid", "1")
LONGEST = 2**24  # characters in a cell; the csv module stops at 2**17


def load(path: str | Path, *, unknown: Unknown = "refuse", empty: Empty = "keep") -> Dataset:
    """Load one of the folders; repeated rows are merged and counted.

    The id of a query is its part and its qid (``train_17``), since both files number their queries.
    A text in both parts is kept in both, where `jaxret.data.split` finds it. Documents are the
    objects in the JSON texts, or the texts themselves if they have none.

    Args:
      path: the folder G1, G2 or G3.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      ValueError: if a row is incomplete, or a judgement is of an unknown query.
    """
    folder = existing(path, "a folder G1, G2 or G3 with corpus.tsv, *.query.txt and qrels.*.tsv")
    tools = _tools(folder / "corpus.tsv")
    (train, train_rows), (test, test_rows) = (_queries(folder, part) for part in PARTS)
    dataset = build("toolbench", tools, train + test, unknown=unknown, empty=empty)
    repeated = train_rows + test_rows - len(train) - len(test)
    return replace(dataset, merged_queries=dataset.merged_queries + repeated)


def _tools(file: Path) -> Iterator[tuple[str, Document]]:
    rows = _rows(file, CORPUS)
    line, header = next(rows, (1, []))
    if tuple(header) != CORPUS:
        raise ValueError(f"{file}, line {line}: expected the header {CORPUS}, got {header}")
    read: dict[str, tuple[str, Document]] = {}
    for line, (name, text) in rows:
        if name not in read:
            read[name] = text, _document(text)
        if read[name][0] != text:
            raise ValueError(f"{file}, line {line}: tool {name!r} has another document above")
        yield name, read[name][1]


def _document(text: str) -> Document:
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return text
    return document if isinstance(document, dict) else text


def _queries(folder: Path, part: str) -> tuple[list[Query], int]:
    """Read the distinct queries of a part, and their number of rows."""
    file, judgements = folder / f"{part}.query.txt", folder / f"qrels.{part}.tsv"
    rows, texts = 0, {}
    for line, (query, text) in _rows(file, QUERIES):
        rows += 1
        if texts.setdefault(query, text) != text:
            raise ValueError(f"{file}, line {line}: query {query!r} has another text above")
    labels: dict[str, list[str]] = {query: [] for query in texts}
    for line, (query, zero, tool, one) in _rows(judgements, JUDGEMENTS):
        if (zero, one) != ("0", "1"):
            row = [query, zero, tool, one]
            raise ValueError(f"{judgements}, line {line}: expected {JUDGEMENTS}, got {row}")
        if query not in labels:
            raise ValueError(f"{judgements}, line {line}: query {query!r} is not in {file}")
        labels[query].append(tool)
    queries = [
        Query(id=f"{part}_{query}", text=text, labels=tuple(labels[query]), split=part)
        for query, text in texts.items()
    ]
    return queries, rows


def _rows(file: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells); no cell may be empty."""
    limit = csv.field_size_limit(LONGEST)
    try:
        lines = text_lines(file, f"rows of {columns}")
        rows = csv.reader(lines, delimiter="\t", strict=True)
        line = 1  # the line where a row begins, since quoted texts may have several lines
        try:
            for row in rows:
                if row and (len(row) != len(columns) or not all(map(str.strip, row))):
                    raise ValueError(f"{file}, line {line}: expected {columns}, got {row}")
                if row:
                    yield line, row
                line = rows.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{file}, line {line}: {error}") from error
    finally:
        csv.field_size_limit(limit)
