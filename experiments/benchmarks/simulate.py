"""How fast is the blocked simulation, against the scan, its floor and PyTorch?

    uv run python -m experiments.benchmarks.simulate again=true
    uv run python -m experiments.benchmarks.simulate sizes=[3000x384] with_encoder=false

All forms are timed in one process, in turn, so a ratio survives a noisy machine where a time
does not; XLA and PyTorch have a thread a core. The machine is printed with its caches, bandwidth
and rate, then medians and quartiles: of each form its time a round, how often that is what its
bytes or its operations take at least, and which of the two limits it (`work` has the formulas).
Keys of results.json (one value a repeat; speed-ups are larger where blocked is faster):

    <I>x<d>/<form>/microseconds      a round; of floor (the two products), blocked, scan, torch
    <I>x<d>/<form>/over_memory       that over what its bytes take, at <I>x<d>/in_place: passes over
                                     as much as Theta, in a cache or in memory
    <I>x<d>/<form>/over_arithmetic   the same of its operations, at machine/rate
    <I>x<d>/blocked_over_scan        time of the round-by-round scan / time of the blocked form
    <I>x<d>/blocked_over_floor       time of the blocked form / time of its two matrix products
    <I>x<d>/blocked_over_torch       time of the same rounds in PyTorch, in place / blocked
    grid/one_program_over_runs       64 runs one after another / one program over the grid
    encoder/jax_over_torch           time of HuggingFace PyTorch / time of jaxret.encoders

Vectors are random and of unit length: no time depends on their values. PyTorch and the encoder
are left out where torch is not installed.

2 cores: 7 min with torch. Expect at 43215x1536: 9 to 12 over the scan, 1.2 to 1.4 over the floor,
14 to 24 over PyTorch.
"""

import resource
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

from experiments.benchmarks import machine, timing, work
from experiments.benchmarks.timing import Form
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret.environments.environment import Environment
from jaxret.learners.presets import orag
from jaxret.rules import projections
from jaxret.runtime import sharding
from jaxret.runtime.progress import Progress
from jaxret.simulation import streams
from jaxret.simulation.blocked.simulate import BLOCK, simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Stream

TAU, ETA = 0.05, 1e-4
Calls: TypeAlias = dict[str, tuple[Callable[[], object], int]]  # and how many rounds each runs


@experiment("benchmark_simulate")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Times everything that the config names."""
    torch = cfg.with_torch and machine.pin_torch()
    this = machine.measured()
    print(this, flush=True)
    results = {
        "machine/bandwidth": np.array([this.bandwidth]),
        "machine/rate": np.array([this.rate]),
    }
    for size in Progress([*cfg.sizes], unit="size"):
        items, width = (int(number) for number in size.split("x"))
        forms = _forms(items, width, cfg.floats, torch)
        results |= _timed(size, forms, items, width, cfg.repeats, this.rate)
        _ratios(results, size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        results[f"{size}/peak_gib"] = np.array([peak])
    items, width = cfg.grid["items"], cfg.grid["width"]  # a dict has items of its own
    results |= _timed("grid", _grid(**cfg.grid), items, width, cfg.repeats, this.rate)
    runs = results["grid/runs/microseconds"]
    results["grid/one_program_over_runs"] = runs / results["grid/one_program/microseconds"]
    if torch and cfg.with_encoder:
        from experiments.benchmarks import encode

        results |= encode.measure(repeats=cfg.repeats)
    return results


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a form, and one a ratio."""
    timing.show(results, "microseconds", "a round of each form")


def _timed(
    group: str, calls: Calls, items: int, width: int, repeats: int, rate: float
) -> dict[str, np.ndarray]:
    """Results of forms with a Theta of this shape, and the bandwidth that limits them."""
    forms = {
        f"{group}/{name}": Form(call, work.simulation(name, items, width), rounds)
        for name, (call, rounds) in calls.items()
    }
    bandwidth = machine.in_place(4 * items * width)
    found = timing.timed(forms, repeats, "microseconds", bandwidth=bandwidth, rate=rate)
    return {f"{group}/in_place": np.array([bandwidth]), **found}


