"""What do a million tools and many devices take: bytes exchanged, memory, time?

    uv run python -m experiments.benchmarks.scale again=true
    uv run python -m experiments.benchmarks.scale again=true preset=mapped parts.map_every=32

The rows of Theta lie over n devices (`jaxret.simulation.blocked.simulate.simulate_on_mesh`). XLA
compiles the program for as many simulated devices as are asked for, and says what a device holds
and sends; so bytes and memory are exact for all sizes, and nothing of that size is run. Of
TOOLS/DEVICES:

    bytes_a_round         that a device gives to collective operations
    collectives_a_round   how many of these wait for all devices
    memory_mib            of a device: arguments, results and temporary arrays of its program
    memory_over_model     against a line through the programs of at most ``measured`` devices
                          and the fewest items: bytes + bytes a row x rows a device
    microseconds          a round where each device has a core: modelled, as below

A round costs a device ``a + b r`` of one core's time for its r rows, and each collective operation
s(n). Timed here are a and b, on one device, and s(n), on the devices of the check; core time, which
other work on the machine stretches less than a clock's. ``microseconds`` is then a + b r and
``latency_microseconds`` for each collective operation: a setting, for it depends on what lies
between the devices. The check is a run that the model was not fitted to: n (a + b r) and n s(n) for
each collective operation, against the core time of the run; ``check/DEVICES/time_over_model`` is 1
if the model is right.

2 busy cores: 18 min, most of which compiles. Expect 40 bytes and 4.4 collective operations a round,
whatever the size.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from omegaconf import DictConfig

from experiments.benchmarks import collectives
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.learners.names import REGISTRY
from jaxret.runtime import sharding
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.simulate import simulate_on_mesh
from jaxret.types import State, Stream

COLUMNS = ("bytes_a_round", "collectives_a_round", "memory_mib", "memory_over_model")
COLUMNS += ("microseconds",)
QUERIES = 1024


@experiment("benchmark_scale")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Compiles all sizes, times the pieces, and holds the model against what is left."""
    learner = _learner(cfg)
    sizes = [(items, n) for items in cfg.tools for n in cfg.devices]
    compiled = {}
    for items, n in Progress(sizes, unit="program"):
        run.pause(len(compiled))
        compiled[items, n] = _compiled(learner, items, cfg.width, cfg.rounds, n)
    memory = _line(
        [(i / n, bytes_) for (i, n), (_, bytes_) in compiled.items() if _fitted(cfg, i, n)]
    )
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
    """Refuses sizes that cannot be; makes the devices, before JAX begins."""
    known = ", ".join(REGISTRY)
    require("preset", cfg.preset, f"one of {known}", REGISTRY.__contains__)
    for name in ("rounds", "repeats"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    few = [n for n in cfg.devices if n <= cfg.measured]
    require("devices", list(cfg.devices), f"two or more up to {cfg.measured}", lambda _: few[1:])
    require("rows", list(cfg.rows), "two sizes or more", lambda rows: len({*rows}) >= 2)
    with suppress(RuntimeError):  # JAX has begun, and keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", max(*cfg.devices, *cfg.check.devices))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a size, and the check."""
    rows = [f"{items}/{n}" for items in cfg.tools for n in cfg.devices]
    results_table(results, rows, COLUMNS, f"{cfg.preset}, width {cfg.width}: tools/devices")
    checks = [f"check/{n}" for n in cfg.check.devices]
    names = ("core_microseconds", "core_microseconds_of_a_collective", "time_over_model")
    results_table(results, checks, names, f"{cfg.check.tools} tools, not fitted")
    results_table(results, ["work"], ["microseconds", "nanoseconds_a_row"], "a round, on one core")


def _learner(cfg: DictConfig) -> Learner:
    return REGISTRY[cfg.preset](**plain(cfg.parts))


def _compiled(learner: Learner, items: int, width: int, rounds: int, devices: int):
    """The exchanges of a program of so many rounds, and the bytes that a device needs for it."""
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
    return collectives.read(program.as_text()), size - of.alias_size_in_bytes


def _program(learner: Learner, mesh):
    """Rounds on a mesh; the state that goes in is taken for the one that comes out."""

    def run(state: State, stream: Stream):
        key = jax.random.key(0)
        return simulate_on_mesh(learner, state, Environment(), stream, key, mesh=mesh)

    return jax.jit(run, donate_argnums=0)


def _core_time(cfg: DictConfig, learner: Learner, items: int, devices: int) -> float:
    """Microseconds of cores that a round takes."""
    mesh = sharding.make_mesh(item=devices)
    rng = np.random.default_rng(0)
    theta, queries = (rng.standard_normal((n, cfg.width), np.float32) for n in (items, QUERIES))
    theta, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, queries))
    catalogue = sharding.split_rows(theta, np.ones(items, bool), mesh)
    stream = Stream(
        queries=jnp.asarray(queries),
        labels=jnp.asarray(rng.integers(0, items, (QUERIES, 1)), jnp.int32),
        order=jnp.arange(cfg.rounds, dtype=jnp.int32) % QUERIES,
    )
    program, state = _program(learner, mesh), learner.init(*catalogue)

    def rounds():
        nonlocal state
        state, trace = program(state, stream)
        jax.block_until_ready((state, trace))

    return _core_microseconds(rounds, cfg.repeats) / cfg.rounds


def _core_time_of_exchange(devices: int, times: int, repeats: int) -> float:
    """Microseconds of cores that all devices together give for one sum of a number."""
    mesh = sharding.make_mesh(item=devices)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=P("item"), out_specs=P("item"))
    def sums(x):
        return lax.fori_loop(0, times, lambda _, x: x + 1e-3 * lax.psum(x, "item"), x)

    x = jnp.ones(devices)
    return _core_microseconds(lambda: jax.block_until_ready(sums(x)), repeats) / times


def _core_microseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time that this process's threads took together; the first call compiles."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        times.append(1e6 * (time.process_time() - begin))
    return float(np.median(times))


def _line(points: list[tuple[float, float]]) -> Callable[[float], float]:
    """The line through points (x, y) whose relative errors are least."""
    x, y = np.array(points).T
    slope, first = np.polyfit(x, y, 1, w=1 / y)
    return lambda at: float(first + slope * at)


def _fitted(cfg: DictConfig, items: int, devices: int) -> bool:
    return items == min(cfg.tools) and devices <= cfg.measured


if __name__ == "__main__":
    main.cli()
