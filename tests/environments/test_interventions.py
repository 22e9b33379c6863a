"""Delays, rewritten documents and restarts, compared with rounds without interventions."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxret as jr
from jaxret.environments import drift, feedback, interventions
from jaxret.environments.environment import Environment, with_interventions
from jaxret.environments.interventions import learner_state
from jaxret.learners.grid import Family
from jaxret.learners.learner import where_observed
from jaxret.rules.offsets import Usage
from jaxret.simulation.engine import Simulation
from jaxret.simulation.scan import learn, scan_rounds, show
from jaxret.testing import quick_jit
from jaxret.types import Stream
from tests.environments.conftest import taught
from tests.interruption import stopped
from tests.problems import fixed_delay, same

ROUNDS, LONGEST = 600, 7
LATE = interventions.geometric_delay(mean=2.0, longest=LONGEST)
KEY = jax.random.key(3)
AT = 25
GREEDY = Family(jr.greedy, jr.greedy)


@functools.cache
def plain(learner, seed):
    key = jax.random.key(seed)
    return jax.jit(lambda state, stream: scan_rounds(learner, state, Environment(), stream, key))


def straight(run, state, start, stop):
    """Simulate rounds of the first seed of a run without interventions."""
    order = np.pad(run.order[0][start:stop], (0, 40 - stop + start), constant_values=-1)
    stream = Stream(*map(jnp.asarray, (run.task.queries, run.task.labels, order)))
    return plain(run.learner, run.seeds[0])(state, stream)


class Told(NamedTuple):
    """Records the feedback in order of arrival, in arrays of C slots."""

    count: int
    query: np.ndarray  # [C, d]
    item: np.ndarray
    propensity: np.ndarray
    reward: np.ndarray


def scribe(capacity: int) -> jr.Learner:
    """Make a learner that samples tools from its softmax, never updates and records feedback."""
    inner = jr.orag(tau=0.5, eta=0.0)

    def init(theta, available=None):
        blank, zero = jnp.zeros(capacity, theta.dtype), jnp.zeros((), jnp.int32)
        query, item = jnp.zeros((capacity, theta.shape[1]), theta.dtype), blank.astype(jnp.int32)
        return inner.init(theta, available)._replace(extra=Told(zero, query, item, blank, blank))

    def update(state, query, choice, feedback):
        told, line = state.extra, (query, choice.item, choice.propensity, feedback.reward)
        lists = [one.at[told.count].set(x) for one, x in zip(told[1:], line, strict=True)]
        new = state._replace(extra=Told(told.count + 1, *lists))
        return where_observed(feedback, state, new)

    return inner._replace(name="scribe", init=init, update=update)


@pytest.fixture(scope="module")
def rounds(task):
    """Return the feedback of each round; the query of each round is different."""
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(ROUNDS, task.theta.shape[1])).astype(np.float32)
    labels = rng.integers(8, size=(ROUNDS, 1)).astype(np.int32)
    stream = Stream(*map(jnp.asarray, (queries, labels, np.arange(ROUNDS))))
    environment = Environment(delay=LATE)
    learner = scribe(ROUNDS)
    init = with_interventions(learner, environment, KEY, labels=1).init

    @jax.jit
    def play(theta):
        def one(state, query):
            slate = show(learner, state, environment, stream, query, KEY)
            state, trace = learn(learner, state, environment, stream, query, KEY, slate)
            return state, (trace, state.extra.extra.count, state.t, state.extra.t)

        return jax.lax.scan(one, init(theta), stream.order)

    end, (trace, counts, t, own_t) = play(jnp.asarray(task.theta))
    return jax.tree.map(np.asarray, (end.extra.extra, trace, counts, t, own_t, queries))


def arrivals(rounds):
    """Return the rounds whose answers arrived, in order of arrival, and the rounds of arrival."""
    told, _, counts, *_, queries = rounds
    place = {query.tobytes(): t for t, query in enumerate(queries)}
    sent = [place[query.tobytes()] for query in told.query[: told.count]]
    came = np.repeat(np.arange(ROUNDS), np.diff(counts, prepend=0))
    return np.array(sent), came


def test_every_answer_arrives_once_with_its_query_choice_and_reward(rounds):
    told, trace, *_ = rounds
    sent, _ = arrivals(rounds)
    assert len(set(sent.tolist())) == len(sent) == told.count
    assert {*range(ROUNDS - LONGEST)} <= {*sent.tolist()}  # answers pending at the end are lost
    for name in ("item", "propensity", "reward"):
        np.testing.assert_array_equal(getattr(told, name)[: told.count], getattr(trace, name)[sent])


def test_answers_are_as_late_as_their_probabilities_say_and_out_of_order(rounds):
    sent, came = arrivals(rounds)
    waited = came - sent
    assert waited.min() >= 0
    often = np.bincount(waited[sent < ROUNDS - LONGEST], minlength=LONGEST + 1)
    weights = (2 / 3) ** np.arange(LONGEST + 1)
    expected = weights / weights.sum() * often.sum()
    assert ((often - expected) ** 2 / expected).sum() < 24.3  # 99.9 % of chi squared, 7 d.o.f.
    assert (np.diff(sent) < 0).any()


def test_answers_that_arrive_in_one_round_are_learnt_in_order(rounds):
    sent, came = arrivals(rounds)
    together = np.diff(came) == 0
    assert together.sum() > 50
    assert (np.diff(sent)[together] > 0).all()


def test_the_environment_counts_queries_and_the_learner_counts_answers(rounds):
    _, _, counts, t, own_t, _ = rounds
    np.testing.assert_array_equal(t, np.arange(1, ROUNDS + 1))
    np.testing.assert_array_equal(own_t, counts)


def test_a_late_answer_updates_the_current_state(task):
    """Repeat the run; answers keep the labels and priors of their queries."""
    late, prior = 5, np.random.default_rng(7).random((40, 8))
    learner = jr.with_lexical(jr.full_information(tau=0.2, eta=0.05), 0.5)
    known = jr.Task.from_arrays(task.theta, task.queries, task.labels, prior=prior)
    run = jr.simulate(learner, known, exposures=2, environment=Environment(delay=fixed_delay(late)))
    assert run.form == "scan"
    state = learner.init(task.theta)
    for t, query in enumerate(run.order[0]):
        scores = (np.asarray(state.theta) @ task.queries[query] + prior[query]) / 2
        assert scores[run.trace.item[0, t]] >= scores.max() - 1e-5  # the best item is shown
        if t >= late:
            state = taught(run, state, t - late)
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=1e-5)
    assert run.states.t[0] == len(run.order[0]) - late


def test_an_answer_about_a_removed_tool_updates_nothing(task):
    leaves = np.where(np.arange(8) < 4, 10, 1000).astype(np.int32)
    environment = Environment(delay=fixed_delay(5), leaves=leaves)
    run = jr.simulate(scribe(40), task, environment=environment)
    item, told = run.trace.item[0], run.states.extra
    gone = (item < 4) & (np.arange(40) + 5 >= 10)
    known = ~gone & (np.arange(40) + 5 < 40)
    np.testing.assert_array_equal(told.item[0][: told.count[0]], item[known])
    assert gone.sum() >= 1
    assert run.states.t[0] == 35  # counts answers, including those that change nothing


def test_delays_and_missing_answers_are_independent(task):
    """Some answers arrive at once and overtake answers that are delayed by two rounds."""
    silent = feedback.censored_by_success(after_success=0.5, after_failure=0.5)
    environment = Environment(delay=interventions.Delay(jnp.full(3, 1 / 3)), censoring=silent)
    run = jr.simulate(scribe(200), task, exposures=5, environment=environment)
    told, count = run.states.extra.propensity[0], int(run.states.extra.count[0])
    sent = run.trace.propensity[0][~np.isnan(run.trace.reward[0])]
    assert len(sent) - count <= 2  # the last answers may still be pending
    assert set(told[:count].tolist()) <= set(sent.tolist())
    assert (told[:count] != sent[:count]).any()


def test_geometric_delays_have_a_geometric_distribution_with_their_mean():
    geometric = interventions.geometric_delay
    got = geometric(mean=1.0, longest=2).probabilities
    np.testing.assert_allclose(got, [4 / 7, 2 / 7, 1 / 7], rtol=1e-6)
    np.testing.assert_allclose(geometric(mean=0.0).probabilities, [1], rtol=1e-6)
    probabilities = np.asarray(geometric(mean=50.0).probabilities, np.float64)
    np.testing.assert_allclose(probabilities @ np.arange(501), 50, rtol=0.01)


@pytest.fixture(scope="module")
def after(task):
    """Return new documents for all tools except the first two."""
    rows = np.random.default_rng(5).normal(size=task.theta.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.arange(8)[:, None] < 2, task.theta, rows).astype(np.float32)


def rewritten_rows(learnt, before, after, how):
    """Compute the formula of `Rewriting` on the unit sphere."""
    carried = after.astype(np.float64) + learnt - before
    moved = {"keep": learnt, "reset": after, "carry": carried}[how]
    moved = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where((before != after).any(axis=1, keepdims=True), moved, learnt)


@pytest.mark.parametrize("how", ["keep", "reset", "carry"])
def test_rows_are_kept_reset_or_carried_and_learning_continues(task, after, how):
    learner = jr.greedy(tau=0.2, eta=0.05)
    change = interventions.rewritten_documents(task.theta, after, at=AT, how=how)
    run = jr.simulate(learner, task, environment=Environment(rewriting=change))
    assert run.form == "scan"
    first, _ = straight(run, learner.init(jnp.asarray(task.theta)), 0, AT)
    rows = rewritten_rows(np.asarray(first.theta), task.theta, after, how)
    np.testing.assert_array_equal(rows[:2], first.theta[:2])
    middle = first._replace(theta=rows.astype(np.float32))
    last, trace = straight(run, middle, AT, 40)
    np.testing.assert_allclose(run.states.theta[0], last.theta, atol=1e-5)
    np.testing.assert_array_equal(run.trace.item[0][AT:], trace.item[: 40 - AT])
    assert np.abs(np.asarray(first.theta) - task.theta).max() > 0.01  # the rows have changed


def test_a_document_that_changed_in_one_coordinate_is_rewritten(task):
    """Row 3 changes in one coordinate and row 5 in all; only these two rows are reset."""
    after = np.array(task.theta)
    after[3, 0] += 0.5
    after[5] = -after[5]
    rewriting = interventions.rewritten_documents(task.theta, after, at=1, how="reset")
    learner = jr.greedy(tau=0.2, eta=0.05)
    state = learner.init(jnp.asarray(task.theta))
    learnt = np.roll(task.theta, 1, axis=0)
    moved, _ = rewriting.change((), jnp.asarray(1), learner, state._replace(theta=learnt))
    new = after / np.linalg.norm(after, axis=1, keepdims=True)
    expected = np.where(np.isin(np.arange(8), [3, 5])[:, None], new, learnt)
    np.testing.assert_allclose(moved.theta, expected, atol=1e-6)


@pytest.mark.parametrize("how", ["keep", "reset", "carry"])
def test_reset_alone_sets_back_the_usage_of_the_rewritten_tools(task, after, how):
    rewriting = interventions.rewritten_documents(task.theta, after, at=1, how=how)
    learner = jr.with_balance(jr.greedy(tau=0.2, eta=0.05))
    state = learner.init(jnp.asarray(task.theta))
    used = Usage(jnp.linspace(0.5, 2.0, 8), jnp.linspace(30.0, 50.0, 8))
    moved, _ = rewriting.change((), jnp.asarray(1), learner, state._replace(extra=((), (), used)))
    back = (np.arange(8) >= 2) & (how == "reset")
    np.testing.assert_array_equal(moved.extra[2].mean, np.where(back, 1, used.mean))
    np.testing.assert_array_equal(moved.extra[2].count, np.where(back, 20, used.count))


def test_rewriting_changes_all_rows_of_a_tool_including_those_of_a_guard(task, after):
    change = interventions.rewritten_documents(task.theta, after, at=AT, how="reset")
    learner = jr.guarded(jr.greedy(tau=0.2, eta=0.05), budget=100)
    run = jr.simulate(learner, task.select(range(AT)), environment=Environment(rewriting=change))
    np.testing.assert_allclose(run.states.theta[0][2:], after[2:], atol=1e-6)
    np.testing.assert_allclose(run.states.extra.static[0], after, atol=1e-6)


@pytest.mark.slow
def test_rewriting_with_reset_restarts_every_expert_of_a_mixture(task, after):
    experts = [jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1, 0.2], eta=0.05)]
    change = interventions.rewritten_documents(task.theta, after, at=AT, how="reset")
    part = task.select(range(AT))
    run = jr.simulate(jr.mixture(experts), part, environment=Environment(rewriting=change))
    np.testing.assert_allclose(run.states.theta[0], after, atol=1e-6)
    for rows in run.states.extra.rows[1].theta[0]:
        np.testing.assert_allclose(rows[2:], after[2:], atol=1e-6)


@pytest.mark.parametrize("saved", [0, 12])
def test_a_restart_loses_what_was_learnt_since_the_snapshot(task, saved):
    learner, at = jr.orag(tau=0.2, eta=0.02), 30  # random choices, so that each round differs
    environment = Environment(restart=interventions.restart_from_snapshot(saved=saved, at=at))
    run = jr.simulate(learner, task, seeds=[4], environment=environment)
    assert run.form == "scan"
    snapshot, _ = straight(run, learner.init(jnp.asarray(task.theta)), 0, saved)
    _, before = straight(run, learner.init(jnp.asarray(task.theta)), 0, at)
    last, after = straight(run, snapshot._replace(t=np.int32(at)), at, 40)
    items = np.concatenate([before.item[:at], after.item[: 40 - at]])
    np.testing.assert_array_equal(run.trace.item[0], items)
    np.testing.assert_allclose(run.states.theta[0], last.theta, atol=1e-6)
    assert run.states.t[0] == saved + 40 - at
    calm, _ = straight(run, learner.init(jnp.asarray(task.theta)), 0, 40)
    assert np.abs(calm.theta - run.states.theta[0]).max() > 1e-3


def test_a_restart_restores_the_extra_state_too(task):
    environment = Environment(restart=interventions.restart_from_snapshot(saved=10, at=25))
    run = jr.simulate(scribe(40), task, environment=environment)
    told = jax.tree.map(lambda x: x[0], run.states.extra)
    assert told.count == 25
    remembered = np.r_[np.arange(10), np.arange(25, 40)]
    np.testing.assert_array_equal(told.item[:25], run.trace.item[0][remembered])


def test_interventions_run_in_the_plain_scan_alone(sixteen, blocked_effects):
    environment = Environment(delay=fixed_delay(1))
    assert Simulation(GREEDY, sixteen, environment, seeds=[0]).form == "scan"
    assert Simulation(GREEDY, sixteen, blocked_effects, seeds=[0]).form == "blocked"
    with pytest.raises(ValueError, match=r"'greedy' has no blocked form here, .*leave devices"):
        Simulation(GREEDY, sixteen, environment, seeds=[0], devices=2)


def test_effects_without_consequences_leave_the_plain_run(task):
    """Zero delay, documents rewritten to themselves, a snapshot that is never restored, etc."""
    nothing = Environment(
        rotation=drift.turning(task.queries, angle=0.0, rounds=9),
        drift=drift.swapped(task.labels, at=1000),
        poison=feedback.poisoned(items=8, queries=40, share=0.0),
        censoring=feedback.censored_by_success(after_success=0.0, after_failure=0.0),
        delay=fixed_delay(0),
        rewriting=interventions.rewritten_documents(task.theta, task.theta, at=9, how="reset"),
        restart=interventions.restart_from_snapshot(saved=9, at=1000),
    )
    learner = jr.orag(tau=0.2, eta=0.02)
    run = jr.simulate(learner, task, seeds=[4], environment=nothing)
    state, trace = straight(run, learner.init(jnp.asarray(task.theta)), 0, 40)
    got = run.trace.item[0], run.trace.reward[0], run.states.t[0]
    same(got, (trace.item, trace.reward, state.t))
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=1e-6)


@pytest.fixture(scope="module")
def whole(sixteen, all_effects):
    """Simulate all effects on two seeds of a bandit and of an oracle, whose labels are delayed."""
    learners = jr.orag(tau=0.3, eta=0.02, k=3), jr.full_information(tau=0.3)

    def simulate(which, **more):
        options = {"exposures": 3, "seeds": 2, "environment": all_effects, "chunk": 20}
        return jr.simulate(learners[which], sixteen, **(options | more))

    return simulate, functools.cache(simulate)


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupted_run_continues_bit_for_bit(whole, tmp_path, which):
    simulate, runs = whole
    stopped(lambda: simulate(which, resume=tmp_path))
    resumed = simulate(which, resume=tmp_path)
    same((resumed.trace, resumed.states), (runs(which).trace, runs(which).states))
    assert resumed.form == "scan"


def test_seeds_under_vmap_in_one_chunk_are_the_seeds_one_by_one_in_three(
    sixteen, all_effects, whole
):
    one_by_one = whole[1](0)

    def play(order, seed):
        learner, key = one_by_one.learner, jax.random.key(seed)
        start = with_interventions(learner, all_effects, key, labels=2).init(sixteen.theta)
        stream = Stream(*map(jnp.asarray, (sixteen.queries, sixteen.labels)), order)
        return scan_rounds(learner, start, all_effects, stream, key)

    state, trace = quick_jit(jax.vmap(play))(one_by_one.order, np.arange(2))
    same((trace.item, trace.reward), (one_by_one.trace.item, one_by_one.trace.reward))
    got, expected = learner_state(state), one_by_one.states
    np.testing.assert_allclose(got.theta, expected.theta, atol=1e-6)
    np.testing.assert_array_equal(got.t, expected.t)
    assert (trace.item[0] != trace.item[1]).any()


@pytest.mark.parametrize("oracle", [False, True])
def test_no_effect_gives_labels_to_a_learner_that_is_no_oracle(sixteen, all_effects, oracle):
    told = []
    inner = (jr.full_information if oracle else jr.greedy)(tau=0.3)

    def update(state, query, choice, feedback):
        told.append(feedback.labels is None)
        return inner.update(state, query, choice, feedback)

    learner = inner._replace(update=update)
    init = with_interventions(learner, all_effects, KEY, labels=2).init
    start = jax.eval_shape(init, jnp.asarray(sixteen.theta))
    stream = Stream(*map(jnp.asarray, (sixteen.queries, sixteen.labels, np.arange(3))))
    jax.eval_shape(lambda state: scan_rounds(learner, state, all_effects, stream, KEY), start)
    assert told
    assert all(told) != oracle
    assert (start.extra.memories[0].answers.labels is None) != oracle


def test_a_state_of_the_learner_alone_is_refused_by_name(sixteen, all_effects):
    learner = with_interventions(jr.greedy(), all_effects, jax.random.key(0), labels=2)
    state = jr.greedy().init(jnp.asarray(sixteen.theta))
    zero, one = jnp.asarray(0), jnp.asarray(1.0)
    with pytest.raises(ValueError, match="this state of 'greedy' lacks what interventions"):
        learner.update(state, sixteen.queries[0], jr.Choice(zero, one), jr.Feedback(one))


class Forgetting(NamedTuple):
    """A user-defined intervention that shrinks the rows towards their start before each round."""

    kept: Float[Array, ""]  # share of the learned change that is kept

    def memory(self, learner, state, answer):
        return state.theta

    def change(self, memory, t, learner, state):
        return state._replace(theta=memory + self.kept * (state.theta - memory)), memory


def test_a_custom_intervention_runs_in_the_scan_between_updates(task):
    """The intervention runs after the built-in delay of one round."""
    learner, kept = jr.greedy(tau=0.2, eta=0.05), 0.9
    environment = Environment(delay=fixed_delay(1), effects=(Forgetting(kept=jnp.asarray(kept)),))
    run = jr.simulate(learner, task, environment=environment)
    assert run.form == "scan"
    state = learner.init(task.theta)
    start = np.asarray(state.theta)
    for t in range(40):
        if t > 0:
            state = taught(run, state, t - 1)
        state = state._replace(theta=start + kept * (state.theta - start))
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=1e-5)
    assert np.abs(np.asarray(state.theta) - start).max() > 0.01
    with pytest.raises(ValueError, match="no blocked form here"):
        jr.simulate(learner, task, environment=environment, devices=2)
