"""What was measured, on disk as soon as it is known, and how much time is left.

    record.attempt("grid/one", measure)      runs, keeps the result or the error, writes the file

A result is a number, or a mapping of numbers such as `summary` gives.
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

Numbers = Mapping[str, Any] | float


class Record:
    """One JSON file: ``machine``, ``settings``, ``parts``, ``results``, ``missing``."""

    def __init__(self, path: Path, *, seconds: float, machine: Mapping[str, Any], **more: Any):
        self.path, self.begin, self.seconds = path, time.monotonic(), seconds
        self.until = self.begin + seconds
        self.kept: dict[str, Any] = {"machine": dict(machine), **more}
        self.kept |= {"parts": {}, "results": {}, "missing": {}}
        self.write()

    @property
    def results(self) -> dict[str, Any]:
        return self.kept["results"]

    def part(self, name: str, share: float, run: Callable[["Record"], None]) -> None:
        """Runs a part for at most its share of the time that is left; keeps its error."""
        begin = time.monotonic()
        self.until = begin + share * (self.begin + self.seconds - begin)
        try:
            run(self)
            said = "done"
        except Exception as error:
            said = f"failed: {type(error).__name__}: {error}"
            traceback.print_exc()
        jax.clear_caches()
        self.kept["parts"][name] = {"said": said, "seconds": time.monotonic() - begin}
        self.write()
        print(f"{name}: {said}, {time.monotonic() - begin:.0f} s", flush=True)

    def attempt(self, name: str, measure: Callable[[], Numbers | None]) -> Numbers | None:
        """The result of a measurement, or None where there is no time, or it failed."""
        if time.monotonic() > self.until:
            self.leave_out(name, "skipped: no time left")
            return None
        try:
            found = measure()
        except Exception as error:
            self.leave_out(name, f"failed: {type(error).__name__}: {str(error)[:500]}")
            return None
        if found is not None:
            self.keep(name, found)
        return found

    def keep(self, name: str, found: Numbers) -> None:
        """Writes a result."""
        self.results[name] = found
        self.write()
        shown = found.get("median", found) if isinstance(found, Mapping) else found
        print(f"  {name}: {shown}", flush=True)

    def leave_out(self, name: str, why: str) -> None:
        """Says what is missing."""
        self.kept["missing"][name] = why
        self.write()
        print(f"  {name}: {why}", flush=True)

    def write(self) -> None:
        """Replaces the file at once, so that it is whole whenever the machine goes."""
        scratch = self.path.with_suffix(".writing")
        scratch.write_text(json.dumps(self.kept, indent=1, default=_plain))
        os.replace(scratch, self.path)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
