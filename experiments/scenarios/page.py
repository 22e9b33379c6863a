"""The page of a run: a table and a figure for each scenario, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.scenarios.measures import means
from jaxret.evaluation import plots

#: What `measures` gives, and the guard -> the head of its column, and digits after the point.
COLUMNS = {
    "calm": ("calm", 3),
    "accuracy": ("in trouble", 3),
    "lost": ("rounds lost", 0),
    "until": ("as before after", 0),
    "back": ("back", 2),
    "worst": ("worst window", 3),
    "loss": ("largest loss", 0),
    "guard/cost": ("guard costs", 3),
    "guard/worst": ("its worst window", 3),
    "guard/loss": ("its largest loss", 0),
    "guard/stopped": ("stopped", 2),
}

#: The first rule, with the guard: a curve of its own.
GUARDED = "guarded"


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
    parts = [f"# {title}", "Worst windows:", overview(results, list(scenarios), learners)]
    for name, about in scenarios.items():
        parts += [f"## {name}", about, table(results, name, learners), f"![{name}]({name}.png)"]
    return "\n\n".join(parts) + "\n"


def overview(
    results: Mapping[str, Mapping[str, Any]], scenarios: Sequence[str], learners: Sequence[str]
) -> str:
    """The worst window of each rule, less static retrieval's: a row a scenario."""
    rules = [rule for rule in learners if rule != "frozen"]
    lines = [["scenario", *(f"`{rule}`" for rule in rules)], ["---"] + ["---:"] * len(rules)]
    for name in scenarios:
        values = (results.get(f"{name}/{rule}/worst") for rule in rules)
        lines.append([name, *(cell(value, 3) for value in values)])
    return markdown(lines)


def table(results: Mapping[str, Mapping[str, Any]], scenario: str, learners: Sequence[str]) -> str:
    """One scenario: a row a learner."""
    heads = [head for head, _ in COLUMNS.values()]
    lines = [["rule", *heads], ["---"] + ["---:"] * len(heads)]
    for learner in learners:
        row = f"{scenario}/{learner}"
        if f"{row}/accuracy" in results:
            cells = [cell(results.get(f"{row}/{key}"), n) for key, (_, n) in COLUMNS.items()]
            lines.append([f"`{learner}`", *cells])
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table; the second says how columns are set."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Mapping[str, Any] | None, digits: int) -> str:
    """Mean ± standard error, which is left out where it would be 0; "" where there is no value."""
    if value is None:
        return ""
    shown = value["stderr"] >= 0.5 * 10**-digits
    error = f" ± {value['stderr']:,.{digits}f}" if shown else ""
    return f"{value['mean']:,.{digits}f}{error}".replace("-", "−")


def figure(curves: Mapping[str, Float[np.ndarray, "S T"]], window: int, begins: int) -> Figure:
    """Success of every rule, a mean of windows; a line where the trouble begins.

    Args:
      curves: rule -> its successes.
      window: rounds.
      begins: the round of the line; none at 0.
    """
    rounds = next(iter(curves.values())).shape[1]
    width = min(window, rounds)
    ends = np.arange(width, rounds + 1, max(1, rounds // 400))  # more could not be told apart
    drawn, ax = plots.new_figure("round", f"success, mean of {width} rounds")
    own = None  # the colour of the rule before, which a guard shares
    for learner, success in curves.items():
        drawn_means = means(success.astype(float), width)[:, ends - width]
        apart = {"frozen": plots.GREY, GUARDED: own}
        style = {"linestyle": "--", "color": apart[learner]} if learner in apart else {}
        own = plots.curve_with_band(ax, ends, drawn_means, learner, **style).get_color()
    if begins > 0:
        ax.axvline(begins, color=plots.GREY, linewidth=0.8)
    plots.label_curves(ax)
    return drawn