def _forms(items: int, width: int, floats: float, torch: bool) -> Calls:
    """The timed forms and how many rounds each runs."""
    block = BLOCK
    many = max(block, int(floats / (items * width)) // block * block)
    few = max(16, many // 8)
    theta, stream = _random(items, width, many)
    learner = orag(tau=TAU, eta=ETA, projection=projections.none())
    state = learner.init(theta, jnp.ones(items, bool))
    short = stream._replace(order=stream.order[:few])
    key = jax.random.key(0)

    @jax.jit
    def blocked(state):
        return simulate_blocked(learner, state, Environment(), stream, key)

    @jax.jit
    def scan(state):
        return scan_rounds(learner, state, Environment(), short, key)

    @jax.jit
    def floor(theta):
        """What no blocked form can save: S = Q Theta^T and Theta - E^T Q, a block."""

        def products(theta, queries):
            scores = queries @ theta.T
            return theta - (ETA * scores).T @ queries, None

        blocks = stream.queries[stream.order].reshape(-1, block, width)
        return jax.lax.scan(products, theta, blocks)[0]

    forms: Calls = {
        "floor": (lambda: jax.block_until_ready(floor(theta)), many),
        "blocked": (lambda: jax.block_until_ready(blocked(state)), many),
        "scan": (lambda: jax.block_until_ready(scan(state)), few),
    }
    if torch:
        forms["torch"] = (_torch(np.asarray(theta), short), few)
    return forms


def _torch(theta: np.ndarray, stream: Stream) -> Callable[[], None]:
    """Algorithm 1 as one would write it in PyTorch, without autograd, in place."""
    import torch

    rows = torch.tensor(theta)
    queries = torch.tensor(np.asarray(stream.queries))
    labels = np.asarray(stream.labels)[:, 0].tolist()
    order = np.asarray(stream.order).tolist()

    @torch.inference_mode()
    def run():
        for query in order:
            q = queries[query]
            p = torch.softmax(rows @ q / TAU, dim=0)
            item = int(torch.multinomial(p, 1))
            if item == labels[query]:
                p[item] -= 1.0 / p[item]
            rows.addr_(p, q, alpha=-ETA / TAU)

    return run


def _grid(*, items: int, width: int, rounds: int, seeds: int, steps: int) -> Calls:
    """seeds x steps runs as one program, and one after another through a compiled single run."""
    theta, stream = _random(items, width, rounds)
    orders = jnp.asarray([streams.exposures(rounds, 1, seed) for seed in range(seeds)])
    etas = TAU * jnp.geomspace(1e-3, 1e-1, steps)
    runs = [(eta, order) for eta in etas for order in orders]

    def run(eta, order):
        learner = orag(tau=TAU, eta=eta, projection=projections.none())
        state = learner.init(theta, jnp.ones(items, bool))
        key = jax.random.key(0)
        stream_ = stream._replace(order=order)
        return simulate_blocked(learner, state, Environment(), stream_, key)[1].success.mean()

    one, program = jax.jit(run), jax.jit(lambda *grid: sharding.sweep(run, *grid))
    grid = tuple(jnp.stack(part) for part in zip(*runs, strict=True))
    return {
        "one_program": (lambda: jax.block_until_ready(program(*grid)), rounds * len(runs)),
        "runs": (lambda: [jax.block_until_ready(one(*r)) for r in runs], rounds * len(runs)),
    }


def _random(items: int, width: int, rounds: int):
    rng = np.random.default_rng(0)

    def unit(n):
        rows = rng.standard_normal((n, width), np.float32)
        return jnp.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    queries = min(rounds, 4096)
    return unit(items), Stream(
        queries=unit(queries),
        labels=jnp.asarray(rng.integers(0, items, (queries, 1)), jnp.int32),
        order=jnp.arange(rounds, dtype=jnp.int32) % queries,
    )


def _ratios(results: dict[str, np.ndarray], size: str) -> None:
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
