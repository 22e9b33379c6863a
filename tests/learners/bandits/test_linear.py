"""A shared linear regression: closed forms, mabwiser, space-bandits and sampling frequencies."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxret.learners.bandits import linear
from jaxret.learners.bandits.common import Acting
from jaxret.learners.bandits.linear import lints, linucb_shared, neural_linear
from jaxret.learners.learner import map_queries
from tests.learners.bandits.rounds import Rounds, compute, make_mabwiser_log, make_rounds, taught

BASES = {"constant": (linear.constant, lambda q: [1.0]), "identity": (linear.identity, lambda q: q)}
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(40, 5)), RNG.normal(size=40)
FIRST, RIDGE, SHAPE, RATE = RNG.normal(size=5), 0.6, 2.5, 1.5


@cache
def posterior(n):
    """Observe the first n lines, in float64."""

    def run(x, y, n):
        first = linear.prior(jnp.asarray(FIRST), RIDGE, SHAPE, RATE)
        return jax.lax.fori_loop(0, n, lambda i, known: linear.observe(known, x[i], y[i]), first)

    return compute(run, X, Y, n)


def textbook(x, y, first, ridge, shape, rate):
    """Compute mean, precision, shape and rate from all observations at once."""
    precision = ridge * np.eye(len(first)) + x.T @ x
    mean = np.linalg.solve(precision, ridge * first + x.T @ y)
    rate = rate + 0.5 * (y @ y + ridge * first @ first - mean @ precision @ mean)
    return mean, precision, shape + len(y) / 2, rate


def direct(n):
    return textbook(X[:n], Y[:n], FIRST, RIDGE, SHAPE, RATE)


def by_hand(theta, query, base):
    """Compute x(q, a) of every tool."""
    products = len(query) ** 0.5 * query * theta
    bases = np.tile(base(query), (len(theta), 1))
    return np.concatenate([products, (theta @ query)[:, None], bases], axis=1)


def shown(world, base):
    """Compute x(q, a) of every round of a log."""
    each = zip(world.queries, world.items, strict=True)
    return np.stack([by_hand(world.theta, query, base)[item] for query, item in each])


def test_observing_one_by_one_gives_the_posterior_of_all_observations():
    for n in (0, 1, 7, 40):
        known, (mean, precision, shape, rate) = posterior(n), direct(n)
        np.testing.assert_allclose(known.mean, mean, atol=1e-12)
        covariance = np.linalg.inv(precision)
        np.testing.assert_allclose(known.root @ known.root.T, covariance, atol=1e-12)
        np.testing.assert_allclose([known.shape, known.rate], [shape, rate], rtol=1e-12)
        expected = np.sqrt(np.einsum("ni,ij,nj->n", X[:4], covariance, X[:4]))
        np.testing.assert_allclose(compute(linear.deviations, known, X[:4]), expected, atol=1e-12)


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    n, scale = 20_000, 0.7
    draw = jax.vmap(linear.draw, (None, 0, None))
    drawn = compute(draw, posterior(7), jax.random.split(jax.random.key(0), n), scale)
    mean, precision, *_ = direct(7)
    covariance = scale**2 * np.linalg.inv(precision)
    error = np.sqrt(np.diag(covariance) / n)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), 4.5 * error)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=5 * covariance.max() / n**0.5)


def test_the_noise_is_drawn_from_its_inverse_gamma():
    n = 20_000
    draw = jax.vmap(linear.draw_noise, (None, 0))
    drawn = compute(draw, posterior(7), jax.random.split(jax.random.key(1), n))
    precisions = drawn**-2  # gamma, with mean shape / rate and variance / rate again
    _, _, shape, rate = direct(7)
    np.testing.assert_allclose(precisions.mean(), shape / rate, atol=4 * shape**0.5 / rate / n**0.5)
    np.testing.assert_allclose(precisions.var(), shape / rate**2, rtol=0.1)


def test_in_float32_the_covariance_stays_positive_for_thousands_of_rounds():
    x = jnp.asarray(RNG.normal(size=(5, 64)), jnp.float32)
    known = linear.prior(jnp.zeros(64), 1e-3)

    def step(i, known):
        return linear.observe(known, x[i % 5], jnp.float32(1))

    known = jax.jit(lambda p: jax.lax.fori_loop(0, 5000, step, p))(known)
    inverse = np.linalg.inv(1e-3 * np.eye(64) + 1000 * np.float64(x).T @ np.float64(x))
    expected = np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))
    np.testing.assert_allclose(linear.deviations(known, x), expected, rtol=0.05)
    np.testing.assert_allclose(x @ known.mean, np.ones(5), atol=1e-3)


@pytest.mark.parametrize("name", BASES)
def test_features_are_products_cosine_and_base(name):
    (base, expected), world = BASES[name], make_rounds()
    query = world.queries[0]
    got = compute(partial(linear.features, base=base), world.theta, query)
    one = compute(partial(linear.features, base=base), world.theta[3], query)
    np.testing.assert_allclose(got, by_hand(world.theta, query, expected), atol=1e-14)
    np.testing.assert_allclose(one, got[3], atol=1e-14)


@pytest.mark.parametrize("start", ["document", "zero"])
@pytest.mark.parametrize("name", BASES)
def test_scores_and_mapped_queries_are_those_of_the_regression(name, start):
    base, expected = BASES[name]
    world, acting = make_rounds(), Acting(lambda state, query, key: None, None)
    learner = linear.linear_learner("one", base=base, start=start, ridge=0.9, acting=acting)
    states, x = taught(learner, world), shown(world, expected)
    prior = np.zeros(x.shape[1])
    prior[6] = start == "document"  # weight of the cosine feature
    queries = world.queries[:3]
    both = lambda *args: (learner.scores(*args), map_queries(learner, *args))  # noqa: E731
    for t in (0, 9, 60):
        weights, *_ = textbook(x[:t], world.rewards[:t], prior, 0.9, 1.0, 1.0)
        scores, mapped = compute(both, states[t], queries)
        means = [by_hand(world.theta, query, expected) @ weights for query in queries]
        np.testing.assert_allclose(scores, means, atol=1e-11)
        offsets = scores - mapped @ world.theta.T  # the base's offset is equal for all tools
        bases = [np.dot(expected(query), weights[7:]) for query in queries]
        np.testing.assert_allclose(offsets, np.tile(np.array(bases)[:, None], 5), atol=1e-11)
    np.testing.assert_array_equal(states[-1].theta, world.theta)


def test_linucb_shows_the_best_upper_bound():
    world, alpha, ridge = make_rounds(rounds=30), 0.6, 0.8
    learner = linucb_shared(alpha=alpha, ridge=ridge)
    states = taught(learner, world)  # by the logged tools, not the learner's choices
    past, prior, other = shown(world, lambda q: [1.0]), 1.0 * (np.arange(8) == 6), 0
    with jax.enable_x64(True):
        probabilities = jax.jit(learner.probabilities)
        for t, query in enumerate(world.queries):
            x = by_hand(world.theta, query, lambda q: [1.0])
            mean, precision, *_ = textbook(past[:t], world.rewards[:t], prior, ridge, 1.0, 1.0)
            bonus = alpha * np.sqrt(np.einsum("ni,ij,nj->n", x, np.linalg.inv(precision), x))
            best = (x @ mean + bonus).argmax()
            other += best != (x @ mean).argmax()
            np.testing.assert_array_equal(probabilities(states[t], query), np.arange(5) == best)
    assert other >= 3  # rounds in which the bonus decides


def frequencies(learner, state, queries, n=10_000):
    """Compute how often the first of two tools is shown for each query, in n draws."""

    def shares(query, key):
        slates = jax.vmap(learner.act, (None, None, 0))(state, query, jax.random.split(key, n))
        return jnp.mean(slates.items[:, 0] == 0)

    keys = jax.random.split(jax.random.key(0), len(queries))
    return jax.lax.map(lambda line: shares(*line), (queries, keys))


def test_frequencies_of_lints_are_those_of_a_normal_distribution():
    world, alpha, ridge = make_rounds(items=2, rounds=12), 0.4, 0.8
    learner, queries = lints(alpha=alpha, ridge=ridge), world.queries[:4]
    state = taught(learner, world)[-1]
    x, prior = shown(world, lambda q: [1.0]), 1.0 * (np.arange(8) == 6)
    mean, precision, *_ = textbook(x, world.rewards, prior, ridge, 1.0, 1.0)
    got = compute(partial(frequencies, learner), state, queries)
    for query, share in zip(queries, got, strict=True):
        away = np.subtract(*by_hand(world.theta, query, lambda q: [1.0]))
        width = alpha * np.sqrt(away @ np.linalg.solve(precision, away))
        chance = stats.norm.cdf(away @ mean / width)
        np.testing.assert_allclose(share, chance, atol=4 * np.sqrt(chance * (1 - chance) / 1e4))
        assert 0.02 < chance < 0.98


def test_frequencies_of_neural_linear_are_those_of_students_t():
    """With a sampled noise variance, w (x_0 - x_1) has Student's t distribution."""
    world, ridge = make_rounds(items=2, rounds=4), 3.0
    learner = neural_linear(ridge=ridge, shape=1.1, rate=0.02)
    state = taught(learner, world)[-1]
    x, prior = shown(world, lambda q: q), 1.0 * (np.arange(13) == 6)
    mean, precision, shape, rate = textbook(x, world.rewards, prior, ridge, 1.1, 0.02)
    normal = []
    got = compute(partial(frequencies, learner), state, world.queries)
    for query, share in zip(world.queries, got, strict=True):
        away = np.subtract(*by_hand(world.theta, query, lambda q: q))
        width = np.sqrt(rate / shape * (away @ np.linalg.solve(precision, away)))
        chance = stats.t.cdf(away @ mean / width, df=2 * shape)
        normal.append(abs(stats.norm.cdf(away @ mean / width) - chance))
        np.testing.assert_allclose(share, chance, atol=4 * np.sqrt(chance * (1 - chance) / 1e4))
    assert max(normal) > 0.01  # the normal distribution does not fit


