"""The start 'hybrid': static retrieval without data, and steps with a fixed offset, in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.environments.feedback import censored_by_success
from jaxret.learners import bandits
from jaxret.learners.learner import map_queries, query_for
from jaxret.learners.registry import factories
from jaxret.rules import offsets
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback, Prior, Query
from tests.learners.bandits.rounds import TWINS, compute, make_rounds, taught
from tests.problems import make_hub, slope
from tests.slow import slowly

NAMES = bandits.__all__
WEIGHT, STRENGTH, TAU = 0.25, 0.5, 0.02
STATIC = {"tau": TAU, "lexical": WEIGHT, "balance": STRENGTH}
I, D, T = 5, 6, 40
# Settings with which a rule shows the best tool by its values and learns nothing. Two rules that
# draw at random are left out: `gaptron` explores where the model is not confident, and the draws of
# `neural_linear` have the variance of the rewards.
AT_REST = {
    "banditron": {"epsilon": 0.0, "eta": 0.0},
    "bootstrapped": {"eta": 0.0},
    "fastcb": {"eta": 0.0, "gamma": 1e9},
    "lints": {"alpha": 0.0, "ridge": 1e9},
    "linucb": {"alpha": 0.0, "ridge": 1e9},
    "linucb_shared": {"alpha": 0.0, "ridge": 1e9},
    "logistic_ucb": {"alpha": 0.0, "ridge": 1e9},
    "ridge_epsilon_greedy": {"epsilon": 0.0, "ridge": 1e9},
    "soba": {"gamma": 1e-9, "ridge": 1e9},
    "squarecb": {"eta": 0.0, "gamma": 1e9},
    "success_prior": {"eta": 0.0, "successes": 1e9, "failures": 1e9},
}


def hybrid(name, **settings):
    return factories()[name](start="hybrid", **settings)


@pytest.fixture(scope="module")
def hub():
    return make_hub(200, length=0.2, noise=0.1, right=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_without_data_it_ranks_as_static_hybrid_retrieval_does(hub, name):
    available = np.arange(12) != 3

    def ranked(learner):
        state = learner.init(jnp.asarray(hub.theta, jnp.float32), available)
        return learner.scores(state, query_for(learner, jnp.asarray(hub.queries), hub.prior))

    scores, static = (
        jax.device_get(quick_jit(lambda one=one: ranked(one))())
        for one in (hybrid(name), jr.hybrid(**STATIC))
    )
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(-static))
    assert np.isneginf(scores[:, 3]).all()
    vectors = np.where(available, hub.queries @ hub.theta.T, -np.inf)
    assert (vectors.argmax(axis=1) != static.argmax(axis=1)).mean() > 0.2


@pytest.fixture(scope="module")
def changing():
    """Return an environment with missing feedback, and tools that come and go."""
    return Environment(
        censoring=censored_by_success(after_success=0.9, after_failure=0.7),
        arrives=np.where(np.arange(12) == 5, 60, 0),
        leaves=np.where(np.arange(12) == 7, 120, 200),
    )


@pytest.fixture(scope="module")
def static(hub, changing):
    """Return a run of static retrieval by vectors, words and usage."""
    run = jr.simulate(jr.hybrid(**STATIC), hub, form="scan", environment=changing)
    uneven = jr.simulate(jr.hybrid(tau=TAU, lexical=WEIGHT), hub, environment=changing)
    assert (run.trace.item != uneven.trace.item).mean() > 0.04
    return run


@pytest.mark.parametrize("name", slowly(AT_REST, TWINS - {"lints"}))
def test_without_learning_it_shows_and_counts_what_static_hybrid_retrieval_does(
    hub, changing, static, name
):
    """Give it the rewards of static retrieval, which are its own while both show the same."""
    learner = hybrid(name, **AT_REST[name])
    few, reward, t = hub.select(static.order[0]), static.trace.reward[0], np.arange(200)
    queries = query_for(learner, jnp.asarray(few.queries), few.prior)
    there = (changing.arrives <= t[:, None]) & (t[:, None] < changing.leaves)

    def one(state, line):
        query, available, key, reward, seen = line
        state = state._replace(available=available)
        item, propensity = (x[0] for x in learner.act(state, query, key))
        return learner.update(state, query, Choice(item, propensity), Feedback(reward, seen)), item

    @quick_jit
    def run(theta):
        keys = jax.vmap(jax.random.key)(t)
        lines = queries, there, keys, np.nan_to_num(reward), ~np.isnan(reward)
        return jax.lax.scan(one, learner.init(theta), lines)

    state, items = run(np.float32(hub.theta))
    np.testing.assert_array_equal(items, static.trace.item[0])
    usage, expected = state.extra[2] if name == "banditron" else state.extra.usage, static.state(0)
    np.testing.assert_array_equal(usage.count, expected.extra[2].count)
    np.testing.assert_allclose(usage.mean, expected.extra[2].mean, rtol=1e-3)


def test_draws_of_neural_linear_are_around_the_offsets(hub):
    """With little noise a draw is the mean."""
    learner = hybrid("neural_linear", rate=1e-12)
    learner_queries = query_for(learner, jnp.asarray(hub.queries[:50]), hub.select(range(50)).prior)

    def run():
        state = learner.init(jnp.asarray(hub.theta))
        keys = jax.random.split(jax.random.key(0), 50)
        slates = jax.vmap(learner.act, (None, 0, 0))(state, learner_queries, keys)
        return slates.items[:, 0], learner.scores(state, learner_queries)

    items, scores = jax.device_get(quick_jit(run)())
    np.testing.assert_array_equal(items, scores.argmax(axis=1))


@pytest.mark.parametrize("name", slowly(["linucb", "lints", "bootstrapped"], {"lints"}))
def test_an_index_resets_the_usage_of_a_reused_row_and_is_restored(name, tmp_path):
    documents = np.eye(4, 6, dtype=np.float32)
    index = jr.Index(hybrid(name), jr.Task.from_arrays(documents, documents, np.arange(4)))
    for row in (0, 0, 1):
        index.feedback(index.search(documents[row], prior={"1": 0.1}), worked=True)
    mean, count = (np.array(x) for x in index.state.extra.usage)
    assert (np.abs(mean - 1) > 1e-3).all()
    index.redescribe(["2"], [np.full(6, 6**-0.5, np.float32)], how="reset")
    mean[2], count[2] = 1, 20
    np.testing.assert_allclose(index.state.theta[2], np.full(6, 6**-0.5), rtol=1e-6)
    if name == "bootstrapped":
        np.testing.assert_allclose(index.state.extra.own[:, 2], np.full((8, 6), 6**-0.5), rtol=1e-6)
    np.testing.assert_array_equal(index.state.extra.usage.mean, mean)
    np.testing.assert_array_equal(index.state.extra.usage.count, count)
    index.save(tmp_path)
    again = jr.Index.load(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, again.state, index.state)
    assert index.search(documents[0], prior={"3": 9.0}).ids == ["3"]
    with pytest.raises(ValueError, match=f"'{name}' reads prior scores, which this query lacks"):
        again.search(documents[0])


def test_rows_with_mapped_queries_are_those_of_the_regression(rounds):
    """Up to what is equal for all tools, and the offset."""
    log, queries, _ = rounds
    learner = hybrid("lints", ridge=0.8)
    state = taught(learner, log._replace(queries=queries))[-1]
    blank = Query(log.queries, Prior(np.full((T, 1), -1), np.zeros((T, 1))))
    even = state._replace(extra=state.extra._replace(usage=offsets.first_usage(state.theta)))
    scores = compute(learner.scores, jax.tree.map(jnp.asarray, even), blank)
    mapped = compute(lambda *args: map_queries(learner, *args), state, log.queries)
    rest = scores - mapped @ state.theta.T
    np.testing.assert_allclose(rest, np.tile(rest[:, :1], I), atol=1e-6)


@pytest.fixture(scope="module")
def rounds():
    """Return a log with queries that have priors, and its prior scores [T, I]."""
    log, rng = make_rounds(items=I, width=D, rounds=T), np.random.default_rng(5)
    scores = rng.random((T, I)) * (rng.random((T, I)) < 0.6)
    prior = Prior(np.tile(np.arange(I, dtype=np.int32), (T, 1)), scores)
    queries = [Query(q, Prior(*each)) for q, *each in zip(log.queries, *prior, strict=True)]
    return log, queries, scores


def offsets_of(states, log, scores, values):
    """Compute the offset of every tool in each round [T, I], with the usage counted in NumPy."""
    mean, found, tau = np.ones(I), [], TAU / (1 - WEIGHT)
    for t, q in enumerate(log.queries):
        words = WEIGHT / (1 - WEIGHT) * scores[t]
        found.append(words - STRENGTH * tau * np.log(mean))
        p = softmax((values(states[t], q) + words) / tau)
        mean = mean + (I * p - mean) / (21 + t)
    return np.array(found), mean


def by_rows(state, q):
    return state.theta @ q


def by_mapped_rows(state, q):
    mean = state.extra.own.mean
    return state.theta @ ((D**0.5 * mean[:D] + mean[D]) * q)


RESIDUALS = {  # settings, offsets in units of the reward, values
    "linucb": ({"scale": 0.4, "ridge": 0.7}, 0.4, by_rows),
    "ridge_epsilon_greedy": ({"scale": 0.4, "ridge": 0.7}, 0.4, by_rows),
    "linucb_shared": ({"ridge": 0.8}, 1.0, by_mapped_rows),
    "lints": ({"ridge": 0.8}, 1.0, by_mapped_rows),
    "neural_linear": ({"ridge": 0.8}, 1.0, by_mapped_rows),
    "squarecb": ({"eta": 0.2}, 1.0, by_rows),
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_a_square_loss_learns_what_the_offset_leaves_of_the_reward(rounds, name):
    (log, queries, scores), (settings, unit, values) = rounds, RESIDUALS[name]
    states = taught(hybrid(name, **settings), log._replace(queries=queries))
    offset, usage = offsets_of(states, log, scores, values)
    left = log.rewards - unit * offset[np.arange(T), log.items]
    alone = taught(factories()[name](**settings), log._replace(rewards=left))[-1]
    np.testing.assert_allclose(states[-1].extra.usage.mean, usage, rtol=1e-9)
    np.testing.assert_allclose(states[-1].theta, alone.theta, atol=1e-10)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-10),
        states[-1].extra.own,
        alone.extra,
    )


def test_fastcb_descends_on_the_log_loss_with_the_offset_in_its_link(rounds):
    log, queries, scores = rounds
    eta, tau, centre = 0.05, 0.3, 0.4
    learner = hybrid("fastcb", eta=eta, tau=tau, centre=centre)
    states = taught(learner, log._replace(queries=queries))
    offset, _ = offsets_of(states, log, scores, by_rows)
    theta, b = log.theta.copy(), -centre
    for t, (q, a, y) in enumerate(zip(log.queries, log.items, log.rewards, strict=True)):
        error = expit((theta[a] @ q + b + offset[t, a]) / tau) - y
        theta[a] = theta[a] - eta / tau * error * q
        theta[a] /= max(1.0, np.linalg.norm(theta[a]))
        b = b - eta / tau * error
    np.testing.assert_allclose(states[-1].theta, theta, atol=1e-10)
    np.testing.assert_allclose(states[-1].extra.own, b, atol=1e-10)


def test_logistic_ucb_has_the_offset_in_its_log_loss(rounds):
    log, queries, scores = rounds
    tau, centre, ridge = 0.2, 0.3, 0.5
    learner = hybrid("logistic_ucb", ridge=ridge, tau=tau, centre=centre)
    states = taught(learner, log._replace(queries=queries))
    offset, _ = offsets_of(states, log, scores, by_rows)
    for t, (q, a, y) in enumerate(zip(log.queries, log.items, log.rewards, strict=True)):
        w, new = states[t].theta[a] / tau, states[t + 1].theta[a] / tau
        h, more = (1 / states[n].extra.own[a] for n in (t, t + 1))
        p = expit(new @ q + (offset[t, a] - centre) / tau)
        np.testing.assert_allclose(h * (new - w) + (p - y) * q, np.zeros(D), atol=1e-10)
        np.testing.assert_allclose(more, h + p * (1 - p) * q**2, rtol=1e-10)


def test_soba_treats_the_offset_as_a_feature_whose_weight_is_certain(rounds):
    """By the algorithm of the paper, with an infinite diagonal for that weight."""
    log, queries, scores = rounds
    tau, ridge = 0.3, 0.8
    best = (log.queries @ log.theta.T).argmax(axis=1)  # successes of tools that score best
    log = log._replace(
        items=np.where(np.arange(T) < 20, best, log.items),
        rewards=np.where(np.arange(T) < 20, 1.0, log.rewards),
    )
    states = taught(hybrid("soba", ridge=ridge, tau=tau), log._replace(queries=queries))
    offset, _ = offsets_of(states, log, scores, by_rows)
    w, a = np.append(log.theta.ravel() / tau, 1 / tau), np.append(np.full(I * D, ridge), 1e20)
    dual, margin, learnt = a * w, 0.0, []
    for t, (q, item, pi, y) in enumerate(zip(*log[1:], strict=True)):
        if y == 0:
            continue
        features = np.array([np.append(np.kron(np.eye(I)[i], q), offset[t, i]) for i in range(I)])
        rival = max(set(range(I)) - {item}, key=lambda i, f=features: f[i] @ w)
        g = (features[rival] - features[item]) / pi
        z = np.sqrt(pi) * g
        m = ((w @ z) ** 2 + 2 * w @ g) / (1 + z @ (z / a))
        learnt.append(m + margin >= 0)
        if learnt[-1]:
            a, dual, margin = a + z * z, dual - g, margin + m
        w = dual / a
    np.testing.assert_allclose(states[-1].theta / tau, w[:-1].reshape(I, D), atol=1e-9)
    np.testing.assert_allclose(states[-1].extra.own.margin, margin, atol=1e-8)
    assert 3 < sum(learnt) < len(learnt)


def moved(theta, q, item, y, added, tau, eta):
    """Descend on -ln P(y | item) of the softmax of theta q / tau + added, back to the sphere."""

    def loss(rows):
        p = np.exp(log_softmax(rows @ q / tau + added)[item])
        return -y * np.log(p) - (1 - y) * np.log(1 - p)

    new = theta - eta * slope(loss, theta)
    return new / np.linalg.norm(new, axis=1, keepdims=True)


def test_heads_learn_and_act_with_the_offset(rounds):
    log, queries, scores = rounds
    tau, eta = 0.3, 0.05
    learner = hybrid("bootstrapped", tau=tau, eta=eta, heads=3)
    states = taught(learner, log._replace(queries=queries))
    offset, _ = offsets_of(states, log, scores, by_rows)
    doubled = 0
    for t in range(10):
        line = log.queries[t], log.items[t], log.rewards[t], offset[t] / tau, tau
        new = states[t + 1]
        np.testing.assert_allclose(moved(states[t].theta, *line, eta), new.theta, atol=1e-8)
        for before, after in zip(states[t].extra.own, new.extra.own, strict=True):
            rests = np.allclose(before, after, atol=1e-12)
            expected = before if rests else moved(before, *line, 2 * eta)
            np.testing.assert_allclose(after, expected, atol=1e-8)
            doubled += not rests
    assert 5 < doubled < 25
    for t in range(30, T):  # a head shows the best tool by its rows and the offset
        values = states[t].extra.own @ log.queries[t] + offset[t]
        share = np.bincount(values.argmax(axis=1), minlength=I) / 3
        np.testing.assert_allclose(compute(learner.probabilities, states[t], queries[t]), share)


def test_success_prior_multiplies_the_odds_of_words_usage_and_success(rounds):
    log, queries, scores = rounds
    tau, eta = 0.3, 0.02
    learner = hybrid("success_prior", tau=tau, eta=eta, successes=1.5, failures=4.0)
    states = taught(learner, log._replace(queries=queries))

    def odds(state):
        return np.log(state.extra.own.successes / state.extra.own.failures)

    def values(state, q):
        return state.theta @ q + tau * odds(state)

    offset, usage = offsets_of(states, log, scores, values)
    for t in range(0, T, 4):
        line = log.queries[t], log.items[t], log.rewards[t], offset[t] / tau + odds(states[t])
        expected = moved(states[t].theta, *line, tau, eta)
        np.testing.assert_allclose(states[t + 1].theta, expected, atol=1e-8)
        logits = (states[t].theta @ log.queries[t] + offset[t]) / tau + odds(states[t])
        np.testing.assert_allclose(compute(learner.logits, states[t], queries[t]), logits)
    np.testing.assert_allclose(states[-1].extra.usage.mean, usage, rtol=1e-9)
