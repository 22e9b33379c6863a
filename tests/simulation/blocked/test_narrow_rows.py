"""Rows in bfloat16: rounded fairly, summed in float32, never copied whole, saved as they are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxret.learners.narrow_rows import Writing, bits, written
from jaxret.simulation.blocked.settling import settled

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.learners import narrow_rows
from jaxret.simulation.blocked.simulate import has_blocked_form
from jaxret.simulation.engine import Simulation

I, D = 40, 64
ULP = 2.0**-7  # between neighbours from 1 to 2


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(I, D)).astype(np.float32)
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    queries = theta[np.arange(200) % I] + 0.3 * rng.normal(size=(200, D)).astype(np.float32)
    return jr.Task.from_arrays(theta, queries, np.arange(200) % I)


def writing(rounding, number, items=I):
    return Writing(rounding, jnp.arange(items), jnp.asarray(number))


def rows(rounding, moved, number=0, own=None):
    own = jnp.zeros(moved.shape, jnp.uint16) if own is None else own
    everyone = jnp.ones(len(moved), bool), jnp.arange(len(moved))
    found = written(writing(rounding, number, len(moved)), jnp.asarray(moved), own, *everyone)
    return np.asarray(narrow_rows.read(found, np.float32))


def test_to_the_nearest_number_is_what_jax_does():
    moved = np.random.default_rng(0).normal(size=(I, D)).astype(np.float32)
    moved[0, :4] = 1 + ULP / 2, 1 + 3 * ULP / 2, 0, -1 - ULP / 2  # ties go to the even one
    np.testing.assert_array_equal(rows("nearest", moved), jnp.asarray(moved, jnp.bfloat16))


@pytest.mark.parametrize("sign", [1, -1])
def test_stochastic_rounding_is_right_on_average_and_in_one_of_two_neighbours(sign):
    moved = np.full((I, D), sign * (1 + 0.3 * ULP), np.float32)
    found = np.stack([rows("stochastic", moved, number) for number in range(20)])
    up = (found == sign * (1 + ULP)).mean()
    assert set(np.unique(sign * found)) == {1, 1 + ULP}
    assert abs(up - 0.3) < 5 * (0.3 * 0.7 / found.size) ** 0.5


def test_bits_differ_between_writings_rows_and_columns():
    ups = np.stack([rows("stochastic", np.full((I, D), 1 + ULP / 2), n) > 1 for n in range(64)])
    for axis in range(3):
        same = (ups == np.roll(ups, 1, axis)).mean()
        assert abs(same - 0.5) < 0.01  # independent coins


@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
def test_small_steps_add_up_where_rounding_is_stochastic(rounding):
    kept = np.ones((I, D), np.float32)
    for number in range(256):
        kept = rows(rounding, kept + ULP / 16, number)
    steps = (kept - 1) / ULP  # 16 of them, with a deviation of 3.9
    if rounding == "nearest":
        assert not steps.any()
        return
    assert abs(steps.mean() - 16) < 0.4
    assert steps.min() >= 1
    assert steps.max() < 40


def test_rows_of_which_nothing_was_asked_stay():
    own = bits(jnp.ones((3, 4), jnp.bfloat16))
    asked = jnp.array([True, False, True])
    moved = jnp.full((3, 4), 5.0)
    found = written(writing("stochastic", 0, 3), moved, own, asked, jnp.arange(3))
    np.testing.assert_array_equal(narrow_rows.read(found, jnp.float32)[:, 0], [5, 1, 5])


@pytest.mark.parametrize("part", [8, 16, 100])
def test_sums_are_made_in_the_precision_of_what_rows_meet(part):
    rng = np.random.default_rng(0)
    theta = jnp.asarray(rng.normal(size=(I + 3, 512)), jnp.bfloat16)
    exact = np.asarray(theta, np.float64)
    u, weights = (rng.normal(size=(5, n)).astype(np.float32) for n in (512, I + 3))
    got = narrow_rows.products(u, bits(theta), part=part)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, u.astype(float) @ exact.T, atol=3e-4)
    got = narrow_rows.sums(jnp.asarray(weights), bits(theta), part=part)
    np.testing.assert_allclose(got, weights.astype(float) @ exact, atol=3e-5)
    got = narrow_rows.squared_norms(bits(theta), np.float32, part=part)
    np.testing.assert_allclose(got, (exact**2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("items", [16, 23])
def test_parts_are_written_as_the_whole(items):
    rng = np.random.default_rng(0)
    theta = bits(jnp.asarray(rng.normal(size=(items, D)), jnp.bfloat16))
    pending, u = (jnp.asarray(rng.integers(-3, 3, (4, n)), jnp.float32) for n in (items, D))
    own = partial(settled, theta, pending, u, None, writing=writing("stochastic", 3, items))
    np.testing.assert_array_equal(own(part=8)[0], own()[0])


def test_no_float32_copy_of_theta_is_made():
    theta = np.random.default_rng(0).normal(size=(8192, 512)).astype(np.float32)
    task = jr.Task.from_arrays(theta, theta[:8], np.arange(8))

    def room(learner):
        simulation = Simulation(lambda: learner, task, seeds=[0], chunk=128)
        setting, order = simulation.setting(), np.zeros((1, 128), np.int32)
        states = jax.eval_shape(simulation.start, setting)
        assert states.theta.dtype.itemsize == (4 if learner.rule.rounding is None else 2)
        args = simulation._arrays, states, setting, order, simulation._seeds
        return simulation._step.lower(*args).compile().memory_analysis().temp_size_in_bytes

    wide, narrow = room(jr.mapped(map_every=128)), room(jr.in_bfloat16(jr.mapped(map_every=128)))
    parts = 4 * 2048 * 512
    assert narrow < wide + 2 * parts < wide + theta.nbytes


LEARNERS = {
    "greedy": jr.in_bfloat16(jr.greedy()),
    "orag, nearest": jr.in_bfloat16(jr.orag(), rounding="nearest"),
    "mapped": jr.in_bfloat16(jr.mapped(map_every=8)),
    "whitened": jr.in_bfloat16(jr.whitened()),
    "replayed": jr.with_experience_replay(jr.in_bfloat16(jr.row_steps()), per_round=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_it_keeps_the_promises_of_a_learner(name):
    jr.check_learner(LEARNERS[name])


def test_wrappers_keep_the_form():
    for name in ("greedy", "mapped", "replayed"):
        assert has_blocked_form(LEARNERS[name], Environment())
    explored = jr.with_exploration(LEARNERS["greedy"])
    assert explored.rule is not None
    assert explored.rule.rounding == "stochastic"


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x, np.float32), np.asarray(y, np.float32))


def test_a_run_is_cut_and_resumed_bit_for_bit(task, tmp_path):
    play = partial(jr.simulate, LEARNERS["mapped"], task, exposures=2, seeds=2)
    whole = play()
    assert whole.how == "blocked"
    assert whole.states.theta.dtype == jnp.bfloat16
    parts = play(chunk=128, resume=tmp_path)
    again = play(chunk=128, resume=tmp_path)  # all of it from the checkpoint
    same(parts.states, whole.states)
    same(again.states, whole.states)


def test_devices_round_as_one_does(task):
    play = partial(jr.simulate, LEARNERS["greedy"], task.select(np.arange(128)))  # one block
    alone, split = play(), play(devices=8)
    np.testing.assert_array_equal(alone.trace.item, split.trace.item)
    one, many = (np.asarray(run.states.theta, np.float32) for run in (alone, split))
    assert (one == many).mean() > 0.99  # sums in another order turn a few


def test_it_learns_what_float32_learns(task):
    plain, narrow = (
        jr.simulate(learner, task, exposures=3, seeds=2)
        for learner in (jr.greedy(), LEARNERS["greedy"])
    )
    assert abs(plain.accuracy.mean - narrow.accuracy.mean) < 0.01
    gap = np.abs(np.asarray(plain.states.theta) - np.asarray(narrow.states.theta, np.float32))
    assert 0 < gap.max() < 0.05


def test_what_was_learnt_is_saved_and_ranks(task, tmp_path):
    run = jr.simulate(LEARNERS["mapped"], task)
    run.save(tmp_path)
    embeddings = jr.load_embeddings(tmp_path)
    np.testing.assert_array_equal(embeddings.theta, np.asarray(run.states.theta[0], np.float32))
    ranked = [jr.evaluate(x, task)["accuracy"].mean for x in (run, embeddings)]
    assert ranked[0] == pytest.approx(ranked[1], abs=0.01)


def test_an_index_comes_back_as_it_was(task, tmp_path):
    learner = LEARNERS["replayed"]
    index = jr.Index(learner, task)
    for query in task.queries[:5]:
        index.feedback(index.search(query, k=2), worked=True)
    index.redescribe(["3"], [task.theta[4]])
    index.add(["new"], [task.theta[5]])
    index.save(tmp_path)
    with pytest.raises(ValueError, match="must be given"):
        jr.Index.load(tmp_path)
    loaded = jr.Index.load(tmp_path, learner)
    assert loaded.state.theta.dtype == index.state.theta.dtype == jnp.bfloat16
    same(loaded.state, index.state)
    query = task.queries[9]
    assert loaded.search(query, k=3).ids == index.search(query, k=3).ids
    narrow_file = next(tmp_path.glob("arrays-*.npz"))
    assert narrow_file.is_file()
    other = jr.with_experience_replay(jr.row_steps(), per_round=2)
    with pytest.raises(ValueError, match="holds a state of"):
        jr.Index.load(tmp_path, other)


def test_documents_are_rewritten(task):
    after = task.theta[::-1]
    scenario = jr.environments.interventions.rewritten_documents(
        task.theta, after, at=50, how="carry"
    )
    run = jr.simulate(LEARNERS["greedy"], task, environment=jr.Environment(rewriting=scenario))
    assert run.how == "scan"
    assert run.states.theta.dtype == jnp.bfloat16
    norms = np.linalg.norm(np.asarray(run.states.theta[0], np.float32), axis=1)
    np.testing.assert_allclose(norms, 1, atol=4e-3)


def test_what_has_no_rule_or_no_proof_is_refused(task):
    with pytest.raises(ValueError, match="'mixture' is not rank one: bfloat16 needs"):
        jr.in_bfloat16(jr.mixture())
    with pytest.raises(ValueError, match="before experience replay, not after"):
        jr.in_bfloat16(jr.greedy_replayed())
    with pytest.raises(ValueError, match="in bfloat16 already"):
        jr.in_bfloat16(LEARNERS["greedy"])
    with pytest.raises(ValueError, match="rounding must be stochastic or nearest, got up"):
        jr.in_bfloat16(jr.greedy(), rounding="up")
    experts = jr.grid(lambda tau: jr.in_bfloat16(jr.greedy(tau=tau)), tau=[0.02, 0.04])
    with pytest.raises(ValueError, match="bfloat16 rows: a mixture's are float32"):
        jr.mixture([experts])
    run = jr.simulate(jr.in_bfloat16(jr.orag()), task)
    assert np.isfinite(jr.regret(run).final.mean)
    with pytest.raises(ValueError, match="no bound is for such steps"):
        jr.bounds(run)
