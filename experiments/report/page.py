"""A section of the report as Markdown: tables, figures, what is missing, the paper's numbers."""

import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.tables import cell, markdown
from experiments.report.jobs import Job
from jaxret.evaluation import plots
from jaxret.runtime import tracking


def section(name: str, spec: Mapping[str, Any], jobs: Sequence[Job], directory: Path) -> str:
    """Format one section.

    Args:
      name: name of the section.
      spec: ``title``, ``columns``; ``rows``, ``figures`` (of each run), ``compare`` (curves, each
        in all runs of a data set), ``draw`` (curves together, in one figure per run), ``paper``
        (its numbers) and ``absent`` (rows of the paper that are not reproduced).
      jobs: runs of the section, grouped by data set.
      directory: directory of the report, to which figures are copied.
    """

    def picture(path: Path, words: str) -> str:
        return f"![{words}]({os.path.relpath(path, directory)})"

    parts = [f"## {spec['title']}"]
    for dataset, group in groupby(jobs, lambda job: job.dataset):
        some = list(group)
        for job in some:
            parts += [f"### {job.label}", f"    {job.command}"]
            if not job.done:
                parts.append(why(job))
                continue
            results = tracking.read_results(job.directory)
            parts.append(table(results, spec.get("rows"), spec["columns"]))
            copies = directory / "figures" / name / job.directory.name
            for figure in spec.get("figures", ()):
                if (job.directory / figure).exists():
                    copies.mkdir(parents=True, exist_ok=True)
                    shutil.copy(job.directory / figure, copies)
                    parts.append(picture(copies / figure, f"{job.label}: {figure}"))
        done = [job for job in some if job.done]
        drawn = {
            curve: {job.change or dataset: (job, curve) for job in done}
            for curve in spec.get("compare", ())
        }
        together = {curve.rpartition("/")[0]: curve for curve in spec.get("draw", ())}
        if together:
            drawn |= {
                job.directory.name: {one: (job, curve) for one, curve in together.items()}
                for job in done
            }
        for words, curves in drawn.items() if done else ():
            path = directory / "figures" / name / f"{dataset}-{words.replace('/', '-')}.png"
            draw(curves, path)
            parts.append(picture(path, f"{dataset}: {words}"))
    if "paper" in spec:
        parts += ["The paper has:", spec["paper"].strip()]
    if "absent" in spec:
        parts.append(f"Not here: {spec['absent'].strip()}")
    return "\n\n".join(parts)


def why(job: Job) -> str:
    """Explain why a run is missing."""
    if job.missing_data:
        return f"Missing: its data are not at `{job.data}` (give `data=`)."
    return "Missing: not run yet (`run=true`, or the command above)."


def table(
    results: Mapping[str, Mapping[str, Any]], rows: Sequence[str] | None, columns: Sequence[str]
) -> str:
    """Format mean ± standard error of the results ``row/column``, without empty rows."""
    if rows is None:
        ends = [(name, f"/{column}") for name in results for column in columns]
        rows = list(dict.fromkeys(name.removesuffix(e) for name, e in ends if name.endswith(e)))
    lines = []
    for row in rows:
        cells = [cell(results.get(f"{row}/{column}")) for column in columns]
        if any(cells):
            lines.append([f"`{row}`", *cells])
    return markdown(["", *columns], lines)


def draw(curves: Mapping[str, tuple[Job, str]], path: Path) -> None:
    """Draw named curves ``learner/kind`` of runs; all except regret as running means."""
    kinds = {curve.rpartition("/")[2] for _, curve in curves.values()}
    figure, ax = plots.new_figure("round", ", ".join(sorted(kinds)))
    for name, (job, curve) in curves.items():
        with np.load(job.directory / "curves.npz") as file:
            values = file[curve].astype(np.float64)
        values = values[:, np.isfinite(values).all(axis=0)]  # rounds that all seeds have
        if not curve.endswith("/regret"):
            values = plots.running_mean(values, max(1, values.shape[1] // 10))
        plots.curve_with_band(ax, 1 + np.arange(values.shape[1]), values, name)
    plots.label_curves(ax)
    plots.save(figure, path)