def test_without_variance_lints_shows_the_best_mean():
    world, learner = make_rounds(), lints(alpha=0.0)
    state = taught(learner, world)[-1]
    queries = world.queries[:5]
    scores = compute(learner.scores, state, queries)
    slates = compute(jax.vmap(learner.act, (None, 0, None)), state, queries, jax.random.key(0))
    np.testing.assert_array_equal(slates.items[:, 0], np.argmax(scores, axis=1))


# LinUCB (alpha 2, l2_lambda 0.8) and LinTS of mabwiser on the features of each tool.
LINUCB_ON_FEATURES = [
    [1.4241745854114134, 1.148958625897015, 0.9715904626723157, 0.9943460284230097],
    [1.489124245581741, 1.3990421981899077, 0.961160623423808, 1.3455471367397114],
    [1.3728481002218662, 1.4504672715431215, 3.197636354937379, 1.3895004903277424],
    [0.9441578795500998, 0.9871810100650005, 0.8185387959756814, 1.0290451130303249],
]
LINTS = [  # mean and variances
    [0.003748974781862, -0.17043805696637, 0.15108306419187, -0.009010138689022, 0.47792103152100],
    [0.87504179704778, 0.98276601054901, 0.96817788101860, 2.5509430486813, 0.13134957576547],
]


