"""The figures: rounds beside their floor, the roofline, and everything against PyTorch.

All of them from the JSON file alone, so that they can be drawn of any run, at any time.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.gpu.problem import PRECISIONS
from experiments.benchmarks.gpu.simulation import floor

Found = Mapping[str, Any]
COLOURS = {"float32": "tab:blue", "tf32": "tab:green", "bfloat16": "tab:orange"}
#: group, form, and the precision where there are several
NAME = re.compile(r"((?:simulation|encoders|training)/[^/]+)/([^/]+)((?:/[^/]+)?)")
FORMS = ("products", "kernel", "round_kernel", "blocked", "mesh", "scan")
FORMS += ("torch_eager", "torch_graphs", "torch_compiled")


def draw(path: Path) -> list[Path]:
    """Draws what a file has numbers for, beside it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kept = json.loads(path.read_text())
    results, block = kept["results"], kept["settings"]["block"]
    figures = {
        "rounds": _rounds(results, block),
        "roofline": _roofline(results, block),
        "against": _against(results),
    }
    made = []
    for name, figure in figures.items():
        if figure is not None:
            made.append(path.with_name(f"{name}.png"))
            figure.savefig(made[-1], dpi=160, bbox_inches="tight")
            plt.close(figure)
    return made


def _sizes(results: Found) -> dict[str, tuple[int, int]]:
    """The catalogues of the simulation, small ones first: name -> I, d."""
    names = {name.split("/")[1] for name in results if name.startswith("simulation/")}
    sizes = {name: (int(x), int(y)) for name in names for x, y in [name.split("x")]}
    return dict(sorted(sizes.items(), key=lambda one: one[1][0] * one[1][1]))


def _rounds(results: Found, block: int):
    """Microseconds a round: a dot a form and precision with its quartiles, the floor as a line."""
    import matplotlib.pyplot as plt

    if not (sizes := _sizes(results)):
        return None
    figure, axes = plt.subplots(1, len(sizes), figsize=(3.6 * len(sizes), 3.4), squeeze=False)
    for axis, (size, (items, width)) in zip(axes[0], sizes.items(), strict=True):
        for place, form in enumerate(FORMS):
            for offset, precision in enumerate(COLOURS):
                name = f"simulation/{size}/{form}/{precision}"
                if name in results:
                    _dot(axis, results[name], place + 0.2 * (offset - 1), COLOURS[precision])
        for precision in PRECISIONS:
            if seconds := _floors(results, items, width, block, precision):
                axis.axvline(1e6 * max(seconds), color=COLOURS[precision], linewidth=1, alpha=0.6)
        axis.set_xscale("log")
        axis.set_yticks(range(len(FORMS)), FORMS)
        axis.set_title(f"{items:,} x {width:,}")
        axis.set_xlabel("microseconds a round")
    for precision, colour in COLOURS.items():
        axes[0, 0].plot([], [], "o", color=colour, label=precision)
    axes[0, 0].plot([], [], color="black", linewidth=1, label="floor of the blocked form")
    for axis in axes[0, 1:]:
        axis.set_yticklabels([])
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False
    )
    figure.subplots_adjust(bottom=0.26, wspace=0.08)
    return figure


def _dot(axis, found: Found, height: float, colour: str) -> None:
    axis.plot(found["quartiles"], [height] * 2, color=colour, linewidth=2)
    axis.plot(found["median"], height, "o", color=colour, markersize=4)


def _floors(results: Found, items: int, width: int, block: int, precision: str):
    limits = [results.get(f"limits/{name}") for name in ("bandwidth", precision)]
    if None in limits:
        return None
    bandwidth, rate = (one["median"] for one in limits if one is not None)
    return floor(items, width, block, bandwidth, rate)


def _roofline(results: Found, block: int):
    """Operations a second of the scan and the blocked form over operations a byte."""
    import matplotlib.pyplot as plt

    if "limits/bandwidth" not in results:
        return None
    figure, axis = plt.subplots(figsize=(5.2, 3.8))
    across = np.geomspace(0.1, 1000, 200)
    bandwidth = results["limits/bandwidth"]["median"]
    for precision in PRECISIONS:
        if f"limits/{precision}" in results:
            rate = results[f"limits/{precision}"]["median"]
            roof = np.minimum(across * bandwidth, rate)
            axis.plot(
                across, roof, color=COLOURS[precision], linewidth=1, label=f"roof, {precision}"
            )
    sizes = _sizes(results)
    marks = dict(zip(sizes, "so^", strict=False))
    for size, (items, width) in sizes.items():
        for form in ("scan", "blocked", "kernel", "round_kernel"):
            for precision in PRECISIONS:
                if timed := results.get(f"simulation/{size}/{form}/{precision}"):
                    done = 4 * items * width
                    intensity = done / (12 * items * width / (1 if form == "scan" else block))
                    rate, mark = 1e6 * done / timed["median"], marks[size]
                    full = "none" if form.endswith("kernel") else COLOURS[precision]
                    place: dict[str, Any] = {"color": COLOURS[precision], "markerfacecolor": full}
                    axis.plot(intensity, rate, mark, markersize=5, **place)
    for name, mark in marks.items():
        axis.plot([], [], mark, color="black", markersize=5, label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("operations a byte of Theta: scan (left), blocked (right; hollow: kernels)")
    axis.set_ylabel("operations a second")
    axis.legend(frameon=False, fontsize=8)
    return figure


def _against(results: Found):
    """How many times as fast as PyTorch's best, by what is measured."""
    import matplotlib.pyplot as plt

    if not (ratios := compared(results)):
        return None
    figure, axis = plt.subplots(figsize=(5.2, 0.4 + 0.32 * len(ratios)))
    axis.barh(range(len(ratios)), list(ratios.values()), color="tab:blue")
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(range(len(ratios)), list(ratios))
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("time of PyTorch's best form / time of jaxret's best")
    return figure


def compared(results: Found) -> dict[str, float]:
    """PyTorch's fastest time over jaxret's fastest, of each thing that both did in a precision.

    Keys are ``simulation/<I>x<d>/<precision>`` and ``training/<model>/<precision>``, and
    ``encoders/<network>``, whose forms are all in bfloat16.
    """
    ours = ("blocked", "kernel", "round_kernel", "jax", "jax_device")
    best: dict[str, dict[bool, float]] = {}
    for name, found in results.items():
        if (parts := NAME.fullmatch(name)) and "median" in found:
            group, form, precision = parts.groups()
            torch = form.startswith("torch")
            if torch or form in ours:
                times = best.setdefault(group + precision, {})
                times[torch] = min(found["median"], times.get(torch, np.inf))
    return {
        name: times[True] / times[False] for name, times in sorted(best.items()) if len(times) == 2
    }
