"""Box plots of two sides per group, next to each other."""

import re
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxret.evaluation import plots


def boxes(groups: Mapping[str, Mapping[str, np.ndarray]], label: str) -> Figure:
    """Draws a box for each side of each group: quartiles, mean, whiskers at 5 and 95 %."""
    figure, ax = plots.new_figure("", label)
    sides = list(next(iter(groups.values())))
    for i, side in enumerate(sides):
        ax.boxplot(
            [group[side] for group in groups.values()],
            positions=np.arange(len(groups)) + 0.36 * (i - (len(sides) - 1) / 2),
            widths=0.3,
            whis=(5, 95),
            showfliers=False,
            showmeans=True,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": plots.COLOURS[i], "alpha": 0.75},
            medianprops={"color": "black"},
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black"},
        )
    names = ["\n".join(re.split("[_/+]", name)) for name in groups]  # splits long names into lines
    ax.set_xticks(range(len(groups)), names, color="black")
    ax.set_xlim(-0.5, len(groups) - 0.5)
    handles = [Patch(color=plots.COLOURS[i], alpha=0.75, label=s) for i, s in enumerate(sides)]
    ax.legend(handles=handles, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure
