"""The page of a run: a table and a figure for each scenario, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common.tables import cell

#: What `measures` gives, and the guard -> the head of its column.
COLUMNS = {
    "accuracy": "accuracy",
    "calm": "calm",
    "lost": "rounds lost",
    "until": "until as before",
    "back": "back",
    "worst": "worst window",
    "loss": "largest loss",
    "guard/cost": "guard costs",
    "guard/worst": "its worst window",
    "guard/loss": "its largest loss",
    "guard/stopped": "stopped",
}


def text(
    title: str,
    results: Mapping[str, Mapping[str, Any]],
    scenarios: Mapping[str, str],
    learners: Sequence[str],
) -> str:
    """The page; figures lie beside it, ``<scenario>.png``.

    Args:
      title: its heading.
      results: ``<scenario>/<learner>/<column>`` -> its mean and standard error.
      scenarios: name -> what it is, in a sentence.
      learners: rows, in this order; those that have no results are left out.
    """
    parts = [f"# {title}"]
    for name, about in scenarios.items():
        parts += [f"## {name}", about, table(results, name, learners), f"![{name}]({name}.png)"]
    return "\n\n".join(parts) + "\n"


def table(results: Mapping[str, Mapping[str, Any]], scenario: str, learners: Sequence[str]) -> str:
    """One scenario: a row a learner."""
    lines = [["learner", *COLUMNS.values()], ["---"] + ["---:"] * len(COLUMNS)]
    for learner in learners:
        row = f"{scenario}/{learner}"
        if f"{row}/accuracy" in results:
            lines.append([learner, *(cell(results.get(f"{row}/{key}")) for key in COLUMNS)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
