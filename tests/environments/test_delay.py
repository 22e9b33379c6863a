"""Late answers: when they come, in which order, and what a learner makes of them."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import censoring, delay
from jaxret.environments.deployment import deployed
from jaxret.environments.environment import Environment
from jaxret.simulation.scan import learn, show_slate
from jaxret.types import Stream

ROUNDS, LONGEST = 600, 7
LATE = delay.geometric(mean=2.0, longest=LONGEST)
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def rounds(task, scribe):
    """What the scribe was told round by round; each round has a query of its own."""
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(ROUNDS, task.theta.shape[1])).astype(np.float32)
    labels = rng.integers(8, size=(ROUNDS, 1)).astype(np.int32)
    stream = Stream(*map(jnp.asarray, (queries, labels, np.arange(ROUNDS))))
    world = Environment(delay=LATE)
    learner = scribe(ROUNDS)
    start = deployed(learner, world, KEY, labels=1).init(jnp.asarray(task.theta))

    @jax.jit
    def play(state):
        def one(state, query):
            slate = show_slate(learner, state, world, stream, query, KEY)
            state, trace = learn(learner, state, world, stream, query, KEY, slate)
            return state, (trace, state.extra.extra.count, state.t, state.extra.t)

        return jax.lax.scan(one, state, stream.order)

    end, (trace, counts, t, own_t) = play(start)
    return jax.tree.map(np.asarray, (end.extra.extra, trace, counts, t, own_t, queries))


def arrivals(rounds):
    """When each round's answer came, and which rounds were told of, in their order."""
    told, _, counts, *_, queries = rounds
    place = {query.tobytes(): t for t, query in enumerate(queries)}
    sent = [place[query.tobytes()] for query in told.query[: told.count]]
    came = np.repeat(np.arange(ROUNDS), np.diff(counts, prepend=0))
    return np.array(sent), came


def test_every_answer_comes_once_with_its_own_query_choice_and_reward(rounds):
    told, trace, *_ = rounds
    sent, _ = arrivals(rounds)
    assert len(set(sent.tolist())) == len(sent) == told.count
    assert {*range(ROUNDS - LONGEST)} <= {*sent.tolist()}  # what is late at the end is lost
    for name in ("item", "propensity", "reward"):
        np.testing.assert_array_equal(getattr(told, name)[: told.count], getattr(trace, name)[sent])


def test_answers_are_as_late_as_their_chances_say_and_out_of_order(rounds):
    sent, came = arrivals(rounds)
    waited = came - sent
    assert waited.min() >= 0
    often = np.bincount(waited[sent < ROUNDS - LONGEST], minlength=LONGEST + 1)
    weights = (2 / 3) ** np.arange(LONGEST + 1)
    expected = weights / weights.sum() * often.sum()
    assert ((often - expected) ** 2 / expected).sum() < 24.3  # of chi squared with 7: 1 in 1,000
    assert (np.diff(sent) < 0).any()


def test_of_those_that_come_in_one_round_the_oldest_is_learnt_first(rounds):
    sent, came = arrivals(rounds)
    together = np.diff(came) == 0
    assert together.sum() > 50
    assert (np.diff(sent)[together] > 0).all()


def test_the_worlds_rounds_go_on_and_the_learner_counts_answers(rounds):
    _, _, counts, t, own_t, _ = rounds
    np.testing.assert_array_equal(t, np.arange(1, ROUNDS + 1))
    np.testing.assert_array_equal(own_t, counts)


@pytest.mark.parametrize("preset", [jr.greedy, jr.full_information], ids=lambda f: f.__name__)
def test_a_learner_moves_from_where_it_is_when_the_answer_comes(task, preset):
    """The run again by hand, with a heap of what is under way; its delays are known: all alike."""
    learner, late = preset(tau=0.2, eta=0.05), 5
    world = Environment(delay=delay.fixed(late))
    run = jr.simulate(learner, task, exposures=2, environment=world)
    assert run.how == "scan"
    state, update = learner.init(task.theta), jax.jit(learner.update)
    under_way = []
    for t, query in enumerate(run.order[0]):
        scores = np.asarray(state.theta) @ task.queries[query]
        assert scores[run.trace.item[0, t]] >= scores.max() - 1e-5  # both rules show the best
        heapq.heappush(under_way, (t + late, t))
        while under_way and under_way[0][0] <= t:
            _, then = heapq.heappop(under_way)
            asked = run.order[0][then]
            line = (run.trace.item[0, then], run.trace.propensity[0, then])
            labels = task.labels[asked] if learner.oracle else None
            feedback = jr.Feedback(run.trace.reward[0, then], True, labels)
            state = update(state, task.queries[asked], jr.Choice(*line), feedback)
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=1e-5)
    assert run.states.t[0] == len(run.order[0]) - late


def test_an_answer_about_a_tool_that_has_gone_teaches_nothing(task, scribe):
    leaves = np.where(np.arange(8) < 4, 10, 1000).astype(np.int32)
    learner = scribe(40)
    world = Environment(delay=delay.fixed(5), leaves=leaves)
    run = jr.simulate(learner, task, environment=world)
    item, told = run.trace.item[0], run.states.extra
    gone = (item < 4) & (np.arange(40) + 5 >= 10)
    known = ~gone & (np.arange(40) + 5 < 40)
    np.testing.assert_array_equal(told.item[0][: told.count[0]], item[known])
    assert gone.sum() >= 1
    assert run.states.t[0] == 35  # answers, those that teach nothing too


def test_how_late_an_answer_is_says_nothing_of_whether_it_comes(task, scribe):
    """Of those that come some come at once, and overtake those that are two rounds late."""
    silent = censoring.by_success(after_success=0.5, after_failure=0.5)
    world = Environment(delay=delay.uniform(longest=2), censoring=silent)
    run = jr.simulate(scribe(200), task, exposures=5, environment=world)
    told, count = run.states.extra.propensity[0], int(run.states.extra.count[0])
    sent = run.trace.propensity[0][~np.isnan(run.trace.reward[0])]
    assert len(sent) - count <= 2  # the last may still be under way
    assert set(told[:count].tolist()) <= set(sent.tolist())
    assert (told[:count] != sent[:count]).any()


@pytest.mark.parametrize(
    ("made", "chances"),
    [
        (delay.fixed(2), [0, 0, 1]),
        (delay.uniform(longest=3), [0.25] * 4),
        (delay.geometric(mean=1.0, longest=2), [4 / 7, 2 / 7, 1 / 7]),
        (delay.geometric(mean=0.0), [1]),
    ],
)
def test_delays_have_the_distributions_of_their_names(made, chances):
    np.testing.assert_allclose(made.chances, chances, rtol=1e-6)


def test_the_mean_of_a_geometric_delay_is_what_it_is_called():
    chances = np.asarray(delay.geometric(mean=50.0).chances, np.float64)
    assert len(chances) == 501
    np.testing.assert_allclose(chances @ np.arange(501), 50, rtol=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: delay.fixed(-1), "rounds must be >= 0, got -1"),
        (lambda: delay.uniform(longest=-1), "longest must be >= 0, got -1"),
        (lambda: delay.geometric(mean=-1.0), "mean must be >= 0, got -1"),
    ],
)
def test_delays_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
