"""A memory of past rounds against a table in NumPy, and what it must forget."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

import jaxret as jr
from jaxret.environments import interventions
from jaxret.environments.drift import Drift
from jaxret.environments.environment import Environment
from jaxret.environments.feedback import censored_by_success
from jaxret.learners.learner import query_for
from jaxret.learners.replay import without_buffer
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback, Prior, Query
from tests.problems import check_shown

SHORT = {"tau": 0.2, "eta": 0.02}
SETTINGS = {"bandwidth": 0.2, "strength": 0.5, "discount": 0.7}
MIXTURE = jr.mixture([jr.grid(jr.frozen, tau=[0.05, 0.3]), jr.grid(jr.greedy, tau=[0.2], eta=0.02)])
REMEMBERING = jr.with_memory(jr.greedy(**SHORT), **SETTINGS, capacity=4)


SLOW = [
    jr.with_memory(jr.orag(**SHORT), **SETTINGS),  # draws, by the normalised P'
    jr.with_exploration(REMEMBERING, 0.2),
    jr.with_memory(jr.with_lexical(jr.greedy_replayed(**SHORT, per_round=2))),
    jr.with_memory(jr.full_information(**SHORT)),
    jr.guarded(REMEMBERING, budget=20),
]


@pytest.mark.parametrize(
    "learner",
    [
        jr.with_memory(MIXTURE, capacity=9),
        *(pytest.param(learner, marks=pytest.mark.slow) for learner in SLOW),
    ],
    ids=lambda learner: learner.name,
)
def test_remembering_learners_satisfy_the_contract(learner):
    check_learner(learner)


THETA = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
AVAILABLE = np.arange(6) != 4
RNG = np.random.default_rng(1)
QUERIES = 3 * RNG.normal(size=(11, 4)).astype(np.float32)  # of any length
ITEMS, REWARDS = RNG.integers(6, size=11).astype(np.int32), RNG.random(11).astype(np.float32)
ROUNDS = [*zip(QUERIES, ITEMS, REWARDS, strict=True)]


@cache
def compiled(fn):
    return quick_jit(fn)


@cache
def run_of(learner):
    """Compile a function from which of the rounds have feedback to the states after each."""

    def one(state, line):
        query, item, reward, seen = line
        choice, query = Choice(item, np.float32(1)), query_for(learner, query)
        state = learner.update(state, query, choice, Feedback(reward, seen))
        return state, state

    def run(observed):
        first = learner.init(THETA, jnp.asarray(AVAILABLE))
        return jax.lax.scan(one, first, (QUERIES, ITEMS, REWARDS, observed))[1]

    return quick_jit(run)


def after_rounds(learner, n, unobserved=()):
    """Return the state after the first n rounds."""
    states = jax.device_get(run_of(learner)(~np.isin(np.arange(11), unobserved)))
    return jax.tree.map(lambda x: x[n - 1], states)


def logits_of(learner, state, query):
    return np.asarray(compiled(learner.logits)(state, query))


def similarity(one, other, bandwidth):
    return np.exp((one @ other / np.linalg.norm(one) / np.linalg.norm(other) - 1) / bandwidth)


def corrected(log_p, query, past, *, bandwidth, strength, discount):
    """Compute ``ln P'`` from past rounds (query, item, reward), one by one."""
    good, bad = np.zeros((2, len(log_p)))
    for place, (other, item, reward) in enumerate(past):
        later = [one for one, shown, _ in past[place + 1 :] if shown == item]
        weight = discount ** sum(similarity(one, other, bandwidth) for one in later)
        good[item] += weight * reward * similarity(query, other, bandwidth)
        bad[item] += weight * (1 - reward) * similarity(query, other, bandwidth)
    return np.log((strength * np.exp(log_p) + good) / (strength + good + bad))


