"""Reports all experiments on one page, and on another whether the papers' claims hold.

    uv run python -m experiments.report                       # finished runs
    uv run python -m experiments.report run=true              # also runs what is missing
    uv run python -m experiments.report run=true only=[noise,rules]
    uv run python -m experiments.report publish=true          # rewrites results/papers.md

``configs/report.yaml`` lists the sections: command, data sets, sweep, and the paper's numbers.
``workers`` runs are executed side by side. Finished runs are read and interrupted ones resumed, so
the report can be stopped and started at any time. It writes ``runs/report/report.md``, with the
figures of the runs and their total time.

``publish`` reads the results that ``configs/papers.yaml`` names from the finished runs, stores them
in ``experiments/results/papers.json``, where the numbers of other runs stay, and writes the page.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments import (
    document_ablation,
    document_training,
    evaluate_retrieval,
    exploration,
    forgetting,
    latency,
    orag,
    paper_settings,
    regret,
    rerank,
    tune,
    variance,
    warm_start,
)
from experiments.common.config import plain, table
from experiments.common.experiment import command
from experiments.multihop import __main__ as multihop
from experiments.report import page, papers
from experiments.report.jobs import Job, plan
from experiments.report.workers import Task, side_by_side
from experiments.transfer import __main__ as transfer
from jaxret.runtime.files import write_whole
from jaxret.runtime.validate import require

MODULES = (evaluate_retrieval, exploration, latency, multihop, orag, paper_settings, regret)
MODULES += (rerank, warm_start, forgetting, transfer, tune, variance)
MODULES += (document_ablation, document_training)
RESULTS = Path(__file__).parents[1] / "results"
EXPERIMENTS: dict[str, Callable[[DictConfig], Any]] = {
    module.__name__.removeprefix("experiments.").removesuffix(".__main__"): module.main
    for module in MODULES
}


@command("report")
def main(cfg: DictConfig) -> dict[str, int]:
    """Write the report; return how many runs it shows, and how many are missing."""
    require("workers", cfg.workers, ">= 1", lambda n: n >= 1)
    if cfg.publish:
        papers.check_pages(papers.rows_of(table("papers")), RESULTS)
    sections = chosen(plain(cfg))
    jobs = {name: list(plan(cfg, section)) for name, section in sections.items()}
    if cfg.run:
        run_missing(cfg, sections, jobs)
    directory = Path(cfg.directory)
    directory.mkdir(parents=True, exist_ok=True)
    pages = [page.section(name, sections[name], jobs[name], directory) for name in sections]
    everything = {job.directory: job for some in jobs.values() for job in some}
    done = [path for path, job in everything.items() if job.done]
    text = "\n\n".join(["# Our experiments beside the paper's", *pages, duration(done)])
    (directory / "report.md").write_text(text + "\n")
    missing = len(everything) - len(done)
    print(f"{directory / 'report.md'}: {len(done)} runs, {missing} missing")
    print(duration(done))
    if cfg.publish:
        publish(cfg)
    return {"runs": len(done), "missing": missing}


def publish(cfg: DictConfig) -> None:
    """Write the page about the papers' claims, and the numbers on which it rests."""
    rows, sections = table("papers"), plain(cfg)["sections"]
    jobs = {name: list(plan(cfg, section)) for name, section in sections.items()}
    numbers = papers.read_numbers(rows, jobs, RESULTS / "papers.json")
    text = papers.page(rows, numbers)
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in numbers.items()]
    write_whole(RESULTS / "papers.json", "{\n" + ",\n".join(lines) + "\n}\n")
    write_whole(RESULTS / "papers.md", text)
    print(RESULTS / "papers.md")


def chosen(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selected sections."""
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


def run_missing(
    cfg: DictConfig, sections: Mapping[str, Any], jobs: Mapping[str, Sequence[Job]]
) -> None:
    """Run unfinished jobs with data side by side; timed jobs run last and one at a time."""
    begin, tasks = time.perf_counter(), {}
    for name, section in sections.items():
        for job in jobs[name]:
            if not (job.done or job.missing_data):  # one run can belong to several sections
                task = (EXPERIMENTS[section["experiment"]], job)
                tasks[job.directory] = (section.get("alone", False), task)
    side_by_side(chains(task for alone, task in tasks.values() if not alone), cfg.workers)
    side_by_side(chains(task for alone, task in tasks.values() if alone), 1)
    print(f"all runs: {(time.perf_counter() - begin) / 60:.0f} minutes, {cfg.workers} at a time")


def chains(tasks: Iterable[Task]) -> list[list[Task]]:
    """Put tasks that train shared models into one chain, each other task into its own."""
    training, others = [], []
    for run, job in tasks:
        (training if "models" in job.cfg else others).append((run, job))
    return [chain for chain in (training, *([task] for task in others)) if chain]


def duration(directories: Iterable[Path]) -> str:
    """Format the total duration of runs."""
    files = [path for folder in directories if (path := folder / "speed.json").exists()]
    minutes = sum(json.loads(path.read_text())["seconds"] for path in files) / 60
    return (
        f"{len(files)} runs took {minutes:.1f} minutes in all: training, encoding, compiling, "
        "simulating, ranking and drawing included."
    )


if __name__ == "__main__":
    main.cli()
