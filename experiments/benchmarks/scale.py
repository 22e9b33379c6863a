"""What do a million tools and many devices take: bytes exchanged, memory, time?

    uv run python -m experiments.benchmarks.scale again=true
    uv run python -m experiments.benchmarks.scale again=true preset=mapped parts.map_every=32

The rows of Theta are split over n devices (`jaxret.simulation.blocked.simulate.simulate_on_mesh`).
XLA compiles the program for n simulated devices, and its text and memory analysis give what each
device sends and holds. So bytes and memory are exact for all sizes, though no program of that size
is run. For TOOLS/DEVICES:

    bytes_a_round         sent by a device in collective operations, per round
    collectives_a_round   collective operations per round
    memory_mib            of a device: arguments, results and temporary arrays of its program
    memory_over_model     that / a line in the rows per device, fitted to the programs of the fewest
                          tools on at most ``measured`` devices
    microseconds          per round where each device has a core: a model, below

A round takes a device with r rows a + b r of CPU time, and s(n) for each collective operation.
Measured are a and b, on one device, and s(n), on the devices of the check, as CPU time, which other
work on the machine affects less than wall time. ``microseconds`` is a + b r, and
``latency_microseconds`` for each collective operation: a setting, since it depends on the network.
The check compares a run to which nothing was fitted with n (a + b r) and n s(n) for each collective
operation; ``check/DEVICES/time_over_model`` is 1 if the model is right.

2 busy cores: 18 min, most of which compiles. Expect 40 bytes and 4.4 collective operations per
round, whatever the size.
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from omegaconf import DictConfig

from experiments.benchmarks import rounds
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.learners.registry import factories
from jaxret.runtime import sharding
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.simulate import simulate_on_mesh
from jaxret.types import State, Stream

COLUMNS = ("bytes_a_round", "collectives_a_round", "memory_mib", "memory_over_model")
COLUMNS += ("microseconds",)
QUERIES = 1024


KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
_EXCHANGE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(?:-start)?\((.*?)\), ")
_ALONE = re.compile(r"replica_groups=(?:\{\{\d+\}|\[\d+,1\])")
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ONCE = re.compile(r"\b(?:to_apply|calls)=%?([\w.-]+)")
_BRANCHES = re.compile(
    r"\b(?:branch_computations=\{(.*?)\}|(?:true|false)_computation=%?([\w.-]+))"
)


class Exchange(NamedTuple):
    """One collective operation of a program."""

    kind: str  # one of `KINDS`
    bytes: int  # bytes of the result on one device
    times: int  # per call of the program


@experiment("benchmark_scale")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Compile all sizes, time the parts of the model, and compare the model with the check."""
    learner = factories()[cfg.preset](**plain(cfg.parts))
    sizes = [(items, n) for items in cfg.tools for n in cfg.devices]
    compiled = {}
    for items, n in Progress(sizes, unit="program"):
        run.pause(len(compiled))
        compiled[items, n] = _compiled(learner, items, cfg.width, cfg.rounds, n)
    fewest = {n: bytes_ for (i, n), (_, bytes_) in compiled.items() if i == min(cfg.tools)}
    memory = _line([(min(cfg.tools) / n, x) for n, x in fewest.items() if n <= cfg.measured])
    work = _line([(r, _core_time(cfg, learner, r, 1)) for r in cfg.rows])
    results: dict[str, float] = {}
    for (items, n), (sent, bytes_) in compiled.items():
        waits = sum(e.times for e in sent) / cfg.rounds
        results |= {
            f"{items}/{n}/bytes_a_round": sum(e.times * e.bytes for e in sent) / cfg.rounds,
            f"{items}/{n}/collectives_a_round": waits,
            f"{items}/{n}/memory_mib": bytes_ / 2**20,
            f"{items}/{n}/memory_over_model": bytes_ / memory(items / n),
            f"{items}/{n}/microseconds": work(items / n) + waits * cfg.latency_microseconds,
        }
    for n in cfg.check.devices:
        waits = sum(e.times for e in _compiled(learner, n * 8, cfg.width, cfg.rounds, n)[0])
        exchange = _core_time_of_exchange(n, cfg.rounds, cfg.repeats)
        model = n * work(cfg.check.tools / n) + waits / cfg.rounds * exchange
        timed = _core_time(cfg, learner, cfg.check.tools, n)
        results |= {
            f"check/{n}/core_microseconds": timed,
            f"check/{n}/core_microseconds_of_a_collective": exchange,
            f"check/{n}/time_over_model": timed / model,
        }
    results["work/microseconds"] = work(0)
    results["work/nanoseconds_a_row"] = 1e3 * (work(1) - work(0))
    return {name: np.array([value]) for name, value in results.items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse invalid sizes; ask JAX for the simulated devices before it starts."""
    known = factories()
    require("preset", cfg.preset, f"one of {', '.join(known)}", known.__contains__)
    require("rounds", cfg.rounds, ">= 1", lambda x: x >= 1)
    few = [n for n in cfg.devices if n <= cfg.measured]
    require("devices", list(cfg.devices), f"two or more up to {cfg.measured}", lambda _: few[1:])
    require("rows", list(cfg.rows), "two sizes or more", lambda rows: len({*rows}) >= 2)
    with suppress(RuntimeError):  # too late if JAX has started
        jax.config.update("jax_num_cpu_devices", max(*cfg.devices, *cfg.check.devices))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print one line per size, and the check."""
    rows = [f"{items}/{n}" for items in cfg.tools for n in cfg.devices]
    results_table(results, rows, COLUMNS, f"{cfg.preset}, width {cfg.width}: tools/devices")
    checks = [f"check/{n}" for n in cfg.check.devices]
    names = ("core_microseconds", "core_microseconds_of_a_collective", "time_over_model")
    results_table(results, checks, names, f"{cfg.check.tools} tools, not fitted")
    results_table(results, ["work"], ["microseconds", "nanoseconds_a_row"], "a round, on one core")


def _compiled(learner: Learner, items: int, width: int, rounds: int, devices: int):
    """Return the exchanges of a compiled program, and the bytes that a device needs for it."""
    mesh, items = sharding.make_mesh(item=devices), items + -items % devices

    def shape(*dims, dtype=jnp.float32, over=None):
        place = NamedSharding(mesh, P(over) if over else P())
        return jax.ShapeDtypeStruct(dims, dtype, sharding=place)

    bare = jax.eval_shape(learner.init, shape(items, width))
    state = State(
        theta=shape(items, width, over="item"),
        available=shape(items, dtype=bool, over="item"),
        t=shape(dtype=jnp.int32),
        extra=jax.tree.map(lambda x: shape(*x.shape, dtype=x.dtype), bare.extra),
    )
    stream = Stream(
        queries=shape(QUERIES, width),
        labels=shape(QUERIES, 1, dtype=jnp.int32),
        order=shape(rounds, dtype=jnp.int32),
    )
    program = _program(learner, mesh).lower(state, stream).compile()
    of = program.memory_analysis()
    size = of.argument_size_in_bytes + of.output_size_in_bytes + of.temp_size_in_bytes
    return read_exchanges(program.as_text()), size - of.alias_size_in_bytes


def _program(learner: Learner, mesh):
    """Return the compiled rounds on a mesh; the memory of the state is donated."""

    def run(state: State, stream: Stream):
        key = jax.random.key(0)
        return simulate_on_mesh(learner, state, Environment(), stream, key, mesh=mesh)

    return jax.jit(run, donate_argnums=0)


def _core_time(cfg: DictConfig, learner: Learner, items: int, devices: int) -> float:
    """Measure the CPU time of one round on all devices, in microseconds."""
    mesh = sharding.make_mesh(item=devices)
    theta, queries = (rounds.unit_rows(n, cfg.width, n) for n in (items, QUERIES))
    labels = np.random.default_rng(0).integers(0, items, (QUERIES, 1))
    catalogue = sharding.split_rows(theta, np.ones(items, bool), mesh)
    stream = Stream(
        queries=jnp.asarray(queries),
        labels=jnp.asarray(labels, jnp.int32),
        order=jnp.arange(cfg.rounds, dtype=jnp.int32) % QUERIES,
    )
    program, state = _program(learner, mesh), learner.init(*catalogue)

    def play():
        nonlocal state
        state, trace = program(state, stream)
        jax.block_until_ready((state, trace))

    return _core_microseconds(play, cfg.repeats) / cfg.rounds


def _core_time_of_exchange(devices: int, times: int, repeats: int) -> float:
    """Measure the CPU time of one sum of a number over all devices, in microseconds."""
    mesh = sharding.make_mesh(item=devices)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=P("item"), out_specs=P("item"))
    def sums(x):
        return lax.fori_loop(0, times, lambda _, x: x + 1e-3 * lax.psum(x, "item"), x)

    x = jnp.ones(devices)
    return _core_microseconds(lambda: jax.block_until_ready(sums(x)), repeats) / times


