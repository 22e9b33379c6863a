"""Files of small data sets, and the labels of loaded ones."""

import json

import pytest


def label_ids(dataset):
    return [[dataset.tool_ids[i] for i in row if i >= 0] for row in dataset.labels]


def read_lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(file, *rows):
    """Write JSON lines; a string is a line as it stands."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_parquet(file, *rows, columns_of=None):
    """Write rows with their own columns, or with those of other rows."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.Table.from_pylist(columns_of or list(rows)).schema
    parquet.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)
