"""The limits of a machine, what each form requires of it, and measured time relative to them."""

import os
import resource
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import machine, rounds, timing
from experiments.benchmarks.timing import Form, Work
from jaxret.environments.environment import Environment
from jaxret.learners.presets import orag
from jaxret.nn.bert import Bert, BertConfig
from jaxret.simulation.blocked.simulate import simulate_blocked

SIZES = {"vocab_size": 50, "hidden": 256, "layers": 2, "heads": 4, "intermediate": 512}
CONFIG = BertConfig(**SIZES, max_positions=64, type_vocab=2, eps=1e-12)


def test_a_round_by_hand():
    """A round of 1,000 x 100 numbers of 4 bytes, in blocks of 128 rounds and tiles of 8."""
    for form, *expected in [
        ("scan", 1_200_000, 400_000),
        ("torch", 1_200_000, 400_000),
        ("floor", 9_375, 400_000),
        ("blocked", 9_375, 672_000),
        ("one_program", 9_375, 672_000),
    ]:
        assert timing.simulation(form, items=1000, width=100) == Work(*expected), form


def test_the_stated_number_of_operations_of_the_blocked_form_is_right():
    """The count leaves out the Gram matrix of a block, which costs B d per round."""
    items, width, T = 1000, 64, 256
    theta, stream = rounds.random_problem(items, width, T)
    learner, key = orag(tau=0.05, eta=1e-4), jax.random.key(0)
    state = learner.init(theta, jnp.ones(items, bool))

    def run(state):
        return simulate_blocked(learner, state, Environment(), stream, key)

    said = timing.simulation("blocked", items, width).operations
    counted = 2 * multiply_adds(jax.make_jaxpr(run)(state).jaxpr) / T
    assert counted == pytest.approx(said + 2 * 128 * width, rel=0.01)


def test_the_stated_number_of_operations_of_a_network_is_right():
    """Compare with XLA's count of all operations, 99% of which are matrix products here."""
    network = Bert.functions(CONFIG)
    ids, mask = jnp.zeros((3, 32), jnp.int32), jnp.ones((3, 32), bool)
    params = jax.eval_shape(network.init, jax.random.key(0))

    def loss(params):
        return network.apply(params, ids, mask).sum()

    def counted(f):
        return jax.jit(f).lower(params).cost_analysis()["flops"]

    forward, update = timing.reading(CONFIG, [32] * 3), timing.step(CONFIG, [32] * 3, 1000)
    assert counted(loss) == pytest.approx(forward.operations, rel=0.02)
    assert counted(jax.grad(loss)) == pytest.approx(update.operations, rel=0.02)


def test_weights_are_read_once_per_batch_and_moved_eight_times_per_step():
    weights = 4 * 256 * 256 + 2 * 256 * 512
    assert timing.reading(CONFIG, [7, 9], batches=2).bytes == 2 * 4 * 2 * weights
    assert timing.step(CONFIG, [7, 9], parameters=1000).bytes == 32_000


def test_forms_are_timed_in_turn_and_compared_with_their_limits(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def form(name, seconds):
        def call():
            calls.append(name)
            now[0] += next(times)

        times = iter(seconds)
        return call

    least = Work(bytes=10, operations=60)  # one second of memory traffic, two of arithmetic
    forms = {
        "a": Form(form("a", [99, 8, 16]), least, rounds=2),
        "b": Form(form("b", [99, 3, 5]), least),
    }
    found = timing.timed(forms, 2, "milliseconds", bandwidth=10, rate=30)
    assert calls == ["a", "b"] * 3
    expected = {"a/milliseconds": [4e3, 8e3], "a/over_memory": [4, 8], "a/over_arithmetic": [2, 4]}
    expected |= {"b/milliseconds": [3e3, 5e3], "b/over_memory": [3, 5]}
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_repeats_end_when_time_is_up_but_not_before_a_minimum():
    calls = []
    found = timing.in_turn({"a": Form(lambda: calls.append(1), Work(1, 1))}, 9, until=0.0)
    assert len(found["a"]) == len(calls) - 1 == timing.FEWEST


def test_the_limit_that_binds_is_printed(capsys):
    values = {"a/us": [30, 40, 50], "a/over_memory": [3, 4, 5], "a/over_arithmetic": [2, 3, 4]}
    values |= {"b/us": [1], "b/over_memory": [1.5], "b/over_arithmetic": [9], "b_over_a": [7]}
    timing.show({name: {"values": x} for name, x in values.items()}, "us", "forms")
    said = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")] for line in said.splitlines()]
    assert ["", "a", "40 (35 to 45)", "3.00 arithmetic", ""] in lines
    assert ["", "b", "1", "1.50 memory", ""] in lines
    assert said.splitlines()[-1].split() == ["b_over_a", "7"]


def test_a_machine_says_what_it_is_and_measures_what_it_can_do():
    found = machine.measured(repeats=1, copied=2**12, side=32)
    assert found.cores >= 1
    assert found.processor in str(found)
    assert min(found.bandwidth, found.rate) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads the page faults of a Linux process")
def test_a_copy_takes_no_fresh_pages():
    """Fresh pages would cost more than the copy; only the first write to the target may fault."""
    numbers = 2**24
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    machine.copying(numbers, repeats=8)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 4 * 4 * numbers / resource.getpagesize()


def test_a_machine_is_a_line():
    known = machine.Machine("EPYC", 2, "0,3", "L2 1 MB", bandwidth=2.9e10, rate=2.1e11)
    line = "2 cores (CPUs 0,3) of EPYC, L2 1 MB, 29.0 GB/s in a copy, 210 GFLOP/s"
    assert str(known) == line
    assert str(known._replace(cpus="", caches="")).startswith("2 cores of EPYC, 29.0 GB/s")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_the_cpus_of_this_process_are_counted_and_named():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert machine.cores() == 1
        assert machine.field("/proc/self/status", "Cpus_allowed_list") == str(max(before))
    finally:
        os.sched_setaffinity(0, before)
    assert machine.cores() == len(before)


def test_passes_in_place_take_as_long_as_they_move_bytes(monkeypatch):
    """Use a clock that advances one second for each pass over 4,000 bytes."""
    now = [0.0]

    def jit(f, donate_argnums):
        def call(x):
            assert x.nbytes == 4000
            now[0] += 1000  # the largest number of passes per call
            return f(x)

        return call

    monkeypatch.setattr(machine.jax, "jit", jit)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])
    assert machine.in_place(4000, repeats=1) == 8000  # each byte is read and written


def test_pytorch_has_as_many_threads_as_xla(monkeypatch):
    threads = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    monkeypatch.setattr(machine, "cores", lambda: 3)
    assert machine.pin_torch()
    assert threads == [3]
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail
    assert not machine.pin_torch()


def multiply_adds(jaxpr) -> int:
    """Count the multiply-adds of all products of a program, including repetitions by loops."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (left, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            count += equation.outvars[0].aval.size * int(np.prod([shape[axis] for axis in left]))
        times = equation.params.get("length", 1)
        inside = [one for one in jax.tree.leaves(equation.params) if hasattr(one, "jaxpr")]
        parts = [multiply_adds(one.jaxpr) for one in inside]
        branch = equation.primitive.name == "cond"
        count += times * (max(parts) if branch else sum(parts))
    return count
