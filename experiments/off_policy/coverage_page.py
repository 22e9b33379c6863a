"""The page of the study of coverage: tables of all cells, their sums, and two figures.

A cell is a pair of a logging policy and a judged policy, with some hundreds of logs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.common.run_directory import RunDirectory
from experiments.off_policy.tables import markdown
from jaxret.evaluation import plots
from jaxret.offline.off_policy import FEW

ANYTIME = ("IPS", "DR", "clipped IPS")  # clipped IPS only has a lower bound
BOOTSTRAP = ("SNIPS", "Switch-DR")
ESTIMATORS = ("IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos", "MIPS")
MARKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LOW, OFTEN = (
    0.9,
    0.5,
)  # coverage that is too low; share of warned logs from which a cell counts as warned


class Cell(NamedTuple):
    """The logs of one policy, and another that is judged."""

    serves: str
    judged: str
    values: Mapping[str, np.ndarray]  # measure -> one value per log

    def mean(self, name: str) -> float:
        """Returns the mean of a measure over logs."""
        return float(np.mean(self.values[name]))

    def root(self, estimator: str) -> float:
        """Returns the root mean squared error."""
        return float(np.sqrt(np.mean(self.values[f"error/{estimator}"] ** 2)))


def text(
    dataset: str,
    serving: Sequence[str],
    judged: Sequence[str],
    results: Mapping[str, Mapping[str, Any]],
) -> str:
    """Formats the page in Markdown."""
    values = {name: np.asarray(found["values"]) for name, found in results.items()}
    each = [*cells(serving, judged, values)]
    parts = [f"# Coverage on {dataset}"]
    truths = ", ".join(f"{name} {values[f'value/{name}'][0]:.3f}" for name in judged)
    parts.append(f"Values that are to be covered: {truths}.")
    parts.append(policies(serving, values, each))
    parts.append(sums(each))
    parts.append(coverage(each))
    parts.append(errors(each))
    return "\n\n".join(parts) + "\n"


def cells(
    serving: Sequence[str], judged: Sequence[str], values: Mapping[str, np.ndarray]
) -> Iterator[Cell]:
    """Returns all cells with accepted logs."""
    for serves in serving:
        for one in judged:
            mine = f"{serves}/{one}/"
            found = {key.removeprefix(mine): x for key, x in values.items() if key.startswith(mine)}
            if found:
                yield Cell(serves, one, found)


def policies(serving: Sequence[str], values: Mapping[str, np.ndarray], each: Sequence[Cell]) -> str:
    """Formats each logging policy's mean reward, refused logs, and coverage of accepted logs."""
    rows = []
    for name in serving:
        refused, held = values[f"{name}/refused"], together(each, name)
        earned, count = values[f"{name}/earned"].mean(), f"{refused.sum():.0f} of {len(refused)}"
        rows.append((name, f"{earned:.3f}", count, f"{held.mean():.3f}" if held.size else ""))
    head = ("logging policy", "mean reward", "logs refused", "all anytime intervals hold")
    return markdown(head, rows)


def sums(each: Sequence[Cell]) -> str:
    """Formats the coverage over all cells, and the failures and warnings of the bootstrap."""
    logs = [together(each, serves) for serves in dict.fromkeys(one.serves for one in each)]
    lines = [
        f"- all intervals that hold at all times, of every judged policy together: in "
        f"{np.concatenate(logs).sum():,} of {sum(map(len, logs)):,} logs "
        f"({np.concatenate(logs).mean():.4f})"
    ]
    for name in (*ANYTIME, *BOOTSTRAP):
        held = np.concatenate([one.values[f"coverage/{name}"] for one in each])
        least = min(each, key=lambda one: one.mean(f"coverage/{name}"))
        lines.append(
            f"- {name}: {held.sum():,.0f} of {len(held):,} intervals cover ({held.mean():.4f}); the"
            f" least of {len(each)} cells {least.mean(f'coverage/{name}'):.3f} ({least.serves}, "
            f"{least.judged})"
        )
    doubted = np.concatenate([one.values["warned"] for one in each]) > 0
    for name in BOOTSTRAP:
        held = np.concatenate([one.values[f"coverage/{name}"] for one in each])
        lines.append(
            f"- {name}'s bootstrap covers in {share(held[~doubted])} of the logs without a warning,"
            f" in {share(held[doubted])} of those with one"
        )
        low = [one for one in each if one.mean(f"coverage/{name}") < LOW]
        other = [one for one in each if one not in low]
        silent = [one for one in low if one.mean("warned") < OFTEN]
        lines.append(
            f"- {name}'s bootstrap covers less than {LOW} in {len(low)} of {len(each)} cells; the "
            f"warning comes in {warned(low)} of the logs there, in {warned(other)} of the others"
        )
        lines += [
            f"  - low without a warning: {one.serves}, {one.judged}: "
            f"{one.mean(f'coverage/{name}'):.3f}, {one.mean('effective'):.0f} effective, warned in "
            f"{one.mean('warned'):.2f}"
            for one in silent
        ]
    return "\n".join(lines)


