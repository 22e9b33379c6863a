"""The figures: rounds beside their floor, the roofline, and everything against PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.gpu.problem import PRECISIONS
from experiments.benchmarks.gpu.settings import Settings, Size
from experiments.benchmarks.gpu.simulation import floor

Found = Mapping[str, Any]
COLOURS = {"float32": "tab:blue", "tf32": "tab:green", "bfloat16": "tab:orange", "": "tab:gray"}
FORMS = ("products", "kernel", "round_kernel", "blocked", "mesh", "scan")
FORMS += ("torch_eager", "torch_graphs", "torch_compiled")


def draw(settings: Settings, results: Found, folder: Path) -> list[Path]:
    """Draws what there are numbers for."""
    import matplotlib

    matplotlib.use("Agg")
    made = []
    for name, figure in {"rounds": _rounds, "roofline": _roofline, "against": _against}.items():
        if (drawn := figure(settings, results)) is not None:
            drawn.savefig(folder / f"{name}.png", dpi=160, bbox_inches="tight")
            made.append(folder / f"{name}.png")
    return made


def _rounds(settings: Settings, results: Found):
    """Microseconds a round: a dot a form and precision with its quartiles, the floor as a line."""
    import matplotlib.pyplot as plt

    sizes = [size for size in settings.sizes if any(size.name in name for name in results)]
    if not sizes:
        return None
    figure, axes = plt.subplots(1, len(sizes), figsize=(3.6 * len(sizes), 3.4), squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        for place, form in enumerate(FORMS):
            for offset, precision in enumerate(COLOURS):
                name = f"simulation/{size.name}/{form}/{precision}".rstrip("/")
                if name in results:
                    _dot(axis, results[name], place + 0.2 * (offset - 1), COLOURS[precision])
        for precision in PRECISIONS:
            if seconds := _floors(settings, size, results, precision):
                axis.axvline(1e6 * max(seconds), color=COLOURS[precision], linewidth=1, alpha=0.6)
        axis.set_xscale("log")
        axis.set_yticks(range(len(FORMS)), FORMS)
        axis.set_title(f"{size.items:,} x {size.width:,}")
        axis.set_xlabel("microseconds a round")
    for precision, colour in COLOURS.items():
        axes[0, 0].plot([], [], "o", color=colour, label=precision or "PyTorch, float32")
    axes[0, 0].plot([], [], color="black", linewidth=1, label="floor of the blocked form")
    for axis in axes[0, 1:]:
        axis.set_yticklabels([])
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=5, frameon=False
    )
    figure.subplots_adjust(bottom=0.26, wspace=0.08)
    return figure


def _dot(axis, found: Found, height: float, colour: str) -> None:
    axis.plot(found["quartiles"], [height] * 2, color=colour, linewidth=2)
    axis.plot(found["median"], height, "o", color=colour, markersize=4)


def _floors(settings: Settings, size: Size, results: Found, precision: str, block: int = 0):
    limits = [results.get(f"limits/{name}") for name in ("bandwidth", precision)]
    if None in limits:
        return None
    bandwidth, rate = (one["median"] for one in limits if one is not None)
    return floor(size, block or settings.block, bandwidth, rate)


def _roofline(settings: Settings, results: Found):
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
    marks = dict(zip([size.name for size in settings.sizes], "so^", strict=False))
    for size in settings.sizes:
        for form in ("scan", "blocked", "kernel", "round_kernel"):
            block = 1 if form == "scan" else settings.block
            for precision in PRECISIONS:
                if timed := results.get(f"simulation/{size.name}/{form}/{precision}"):
                    done = 4 * size.items * size.width
                    intensity = done / (12 * size.items * size.width / block)
                    rate, mark = 1e6 * done / timed["median"], marks[size.name]
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


def _against(settings: Settings, results: Found):
    """How many times as fast as PyTorch's best, by what is measured."""
    import matplotlib.pyplot as plt

    ratios = compared(settings, results)
    if not ratios:
        return None
    figure, axis = plt.subplots(figsize=(5.2, 0.4 + 0.32 * len(ratios)))
    axis.barh(range(len(ratios)), list(ratios.values()), color="tab:blue")
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(range(len(ratios)), list(ratios))
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("time of PyTorch's best form / time of jaxret's best")
    return figure


def compared(settings: Settings, results: Found) -> dict[str, float]:
    """PyTorch's fastest time over jaxret's fastest, of each thing that both did."""
    ours = ("blocked", "kernel", "round_kernel", "jax", "jax_device")
    groups = [f"simulation/{size.name}" for size in settings.sizes]
    groups += [f"encoders/{reader.name}" for reader in settings.readers]
    groups += ["training/mlc", "training/refiner"]
    ratios = {}
    for group in groups:
        timed = {
            name.removeprefix(f"{group}/"): found["median"]
            for name, found in results.items()
            if name.startswith(f"{group}/") and "median" in found
        }
        mine = [value for name, value in timed.items() if name.split("/")[0] in ours]
        theirs = [value for name, value in timed.items() if name.startswith("torch")]
        if mine and theirs:
            ratios[group] = min(theirs) / min(mine)
    return ratios
