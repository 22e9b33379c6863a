"""The page of the study of selection: tables by the length of the log, and a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.common.run_directory import RunDirectory
from experiments.common.tables import cell
from experiments.off_policy.tables import markdown
from jaxret.evaluation import plots

ESTIMATORS = ("IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos", "MIPS")
OF_SELECT = ("right", "regret", "chance", "gain", "sure", "warned")


def text(
    title: str,
    rules: Sequence[str],
    logging: Sequence[str],
    lengths: Sequence[int],
    results: Mapping[str, Mapping[str, Any]],
) -> str:
    """Formats the page in Markdown."""
    truths = ", ".join(f"{name} {results[f'value/{name}']['mean']:.3f}" for name in rules)
    parts = [f"# {title}", f"Values of the frozen rules: {truths}."]
    for name in logging:
        head = ("rounds", *ESTIMATORS, "by lot")
        for what in ("right", "regret"):
            rows = [
                (
                    f"{length:,}",
                    *(cell(results[f"{name}/{length}/values/{e}/{what}"]) for e in ESTIMATORS),
                    cell(results[f"{name}/{length}/values/chance"])
                    if what == "regret"
                    else f"{1 / len(rules):.3f}",
                )
                for length in lengths
            ]
            parts += [f"{name}: {what}, by the values of frozen rules", markdown(head, rows)]
        rows = [
            (f"{length:,}", *(cell(results[f"{name}/{length}/select/{e}"]) for e in OF_SELECT))
            for length in lengths
        ]
        parts += [f"{name}: `jr.select`", markdown(("rounds", *OF_SELECT), rows)]
    return "\n\n".join(parts) + "\n"


def figures(
    run: RunDirectory,
    logging: Sequence[str],
    lengths: Sequence[int],
    values: Mapping[str, np.ndarray],
) -> None:
    """Draws the regret of the chosen rule over the length of the log."""
    for name in logging:
        drawn, ax = plots.new_figure("rounds of the log", "success a round below the best rule's")
        for way in ("IPS", "SNIPS", "DR", "DRos", "MIPS"):
            regret = [values[f"{name}/{length}/values/{way}/regret"] for length in lengths]
            plots.curve_with_band(ax, np.array(lengths), np.stack(regret, axis=1), way)
        regret = [values[f"{name}/{length}/select/regret"] for length in lengths]
        plots.curve_with_band(ax, np.array(lengths), np.stack(regret, axis=1), "jr.select")
        lot = [values[f"{name}/{length}/values/chance"] for length in lengths]
        line = plots.curve_with_band(ax, np.array(lengths), np.stack(lot, axis=1), "by lot")
        line.set(linestyle="--", color=plots.GREY)
        ax.set(xscale="log")
        ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
        plots.label_curves(ax)
        run.save_figure(drawn, f"selection_{name}")
