"""Reads files with clear errors, and writes files atomically."""

import csv
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any


def existing(path: str | Path, holds: str) -> Path:
    """Return the path, or raise FileNotFoundError with the expected content."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected there: {holds}")
    return path


def text_lines(path: Path, holds: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends; a byte order mark is skipped.

    Args:
      path: text file.
      holds: expected content, for the error message.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is not UTF-8.
    """
    with existing(path, holds).open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from file
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8") from error


def read_json(path: Path, holds: str) -> Any:
    """Read a JSON file.

    Args:
      path: JSON file.
      holds: expected content, for the error message.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is not JSON in UTF-8.
    """
    try:
        return json.loads("".join(text_lines(path, holds)))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: not JSON: {error.msg} at column {error.colno}"
        ) from error


def json_rows(
    path: Path, *, holds: str, fields: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) of a JSON-lines file in order; blank lines are skipped.

    Args:
      path: JSON-lines file.
      holds: expected content, for the error message.
      fields: keys that every object must have.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a line is not JSON in UTF-8, not an object, or lacks a field.
    """
    for number, line in enumerate(text_lines(path, holds), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected an object, got {row!r:.60}")
        if missing := [field for field in fields if field not in row]:
            raise ValueError(f"{where}: fields {missing} are missing")
        yield where, row


def json_lines(path: Path, *, holds: str, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects of `json_rows`, without their places.

    Args:
      path: JSON-lines file.
      holds: expected content, for the error message.
      fields: keys that every object must have.
    """
    return (row for _, row in json_rows(path, holds=holds, fields=fields))


def table_rows(path: Path, *, holds: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (file and line, cells by column) of a table with a header; empty rows are skipped.

    Columns are separated by tabs in a ``.tsv``, and otherwise by commas, or by semicolons if the
    header has them and no comma.

    Args:
      path: ``.csv`` or ``.tsv`` file.
      holds: expected content, for the error message.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is not UTF-8, two columns have one name, or a row has more or fewer
        cells than the header.
    """
    lines = list(text_lines(path, holds))
    head = lines[0] if lines else ""
    semicolons = ";" in head and "," not in head
    separator = "\t" if path.suffix.lower() == ".tsv" else ";" if semicolons else ","
    rows = csv.reader(lines, delimiter=separator, strict=True)
    line = 1  # the line where a row begins, since quoted cells may have several lines
    try:
        header = next(rows, [])
        if not header or len(set(header)) < len(header):
            raise ValueError(f"{path}, line 1: expected a header of different names, got {header}")
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(header):
                raise ValueError(f"{path}, line {line}: expected cells for {header}, got {row}")
            if any(map(str.strip, row)):
                yield f"{path}, line {line}", dict(zip(header, row, strict=True))
            line = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: {error}") from error


def parquet_rows(
    path: Path, *, fields: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Read the rows of a parquet file.

    Args:
      path: parquet file.
      fields: required columns.
      optional: columns to read if present; other columns are ignored.

    Raises:
      ImportError: if pyarrow is not installed.
      ValueError: if the file is not parquet, or lacks a column.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: install jaxret[parquet]") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not parquet: {error}") from error
    if missing := [field for field in fields if field not in table.column_names]:
        raise ValueError(f"{path}: columns {missing} are missing")
    return table.select([*fields, *(o for o in optional if o in table.column_names)]).to_pylist()


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically, so that readers never see a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{get_ident()}-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON object per line, atomically; other types are written as strings."""
    write_whole(path, "".join(json.dumps(row, default=str) + "\n" for row in rows))


def content_digest(place: Path) -> str | None:
    """Hash a file or all files of a folder to 16 characters; None if the path does not exist."""
    files = [place] if place.is_file() else sorted(x for x in place.rglob("*") if x.is_file())
    found = [_file_digest(path, (at := path.stat()).st_size, at.st_mtime_ns) for path in files]
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16] if found else None


@functools.lru_cache
def _file_digest(path: Path, size: int, changed: int) -> str:
    """Hash a file; cached until its size or modification time changes."""
    del size, changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
