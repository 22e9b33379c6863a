"""Learners made of learners: exact exploration, what composes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.adamw import adamw
from jaxret.learners.rank_one import rule_of
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_exploration, with_preconditioner, with_query_map
from jaxret.rules import policies, preconditioners, projections
from jaxret.rules.query_maps import QueryMap
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import check_learner

STEPS = {"tau": 0.2, "eta": 0.02}
GREEDY = presets.greedy(**STEPS)
EPSILON, DRAWS = 0.3, 20_000
HERE = np.array([True, False, True, True, True])


def greedy_chance(z):
    return 1.0 * (z == z.max())


def softmax_chance(z):
    return np.exp(z) / np.exp(z).sum()


INNER = [
    (GREEDY, greedy_chance),
    (presets.orag(**STEPS), softmax_chance),
    (presets.mapped_replayed(), greedy_chance),  # it has no rule
    (adamw(tau=0.5, eta=0.1), softmax_chance),  # nor has this
]


@pytest.mark.parametrize(("inner", "inner_chance"), INNER, ids=[rule.name for rule, _ in INNER])
def test_exploration_shows_tools_as_often_as_its_exact_propensities_say(inner, inner_chance):
    rule = with_exploration(inner, EPSILON)
    rng = np.random.default_rng(3)
    theta, query = (jnp.asarray(rng.normal(size=n), jnp.float32) for n in ((5, 4), 4))
    state = rule.init(theta, jnp.asarray(HERE))
    z = np.asarray(rule.logits(state, query), np.float64)
    assert (np.isfinite(z) == HERE).all()
    exact = (1 - EPSILON) * inner_chance(z) + EPSILON * HERE / 4  # four tools are there
    np.testing.assert_allclose(rule.probabilities(state, query), exact, atol=1e-6)
    keys = jax.random.split(jax.random.key(7), DRAWS)
    slates = jax.jit(jax.vmap(lambda key: rule.act(state, query, key)))(keys)
    items = np.asarray(slates.items)[:, 0]
    np.testing.assert_allclose(slates.propensity[:, 0], exact[items], rtol=1e-5)
    often = np.bincount(items, minlength=5) / DRAWS
    assert (np.abs(often - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / DRAWS) + 1e-9).all()
    assert often[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "inner",
    [
        GREEDY,  # these two have a blocked form, which is compared with the scan and the mesh
        presets.orag(**STEPS),
        presets.mapped_replayed(),
        presets.full_information(**STEPS),
    ],
    ids=lambda rule: rule.name,
)
def test_exploring_learners_keep_the_common_promises(inner):
    rule = with_exploration(inner, EPSILON)
    blocked = rule_of(rule) is not None and rule_of(rule).blocked
    assert blocked == (inner.name != "mapped_replayed")
    check_learner(rule)


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
def test_a_wrapper_that_does_nothing_leaves_the_plain_learner_round_for_round(problem, wrap):
    catalogue, stream = problem()
    plain = presets.greedy(**STEPS, projection=projections.ball())
    runs = [
        scan_rounds(rule, rule.init(*catalogue), Environment(), stream, jax.random.key(0))
        for rule in (wrap(plain), plain)
    ]
    np.testing.assert_array_equal(runs[0][1].item, runs[1][1].item)
    np.testing.assert_allclose(runs[0][0].theta, runs[1][0].theta, rtol=1e-5, atol=1e-7)


def test_everything_together_keeps_the_common_promises():
    rule = with_preconditioner(with_query_map(GREEDY, rate=0.5), preconditioners.by_row())
    rule = with_exploration(with_experience_replay(rule, per_round=2, capacity=9), 0.1)
    assert rule.name == "greedy+linear+by_row+replay+exploration"
    check_learner(rule)


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
def test_what_does_not_compose_is_refused_in_one_sentence(make, message):
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)
