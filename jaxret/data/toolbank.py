"""Loads ToolBank: generated queries over the functions of NumPy, pandas and AWS's boto3.

The queries are the hub's ``squeeze-ai-lab/ToolBank``, the tools those of
github.com/SqueezeAILab/Tool2Vec, ``toolrag/data_generation/bank_*`` (Moon et al. 2024, 'Efficient
and Scalable Estimation of Tool Representations in Vector Space'; MIT, the hub's card states no
licence). One folder holds both:

    data/NumpyBank_train-*.parquet      refined_instruction, functions, instruction; _val, _test
    numpy_function_descriptions.json    real name to {new_func, description, class, ...}

Queries may also be ``.json`` (one list) or ``.jsonl`` files of the same names, in the folder
itself or in its ``data``; tools may be a ``tools_numpy.jsonl`` with id and documentation. The
hub's files hold no instruction, only the refined one.
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Document, Empty, Query, Unknown, build
from jaxret.runtime.files import existing, json_lines, parquet_rows, text_lines
from jaxret.runtime.validate import require_one_of

BANKS = {
    "numpy": ("NumpyBank", "numpy_function_descriptions.json"),
    "pandas": ("PandasBank", "pandas_function_descriptions_with_classes.json"),
    "aws": ("AWSBank", "aws_function_descriptions.json"),
}
PARTS = ("train", "val", "test")
INSTRUCTIONS = ("refined_instruction", "instruction")


def load(
    path: str | Path,
    *,
    bank: str = "numpy",
    refined: bool = True,
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load the available parts of one bank.

    Tools have the invented names (``new_func``) that the queries use. Functions with the same
    invented name are one tool, since queries do not distinguish them; it has the first description
    in the file, as in the authors' description baseline (NumPy: 527 functions, 513 names; sine and
    cosine are one).

    Args:
      path: folder of the data.
      bank: "numpy", "pandas" or "aws".
      refined: whether to use the refined instruction if there is one, instead of the raw one.
      unknown: "refuse" queries that call a function without a description, or "drop" them, as in
        the authors' generator.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      ValueError: if a file is damaged, a tool is described twice, or a query has no text.
      ImportError: if the files are parquet and pyarrow is not installed.
    """
    require_one_of("bank", bank, BANKS)
    if unknown not in ("refuse", "drop"):
        raise ValueError(f"unknown must be 'refuse' or 'drop', got {unknown!r}")
    folder = existing(path, "a folder with ToolBank's queries and its tool files")
    tools = list(_tools(_tool_file(folder, bank)))
    called = _queries(folder, BANKS[bank][0], refined)
    queries = _known(called, {name for name, _ in tools}, drop=unknown == "drop")
    return build(f"toolbank-{bank}", tools, queries, empty=empty)


def _known(queries: Iterable[Query], known: set[str], *, drop: bool) -> Iterator[Query]:
    for query in queries:
        strangers = [name for name in query.labels if name not in known]
        if strangers and not drop:
            raise ValueError(
                f"query {query.id!r} calls functions {strangers} that the tool file does not "
                f"describe ({len(known):,} names); unknown='drop' leaves such queries out"
            )
        if not strangers:
            yield query


def _tool_file(folder: Path, bank: str) -> Path:
    converted = folder / f"tools_{bank}.jsonl"
    if converted.exists():
        return converted
    where = f"the file of that name in toolrag/data_generation/bank_{bank} of Tool2Vec"
    return existing(folder / BANKS[bank][1], f"{where}, or {converted.name}")


def _tools(file: Path) -> Iterator[tuple[str, Document]]:
    if file.suffix == ".jsonl":
        rows = json_lines(file, holds="one tool a line", fields=("id", "documentation"))
        described = _unique(((row["id"], row["documentation"]) for row in rows), file)
    else:
        described = _json(file, dict)
    first: dict[str, Document] = {}
    for real, fields in described.items():
        if not isinstance(fields, dict) or not fields.get("description"):
            raise ValueError(f"{file}: tool {real!r} needs a description, got {fields!r:.80}")
        name = fields.get("new_func") or real
        rest = {key: value for key, value in fields.items() if key != "new_func"}
        yield name, first.setdefault(name, {"name": name} | rest)


def _queries(folder: Path, name: str, refined: bool) -> Iterator[Query]:
    files = {
        part: [
            file
            for place in (folder, folder / "data")
            for file in sorted(place.glob(f"{name}_{part}[-.]*"))
            if file.suffix in (".parquet", ".json", ".jsonl")
        ]
        for part in PARTS
    }
    if not any(files.values()):
        raise FileNotFoundError(
            f"{folder} holds no queries; expected there or in its data folder: "
            f"{name}_train, {name}_val and {name}_test as .parquet, .json or .jsonl"
        )
    for part in PARTS:
        rows = ((f"{file}, row {i}", row) for file in files[part] for i, row in _rows(file))
        for number, (where, row) in enumerate(rows):
            labels, text = _functions(row, where), _text(row, where, refined)
            yield Query(id=f"{part}_{number}", text=text, labels=labels, split=part)


def _functions(row: Any, where: str) -> tuple[str, ...]:
    functions = row.get("functions") if isinstance(row, dict) else None
    if not isinstance(functions, list) or not all(isinstance(f, str) for f in functions):
        raise ValueError(f"{where}: expected a list of names under functions, got {row!r:.80}")
    return tuple(functions)


def _text(row: dict[str, Any], where: str, refined: bool) -> str:
    text = (refined and row.get("refined_instruction")) or row.get("instruction")
    if not isinstance(text, str) or not text.strip():
        if not refined and row.get("refined_instruction"):
            raise ValueError(f"{where} has no raw instruction; refined=True takes the refined one")
        raise ValueError(f"{where} has no instruction, refined or raw: {row!r:.80}")
    return text


def _rows(file: Path) -> Iterator[tuple[int, Any]]:
    if file.suffix == ".json":
        return enumerate(_json(file, list), start=1)
    if file.suffix == ".jsonl":
        return enumerate(json_lines(file, holds="one query a line", fields=("functions",)), start=1)
    rows = parquet_rows(file, fields=("functions",), optional=INSTRUCTIONS)
    return enumerate(rows, start=1)


def _json(file: Path, kind: type) -> Any:
    try:
        text = "".join(text_lines(file, f"a JSON {kind.__name__}"))
        content = json.loads(text, object_pairs_hook=partial(_unique, file=file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not JSON: {error}") from error
    if not isinstance(content, kind):
        raise ValueError(f"{file}: expected a JSON {kind.__name__}, got {content!r:.60}")
    return content


def _unique(pairs: Iterable[tuple[str, Any]], file: Path) -> dict[str, Any]:
    """Build a dict, and refuse repeated keys."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if values.setdefault(key, value) != value:
            raise ValueError(f"{file}: {key!r} is there twice, with different contents")
    return values
