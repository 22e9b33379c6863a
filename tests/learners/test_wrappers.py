"""Learners that wrap others: exact exploration, valid compositions and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.minibatch import adamw
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_exploration, with_preconditioner, with_query_map
from jaxret.rules import policies, preconditioners, projections
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


SLATES = presets.greedy(**STEPS, k=2)
REPLAYED = with_experience_replay(GREEDY)
ADAMW = adamw(tau=1.0, eta=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_query_map(REPLAYED), "'greedy.replay' is not rank one: a query map needs"),
        (lambda: with_query_map(ADAMW), "'adamw' is not rank one: a query map needs"),
        (
            lambda: with_preconditioner(REPLAYED, preconditioners.by_row()),
            "'greedy.replay' is not rank one: a preconditioner needs the parts of a rank-one",
        ),
        (
            lambda: with_query_map(with_query_map(GREEDY)),
            "'greedy.linear' already has the query map 'linear': give one",
        ),
        (
            lambda: with_preconditioner(presets.row_steps(), preconditioners.by_row()),
            "'row_steps' already has the preconditioner 'by_row': give one",
        ),
        (
            lambda: with_experience_replay(REPLAYED),
            "'greedy.replay' is not rank one: experience replay needs",
        ),
        (
            lambda: with_exploration(SLATES),
            "policy 'greedy' with k=2 does not give the probability",
        ),
        (
            lambda: with_exploration(with_experience_replay(SLATES)),
            "learner 'greedy.replay' does not give the probability of each item",
        ),
        (lambda: with_exploration(GREEDY, 1.5), r"epsilon must be in \[0, 1\], got 1.5"),
        (lambda: policies.exploring(policies.greedy(), epsilon=-1.0), "epsilon must be in"),
    ],
)
def test_wrappers_that_do_not_compose_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)
