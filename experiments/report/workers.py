"""Executes several runs side by side, each in its own process with a share of the cores.

The output of a run goes to ``output.txt`` in its directory; its start and end are printed here.
When stopped, every run saves and ends, as it would alone.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, TypeAlias

from omegaconf import DictConfig

from experiments.report.jobs import Job
from jaxret.runtime.checkpoint import interruptible

Task: TypeAlias = tuple[Callable[[DictConfig], Any], Job]  # the experiment's main, and the run


def side_by_side(chains: Sequence[Sequence[Task]], workers: int) -> None:
    """Run all chains side by side, and the tasks of a chain one after another.

    A run that fails is reported and does not stop the others.
    """
    workers = min(workers, len(chains))
    context = multiprocessing.get_context("spawn")  # a fork of JAX's threads would hang
    begun = context.Value("i", 0)
    work = partial(context.Process, target=_work, args=(chains, begun, workers))
    processes = [work() for _ in range(workers)]
    for process in processes:
        process.start()
    with interruptible() as interrupted:
        while any(process.is_alive() for process in processes):
            for process in processes:
                process.join(0.2)
                if interrupted():
                    process.terminate()
    if interrupted():
        print("stopped, and saved: the same command resumes", file=sys.stderr)
        raise SystemExit(143)
    for process in processes:
        if process.exitcode:
            print(f"== a worker ended with code {process.exitcode}", file=sys.stderr)


def _work(chains: Sequence[Sequence[Task]], begun, workers: int) -> None:
    """Run chains that no other worker has begun, until none is left."""
    flags, cores = os.environ.get("XLA_FLAGS", ""), os.cpu_count() or 1
    if "device_count" not in flags:  # a share of the devices that a single run would have
        share = f"--xla_force_host_platform_device_count={max(1, cores // workers)}"
        os.environ["XLA_FLAGS"] = f"{flags} {share}"
    while True:
        with begun.get_lock():
            number, begun.value = begun.value, begun.value + 1
        if number >= len(chains):
            return
        for run, job in chains[number]:
            _run(run, job)


def _run(run: Callable[[DictConfig], Any], job: Job) -> None:
    """Execute one run, with its output stored beside its results."""
    job.directory.mkdir(parents=True, exist_ok=True)
    print(f"== {job.command}", flush=True)
    begin, failure = time.perf_counter(), ""
    with (
        (job.directory / "output.txt").open("a") as output,
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        try:
            run(job.cfg)
        except (ValueError, ImportError, OSError) as error:
            failure = f", failed: {error}"
    print(f"== {time.perf_counter() - begin:.0f} s{failure} ({job.directory})", flush=True)
