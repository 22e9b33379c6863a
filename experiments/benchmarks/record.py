"""Keeps measurements on disk as they come, within a time limit.

    record = Record(path, seconds=450, machine=..)
    record.part("grid", 0.4, measure)            runs a part within a share of the time that is left
    record.attempt("grid/one", function)         keeps the result of a function, or its error
    record.compare("grid", builds, 1e3, 10)      keeps the times of several forms

Imports neither hydra nor PyTorch.
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from experiments.benchmarks import timing
from experiments.benchmarks.timing import Form

Build: TypeAlias = Callable[[], Form]


class Record:
    """The JSON file: ``machine``, ``settings``, ``parts``, ``results``, ``missing``.

    Args:
      path: path of the file, rewritten after every measurement.
      seconds: for all parts together.
      more: further entries of the file.
    """

    def __init__(self, path: Path, seconds: float, **more: Any):
        self.path, self.end = path, time.monotonic() + seconds
        self.until = self.end  # end of the current part
        self.kept: dict[str, Any] = {**more, "parts": {}, "results": {}, "missing": {}}

    def part(self, name: str, share: float, run: Callable[["Record"], None]) -> None:
        """Run a part within a share of the time that is left; an error ends that part alone."""
        begin, outcome = time.monotonic(), "done"
        self.until = begin + share * (self.end - begin)
        try:
            run(self)
        except Exception as error:
            outcome = f"failed: {type(error).__name__}: {error}"
            traceback.print_exc()
        jax.clear_caches()
        self.keep("parts", name, {"outcome": outcome, "seconds": time.monotonic() - begin})

    def attempt(self, name: str, measure: Callable[[], Any]) -> bool:
        """Keep the result of a measurement, or why there is none; tell whether there is one."""
        try:
            if time.monotonic() > self.until:
                raise TimeoutError("no time left")
            self.keep("results", name, measure())
        except Exception as error:
            self.keep("missing", name, f"{type(error).__name__}: {str(error)[:500]}")
        return name not in self.kept["missing"]

    def keep(self, group: str, name: str, value: Any) -> None:
        """Add an entry and replace the file at once, since the machine may stop at any time."""
        self.kept[group][name] = value
        scratch = self.path.with_suffix(".writing")
        scratch.write_text(json.dumps(self.kept, indent=1))
        os.replace(scratch, self.path)
        print(f"{name}: {value}", flush=True)

    def compare(self, group: str, builds: Mapping[str, Build], scale: float, repeats: int) -> None:
        """Build forms and time in turn those that work; each is called twice before it counts.

        ``scale`` is the number of units of time in a second.
        """
        ready: dict[str, Form] = {}

        def prepare(name):
            begin, form = time.monotonic(), builds[name]()
            form.call()
            ready[name] = form
            return time.monotonic() - begin

        for name in builds:
            self.attempt(f"{group}/{name}/seconds_to_first", partial(prepare, name))
        for name, seconds in timing.in_turn(ready, repeats, self.until).items():
            spread = (scale * np.quantile(seconds, np.arange(5) / 4)).tolist()
            found = {"median": spread[2], "quartiles": spread[1:4:2], "extremes": spread[::4]}
            self.keep("results", f"{group}/{name}", {**found, "n": len(seconds)})
