"""Learners that wrap others: exact exploration, and wrappers without effect."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.minibatch import adamw
from jaxret.learners.wrappers import with_exploration, with_query_map
from jaxret.rules import projections
from jaxret.rules.query_maps import QueryMap
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from tests.problems import check_shown

STEPS = {"tau": 0.2, "eta": 0.02}
GREEDY = presets.greedy(**STEPS)
EPSILON = 0.3
AVAILABLE = np.array([True, False, True, True, True])


def greedy_probabilities(z):
    return 1.0 * (z == z.max())


@pytest.mark.parametrize(
    ("inner", "inner_probabilities"),
    [
        (GREEDY, greedy_probabilities),
        (presets.orag(**STEPS), softmax),
        (presets.mapped_replayed(), greedy_probabilities),
        (adamw(tau=0.5, eta=0.1), softmax),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_exploration_shows_tools_with_its_exact_probabilities(inner, inner_probabilities):
    rule = with_exploration(inner, EPSILON)
    rng = np.random.default_rng(3)
    theta, query = (rng.normal(size=n).astype(np.float32) for n in ((5, 4), 4))

    state = quick_jit(rule.init)(theta, AVAILABLE)
    z = np.asarray(quick_jit(rule.logits)(state, query), np.float64)
    assert (np.isfinite(z) == AVAILABLE).all()
    exact = (1 - EPSILON) * inner_probabilities(z) + EPSILON * AVAILABLE / 4
    check_shown(rule, state, query, exact)


NOWHERE = QueryMap(
    "nowhere",
    init=lambda width, dtype: (),
    apply=lambda params, queries: queries,
    change=lambda params, query, pull, counts=None: (),
)


def test_a_wrapper_without_effect_gives_the_same_rounds(problem):
    catalogue, stream = problem()
    plain = presets.greedy(**STEPS, projection=projections.ball())
    rules = plain, with_exploration(plain, 0.0), with_query_map(plain, NOWHERE)

    def run(rule):
        state = rule.init(*catalogue)
        return scan_rounds(rule, state, Environment(), stream, jax.random.key(0))

    (expected, shown), *others = quick_jit(lambda: [run(rule) for rule in rules])()
    for state, trace in others:
        np.testing.assert_array_equal(trace.item, shown.item)
        np.testing.assert_allclose(state.theta, expected.theta, rtol=1e-5, atol=1e-7)
