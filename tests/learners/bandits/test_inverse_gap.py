"""SquareCB and FastCB: probabilities against the papers and Vowpal Wabbit, and gradient steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from jaxret.learners.bandits.inverse_gap import draw, fastcb, inverse_gap, squarecb
from tests.learners.bandits.rounds import compute, make_rounds, taught
from tests.problems import slope

RNG = np.random.default_rng(0)
AVAILABLE = np.array([True, False, True, True, True, True])
ETA, TAU, CENTRE, GAMMA = 0.4, 0.2, 0.3, 30.0


def weights(means, gamma_over_k, reweighted=False, available=None):
    available = np.ones(len(means), bool) if available is None else available
    fn = partial(inverse_gap, reweighted=reweighted)
    return compute(fn, np.asarray(means, float), available, gamma_over_k)


def by_hand(losses, gamma):
    """Compute Algorithm 1 of SquareCB and of FastCB from losses, one action at a time."""
    k, best = len(losses), int(np.argmin(losses))
    square, fast, least = np.zeros(k), np.zeros(k), max(losses[best], 1e-300)
    for a in range(k):
        if a != best:
            gap = losses[a] - losses[best]
            square[a] = 1 / (k + gamma * gap)
            fast[a] = least / (k * least + gamma * gap)
    square[best], fast[best] = 1 - square.sum(), 1 - fast.sum()
    return square, fast


def test_probabilities_are_those_of_the_papers():
    for _ in range(5):
        means = RNG.uniform(size=6)
        square, fast = by_hand(1 - means[AVAILABLE], gamma=5 * 40.0)
        for expected, reweighted in [(square, False), (fast, True)]:
            got = weights(means, 40.0, reweighted, AVAILABLE)
            np.testing.assert_allclose(got[AVAILABLE], expected, atol=1e-14)
            assert got[1] == 0  # unavailable
            np.testing.assert_allclose(got.sum(), 1, atol=1e-14)
            assert got.max() >= 1 / 5


def test_equal_tools_are_shown_equally_often_and_one_that_never_fails_always():
    for reweighted in (False, True):
        for mean in (0.0, 0.3, 1.0):
            got = weights([mean] * 4, 50.0, reweighted)
            np.testing.assert_allclose(got, [0.25] * 4, atol=1e-12)
    np.testing.assert_allclose(weights([0.5, 1.0, 0.2], 50.0, True), [0, 1, 0], atol=1e-6)


def test_tools_are_drawn_with_their_probabilities():
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    draws = lambda key, p: jax.vmap(draw, (0, None))(jax.random.split(key, 5000), p)  # noqa: E731
    slates = compute(draws, jax.random.key(0), probabilities)
    shown = np.bincount(slates.items[:, 0], minlength=4) / 5000
    np.testing.assert_allclose(shown, probabilities, atol=4 * np.sqrt(0.24 / 5000))
    assert shown[1] == 0
    np.testing.assert_array_equal(slates.propensity, probabilities[slates.items])


def square_loss(z, y):
    return 0.5 * (z - y) ** 2


def log_loss(z, y):
    p = expit(z / TAU)
    return -y * np.log(p) - (1 - y) * np.log(1 - p)


LEARNERS = {  # learner, loss of theta_a q + b, eta, initial b from the documents
    "squarecb": (lambda start: squarecb(gamma=GAMMA, eta=ETA, start=start), square_loss, ETA, 0.0),
    "fastcb": (
        lambda start: fastcb(gamma=GAMMA, eta=0.05, tau=TAU, centre=CENTRE, start=start),
        log_loss,
        0.05,
        -CENTRE,
    ),
}


@pytest.mark.parametrize("start", ["document", "zero"])
@pytest.mark.parametrize("name", LEARNERS)
def test_rows_and_intercept_descend_on_the_loss(name, start):
    make, loss, eta, first = LEARNERS[name]
    world, document = make_rounds(rounds=40), start == "document"
    world.rewards[3] = 0.3  # a fractional reward
    states = taught(make(start), world)
    theta, b, shortened = world.theta * document, first * document, 0
    for q, a, y in zip(world.queries, world.items, world.rewards, strict=True):
        moved = np.append(theta[a], b)
        moved = moved - eta * slope(lambda w, q=q, y=y: loss(w[:-1] @ q + w[-1], y), moved)
        length = np.linalg.norm(moved[:-1])
        shortened += length > 1
        theta[a], b = moved[:-1] / max(1.0, length), moved[-1]
    np.testing.assert_allclose(states[-1].theta, theta, atol=1e-7)
    np.testing.assert_allclose(states[-1].extra, b, atol=1e-7)
    assert shortened > 5 or not document


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_weight_the_inverse_gaps_of_their_scores(name):
    learner, world = LEARNERS[name][0]("document"), make_rounds()
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 4)
    queries = world.queries[:5]
    scores = compute(learner.scores, state, queries)
    linear = queries @ state.theta.T + state.extra
    f = linear if name == "squarecb" else expit(linear / TAU)
    np.testing.assert_allclose(scores[:, :4], f[:, :4], atol=1e-12)
    probabilities = compute(jax.vmap(learner.probabilities, (None, 0)), state, queries)
    for got, means in zip(probabilities, np.clip(f[:, :4], 0, 1), strict=True):
        expected = by_hand(1 - means, 4 * GAMMA)[int(name == "fastcb")]
        np.testing.assert_allclose(got, [*expected, 0], atol=1e-12)


# SQUARECB: Vowpal Wabbit 9.11.9, `--cb_explore_adf --squarecb --gamma_scale 20 --gamma_exponent 0
# --cb_type mtr --cb_min_cost -1 --cb_max_cost 0`, for four queries after 40 random bits of five
# tools. The costs are the predictions of `--cb_adf --cb_type mtr` after the same bits (both with
# `--sgd --power_t 0 -l 0.1 --noconstant -q qt`, without importance weights).
#
# FASTCB: no release of Vowpal Wabbit contains it, but a fork by one of the authors does, as
# `--squarecb --fast --sigmoid` (github.com/canondetortugas/vowpal_wabbit, commit 5615f7c,
# cb_explore_adf_squarecb.cc). We compiled only the loop of that file from the scores of a logistic
# cost model to probabilities, with gamma 20. Where the best cost is 0, the loop divides 0 by 0, and
# `inverse_gap` does not.
#
# Both were computed in 32 bits.
VW_GAMMA, TOOLS = 20.0, 5
SQUARECB_COSTS = [
    [-0.245149538, -0.374759614, -0.503322005, -0.195106044, -0.490379155],
    [-0.240843371, -0.503359675, -0.187885299, -0.124493271, -0.364733249],
    [-0.488704115, -0.618070364, -0.877477288, -0.499173254, -0.733857751],
    [-0.0749592409, -0.120117873, -0.193857819, -0.17236872, -0.060842678],
]
SQUARECB_PROBABILITIES = [
    [0.0983917937, 0.132078618, 0.489803076, 0.0895710588, 0.190155402],
    [0.0975578725, 0.605854392, 0.0884213299, 0.0795081481, 0.128658265],
    [0.0782750472, 0.0981533527, 0.616966069, 0.0795793086, 0.127026215],
    [0.135538608, 0.154444948, 0.395303845, 0.184169456, 0.130543143],
]
FASTCB_SCORES = [  # of costs
    [-2.0, 0.5, -0.3, 1.2, -1.1],
    [-4.0, -3.5, -1.0, 2.0, -3.9],
    [0.4, 0.1, 2.5, -0.6, 1.0],
]
FASTCB_PROBABILITIES = [
    [0.925139904, 0.011181063, 0.0177303348, 0.00877624471, 0.0371724516],
    [0.796996117, 0.0568371862, 0.00352047081, 0.00103689928, 0.141609296],
    [0.0532159619, 0.068347685, 0.0269101076, 0.813449383, 0.0380768366],
]


def test_squarecb_has_the_probabilities_of_vowpal_wabbit():
    got = [weights(np.negative(costs), VW_GAMMA / TOOLS) for costs in SQUARECB_COSTS]
    np.testing.assert_allclose(got, SQUARECB_PROBABILITIES, rtol=1e-6)


def test_fastcb_has_the_probabilities_of_its_authors_fork():
    """Use rows of width 1, whose scores predict success, whereas the fork predicts costs."""
    learner = fastcb(gamma=VW_GAMMA / TOOLS, tau=1.0, start="zero")

    def probabilities(theta):
        return learner.probabilities(learner.init(theta)._replace(theta=theta), jnp.ones(1))

    got = compute(jax.vmap(probabilities), np.negative(FASTCB_SCORES)[:, :, None])
    np.testing.assert_allclose(got, FASTCB_PROBABILITIES, rtol=1e-6)
