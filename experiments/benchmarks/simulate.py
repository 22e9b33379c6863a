"""How fast is the blocked simulation, against the scan, its matrix products and PyTorch?

    uv run python -m experiments.benchmarks.simulate again=true
    uv run python -m experiments.benchmarks.simulate sizes=[3000x384]

Times ORAG's Algorithm 1 on random unit vectors (`experiments.benchmarks.rounds`), all forms in one
process, in turn; XLA and PyTorch have one thread per core. Prints the machine with its caches,
bandwidth and rate, then medians and quartiles: the time of each form per round, its ratio to the
limit of its bytes or operations, and which of the two limits it (`experiments.benchmarks.timing`).
Keys of results.json (one value per repeat; speed-ups are larger where blocked is faster):

    <I>x<d>/<form>/microseconds      per round; floor (the two products), blocked, scan, torch
    <I>x<d>/<form>/over_memory       that / what its bytes take, at <I>x<d>/in_place: passes over
                                     an array of the size of Theta, in a cache or in memory
    <I>x<d>/<form>/over_arithmetic   that / what its operations take, at machine/rate
    <I>x<d>/blocked_over_scan        time of the round-by-round scan / time of the blocked form
    <I>x<d>/blocked_over_floor       time of the blocked form / time of its two matrix products
    <I>x<d>/blocked_over_torch       time of the same rounds in PyTorch, in place / blocked
    grid/one_program_over_runs       64 runs one after another / one program over the grid

PyTorch is left out where torch is not installed.

2 cores: 7 min with torch. Expect at 43215x1536: 9 to 12 over the scan, 1.2 to 1.4 over the floor,
14 to 24 over PyTorch.
"""

import numpy as np
from omegaconf import DictConfig

from experiments.benchmarks import machine, rounds, timing
from experiments.benchmarks.timing import Form
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret.runtime.progress import Progress
from jaxret.simulation.blocked.simulate import BLOCK


@experiment("benchmark_simulate")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Time every form at every size."""
    torch = cfg.with_torch and machine.pin_torch()
    this = machine.measured()
    print(this, flush=True)
    results = {
        "machine/bandwidth": np.array([this.bandwidth]),
        "machine/rate": np.array([this.rate]),
    }

    def timed(group, forms, items, width):
        """Time forms whose Theta is [items, width] against the bandwidth of such an array."""
        bandwidth = machine.in_place(4 * items * width)
        limits = {"bandwidth": bandwidth, "rate": this.rate}
        named = {f"{group}/{name}": form for name, form in forms.items()}
        found = timing.timed(named, cfg.repeats, "microseconds", **limits)
        return {f"{group}/in_place": np.array([bandwidth]), **found}

    for size in Progress([*cfg.sizes], unit="size"):
        items, width = (int(number) for number in size.split("x"))
        results |= timed(size, _forms(items, width, cfg.floats, torch), items, width)
        _ratios(results, size)
    sizes = {name: cfg.grid[name] for name in ("items", "width")}
    problem = rounds.random_problem(**sizes, rounds=cfg.grid.rounds)
    grid = rounds.grid(problem, cfg.grid.steps, cfg.grid.seeds)
    results |= timed("grid", {name: grid[name] for name in ("one_program", "runs")}, **sizes)
    runs = results["grid/runs/microseconds"]
    results["grid/one_program_over_runs"] = runs / results["grid/one_program/microseconds"]
    return results


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print one line per form, and one per ratio."""
    timing.show(results, "microseconds", "a round of each form")


def _forms(items: int, width: int, floats: float, torch: bool) -> dict[str, Form]:
    """Return the timed forms; those that read Theta every round play an eighth of the rounds."""
    many = max(BLOCK, int(floats / (items * width)) // BLOCK * BLOCK)
    problem = rounds.random_problem(items, width, many)
    few = problem.first(max(16, many // 8))
    forms = {
        "floor": rounds.products(problem),
        "blocked": rounds.blocked(problem),
        "scan": rounds.scan(few),
    }
    return forms | ({"torch": rounds.torch_forms(few)["torch_eager"]()} if torch else {})


def _ratios(results: dict[str, np.ndarray], size: str) -> None:
    """Add the ratios of one size."""
    times = {
        name: results[f"{size}/{name}/microseconds"]
        for name in ("floor", "blocked", "scan", "torch")
        if f"{size}/{name}/microseconds" in results
    }
    results[f"{size}/blocked_over_floor"] = times["blocked"] / times["floor"]
    for name in times.keys() & {"scan", "torch"}:
        results[f"{size}/blocked_over_{name}"] = times[name] / times["blocked"]


if __name__ == "__main__":
    main.cli()