def together(each: Sequence[Cell], serves: str) -> np.ndarray:
    """Computes whether all anytime-valid intervals from a log of one policy hold.

    Returns:
      [n] of the logs.
    """
    mine = [one.values for one in each if one.serves == serves]
    held = [values[f"coverage/{name}"] for values in mine for name in ANYTIME]
    return np.all(held, axis=0) if held else np.zeros(0, bool)


def share(held: np.ndarray) -> str:
    """Formats a mean with its number of values."""
    return f"{held.mean():.3f} ({len(held):,})" if len(held) else "none"


def warned(some: Sequence[Cell]) -> str:
    """Formats the share of logs with a warning, over some cells."""
    return f"{np.mean([one.mean('warned') for one in some]):.3f}" if some else "none"


def coverage(each: Sequence[Cell]) -> str:
    """Formats a row per cell: coverage and width of intervals."""
    head = ("logging", "evaluated", "logs", "effective", "warned", *ANYTIME, *BOOTSTRAP)
    rows = [
        (
            *(one.serves, one.judged, f"{len(one.values['warned'])}"),
            *(f"{one.mean('effective'):,.0f}", f"{one.mean('warned'):.2f}"),
            *(f"{one.mean(f'coverage/{name}'):.3f}" for name in (*ANYTIME, *BOOTSTRAP)),
            *(f"{one.mean(f'width/{name}'):.3f}" for name in ("IPS", "DR", "SNIPS")),
        )
        for one in each
    ]
    return markdown((*head, "width IPS", "DR", "SNIPS"), rows)


def errors(each: Sequence[Cell]) -> str:
    """Formats a row per cell: root mean squared error, and bias if above three standard errors."""
    return markdown(
        ("logging", "evaluated", *ESTIMATORS),
        [(one.serves, one.judged, *(error(one, name) for name in ESTIMATORS)) for one in each],
    )


def error(one: Cell, estimator: str) -> str:
    """Formats ``root mean squared error (bias)``."""
    values = one.values[f"error/{estimator}"]
    bias, noise = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    shown_bias = f" ({bias:+.3f})" if abs(bias) > 3 * noise and abs(bias) >= 0.0005 else ""
    return f"{one.root(estimator):.3f}{shown_bias}"


def figures(
    run: RunDirectory,
    serving: Sequence[str],
    judged: Sequence[str],
    values: Mapping[str, np.ndarray],
) -> None:
    """Draws coverage over effective sample size, one dot per cell, and errors by logging policy."""
    each = [*cells(serving, judged, values)]
    if not each:
        return
    drawn, ax = plots.new_figure("effective sample size, mean of a cell", "share of logs covered")
    size = np.array([max(one.mean("effective"), 0.1) for one in each])
    for name, mark in zip(("IPS", "DR", "SNIPS", "Switch-DR"), "os^D", strict=True):
        held = [one.mean(f"coverage/{name}") for one in each]
        ax.plot(size, held, mark, markersize=6, alpha=0.7, label=name, clip_on=False)
    ax.set(xscale="log", ylim=(0, 1))
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.minorticks_off()
    ax.axhline(0.95, color=plots.GREY, linewidth=0.8)
    ax.axvline(FEW, color=plots.GREY, linewidth=0.8, linestyle="--")
    ax.margins(x=0.05)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, handletextpad=0)
    run.save_figure(drawn, "coverage")

    for one in judged:
        mine = [cell for cell in each if cell.judged == one]
        drawn, ax = plots.new_figure("", "root mean squared error")
        for name in ESTIMATORS:
            ax.plot([cell.root(name) for cell in mine], "o-", markersize=4, label=name)
        ax.set(yscale="log")
        least, most = ax.get_ylim()
        marks = [mark for mark in MARKS if least <= mark <= most]
        ax.set_yticks(marks, [f"{mark:g}" for mark in marks])
        ax.minorticks_off()
        names = [cell.serves.replace("_0_", " 0.").replace("_", " ") for cell in mine]
        ax.set_xticks(range(len(mine)), names, rotation=35, ha="right")
        ax.margins(x=0.03)
        plots.label_curves(ax)
        run.save_figure(drawn, f"errors_{one}")
