"""What do time and memory become as the catalogue grows?

    uv run python -m experiments.benchmarks.sizes again=true
    uv run python -m experiments.benchmarks.sizes sizes=[43215x1536] again=true     # dtype=bfloat16

A run of `greedy`, one seed, in the blocked form, for each size in a process of its own:

    <I>x<d>/microseconds       a round, compiled; one value a repeat
    <I>x<d>/peak_over_theta    the most memory that the process had while it ran, beyond what an
                               empty run has, the task's Theta included, over the size of Theta in
                               float32
    slope                      of log time over log items, from ``from_items`` on, where there are
                               three sizes or more of one width: 1 where Theta is what costs

With ``dtype=bfloat16`` the learner keeps its rows so (`jaxret.in_bfloat16`); those of the task stay
float32. Vectors are random and of unit length.

``microseconds.png``: time against items, with the slope.

On Linux, which says how much memory a process has. 2 cores: 90 s, and 5 GB for a million items.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig

from experiments.benchmarks import machine
from experiments.benchmarks.timing import quartiles
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

ROWS = 4096  # that are drawn at a time


@experiment("benchmark_sizes")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Measures every size, and draws the figure."""
    print(machine.measured(), flush=True)
    results: dict[str, np.ndarray] = {}
    for size in (bar := Progress([*cfg.sizes], unit="size")):
        bar.set_postfix_str(size)
        run.pause(0)
        alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        with alone as process:  # its memory is not that of the size before
            found = process.submit(
                measure, *parsed(size), cfg.dtype, cfg.floats, cfg.repeats
            ).result()
        results |= {f"{size}/{name}": np.array(values) for name, values in found.items()}
    widths = {parsed(size)[1] for size in cfg.sizes}
    if len(widths) == 1 and len(cfg.sizes) > 2:
        items = np.array([parsed(size)[0] for size in cfg.sizes])
        times = np.array([np.median(results[f"{size}/microseconds"]) for size in cfg.sizes])
        large = items >= cfg.from_items
        slope = np.polyfit(np.log(items[large]), np.log(times[large]), 1)[0]
        results["slope"] = np.array([slope])
        run.save_figure(figure(items, times, large, float(slope)), "microseconds")
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses sizes that cannot be."""
    for size in cfg.sizes:
        require("sizes", size, "written as 1000x384", lambda size: min(parsed(size)) >= 1)
    require("dtype", cfg.dtype, "one of float32, bfloat16", ("float32", "bfloat16").__contains__)
    large = [size for size in cfg.sizes if parsed(size)[0] >= cfg.from_items]
    few = "a number that two sizes or more reach"
    require("from_items", cfg.from_items, few, lambda _: len(cfg.sizes) < 3 or len(large) > 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a size."""
    for size in cfg.sizes:
        times = quartiles(results[f"{size}/microseconds"]["values"])
        peak = results[f"{size}/peak_over_theta"]["mean"]
        print(f"{size:>12}: us a round {times}, peak memory {peak:.2f} Theta")
    if "slope" in results:
        print(f"slope from {cfg.from_items:,} items on: {results['slope']['mean']:.2f}")


def parsed(size: str) -> tuple[int, int]:
    """Items and width."""
    items, width = size.split("x")
    return int(items), int(width)


def measure(
    items: int, width: int, dtype: str, floats: float, repeats: int
) -> dict[str, list[float]]:
    """One size, in this process.

    Args:
      items: I.
      width: d.
      dtype: of the rows that are learnt.
      floats: numbers of Theta that a timed run may read: sets its rounds, 128 to 2,048.
      repeats: timed runs.

    Returns:
      ``microseconds`` and ``peak_over_theta``.
    """
    import jaxret as jr
    from jaxret.simulation.engine import Simulation

    rounds = 128 * int(np.clip(floats / (items * width) / 128, 1, 16))
    unit, queries = np.eye(8, dtype=np.float32), np.arange(8)
    make = jr.greedy if dtype == "float32" else lambda: jr.in_bfloat16(jr.greedy())
    jr.simulate(make(), jr.Task.from_arrays(unit, unit, queries))  # what any run has
    before = _resident()
    theta = _drawn(items, width)
    labels = np.arange(min(items, rounds))
    task = jr.Task.from_arrays(theta, theta[labels], labels)
    del theta
    size = task.theta.nbytes
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far was that of making the task
    simulation = Simulation(make, task, seeds=[0], chunk=rounds)
    order, setting = np.resize(labels, (1, rounds)).astype(np.int32), simulation.setting()
    times = []
    states = simulation.start(setting)
    for _ in range(1 + repeats):  # the first compiles
        begin = time.perf_counter()
        states, _ = jax.block_until_ready(simulation.step(states, setting, order))
        times.append(1e6 * (time.perf_counter() - begin) / rounds)
    return {"microseconds": times[1:], "peak_over_theta": [(_peak() - before) / size]}


def figure(items: np.ndarray, times: np.ndarray, large: np.ndarray, slope: float) -> Figure:
    """Time against items, both logarithmic; the slope as a line through the large ones."""
    drawn, ax = plots.new_figure("items", "microseconds a round")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.plot(items, times, "o-", label="blocked")
    through = np.exp(np.log(times[large]).mean())
    fitted = through * (items[large] / np.exp(np.log(items[large]).mean())) ** slope
    ax.plot(items[large], fitted, "--", color=plots.GREY, label=f"slope {slope:.2f}")
    plots.label_curves(ax)
    return drawn


def _drawn(items: int, width: int) -> np.ndarray:
    """Unit rows; some at a time, so that nothing larger than Theta is made."""
    rng, theta = np.random.default_rng(0), np.empty((items, width), np.float32)
    for first in range(0, items, ROWS):
        rows = theta[first : first + ROWS]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return theta


def _resident() -> int:
    """Bytes that this process has now."""
    return _status("VmRSS")


def _peak() -> int:
    """The most bytes that it has had: not those of its parent, which ``ru_maxrss`` begins with."""
    return _status("VmHWM")


def _status(name: str) -> int:
    """A line of Linux's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    main.cli()