@pytest.mark.parametrize("n", [3, 11])  # fewer rounds than the memory holds, and more
@pytest.mark.parametrize("inner", [jr.orag(**SHORT), MIXTURE], ids=lambda x: x.name)
def test_probabilities_are_those_of_a_table_of_the_last_rounds(inner, n):
    learner = jr.with_memory(inner, **SETTINGS, capacity=7)
    state, past = after_rounds(learner, n), ROUNDS[:n][-7:]
    queries = [query * length for (query, *_), length in zip(past, (1.0, 0.1, 7.0), strict=False)]
    moved = []
    for query in np.float32([*queries, past[0][0] + past[1][0]]):
        log_p = np.float64(logits_of(inner, without_buffer(state), query))
        if inner is not MIXTURE:  # whose logits are ln P, and need not sum to one
            log_p = log_p - logsumexp(log_p)
        expected = np.where(AVAILABLE, corrected(log_p, query, past, **SETTINGS), -np.inf)
        found = logits_of(learner, state, query)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        scores = compiled(learner.scores)(state, query[None])
        np.testing.assert_allclose(scores[0], found, rtol=1e-4)
        moved.append(np.abs(expected[AVAILABLE] - log_p[AVAILABLE]).max())
    if inner is not MIXTURE:  # which draws, by the normalised P'
        check_shown(learner, state, query, softmax(expected))
    assert max(moved) > 0.1  # the memory matters


def test_a_mixture_is_corrected_as_its_experts_would_be():
    """P' is linear in P, so weighing before and after the correction gives the same."""
    learner = jr.with_memory(MIXTURE, **SETTINGS, capacity=7)
    state, query = after_rounds(learner, 7), QUERIES[5]
    inner, parts = without_buffer(state), []
    for g in range(3):
        weights = np.where(np.arange(3) == g, 0, -np.inf).astype(np.float32)
        alone = inner._replace(extra=inner.extra._replace(log_weights=weights))
        log_p = np.float64(logits_of(MIXTURE, alone, query))
        own = corrected(log_p, query, ROUNDS[:7], **SETTINGS)
        parts.append(own + inner.extra.log_weights[g])
    found = np.where(AVAILABLE, logsumexp(parts, axis=0), -np.inf)
    np.testing.assert_allclose(logits_of(learner, state, query), found, rtol=1e-4)


def test_without_similar_rounds_the_probabilities_are_those_of_the_learner():
    learner = jr.with_memory(jr.greedy(**SHORT), bandwidth=1e-3)
    state, query = after_rounds(learner, 5), np.float32([1, -1, 2, 0])
    own = logits_of(jr.greedy(**SHORT), without_buffer(state), query)
    found = logits_of(learner, state, query)
    np.testing.assert_array_equal(found, jax.nn.log_softmax(own))


def test_a_query_without_a_direction_is_similar_to_none():
    state = after_rounds(REMEMBERING, 4)
    found = logits_of(REMEMBERING, state, np.zeros(4, np.float32))
    assert np.isfinite(found[AVAILABLE]).all()


@pytest.fixture(scope="module")
def returning(small):
    """Return a task in which the right tool of every second query is the second best."""
    task = small(items=12, queries=80, width=16)
    labels = np.argsort(-task.queries @ task.theta.T)[np.arange(80), np.arange(80) % 2]
    return jr.Task.from_arrays(task.theta, task.queries, labels, ids=task.ids)


def test_queries_that_return_are_answered_by_what_worked(returning):
    """Static retrieval is right in half of the rounds; with a memory it shows another tool."""
    static = jr.frozen(tau=1.0)
    table = jr.with_memory(static, bandwidth=0.01)
    forgetful = jr.with_memory(static, bandwidth=0.01, capacity=2)
    runs = [jr.simulate(one, returning, exposures=3) for one in (table, forgetful)]
    by_exposure = [run.trace.success.reshape(3, 80).mean(axis=1) for run in runs]
    assert abs(by_exposure[0][0] - 0.5) < 0.1
    assert by_exposure[0][2] > 0.9
    assert by_exposure[1][2] < 0.7


def remembering(*, bandwidth: float = 0.01, strength: float = 0.3, discount: float = 0.5):
    settings = {"bandwidth": bandwidth, "strength": strength, "discount": discount}
    return jr.with_memory(jr.frozen(tau=1.0), **settings)


def test_what_stops_working_is_given_up_as_fast_as_the_discount_says(returning):
    """After ten exposures other tools are right; in the last of eight more they are known."""
    labels = np.argsort(-returning.queries @ returning.theta.T)[:, 2]
    drift = Drift(labels=labels[:, None].astype(np.int32), at=np.int32(800))
    grid = jr.grid(remembering, discount=[0.5, 1.0])
    runs = jr.sweep(grid, returning, exposures=18, environment=Environment(drift=drift)).runs
    success = np.stack([run.trace.success.reshape(18, 80).mean(axis=1) for run in runs])
    assert success[:, 9].min() > 0.95
    assert success[0, 17] >= 0.8
    assert success[1, 17] <= 0.2


