"""Learners that wrap others: exact exploration, and wrappers without effect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.minibatch import adamw
from jaxret.learners.wrappers import with_exploration, with_query_map
from jaxret.rules import projections
from jaxret.rules.query_maps import QueryMap
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit

STEPS = {"tau": 0.2, "eta": 0.02}
GREEDY = presets.greedy(**STEPS)
EPSILON, DRAWS = 0.3, 20_000
AVAILABLE = np.array([True, False, True, True, True])


def greedy_probabilities(z):
    return 1.0 * (z == z.max())


def softmax_probabilities(z):
    return np.exp(z) / np.exp(z).sum()


INNER = [
    (GREEDY, greedy_probabilities),
    (presets.orag(**STEPS), softmax_probabilities),
    (presets.mapped_replayed(), greedy_probabilities),
    (adamw(tau=0.5, eta=0.1), softmax_probabilities),
]


@pytest.mark.parametrize(
    ("inner", "inner_probabilities"), INNER, ids=[rule.name for rule, _ in INNER]
)
def test_exploration_shows_tools_with_its_exact_probabilities(inner, inner_probabilities):
    rule = with_exploration(inner, EPSILON)
    rng = np.random.default_rng(3)
    theta, query = (rng.normal(size=n).astype(np.float32) for n in ((5, 4), 4))

    @quick_jit
    def drawn(theta, query, key):
        state = rule.init(theta, jnp.asarray(AVAILABLE))
        slates = jax.vmap(rule.act, (None, None, 0))(state, query, jax.random.split(key, DRAWS))
        return rule.logits(state, query), rule.probabilities(state, query), slates

    z, probabilities, slates = jax.device_get(drawn(theta, query, jax.random.key(7)))
    z = z.astype(np.float64)
    assert (np.isfinite(z) == AVAILABLE).all()
    exact = (1 - EPSILON) * inner_probabilities(z) + EPSILON * AVAILABLE / 4
    np.testing.assert_allclose(probabilities, exact, atol=1e-6)
    items = np.asarray(slates.items)[:, 0]
    np.testing.assert_allclose(slates.propensity[:, 0], exact[items], rtol=1e-5)
    often = np.bincount(items, minlength=5) / DRAWS
    assert (np.abs(often - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / DRAWS) + 1e-9).all()
    assert often[1] == 0


NOWHERE = QueryMap(
    "nowhere",
    init=lambda width, dtype: (),
    apply=lambda params, queries: queries,
    change=lambda params, query, pull, counts=None: (),
)


@pytest.mark.parametrize(
    "wrap",
    [lambda rule: with_exploration(rule, 0.0), lambda rule: with_query_map(rule, NOWHERE)],
    ids=["never explores", "maps nothing"],
)
def test_a_wrapper_without_effect_gives_the_same_rounds(problem, wrap):
    catalogue, stream = problem()
    plain = presets.greedy(**STEPS, projection=projections.ball())
    rules = wrap(plain), plain

    @quick_jit
    def both(catalogue, key):
        starts = [rule.init(*catalogue) for rule in rules]
        return [
            scan_rounds(*pair, Environment(), stream, key)
            for pair in zip(rules, starts, strict=True)
        ]

    runs = both(catalogue, jax.random.key(0))
    np.testing.assert_array_equal(runs[0][1].item, runs[1][1].item)
    np.testing.assert_allclose(runs[0][0].theta, runs[1][0].theta, rtol=1e-5, atol=1e-7)
