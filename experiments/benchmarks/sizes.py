"""What do time and memory become as the catalogue grows?

    uv run python -m experiments.benchmarks.sizes again=true
    uv run python -m experiments.benchmarks.sizes sizes=[43215x1536] again=true

Runs `greedy` on random unit vectors, one seed, in the blocked form, for each size in a process of
its own:

    <I>x<d>/microseconds       per round, without compilation; one value per repeat
    <I>x<d>/peak_over_theta    peak memory of the process during the run, less that of an empty run,
                               with the task's Theta, / the size of Theta
    slope                      of log time over log items, from ``from_items`` on, where there are
                               three sizes or more of one width: 1 if time is proportional to items

``microseconds.png``: time against items, with the slope.

Needs Linux, which reports the memory of a process. 2 cores: 90 s, and 5 GB for a million items.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig

from experiments.benchmarks import machine, rounds
from experiments.benchmarks.timing import quartiles
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require


@experiment("benchmark_sizes")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Measure every size, and draw the figure."""
    print(machine.measured(), flush=True)
    results: dict[str, np.ndarray] = {}
    for size in (bar := Progress([*cfg.sizes], unit="size")):
        bar.set_postfix_str(size)
        run.pause(0)
        alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        with alone as process:  # one process per size, for separate memory counts
            found = process.submit(measure, *parsed(size), cfg.floats, cfg.repeats).result()
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
    """Refuse invalid sizes."""
    for size in cfg.sizes:
        require("sizes", size, "written as 1000x384", lambda size: min(parsed(size)) >= 1)
    large = [size for size in cfg.sizes if parsed(size)[0] >= cfg.from_items]
    few = "a number that two sizes or more reach"
    require("from_items", cfg.from_items, few, lambda _: len(cfg.sizes) < 3 or len(large) > 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print one line per size."""
    for size in cfg.sizes:
        times = quartiles(results[f"{size}/microseconds"]["values"])
        peak = results[f"{size}/peak_over_theta"]["mean"]
        print(f"{size:>12}: us a round {times}, peak memory {peak:.2f} Theta")
    if "slope" in results:
        print(f"slope from {cfg.from_items:,} items on: {results['slope']['mean']:.2f}")


def parsed(size: str) -> tuple[int, int]:
    """Read items and width from a size such as ``1000x384``."""
    items, width = size.split("x")
    return int(items), int(width)


def measure(items: int, width: int, floats: float, repeats: int) -> dict[str, list[float]]:
    """Measure ``microseconds`` and ``peak_over_theta`` of one size in this process.

    A timed run may read ``floats`` numbers of Theta, which sets its rounds, 128 to 2,048.
    """
    import jaxret as jr
    from jaxret.simulation.engine import Simulation

    count = 128 * int(np.clip(floats / (items * width) / 128, 1, 16))
    unit, queries = np.eye(8, dtype=np.float32), np.arange(8)
    jr.simulate(jr.greedy(), jr.Task.from_arrays(unit, unit, queries))  # the memory of any run
    before = machine.memory("VmRSS")
    theta = rounds.unit_rows(items, width)
    labels = np.arange(min(items, count))
    task = jr.Task.from_arrays(theta, theta[labels], labels)
    del theta
    size = task.theta.nbytes
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory
    family, numbers = jr.traced(jr.greedy())
    simulation = Simulation(family, task, seeds=[0], example=numbers, chunk=count)
    order, setting = np.resize(labels, (1, count)).astype(np.int32), simulation.setting(*numbers)
    times = []
    states = simulation.start(setting)
    for _ in range(1 + repeats):  # the first run compiles
        begin = time.perf_counter()
        states, _ = jax.block_until_ready(simulation.step(states, setting, order))
        times.append(1e6 * (time.perf_counter() - begin) / count)
    peak = machine.memory("VmHWM") - before
    return {"microseconds": times[1:], "peak_over_theta": [peak / size]}


def figure(items: np.ndarray, times: np.ndarray, large: np.ndarray, slope: float) -> Figure:
    """Draw time against items on logarithmic axes, and the slope fitted to large sizes."""
    drawn, ax = plots.new_figure("items", "microseconds a round")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.plot(items, times, "o-", label="blocked")
    through = np.exp(np.log(times[large]).mean())
    fitted = through * (items[large] / np.exp(np.log(items[large]).mean())) ** slope
    ax.plot(items[large], fitted, "--", color=plots.GREY, label=f"slope {slope:.2f}")
    plots.label_curves(ax)
    return drawn


if __name__ == "__main__":
    main.cli()