def test_the_inner_learner_learns_from_what_was_shown(returning):
    """Replay the choices of a run, with their propensities, for the inner learner alone."""
    inner = jr.orag(**SHORT)
    run = jr.simulate(jr.with_memory(inner, **SETTINGS), returning, exposures=2)
    assert run.form == "scan"
    lines = run.trace.item[0], run.trace.propensity[0], run.trace.reward[0]

    @quick_jit
    def alone(theta, queries, lines):
        def one(state, line):
            query, item, propensity, reward = line
            new = inner.update(state, query, Choice(item, propensity), Feedback(reward))
            return new, inner.probabilities(state, query)[item]

        return jax.lax.scan(one, inner.init(theta), (queries, *lines))

    expected, own = alone(returning.theta, returning.queries[run.order[0]], lines)
    np.testing.assert_allclose(run.states.theta[0], expected.theta, atol=1e-5)
    assert (np.abs(own - run.trace.propensity[0]) > 1e-3).mean() > 0.5


def test_rounds_without_feedback_are_not_remembered(returning):
    past = after_rounds(REMEMBERING, 5, unobserved=[1, 3, 4]).extra[1]
    assert past.count == 2
    np.testing.assert_array_equal(past.item, [*ITEMS[[0, 2]], -1, -1])
    missing = Environment(censoring=censored_by_success(after_success=0.5, after_failure=0.2))
    run = jr.simulate(REMEMBERING, returning, environment=missing)
    assert run.states.extra[1].count[0] == (~np.isnan(run.trace.reward)).sum()


def test_each_item_of_a_slate_is_remembered_with_its_reward():
    learner = jr.with_memory(jr.greedy(**SHORT, k=2), **SETTINGS, capacity=3)
    assert learner.probabilities is None
    choice = Choice(np.int32([0, 2]), np.float32([1, 1]))
    update = quick_jit(learner.update)
    state = update(
        quick_jit(learner.init)(THETA), QUERIES[0], choice, Feedback(np.float32([0.25, 1]))
    )
    past = state.extra[1]
    np.testing.assert_array_equal(past.item, [0, 2, -1])
    np.testing.assert_array_equal(past.reward, [0.25, 1, 0])


def test_similarity_is_of_vectors_and_not_of_priors():
    inner = jr.hybrid(tau=0.2, lexical=0.5, width=2)
    learner = jr.with_memory(inner, **SETTINGS)
    queries = [
        Query(QUERIES[0], Prior(np.int32(items), np.float32(scores)))
        for items, scores in [([0, 1], [0.3, 0.1]), ([2, -1], [0.7, 0.0])]
    ]
    choice, success = Choice(np.int32(3), np.float32(1)), Feedback(np.float32(1))
    state = quick_jit(learner.update)(quick_jit(learner.init)(THETA), queries[0], choice, success)
    log_p = np.stack([logits_of(learner, state, query) for query in queries])
    assert (log_p[:, 3] > -np.log(1.5)).all()  # (kappa P + 1) / (kappa + 1) with other words
    own = [logits_of(inner, without_buffer(state), query) for query in queries]
    np.testing.assert_allclose(log_p[:, :3], log_softmax(own, axis=1)[:, :3], rtol=1e-4)


def test_an_absent_tool_is_not_shown_although_it_is_remembered():
    state = after_rounds(REMEMBERING, 4)
    query, item = QUERIES[3], ITEMS[3]
    away = state._replace(available=state.available & (np.arange(6) != item))
    assert logits_of(REMEMBERING, away, query)[item] == -np.inf
    assert logits_of(REMEMBERING, state, query)[item] > -np.inf


@pytest.fixture
def index(returning):
    """Return an index in which a query's first tool worked three times: 1 + .7 + .49 rounds."""
    index = jr.Index(jr.with_memory(jr.frozen(tau=1.0), **SETTINGS), returning)
    for _ in range(3):
        index.feedback(index.search(returning.queries[0]), worked=1.0)
    return index


