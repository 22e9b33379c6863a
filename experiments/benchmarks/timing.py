"""Forms of one thing, timed in one process, in turn; and what is printed of each.

A ratio of two forms that take turns survives a noisy machine where a time does not. Of each form,
one value a repeat:

    FORM/<unit>             its time
    FORM/over_memory        its time over what the bytes that it must move take
    FORM/over_arithmetic    the same of its operations (`experiments.benchmarks.work`)

The smaller of the two is the time over its limit, and says what limits it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.benchmarks.work import LIMITS, Work
from experiments.common.experiment import Found
from experiments.common.tables import print_table

UNITS = {"microseconds": 1e6, "milliseconds": 1e3}


class Form(NamedTuple):
    """One way to do a thing."""

    call: Callable[[], object]  # returns when its result is there
    work: Work  # of one of its rounds
    rounds: int = 1  # of a call


def in_turn(forms: Mapping[str, Form], repeats: int) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Times forms; the first call of each is not counted.

    Returns:
      seconds a round of each form, [repeats].
    """
    times: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(repeats + 1):
        for name, form in forms.items():
            begin = time.perf_counter()
            form.call()
            if repeat:
                times[name].append((time.perf_counter() - begin) / form.rounds)
    return {name: np.array(values) for name, values in times.items()}


def timed(
    forms: Mapping[str, Form], repeats: int, unit: str, *, bandwidth: float, rate: float
) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Times forms in turn, and holds each against its limits.

    Args:
      forms: by name.
      repeats: calls that count.
      unit: of `UNITS`.
      bandwidth: bytes a second.
      rate: operations a second.

    Returns:
      the names above, each [repeats].
    """
    found = {}
    for name, seconds in in_turn(forms, repeats).items():
        found[f"{name}/{unit}"] = UNITS[unit] * seconds
        for kind, least in forms[name].work.seconds(bandwidth, rate).items():
            found[f"{name}/over_{kind}"] = seconds / least
    return found


def quartiles(values: Sequence[float] | Float[np.ndarray, " n"]) -> str:
    """The median, and the quartiles where they differ."""
    low, middle, high = (
        f"{x:,.0f}" if 100 <= x < 1e6 else f"{x:.3g}"
        for x in np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    )
    return f"{middle} ({low} to {high})" if low != high else middle


def show(results: Found, unit: str, title: str) -> None:
    """Prints a line a form, then one for each number that is of no single form.

    Args:
      results: of `jaxret.runtime.tracking.read_results`, as above.
      unit: of the times.
      title: above the table.
    """
    last = f"/over_{LIMITS[0]}"
    forms = [name.removesuffix(last) for name in results if name.endswith(last)]
    rows = {}
    for form in forms:
        over = {kind: np.median(results[f"{form}/over_{kind}"]["values"]) for kind in LIMITS}
        limit = min(over, key=over.__getitem__)
        times = quartiles(results[f"{form}/{unit}"]["values"])
        rows[form] = [times, f"{over[limit]:.2f} {limit}"]
    print_table(title, [unit, "over its limit"], rows)
    for name, value in results.items():
        if name.rpartition("/")[0] not in forms:
            print(f"{name:45s} {quartiles(value['values'])}")
