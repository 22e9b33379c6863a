"""The linear rules against those of mabwiser 2.7.4, on one small log.

It is not installed here. The numbers are what its LinUCB (alpha 2, l2_lambda 0.8), LinGreedy
(epsilon 0) and LinTS expected of `CONTEXTS` after `LOG`, which both draw from NumPy's generator in
the same way. All of its rules are disjoint: for those that share one regression it was given a
single arm, and as contexts the features of the tool shown.

Both have alpha and the ridge where Li et al. (2010), Algorithm 1, has them, which takes a ridge of
1. They part over tools that were never shown: mabwiser begins them with an inverse of l2_lambda I
in the place of I / l2_lambda, the same only at 1. Here each was shown at least six times.
"""

import jax.numpy as jnp
import numpy as np

from jaxret.learners.bandits import posterior, shared
from jaxret.learners.bandits.lints import lints
from jaxret.learners.bandits.linucb import linucb
from jaxret.learners.bandits.linucb_shared import linucb_shared
from jaxret.learners.bandits.ridge import variances
from jaxret.learners.bandits.ridge_epsilon_greedy import ridge_epsilon_greedy
from tests.learners.bandits.conftest import Rounds

ALPHA, RIDGE = 2.0, 0.8
RNG = np.random.default_rng(0)
LOG = Rounds(
    theta=RNG.normal(size=(4, 3)),
    queries=RNG.normal(size=(30, 3)),
    items=RNG.integers(4, size=30),
    rewards=RNG.integers(2, size=30).astype(float),
    propensities=np.full(30, np.nan),  # which none of them reads
)
CONTEXTS = RNG.normal(size=(4, 3))
LINUCB = [
    [1.5093205721436909, 1.248908660471924, 0.7893181031619451, 1.7018852436198026],
    [1.7745232592738625, 1.92329712409539, 0.9886453050333157, 2.714150662096779],
    [2.364556001212753, 1.4260620439439267, 3.3121638731871355, 1.4614137961218339],
    [0.5661441568957574, 0.5401150523992879, 0.4754528686051945, 0.8642883139680966],
]
LINGREEDY = [
    [0.5460029181813959, -0.1984228118521349, -0.253403688363702, 0.6445644090380984],
    [0.532619720454371, 0.1754230670515335, -0.25144897198580235, 1.0610666563644988],
    [0.6843801859948785, -1.6925296667644933, -0.266067388401833, -0.8864955409104189],
    [0.14604995529124207, 0.04775331988769366, -0.11409490233122394, 0.2942086580566025],
]
LINUCB_ON_FEATURES = [
    [1.4241745854114134, 1.148958625897015, 0.9715904626723157, 0.9943460284230097],
    [1.489124245581741, 1.3990421981899077, 0.961160623423808, 1.3455471367397114],
    [1.3728481002218662, 1.4504672715431215, 3.197636354937379, 1.3895004903277424],
    [0.9441578795500998, 0.9871810100650005, 0.8185387959756814, 1.0290451130303249],
]
LINTS_MEAN = [
    0.00374897478186236,
    -0.17043805696636136,
    0.151083064191868,
    -0.00901013868902239,
    0.4779210315210053,
]
LINTS_VARIANCES = [
    0.87504179704777552,
    0.98276601054901214,
    0.96817788101859159,
    2.550943048681336,
    0.1313495757654658,
]


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-14)


def shown(learner, state):
    """Which tool is shown in each context."""
    chances = [learner.chances(state, jnp.asarray(context)) for context in CONTEXTS]
    return np.argmax(chances, axis=1)


def test_a_ridge_regression_a_tool_is_that_of_lingreedy(taught, float64):
    learner = ridge_epsilon_greedy(ridge=RIDGE, start="zero")
    state = taught(learner, LOG)[-1]
    with float64():
        close(learner.scores(state, jnp.asarray(CONTEXTS)), LINGREEDY)


def test_linucb_has_its_means_and_bonuses(taught, float64):
    learner = linucb(alpha=ALPHA, ridge=RIDGE, start="zero")
    state = taught(learner, LOG)[-1]
    with float64():
        close(learner.scores(state, jnp.asarray(CONTEXTS)), LINGREEDY)
        for context, mean, upper in zip(CONTEXTS, LINGREEDY, LINUCB, strict=True):
            known = variances(state.extra, jnp.asarray(context), 4, RIDGE)
            close(mean + ALPHA * np.sqrt(known), upper)
        np.testing.assert_array_equal(shown(learner, state), np.argmax(LINUCB, axis=1))


def test_linucb_with_one_model_is_its_linucb_on_the_features(taught, float64):
    learner = linucb_shared(alpha=ALPHA, ridge=RIDGE, start="zero")
    state = taught(learner, LOG)[-1]
    with float64():
        means = learner.scores(state, jnp.asarray(CONTEXTS))
        for context, mean, upper in zip(CONTEXTS, means, LINUCB_ON_FEATURES, strict=True):
            x = shared.features(jnp.asarray(LOG.theta), jnp.asarray(context), shared.constant)
            close(mean + ALPHA * posterior.deviations(state.extra, x), upper)
        np.testing.assert_array_equal(shown(learner, state), np.argmax(LINUCB_ON_FEATURES, axis=1))


def test_lints_draws_from_the_normal_of_its_lints(taught, float64):
    learner = lints(alpha=ALPHA, ridge=RIDGE, start="zero")
    state = taught(learner, LOG)[-1]
    close(state.extra.mean, LINTS_MEAN)
    close(ALPHA**2 * np.diag(state.extra.root @ state.extra.root.T), LINTS_VARIANCES)
