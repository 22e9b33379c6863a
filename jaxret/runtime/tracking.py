"""Trackers of metrics: lines of JSON, Weights & Biases, or none.

A tracker records metrics to watch during a run and to compare across runs. Full arrays belong in
the run's ``curves.npz`` and figures in its PNG files; `write_results` writes the final results.
"""

import json
import math
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, SupportsFloat, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from jaxret.runtime.files import write_whole

Metrics: TypeAlias = Mapping[str, SupportsFloat]  # numbers, NumPy scalars or jax scalars


class Tracker(Protocol):
    """Records the metrics of one run; any object with these five methods is a tracker."""

    def log(self, metrics: Metrics, step: int) -> None:
        """Record values at one step of a loop."""

    def curve(self, name: str, steps: Int[np.ndarray, "T"], values: Float[np.ndarray, "T"]) -> None:
        """Record a finished series over rounds.

        At most 512 points are kept, evenly spaced in log(index + 1).

        Args:
          name: name of the series.
          steps: round of each point [T], ascending.
          values: value of each point [T].
        """

    def summary(self, values: Metrics) -> None:
        """Record the final values of the run, once."""

    def figure(self, name: str, path: str | Path) -> None:
        """Record a figure from an image file."""

    def finish(self) -> None:
        """End the tracker after the last record."""


class NoopTracker:
    """A tracker that records nothing."""

    def log(self, metrics: Metrics, step: int) -> None: ...

    def curve(self, name: str, steps: np.ndarray, values: np.ndarray) -> None: ...

    def summary(self, values: Metrics) -> None: ...

    def figure(self, name: str, path: str | Path) -> None: ...

    def finish(self) -> None: ...


class JsonlTracker(NoopTracker):
    """Writes ``metrics.jsonl``, one line per step, and ``summary.json`` into a run's directory.

    A resumed run repeats the steps since its last checkpoint with the same values, which are not
    written again. Figures are in the directory already.
    """

    def __init__(self, directory: str | Path):
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._metrics = self._directory / "metrics.jsonl"
        self._metrics.touch()
        whole, end_of_line, cut_off = self._metrics.read_bytes().rpartition(b"\n")
        if cut_off:  # the process ended in the middle of a line
            os.truncate(self._metrics, len(whole + end_of_line))
        self._lines = [json.loads(line) for line in whole.splitlines()]  # of an earlier process
        self._on_file = {(name, line["step"]) for line in self._lines for name in line}

    def log(self, metrics: Metrics, step: int) -> None:
        self._append([(step, metrics)])

    def curve(self, name: str, steps: np.ndarray, values: np.ndarray) -> None:
        self._append((int(steps[i]), {name: values[i]}) for i in decimate(len(steps)))

    def summary(self, values: Metrics) -> None:
        _write_json(self._directory / "summary.json", _plain(values))

    def _append(self, rows: Iterable[tuple[int, Metrics]]) -> None:
        with self._metrics.open("a") as file:
            for step, metrics in rows:
                new = {name: v for name, v in metrics.items() if (name, step) not in self._on_file}
                if new:
                    line = {"step": int(step), **_plain(new)}
                    file.write(json.dumps(line) + "\n")
                    self._on_file.update((name, step) for name in new)
                    self._sent(line)

    def _sent(self, line: dict[str, float]) -> None:
        """Take each new line of ``metrics.jsonl``."""