def test_linucb_and_lints_have_the_posterior_of_mabwiser():
    (log, contexts), alpha = make_mabwiser_log(), 2.0
    learner = linucb_shared(alpha=alpha, ridge=0.8, start="zero")
    state = taught(learner, log)[-1]

    def bounds(state, contexts):
        features = jax.vmap(linear.features, (None, 0, None))
        x = features(jnp.asarray(log.theta), contexts, linear.constant)
        widths = jax.vmap(linear.deviations, (None, 0))(state.extra, x)
        chosen = jax.vmap(learner.probabilities, (None, 0))(state, contexts)
        return learner.scores(state, contexts) + alpha * widths, chosen

    upper, chosen = compute(bounds, state, contexts)
    np.testing.assert_allclose(upper, LINUCB_ON_FEATURES, rtol=1e-11)
    np.testing.assert_array_equal(chosen.argmax(axis=1), np.argmax(LINUCB_ON_FEATURES, axis=1))
    drawn = taught(lints(alpha=alpha, ridge=0.8, start="zero"), log)[-1].extra
    variances = alpha**2 * np.diag(drawn.root @ drawn.root.T)
    np.testing.assert_allclose([drawn.mean, variances], LINTS, rtol=1e-11)


# Posterior of one arm of `LinearBandits` (a0 6, b0 1.25, lambda_prior 0.8) of space-bandits 0.0.993
# on the features of the tools shown. That package contains the code of Riquelme, Tucker and Snoek
# (2018); it needs PyTorch and is not installed. It appends a 1 to the features, which in this test
# is the last number of every query.
SPACE_RNG = np.random.default_rng(0)
SPACE_QUERIES = np.column_stack([SPACE_RNG.normal(size=(30, 3))[:, :2], np.ones(30)])
SPACE_LOG = Rounds(
    queries=SPACE_QUERIES,
    items=SPACE_RNG.integers(4, size=30),
    rewards=SPACE_RNG.integers(2, size=30).astype(float),
    theta=SPACE_RNG.normal(size=(4, 3)),
    propensities=np.full(30, np.nan),  # the package does not read propensities
)
SPACE_MEAN = np.concatenate(
    [
        [0.005778953346762455, -0.0913755419482921, 0.05890061707502425, -0.015412926347109272],
        [-0.03151406356606967, 0.01702675896362882, 0.5129060595700843],
    ]
)
SPACE_DEVIATIONS = [0.22125413779023, 0.33312190198821, 0.27248122938483, 0.24412309628008]
SPACE_NOISE = [21.0, 4.8322281874553425]  # shape, rate


def test_neural_linear_learns_the_weights_and_the_noise_of_space_bandits():
    learner = neural_linear(ridge=0.8, shape=6.0, rate=1.25, start="zero")
    known = taught(learner, SPACE_LOG)[-1].extra
    np.testing.assert_allclose(known.mean, SPACE_MEAN, rtol=1e-11)
    np.testing.assert_allclose([known.shape, known.rate], SPACE_NOISE, rtol=1e-11)
    features = partial(linear.features, base=linear.identity)
    x = compute(features, SPACE_LOG.theta, SPACE_QUERIES[0])
    np.testing.assert_allclose(compute(linear.deviations, known, x), SPACE_DEVIATIONS, rtol=1e-11)
