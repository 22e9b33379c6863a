"""Tables of results: in the terminal, where columns that do not fit continue below; in Markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxret.learners.grid import LearnerGrid

EDGES = 3  # width of a column's edges: two blanks and a line


def results_table(
    results: Mapping[str, Mapping[str, Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    words: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Print mean ± standard error of the results ``row/column``; ``words`` as in `print_table`."""
    heads = [column.replace("/", "\n") for column in columns]
    cells = {row: [cell(results.get(f"{row}/{column}")) for column in columns] for row in rows}
    print_table(title, heads, cells, words)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    words: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Print cells; in a narrow terminal in several blocks of columns.

    ``words`` are text columns, repeated in every block: head -> row -> text.
    """
    words, console = words or {}, Console()
    left = [_width(["", *rows])] + [_width([head, *of.values()]) for head, of in words.items()]
    widths = [_width([head, *(r[i] for r in rows.values())]) for i, head in enumerate(columns)]
    print(title)
    for block in _blocks(widths, console.width - sum(w + EDGES for w in left) - 1):
        table = Table()
        for head in ("", *words):
            table.add_column(head, no_wrap=True)
        for i in block:
            table.add_column(columns[i], justify="right", no_wrap=True)
        for name, cells in rows.items():
            table.add_row(name, *(of[name] for of in words.values()), *(cells[i] for i in block))
        needed = sum(w + EDGES for w in (*left, *(widths[i] for i in block))) + 1
        Console(width=max(needed, console.width)).print(table)


def settings_table(
    results: Mapping[str, Mapping[str, Any]],
    grids: Sequence[LearnerGrid],
    columns: Mapping[str, str],
) -> None:
    """Print the settings that seeds chose, the most frequent first, and by how many seeds."""

    def chosen(grid, column):
        values = (results[f"{grid.name}/{column}/{n}"]["values"] for n in grid.names)
        settings = Counter(zip(*values, strict=True)).most_common()
        return "\n".join(f"{grid.label(np.array(x))}  x{count}" for x, count in settings)

    rows = {grid.name: [chosen(grid, column) for column in columns.values()] for grid in grids}
    print_table("settings chosen, and by how many seeds", list(columns), rows)


def markdown(
    head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---", *, names: int = 1
) -> str:
    """Format heads and cells in Markdown; ``align`` is the rule below heads that are not names."""
    lines = [head, ["---"] * names + [align] * (len(head) - names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Mapping[str, Any] | None) -> str:
    """Format mean ± standard error with few digits."""
    if value is None:
        return ""
    if abs(value["mean"]) >= 1e6 or 0 < abs(value["mean"]) < 5e-4:
        return f"{value['mean']:.2g}"
    digits = 1 if abs(value["mean"]) >= 100 else 3
    error = "" if not value["stderr"] else f" ±{value['stderr']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{error}"


def _width(texts: Sequence[str]) -> int:
    return max(len(line) for text in texts for line in text.split("\n"))


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield the positions of the columns of each block, as many as fit, and at least one."""
    block: list[int] = []
    for i, width in enumerate(widths):
        taken = sum(widths[j] + EDGES for j in block)
        if block and taken + width + EDGES > room:
            yield block
            block = []
        block.append(i)
    if block:
        yield block
