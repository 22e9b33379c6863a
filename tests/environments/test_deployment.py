"""All of life at once: blocks and devices, cut runs, seeds side by side, and labels kept apart."""

import functools
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import censoring, clicks, delay, drift, poison, restart, rewriting
from jaxret.environments.deployment import bare, deployed
from jaxret.environments.environment import Environment
from jaxret.runtime import sharding
from jaxret.runtime.checkpoint import Interrupted
from jaxret.simulation.blocked.simulate import simulate_blocked, simulate_on_mesh
from jaxret.simulation.engine import Simulation
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from jaxret.types import Catalogue, Stream

ITEMS, QUERIES, ROUNDS = 16, 20, 60


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=1)[:, None]  # noqa: E731
    labels = np.stack([rng.permutation(ITEMS)[:2] for _ in range(QUERIES)])
    return jr.Task.from_arrays(unit(ITEMS, 8), unit(QUERIES, 8), labels, name="small")


def outside(task):
    """What is asked, there and answered: all of it has a blocked form."""
    ids = np.arange(ITEMS)
    return Environment(
        noise_rate=jnp.asarray(ids / 40.0),
        reranker=clicks.position_biased(),
        arrives=jnp.asarray(np.where(ids % 5 == 1, 20, 0)),
        leaves=jnp.asarray(np.where(ids % 5 == 2, 40, ROUNDS)),
        rotation=drift.turning(task.queries, angle=1.0, rounds=ROUNDS),
        drift=drift.swapped(task.labels, share=0.5, at=30),
        poison=poison.attacked(items=ITEMS, queries=QUERIES, share=0.2),
        censoring=censoring.by_success(after_success=0.1, after_failure=0.4),
    )


def everything(task):
    """And what happens to the learner."""
    after = np.roll(task.theta, 1, axis=0)
    return outside(task)._replace(
        delay=delay.uniform(longest=9),
        rewriting=rewriting.rewritten(task.theta, after, at=35),
        restart=restart.from_snapshot(saved=10, at=45),
    )


def same(got, expected):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", ["blocked", pytest.param("8 devices", marks=pytest.mark.slow)])
def test_what_is_asked_and_answered_has_an_exact_blocked_form(task, form):
    learner = jr.orag(tau=0.3, eta=0.02, k=3)
    with jax.enable_x64(True):
        catalogue = Catalogue(jnp.asarray(task.theta, float), jnp.arange(ITEMS) % 7 != 6)
        order = jnp.asarray(np.tile(np.arange(QUERIES), 3))
        stream = Stream(jnp.asarray(task.queries, float), jnp.asarray(task.labels), order)
        start, key, blocks = learner.init(*catalogue), jax.random.key(3), {"block": 16, "tile": 8}
        expected = jax.jit(lambda: scan_rounds(learner, start, outside(task), stream, key))()
        if form == "blocked":
            run = lambda: simulate_blocked(learner, start, outside(task), stream, key, **blocks)  # noqa: E731
        else:
            mesh = sharding.make_mesh(item=8)
            run = lambda: simulate_on_mesh(  # noqa: E731
                learner, start, outside(task), stream, key, mesh=mesh, **blocks
            )
        state, trace = jax.jit(run)()
    np.testing.assert_array_equal(trace.item, expected[1].item)
    np.testing.assert_allclose(trace.reward, expected[1].reward)
    np.testing.assert_allclose(state.theta, expected[0].theta, atol=1e-12)
    assert 5 < np.isnan(np.asarray(trace.reward)).sum() < 50


def test_what_happens_to_the_learner_takes_the_plain_scan_and_says_so(task):
    world = Environment(delay=delay.fixed(1))
    assert Simulation(jr.greedy, task, world, seeds=[0]).how == "scan"
    assert Simulation(jr.greedy, task, outside(task), seeds=[0]).how == "blocked"
    with pytest.raises(ValueError, match=r"'greedy' has no blocked form here, .*leave devices"):
        Simulation(jr.greedy, task, world, seeds=[0], devices=2)
    learner, stream = jr.greedy(), Stream(task.queries, task.labels, np.arange(3))
    with pytest.raises(ValueError, match="delay, rewriting and restart have no blocked form"):
        simulate_blocked(learner, learner.init(task.theta), world, stream, jax.random.key(0))


def test_parts_that_do_nothing_leave_the_plain_run(task):
    """Answers at once, rewritten to the same, a snapshot never taken up, nobody silent, .."""
    nothing = Environment(
        rotation=drift.turning(task.queries, angle=0.0, rounds=9),
        drift=drift.swapped(task.labels, at=1000),
        poison=poison.attacked(items=ITEMS, queries=QUERIES, share=0.0),
        censoring=censoring.by_success(after_success=0.0, after_failure=0.0),
        delay=delay.fixed(0),
        rewriting=rewriting.rewritten(task.theta, task.theta, at=9, how="reset"),
        restart=restart.from_snapshot(saved=9, at=1000),
    )
    learner = jr.greedy(tau=0.2, eta=0.05)._replace(rule=None)  # the scan, for both
    runs = [
        jr.simulate(learner, task, exposures=2, seeds=2, environment=world)
        for world in (Environment(), nothing)
    ]
    same(runs[1].trace.item, runs[0].trace.item)
    same(runs[1].trace.reward, runs[0].trace.reward)
    np.testing.assert_allclose(runs[1].states.theta, runs[0].states.theta, atol=1e-6)
    assert (runs[1].states.t == runs[0].states.t).all()