def _core_microseconds(call: Callable[[], object], repeats: int) -> float:
    """Measure the CPU time of a call in microseconds, a median; the first call compiles."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        times.append(1e6 * (time.process_time() - begin))
    return float(np.median(times))


def _line(points: list[tuple[float, float]]) -> Callable[[float], float]:
    """Fit a line to points (x, y) by least squares of the relative errors."""
    x, y = np.array(points).T
    slope, first = np.polyfit(x, y, 1, w=1 / y)
    return lambda at: float(first + slope * at)


def read_exchanges(program: str) -> list[Exchange]:
    """List the collective operations of a compiled program, with the lengths of its loops.

    Count, of the branches of a condition, the one that sends most.
    """
    bodies: dict[str, list[str]] = {}
    entry = name = None
    for line in program.splitlines():
        if head := _HEAD.match(line):
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name is not None:
            bodies[name].append(line)
    if entry is None:
        raise ValueError("no ENTRY: give the text of a compiled program")
    return list(_of(entry, 1, bodies))


def _of(name: str, times: int, bodies: dict[str, list[str]]) -> Iterator[Exchange]:
    for line in bodies.get(name, ()):
        if _ALONE.search(line):
            continue  # a group of one device
        if found := _EXCHANGE.search(line):
            yield Exchange(found[2], _bytes(found[1]), times)
        elif " while(" in line:
            inside = list(_of(_named(r"\bbody=%?([\w.-]+)", line), times, bodies))
            trips = _TRIPS.search(line)
            if inside and trips is None:
                raise ValueError(f"how often does this loop run? {line.strip()[:80]}")
            count = int(trips[1]) if trips else 0
            yield from (e._replace(times=e.times * count) for e in inside)
        elif " conditional(" in line:
            names = [word for pair in _BRANCHES.findall(line) for word in pair if word]
            names = [word.strip(" %") for names_ in names for word in names_.split(",")]
            yield from max((list(_of(n, times, bodies)) for n in names), key=_sent)
        elif called := _ONCE.search(line):
            yield from _of(called[1], times, bodies)


def _sent(exchanges: list[Exchange]) -> int:
    return sum(e.times * e.bytes for e in exchanges)


def _named(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    assert found is not None
    return found[1]


def _bytes(shapes: str) -> int:
    """Count the bytes of arrays in XLA's notation: ``f32[8,1]{1,0}``, or several."""
    return sum(
        math.prod(map(int, filter(None, dims.split(",")))) * max(1, int(bits or 8) // 8)
        for _, bits, dims in _ARRAY.findall(shapes)
    )


if __name__ == "__main__":
    main.cli()
