"""Times of several forms of one thing, in turn, each call until its result is there."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np

from experiments.benchmarks.gpu.record import Record

Call = Callable[[], object]
Build = Callable[[], tuple[Call, float]]


def compare(
    record: Record,
    group: str,
    builds: Mapping[str, Build],
    *,
    unit: str,
    scale: float,
    repeats: int,
) -> None:
    """Builds forms, warms them up, and times those that work in turn: one bad form costs no other.

    Args:
      record: keeps ``group/NAME``: median, quartiles and extremes.
      group: begins the names.
      builds: name -> (a call that returns when its result is there, what one call counts for).
      unit: of the numbers.
      scale: of a second in the unit.
      repeats: counted calls of each form; two before them are not.
    """
    ready: dict[str, tuple[Call, float]] = {}

    def prepare(name, build):
        begin = time.perf_counter()
        call, count = build()
        call()
        first = time.perf_counter() - begin
        call()
        ready[name] = call, count
        return {"seconds_until_first": first}

    for name, build in builds.items():
        record.attempt(f"{group}/{name}/start", lambda name=name, build=build: prepare(name, build))
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(repeats):
        if times and time.monotonic() > record.until and min(map(len, times.values())) >= 3:
            break
        for name, (call, count) in ready.items():
            begin = time.perf_counter()
            call()
            times[name].append(scale * (time.perf_counter() - begin) / count)
    for name, values in times.items():
        record.keep(f"{group}/{name}", summary(values, unit))


def within(context: Callable[[], AbstractContextManager], build: Build) -> Build:
    """The form, built and called inside a context: what decides the precision of its products."""

    def built():
        with context():
            call, count = build()

        def inside():
            with context():
                return call()

        return inside, count

    return built


def summary(values: list[float], unit: str) -> dict[str, object]:
    """Median, quartiles and extremes."""
    low, first, middle, third, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    found = {"median": middle, "quartiles": [first, third], "extremes": [low, high]}
    return {**found, "n": len(values), "unit": unit}
