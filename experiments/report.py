"""All experiments on one page, beside the paper's numbers.

    uv run python -m experiments.report                       # what has been run so far
    uv run python -m experiments.report run=true              # runs what is missing, too
    uv run python -m experiments.report run=true only=[noise,rules]

``configs/report.yaml`` lists the sections: which command, on which data sets, with which sweep, and
what the paper has there. A finished run is only read, an interrupted one goes on, so the report can
be stopped and started at will. It ends in ``runs/report/report.md``, with the figures of the runs
and the throughput of all of them together.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from experiments import (
    evaluate_retrieval,
    exploration,
    latency,
    multihop,
    orag,
    printed,
    regret,
    rerank,
    starts,
    temporal,
    transfer,
    tune,
    variance,
)
from experiments.parts import page
from experiments.parts.config import CONFIGS, plain
from experiments.parts.jobs import Job, plan

MODULES = (evaluate_retrieval, exploration, latency, multihop, orag, printed, regret, rerank)
MODULES += (starts, temporal, transfer, tune, variance)
EXPERIMENTS: dict[str, Callable[[DictConfig], Any]] = {
    module.__name__.removeprefix("experiments."): module.main for module in MODULES
}


@hydra.main(config_path=CONFIGS, config_name="report", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, int]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, int]:
    """Writes the report; returns how many runs it shows, and how many are missing."""
    sections = chosen(plain(cfg))
    jobs = {name: list(plan(cfg, section)) for name, section in sections.items()}
    if cfg.run:
        for name, some in jobs.items():
            start(EXPERIMENTS[sections[name]["experiment"]], some)
    directory = Path(cfg.directory)
    directory.mkdir(parents=True, exist_ok=True)
    pages = [page.section(name, sections[name], jobs[name], directory) for name in sections]
    everything = {job.directory: job for some in jobs.values() for job in some}
    done = [path for path, job in everything.items() if job.done]
    text = "\n\n".join(["# Our experiments beside the paper's", *pages, throughput(done)])
    (directory / "report.md").write_text(text + "\n")
    missing = len(everything) - len(done)
    print(f"{directory / 'report.md'}: {len(done)} runs, {missing} missing")
    print(throughput(done))
    return {"runs": len(done), "missing": missing}


def chosen(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that are asked for.

    Raises:
      ValueError: a section, its experiment or its data set is unknown.
    """
    sections, only = cfg["sections"], cfg["only"]
    if unknown := sorted(set(only or ()) - set(sections)):
        raise ValueError(f"only: unknown sections {unknown}; known: {', '.join(sections)}")
    for name, section in sections.items():
        for kind, asked, known in (
            ("experiment", [section["experiment"]], EXPERIMENTS),
            ("data set", section["datasets"], cfg["datasets"]),
        ):
            if unknown := sorted(set(asked) - set(known)):
                raise ValueError(
                    f"section {name}: unknown {kind} {unknown}; known: {', '.join(known)}"
                )
    return {name: sections[name] for name in only or sections}


def start(run: Callable[[DictConfig], Any], jobs: Iterable[Job]) -> None:
    """Runs what is missing and can be run; one that fails is reported and stops no other."""
    for job in jobs:
        if job.done or job.missing_data:
            continue
        print(f"== {job.command}", flush=True)
        begin = time.perf_counter()
        try:
            run(job.cfg)
        except (ValueError, ImportError, OSError) as error:
            print(f"== failed: {error}", file=sys.stderr)
        print(f"== {time.perf_counter() - begin:.0f} s", flush=True)


def throughput(directories: Iterable[Path]) -> str:
    """Rounds a second over all runs, whatever else they did counted in."""
    files = [path for folder in directories if (path := folder / "speed.json").exists()]
    speeds = [json.loads(path.read_text()) for path in files]
    rounds, seconds = (sum(speed[key] for speed in speeds) for key in ("rounds", "seconds"))
    if not rounds:
        return "No round was played."
    return (
        f"{rounds:,} rounds in {seconds / 60:.0f} minutes, {rounds / seconds:,.0f} a second, over "
        f"{len(files)} runs: all settings and seeds; encoding, compiling, ranking and drawing "
        "included."
    )


if __name__ == "__main__":
    cli()
