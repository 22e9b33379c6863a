"""How fast is the blocked simulation, against the scan, its floor and PyTorch?

    uv run python -m experiments.benchmarks.simulate again=true
    uv run python -m experiments.benchmarks.simulate sizes=[3000x384] with_encoder=false

All forms are timed in one process, in turn, so a ratio survives a noisy machine where a time
does not; medians and quartiles are printed, after the machine with its caches, bandwidth and rate.
Keys of results.json (one value a repeat; speed-ups are larger where blocked is faster):

    <I>x<d>/blocked_over_scan     time of the round-by-round scan / time of the blocked form
    <I>x<d>/blocked_over_floor    time of the blocked form / time of its two matrix products
    <I>x<d>/floor_over_limit      theirs / what memory or arithmetic of the machine takes for them
    <I>x<d>/blocked_over_torch    time of the same rounds in PyTorch, in place / blocked
    grid/one_program_over_runs    64 runs one after another / one program over the grid
    encoder/jax_over_torch        time of HuggingFace PyTorch / time of jaxret.encoders

Vectors are random and of unit length: no time depends on their values. PyTorch and the encoder
are left out where torch is not installed.

2 cores: 7 min with torch. Expect at 43215x1536: 9 to 12 over the scan, 1.2 to 1.4 over the floor,
14 to 24 over PyTorch.
"""

import importlib.util
import resource
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

from experiments.benchmarks import machine
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret import sharding
from jaxret.online import projections, streams
from jaxret.online.blocked import BLOCK, simulate_blocked
from jaxret.online.environment import Environment
from jaxret.online.presets import orag
from jaxret.online.rounds import scan_rounds
from jaxret.types import Stream

TAU, ETA = 0.05, 1e-4


@experiment("benchmark_simulate")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Times everything that the config names."""
    torch = cfg.with_torch and importlib.util.find_spec("torch") is not None
    this = machine.measured()
    print(this, flush=True)
    results: dict[str, list[float]] = {
        "machine/bandwidth": [this.bandwidth],
        "machine/rate": [this.rate],
    }
    for size in cfg.sizes:
        items, width = (int(number) for number in size.split("x"))
        forms = _forms(items, width, cfg.floats, torch)
        for name, times in _in_turn(forms, cfg.repeats).items():
            results[f"{size}/{name}_microseconds"] = list(times)
        _ratios(results, size)
        seconds, limit = this.floor(**_work(items, width))
        floor = np.array(results[f"{size}/floor_microseconds"])
        results[f"{size}/floor_over_limit"] = list(floor / (1e6 * seconds))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        results[f"{size}/peak_gib"] = [peak]
        line = f"{_line(results, size)}; two products are bound by {limit}"
        print(f"{size}: {line}; peak memory so far {peak:.2f} GiB", flush=True)
    grid = _in_turn(_grid(**cfg.grid), cfg.repeats)
    results["grid/one_program_over_runs"] = list(grid["runs"] / grid["one_program"])
    if torch and cfg.with_encoder:
        from experiments.benchmarks import encode

        results |= encode.measure(repeats=cfg.repeats)
    return results


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a number."""
    for name, value in results.items():
        low, middle, high = np.percentile(value["values"], (25, 50, 75))
        spread = f" ({low:.4g} to {high:.4g})" if low < high else ""
        print(f"{name:45s} {middle:.4g}{spread}")


def _in_turn(forms: dict[str, tuple[Callable, int]], repeats: int) -> dict[str, np.ndarray]:
    """Microseconds a round of each form, [repeats]; the first call of each is not counted."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(repeats + 1):
        for name, (form, rounds) in forms.items():
            begin = time.perf_counter()
            form()
            if repeat:
                times[name].append(1e6 * (time.perf_counter() - begin) / rounds)
    return {name: np.array(values) for name, values in times.items()}


def _forms(items: int, width: int, floats: float, torch: bool) -> dict[str, tuple[Callable, int]]:
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

    forms = {
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


def _grid(
    *, items: int, width: int, rounds: int, seeds: int, steps: int
) -> dict[str, tuple[Callable, int]]:
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


def _ratios(results: dict[str, list[float]], size: str) -> None:
    times = {
        name: np.array(results[f"{size}/{name}_microseconds"])
        for name in ("floor", "blocked", "scan", "torch")
        if f"{size}/{name}_microseconds" in results
    }
    results[f"{size}/blocked_over_floor"] = list(times["blocked"] / times["floor"])
    results[f"{size}/blocked_over_scan"] = list(times["scan"] / times["blocked"])
    if "torch" in times:
        results[f"{size}/blocked_over_torch"] = list(times["torch"] / times["blocked"])


def _work(items: int, width: int) -> dict[str, float]:
    """Bytes that the two products of a block read and write, and their operations, a round."""
    theta = items * width
    return {"read": 3 * 4.0 * theta / BLOCK, "operations": 4.0 * theta}


def _line(results: dict[str, list[float]], size: str) -> str:
    names = [name for name in results if name.startswith(f"{size}/blocked_over")]
    return ", ".join(f"{name.split('/')[1]} {np.median(results[name]):.2f}" for name in names)


if __name__ == "__main__":
    main.cli()
