"""Times several forms of one computation in turn, and compares each with what the machine allows.

A ratio of two forms that are timed in turn in one process survives a noisy machine where a time
does not. For each form there is one value per repeat:

    FORM/<unit>             its time
    FORM/over_memory        its time / (the bytes that it must move / bandwidth)
    FORM/over_arithmetic    its time / (the operations that it must do / rate)

The smaller ratio tells what limits the form. Bandwidth is that of the memory or cache that holds
Theta or the weights (`experiments.benchmarks.machine`). One round of a simulation needs:

    form                         multiply-adds        numbers moved
    scan, torch                  2 I d                3 I d       the logits read Theta, the update
                                                                  reads and writes it
    floor (the two products)     2 I d                3 I d / B   the same once per block
    blocked, runs, one_program   2 I d + I (B + b)    3 I d / B   and the pending updates: those of
                                                                  the block for each tile, those of
                                                                  the tile for each round

A network needs m multiply-adds for a text of n tokens, in l layers of width H with F inner units:

    reading                      m = l (H (4 H + 2 F) n + 2 H n^2); the weights are read once per
                                 batch
    step                         3 m: the backward pass costs two forward passes; AdamW reads and
                                 writes a weight, its gradient and two moments: 8 numbers each

Not counted are what a round does to its I logits, pending updates in caches, embeddings, heads and
hidden states. A form far above its limit therefore spends its time on one of these.

Letters: I items, d width, B rounds per block, b rounds per tile.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments.common.tables import print_table
from jaxret.learners.rank_one import TILE
from jaxret.nn.bert import BertConfig
from jaxret.simulation.blocked.simulate import BLOCK
from jaxret.training import loop
from jaxret.types import Params

LIMITS = ("memory", "arithmetic")
UNITS = {"microseconds": 1e6, "milliseconds": 1e3}
RATE, DECAY = 1e-4, 0.01  # learning rate and weight decay of AdamW
FEWEST = 3  # minimum repeats of `in_turn`, even if the time is over


class Work(NamedTuple):
    """Least bytes and operations of one round or call."""

    bytes: float
    operations: float  # a multiply-add counts as two

    def seconds(self, bandwidth: float, rate: float) -> dict[str, float]:
        """Return the least time by each of `LIMITS`, for bytes and operations per second."""
        return dict(zip(LIMITS, (self.bytes / bandwidth, self.operations / rate), strict=True))


class Form(NamedTuple):
    """One way to compute something."""

    call: Callable[[], Any]  # returns when its result is ready
    work: Work = Work(0.0, 0.0)  # work of one round; `in_turn` does not need it
    rounds: int = 1  # per call


class Training:
    """Takes compiled steps of AdamW on one batch; the old state is donated."""

    def __init__(self, loss: loop.Loss, params: Params, batch: Mapping[str, Array]):
        optimizer = optax.adamw(RATE, weight_decay=DECAY)
        self.step = jax.jit(loop.train_step(loss, optimizer), donate_argnums=0)
        self.state = loop.start(params, optimizer, jax.random.key(0))
        self.batch = batch

    def __call__(self) -> None:
        self.state, _ = jax.block_until_ready(self.step(self.state, self.batch))


def simulation(form: str, items: int, width: int) -> Work:
    """Return the work of one round of a form of `experiments.benchmarks.rounds`.

    A form that is not called ``scan``, ``torch`` or ``floor`` is a blocked one.
    """
    theta = items * width
    if form in ("scan", "torch"):
        return _work(2 * theta, 3 * theta)
    pending = 0 if form == "floor" else items * (BLOCK + TILE)
    return _work(2 * theta + pending, 3 * theta / BLOCK)


def reading(config: BertConfig, lengths: Sequence[int], batches: int = 1) -> Work:
    """Return the work of a forward pass, which reads the weights once for each batch.

    ``lengths`` are the tokens of each text, padding included where it is computed.
    """
    n, weights = np.asarray(lengths, np.float64), _weights(config)
    per_layer = float((weights * n + 2 * config.hidden * n**2).sum())
    return _work(config.layers * per_layer, config.layers * weights * batches)


def step(config: BertConfig, lengths: Sequence[int], parameters: int) -> Work:
    """Return the work of a training step; ``lengths`` are tokens of each text with padding."""
    return Work(4.0 * 8 * parameters, 3 * reading(config, lengths).operations)


def in_turn(
    forms: Mapping[str, Form], repeats: int, until: float = np.inf
) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Time forms in turn; the first call of each is not counted."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(repeats + 1):
        if repeat > FEWEST and time.monotonic() > until:
            break
        for name, form in forms.items():
            begin = time.perf_counter()
            form.call()
            if repeat:
                times[name].append((time.perf_counter() - begin) / form.rounds)
    return {name: np.array(values) for name, values in times.items()}


def timed(
    forms: Mapping[str, Form], repeats: int, unit: str, *, bandwidth: float, rate: float
) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Time forms in turn and divide each time by its limits."""
    found = {}
    for name, seconds in in_turn(forms, repeats).items():
        found[f"{name}/{unit}"] = UNITS[unit] * seconds
        for kind, least in forms[name].work.seconds(bandwidth, rate).items():
            found[f"{name}/over_{kind}"] = seconds / least
    return found


def quartiles(values: Sequence[float] | Float[np.ndarray, " n"]) -> str:
    """Write the median, with the quartiles where they differ."""
    low, middle, high = (
        f"{x:,.0f}" if 100 <= x < 1e6 else f"{x:.3g}"
        for x in np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    )
    return f"{middle} ({low} to {high})" if low != high else middle


def show(results: Mapping[str, Mapping[str, Any]], unit: str, title: str) -> None:
    """Print one line per form of `timed`, then one per number that belongs to no single form."""
    last = f"/over_{LIMITS[0]}"
    forms = [name.removesuffix(last) for name in results if name.endswith(last)]
    rows = {}
    for form in forms:
        over = {kind: np.median(results[f"{form}/over_{kind}"]["values"]) for kind in LIMITS}
        limit = min(over, key=over.__getitem__)
        times = quartiles(results[f"{form}/{unit}"]["values"])
        rows[form] = [times, f"{over[limit]:.2f} {limit}"]
    print_table(title, [unit, "over its limit"], rows)
    for name, value in results.items():
        if name.rpartition("/")[0] not in forms:
            print(f"{name:45s} {quartiles(value['values'])}")


def _weights(config: BertConfig) -> int:
    """Count the weights of one layer: query, key, value, output, and the two of the MLP."""
    return config.hidden * (4 * config.hidden + 2 * config.intermediate)


def _work(multiply_adds: float, numbers: float) -> Work:
    return Work(bytes=4.0 * numbers, operations=2.0 * multiply_adds)  # float32