@pytest.fixture(scope="module")
def straight(task):
    """Everything at once, two seeds; of a learner, and of an oracle, whose labels wait too."""
    learners = jr.orag(tau=0.3, eta=0.02, k=3), jr.full_information(tau=0.3)

    def simulate(which, **more):
        options = {"exposures": 3, "seeds": 2, "environment": everything(task), "chunk": 20}
        return jr.simulate(learners[which], task, **(options | more))

    return simulate, functools.cache(simulate)


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupted_run_goes_on_bit_for_bit(straight, tmp_path, monkeypatch, which):
    simulate, runs = straight
    steps, step = [], Simulation.step

    def interrupting(*args):
        steps.append(args)
        if len(steps) == 2:
            signal.raise_signal(signal.SIGTERM)
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "step", interrupting)
        with pytest.raises(Interrupted):
            simulate(which, resume=tmp_path)
    resumed = simulate(which, resume=tmp_path)
    same(resumed.trace, runs(which).trace)
    same(resumed.states, runs(which).states)
    assert resumed.how == "scan"


def test_chunks_do_not_matter_and_seeds_do_not_mix(straight):
    simulate, runs = straight
    whole = simulate(0, chunk=60)
    same((whole.trace, whole.states), (runs(0).trace, runs(0).states))
    alone = simulate(0, seeds=[1])
    same(alone.trace, jax.tree.map(lambda x: x[1:], runs(0).trace))
    assert (runs(0).trace.item[0] != runs(0).trace.item[1]).any()


def test_seeds_under_vmap_are_the_seeds_one_by_one(task):
    learner, world = jr.orag(tau=0.3, eta=0.02, k=3), everything(task)
    order = jnp.asarray(np.tile(np.arange(QUERIES), 3))

    def play(seed):
        queries, labels = jnp.asarray(task.queries), jnp.asarray(task.labels)
        key = jax.random.key(seed)
        start = deployed(learner, world, key, labels=2).init(jnp.asarray(task.theta))
        return scan_rounds(learner, start, world, Stream(queries, labels, order), key)

    together, alone = quick_jit(jax.vmap(play))(jnp.arange(2)), quick_jit(play)
    for seed in range(2):
        state, trace = alone(seed)
        mine = jax.tree.map(lambda x, seed=seed: x[seed], together)
        np.testing.assert_array_equal(mine[1].item, trace.item)
        np.testing.assert_allclose(bare(mine[0]).theta, bare(state).theta, atol=1e-6)
        assert bare(mine[0]).t == bare(state).t


@pytest.mark.parametrize("oracle", [False, True])
def test_no_part_hands_labels_to_a_learner_that_learns_from_bits(task, oracle):
    """Not in its feedback, nor in what is carried around it."""
    told = []
    inner = (jr.full_information if oracle else jr.greedy)(tau=0.3)

    def update(state, query, choice, feedback):
        told.append(feedback.labels is None)
        return inner.update(state, query, choice, feedback)

    learner = inner._replace(update=update, rule=None)
    world = everything(task)
    simulation = Simulation(lambda: learner, task, world, seeds=[0])
    simulation.fingerprint(np.zeros((1, 0)), np.zeros((1, 3), int))  # traces a round
    assert told
    assert all(told) != oracle
    start = deployed(learner, world, jax.random.key(0), labels=2).init(jnp.asarray(task.theta))
    assert (start.extra.pending.answers.labels is None) != oracle


def test_a_state_that_was_not_deployed_is_refused_by_name(task):
    learner = deployed(jr.greedy(), everything(task), jax.random.key(0), labels=2)
    state = jr.greedy().init(jnp.asarray(task.theta))
    choice = jr.Choice(jnp.asarray(0), jnp.asarray(1.0))
    with pytest.raises(ValueError, match="this state of 'greedy' has no room for what the world"):
        learner.update(state, jnp.asarray(task.queries[0]), choice, jr.Feedback(jnp.asarray(1.0)))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"noise_rate": np.zeros(3)}, r"shape of noise_rate must be \(\) or \(16,\), got \(3,\)"),
        ({"noise_rate": np.full(16, 0.7)}, r"noise_rate must be None or in \[0, 0.5\]"),
        (
            {"drift": drift.swapped([[0], [1]], at=1)},
            r"shape of drift.labels must be \(20, 2\), got \(2, 1\)",
        ),
        (
            {"rotation": drift.turning(np.ones((3, 4)), angle=1.0, rounds=9)},
            r"rotation.turned must be \(20, 8\)",
        ),
        ({"poison": poison.attacked(items=3, queries=20)}, r"poison.tools must be \(16,\)"),
        ({"poison": poison.attacked(items=16, queries=3)}, r"poison.queries must be \(20,\)"),
        (
            {"rewriting": rewriting.rewritten(np.ones((2, 8)), np.ones((2, 8)), at=1)},
            r"rewriting.after must be \(16, 8\)",
        ),
    ],
)
def test_parts_of_another_task_are_refused(task, part, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.greedy(), task, environment=Environment(**part))
