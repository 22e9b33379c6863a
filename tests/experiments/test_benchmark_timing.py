"""The bytes and operations that each form requires, and measured time relative to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import rounds, timing
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