def test_a_tool_that_takes_a_removed_row_inherits_no_memory(index, returning):
    query = returning.queries[0]
    ticket = index.search(query)
    assert ticket.scores[0] > np.log(2.19 / 2.69)
    first, others = ticket.ids[0], index.search(query, k=12).ids[1:]
    index.remove([first])
    assert index.search(query).ids[0] != first
    index.add([first], [-query])  # unlike the tool that was remembered
    assert index.search(query, k=12).ids == [*others, first]
    assert index.search(query).scores[0] < np.log(0.5)
    assert (index.state.extra[1].item == -1).all()


@pytest.mark.parametrize(("how", "kept"), [("keep", 3), ("carry", 3), ("reset", 0)])
def test_a_tool_that_starts_from_a_new_description_is_forgotten(index, returning, how, kept):
    first = index.search(returning.queries[0]).ids[0]
    index.redescribe([index.ids[-1]], [returning.queries[0]], how="reset")  # of another tool
    index.redescribe([first], [returning.queries[1]], how=how)
    assert (index.state.extra[1].item >= 0).sum() == kept


@pytest.mark.parametrize("how", ["carry", "reset"])
def test_rewritten_documents_are_forgotten_if_they_are_reset(returning, how):
    after = np.where(np.arange(12)[:, None] < 5, -returning.theta, returning.theta)
    change = interventions.rewritten_documents(returning.theta, after, at=60, how=how)
    learner, environment = jr.with_balance(jr.greedy(**SHORT)), Environment(rewriting=change)
    run = jr.simulate(jr.with_memory(learner), returning, rounds=61, environment=environment)
    shown = run.trace.item[0, :60]
    assert 5 < (shown < 5).sum() < 55
    kept = (shown >= 5) | (how == "carry")
    inner, past = jax.tree.map(lambda x: x[0], run.states.extra)
    np.testing.assert_array_equal(past.item[:60], np.where(kept, shown, -1))
    usage = inner[2].count  # of the inner learner, which is set back too
    np.testing.assert_array_equal(usage, np.where((np.arange(12) < 5) & (how == "reset"), 21, 81))


def test_an_index_keeps_its_memory_when_it_grows_and_is_loaded(index, returning, tmp_path):
    scores = dict(zip(*index.search(returning.queries[0], k=12)[1:3], strict=True))
    index.add([f"new {n}" for n in range(9)], -np.tile(returning.queries[0], (9, 1)))
    index.save(tmp_path)
    index = jr.Index.load(tmp_path, index.learner)
    ticket = index.search(returning.queries[0])
    assert ticket.scores[0] == pytest.approx(scores[ticket.ids[0]], abs=0.1)
    assert ticket.scores[0] > np.log(2.19 / 2.69)


def test_a_grid_varies_the_numbers_in_one_program(returning):
    grid = jr.paired(remembering, bandwidth=[0.01, 0.3], strength=[0.1, 2.0])
    runs = jr.sweep(grid, returning, exposures=3).runs
    for numbers, run in zip(grid.settings, runs, strict=True):
        alone = jr.simulate(
            remembering(**dict(zip(grid.names, numbers, strict=True))), returning, exposures=3
        )
        np.testing.assert_array_equal(run.trace.item, alone.trace.item)
    assert runs[0].accuracy.mean != runs[1].accuracy.mean


def test_the_bounds_of_a_mixture_hold_with_a_memory(returning):
    run = jr.simulate(jr.with_memory(MIXTURE), returning, exposures=2)
    assert [one.holds for one in jr.bounds(run)] == [True, True]


def test_a_policy_replaces_that_of_the_learner():
    own = jr.frozen(tau=0.2)
    plain = own._replace(logits=own.logits)  # a copy without structure
    softmax = jr.with_memory(plain, **SETTINGS, policy=jr.policies.softmax())
    state, query = after_rounds(softmax, 5), QUERIES[4]
    p = jax.nn.softmax(logits_of(softmax, state, query))
    np.testing.assert_allclose(compiled(softmax.probabilities)(state, query), p, rtol=1e-5)
    greedy = jr.with_memory(own, **SETTINGS)
    found = compiled(greedy.probabilities)(state, query)
    np.testing.assert_array_equal(found, np.arange(6) == p.argmax())