class WandbTracker(JsonlTracker):
    """Logs to Weights & Biases, offline by default, and to the files of `JsonlTracker`.

    ``wandb sync`` uploads an offline run later. Values are plotted over ``step``, which is the
    round of a curve. The run's id is stored in ``wandb_id.txt``, so that a resumed run continues
    the same W&B run, and each step of a name is logged once. W&B cannot append to the folder of an
    offline run: a resumed run is written again from ``metrics.jsonl``, and the folder of the
    interrupted process is deleted.

    Args:
      directory: directory of the run; its folder ``wandb`` holds the files.
      project: W&B project of the run.
      name: name of the run; None: a random name.
      group: name that groups the runs of a sweep.
      config: settings of the run, for filters and tables.
      mode: "offline", "online" or "disabled"; None: WANDB_MODE, or "offline".
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        project: str = "jaxret",
        name: str | None = None,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
    ):
        import wandb

        super().__init__(directory)
        mode = mode or (None if "WANDB_MODE" in os.environ else "offline")
        self._image = wandb.Image
        self._run = wandb.init(
            dir=str(directory),
            id=None if mode == "disabled" else _kept_id(Path(directory)),
            resume="allow",
            project=project,
            name=name,
            group=group,
            config=dict(config or {}),
            mode=mode,
            reinit="create_new",  # several runs in one process, as in a sweep
            settings=wandb.Settings(silent=True),  # without the banner
        )
        self._run.define_metric("*", step_metric="step")
        if self._run.offline:
            for line in self._lines:
                self._run.log(line)
            own = Path(self._run.sync_dir)
            for folder in own.parent.glob(f"offline-run-*-{self._run.id}*"):
                if folder != own:
                    shutil.rmtree(folder)

    def _sent(self, line: dict[str, float]) -> None:
        self._run.log(line)

    def summary(self, values: Metrics) -> None:
        super().summary(values)
        self._run.summary.update(_plain(values))

    def figure(self, name: str, path: str | Path) -> None:
        self._run.log({name: self._image(str(path))})

    def finish(self) -> None:
        self._run.finish()


class CompositeTracker(NoopTracker):
    """Logs the steps of a loop to several trackers, and nothing else."""

    def __init__(self, *trackers: Tracker):
        self._trackers = trackers

    def log(self, metrics: Metrics, step: int) -> None:
        for tracker in self._trackers:
            tracker.log(metrics, step)


def _kept_id(directory: Path) -> str:
    """Return the stored id of the run in this directory, or a new id."""
    path = directory / "wandb_id.txt"
    if not path.exists():
        path.write_text(f"{uuid.uuid4().hex[:12]}\n")
    return path.read_text().strip()


def decimate(n: int, most: int = 512) -> Int[np.ndarray, "m"]:
    """Select at most ``most`` of the indices 0 .. n - 1, evenly spaced in log(index + 1).

    The first and the last index are always selected.

    Returns:
      Indices [m], ascending.
    """
    if n <= most:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, most).round().astype(int)) - 1


def write_results(
    directory: str | Path, results: Mapping[str, Sequence[float] | np.ndarray]
) -> None:
    """Write ``results.json``: mean over seeds, standard error and values of each result.

    The standard error is the sample deviation (ddof = 1) over sqrt(n), and null for one seed.

    Raises:
      ValueError: if a result has no values, or one that is not finite.
    """
    summaries = {}
    for name in sorted(results):
        values = np.asarray(results[name], np.float64)
        if values.ndim != 1 or values.size == 0:
            raise ValueError(
                f"result {name!r} must be one value a seed, got an array of shape {values.shape}"
            )
        if not np.isfinite(values).all():
            seed = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"result {name!r} of seed {seed} is {values[seed]}, and a mean over it says "
                "nothing: leave it out, or look why the run diverged"
            )
        n = values.size
        stderr = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else None
        mean, each = float(values.mean()), values.tolist()
        summaries[name] = {"mean": mean, "stderr": stderr, "n": n, "values": each}
    _write_json(Path(directory) / "results.json", summaries)


def read_results(directory: str | Path) -> dict[str, dict[str, Any]]:
    """Read ``results.json``: name -> ``{"mean", "stderr", "n", "values"}``."""
    return json.loads((Path(directory) / "results.json").read_text())


def _plain(metrics: Metrics) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _write_json(path: Path, content: Any) -> None:
    write_whole(path, json.dumps(content, indent=2) + "\n")
