"""The page of a run: a table and a figure for each scenario, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.common.tables import markdown
from experiments.scenarios.measures import means
from jaxret.evaluation import plots

#: Name of a result -> head of its column, digits after the point.
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

#: Name of the curve of the first learner with its guard.
GUARDED = "guarded"


def text(
    title: str,
    results: Mapping[str, Mapping[str, Any]],
    scenarios: Mapping[str, str],
    learners: Sequence[str],
) -> str:
    """Format the page; it links to the figures ``<scenario>.png`` in the same folder."""
    parts = [f"# {title}", "Worst windows:", overview(results, list(scenarios), learners)]
    for name, about in scenarios.items():
        parts += [f"## {name}", about, table(results, name, learners), f"![{name}]({name}.png)"]
    return "\n\n".join(parts) + "\n"


def overview(
    results: Mapping[str, Mapping[str, Any]], scenarios: Sequence[str], learners: Sequence[str]
) -> str:
    """Format the worst window of each learner minus static retrieval's, a row per scenario."""
    rules = [rule for rule in learners if rule != "frozen"]
    rows = []
    for name in scenarios:
        values = (results.get(f"{name}/{rule}/worst") for rule in rules)
        rows.append([name, *(cell(value, 3) for value in values)])
    return markdown(["scenario", *(f"`{rule}`" for rule in rules)], rows, "---:")


def table(results: Mapping[str, Mapping[str, Any]], scenario: str, learners: Sequence[str]) -> str:
    """Format the table of a scenario, a row per learner."""
    rows = []
    for learner in learners:
        row = f"{scenario}/{learner}"
        if f"{row}/accuracy" in results:
            cells = [cell(results.get(f"{row}/{key}"), n) for key, (_, n) in COLUMNS.items()]
            rows.append([f"`{learner}`", *cells])
    return markdown(["rule", *(head for head, _ in COLUMNS.values())], rows, "---:")


def cell(value: Mapping[str, Any] | None, digits: int) -> str:
    """Format mean ± standard error; errors that round to 0 and missing values are left out."""
    if value is None:
        return ""
    shown = value["stderr"] >= 0.5 * 10**-digits
    error = f" ± {value['stderr']:,.{digits}f}" if shown else ""
    return f"{value['mean']:,.{digits}f}{error}".replace("-", "−")


def figure(curves: Mapping[str, Float[np.ndarray, "S T"]], window: int, begins: int) -> Figure:
    """Draw the running mean of every learner's success, and a line where the trouble begins."""
    rounds = next(iter(curves.values())).shape[1]
    width = min(window, rounds)
    ends = np.arange(width, rounds + 1, max(1, rounds // 400))  # more points would not be visible
    drawn, ax = plots.new_figure("round", f"success, mean of {width} rounds")
    own = None  # colour of the previous curve; a guarded learner has its learner's colour
    for learner, success in curves.items():
        drawn_means = means(success.astype(float), width)[:, ends - width]
        apart = {"frozen": plots.GREY, GUARDED: own}
        style = {"linestyle": "--", "color": apart[learner]} if learner in apart else {}
        own = plots.curve_with_band(ax, ends, drawn_means, learner, **style).get_color()
    if begins > 0:
        ax.axvline(begins, color=plots.GREY, linewidth=0.8)
    plots.label_curves(ax)
    return drawn
