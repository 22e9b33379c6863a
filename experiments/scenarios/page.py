"""The page of a run: a table and a figure for each scenario, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.common.tables import cell
from experiments.scenarios.measures import means
from jaxret import plots

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


def figure(curves: Mapping[str, Float[np.ndarray, "S T"]], window: int, begins: int) -> Figure:
    """Success of every rule, a mean of windows; a line where the trouble begins.

    Args:
      curves: rule -> its successes.
      window: rounds.
      begins: the round of the line; none at 0.
    """
    rounds = next(iter(curves.values())).shape[1]
    width = min(window, rounds)
    drawn, ax = plots.new_figure("round", f"success, mean of {width} rounds")
    for learner, success in curves.items():
        x = np.arange(width, rounds + 1)
        line = plots.curve_with_band(ax, x, means(success.astype(float), width), learner)
        if learner == "frozen":
            line.set_linestyle("--")
    if begins > 0:
        ax.axvline(begins, color=plots.GREY, linewidth=0.8)
    plots.label_curves(ax)
    return drawn
