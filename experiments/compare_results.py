"""Are two sets of runs the same, number by number?

    uv run python -m experiments.compare_results BEFORE AFTER

Each folder holds runs, found by their ``results.json``; runs are matched by their path in the
folder (those of a multirun by order). Mean and standard error of every result are compared, except
times. Prints a line per run, and exits with status 1 if a run or a number is missing or differs by
more than 1e-6.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

#: Words in the names of results that are times, which differ from run to run.
TIMES = ("microseconds", "seconds", "milliseconds", "texts_per_second", "read", "search", "total")
TOLERANCE = 1e-6  # relative to the larger number, or absolute below 1


class Comparison(NamedTuple):
    """The comparison of one run."""

    run: str
    results: int  # results in both runs
    equal: int  # exactly equal results
    largest: float  # largest difference
    missing: tuple[str, ...]  # results missing on one side


def compare(before: Path, after: Path) -> list[Comparison]:
    """Compare the runs of two folders."""
    old, new = dict(_runs(before)), dict(_runs(after))
    lines = []
    for run in sorted(old.keys() | new.keys()):
        if run not in old or run not in new:
            lines.append(
                Comparison(run, 0, 0, np.inf, (f"the run, {'after' if run in old else 'before'}",))
            )
            continue
        lines.append(_compare_run(run, old[run], new[run]))
    return lines


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="folder of runs to compare with")
    parser.add_argument("after", type=Path, help="folder of the same runs, made again")
    given = parser.parse_args(arguments)
    lines = compare(given.before, given.after)
    if not lines:
        parser.error(f"no results.json under {given.before} or {given.after}")
    print("| run | results | equal to the bit | largest difference |\n| --- | --- | --- | --- |")
    for line in lines:
        print(f"| {line.run} | {line.results} | {line.equal} | {line.largest:.1e} |")
    for line in lines:
        if line.missing:
            print(f"{line.run}: missing {', '.join(line.missing)}")
    return int(any(line.missing or line.largest > TOLERANCE for line in lines))


def _runs(folder: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    by_folder: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("results.json")):
        by_folder.setdefault(path.relative_to(folder).parts[0], []).append(path)
    for place, paths in by_folder.items():
        # The runs of a sweep are matched by the order of their results, not by folder names.
        found = sorted(
            (_read(path) for path in paths),
            key=lambda x: sorted((k, *map(float, v)) for k, v in x.items()),
        )
        for number, values in enumerate(found):
            yield (place if len(found) == 1 else f"{place} {number + 1}"), values


def _read(path: Path) -> dict[str, np.ndarray]:
    results = json.loads(path.read_text())
    return {
        name: np.array([value["mean"], value["stderr"]], np.float64)
        for name, value in results.items()
        if not {*name.split("/")} & {*TIMES}
    }


def _compare_run(run: str, old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> Comparison:
    both = sorted(old.keys() & new.keys())
    apart = [_apart(old[name], new[name]) for name in both]
    return Comparison(
        run=run,
        results=len(both),
        equal=sum(x == 0 for x in apart),
        largest=max(apart, default=0.0),
        missing=tuple(sorted(old.keys() ^ new.keys())),
    )


def _apart(old: np.ndarray, new: np.ndarray) -> float:
    """Return the largest difference, relative for numbers above 1; NaN equals NaN."""
    if old.shape != new.shape:
        return np.inf
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    scale = np.maximum(1.0, np.maximum(np.abs(old), np.abs(new)))
    return float(
        np.where(same, 0.0, np.nan_to_num(np.abs(old - new) / scale, nan=np.inf)).max(initial=0.0)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
