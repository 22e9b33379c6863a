"""Learners and wrappers satisfy `check_learner`; those of bandits/ are checked there."""

import jax
import jax.numpy as jnp
import pytest

import jaxret as jr
from jaxret.learners import rank_one
from jaxret.learners.learner import where_observed
from jaxret.learners.rank_one import coefficients, rule_of
from jaxret.rules import estimators, policies, preconditioners, projections, query_maps, schedules
from jaxret.testing import check_learner

STEPS = {"tau": 0.2, "eta": 0.02}
FREE = {"projection": projections.none()}
GREEDY, ORAG, TEACHER = jr.greedy(**STEPS), jr.orag(**STEPS), jr.full_information(**STEPS)
TAPERED = jr.greedy(**STEPS, schedule=schedules.inverse_sqrt())
BY_ROW = jr.with_preconditioner(TAPERED, preconditioners.by_row())
CENTRED = jr.with_query_map(BY_ROW, query_maps.mean_centred(rate=0.5), map_every=16)
WRAPPED = jr.with_preconditioner(jr.with_query_map(GREEDY, rate=0.5), preconditioners.by_row())
ALL_WRAPPERS = jr.with_exploration(jr.with_experience_replay(WRAPPED, per_round=2, capacity=9), 0.1)
MIXTURE = jr.mixture([jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1], eta=0.01)])
QUICK = [
    jr.orag(**STEPS, schedule=schedules.inverse_sqrt()),
    jr.guarded(ORAG, budget=20),
    ALL_WRAPPERS,
    jr.paper_adamw(tau=0.2, eta=1e-2, batch=5),
]
SLOW = [
    jr.orag(**STEPS, k=3, projection=projections.ball()),
    jr.chosen_only(**STEPS, **FREE),
    jr.greedy(**STEPS, **FREE, estimator=estimators.debiased(noise_rate=0.1)),
    jr.full_information(**STEPS, projection=projections.ball()),
    jr.frozen(),
    *(jr.guarded(one, budget=20) for one in (GREEDY, jr.mapped_replayed(), TEACHER, MIXTURE)),
    jr.with_preconditioner(GREEDY, preconditioners.second_moment(ridge=5.0)),
    jr.with_query_map(GREEDY, query_maps.low_rank(rate=0.5, rank=3)),
    jr.with_query_map(GREEDY, query_maps.mean_centred(rate=0.5)),
    jr.with_query_map(jr.full_information(**STEPS, **FREE), rate=0.5),
    jr.with_query_map(GREEDY, query_maps.linear(rate=0.5), map_every=5),
    jr.with_query_map(ORAG, query_maps.mean_centred(rate=0.5, share=0.8, count=20.0), map_every=16),
    jr.with_query_map(jr.full_information(), query_maps.low_rank(rate=0.5, rank=3), map_every=32),
    jr.mapped(map_every=8),
    jr.centred_replayed(map_every=4, per_round=2),
    BY_ROW,  # this and the next two have a blocked form, which includes a run on eight devices
    jr.with_experience_replay(TAPERED, per_round=3, capacity=30),
    jr.with_experience_replay(CENTRED, per_round=2, capacity=30),
]


@pytest.mark.parametrize(
    "rule",
    [*QUICK, *(pytest.param(rule, marks=pytest.mark.slow) for rule in SLOW)],
    ids=lambda rule: rule.name,
)
def test_learners_satisfy_the_contract(rule):
    check_learner(rule)


@pytest.mark.slow
@pytest.mark.parametrize("inner", [ORAG, jr.mapped_replayed(), TEACHER], ids=lambda rule: rule.name)
def test_exploring_learners_satisfy_the_contract(inner):
    """Blocked forms are compared with the scan and the mesh."""
    rule = jr.with_exploration(inner, 0.3)
    blocked = rule_of(rule) is not None and rule_of(rule).blocked
    assert blocked == (inner.name != "mapped_replayed")
    check_learner(rule)


def test_the_name_lists_the_wrappers():
    assert ALL_WRAPPERS.name == "greedy+linear+by_row+replay+exploration"


def shared_map(*, tau: float, eta: float) -> jr.Learner:
    """Make a learner that is not rank one: logits are Theta A q, and only A is updated."""
    estimator = estimators.importance_weighted()

    def init(theta, available=None):
        start = jr.frozen().init(theta, available)
        return start._replace(extra=jnp.eye(theta.shape[1], dtype=theta.dtype))

    def logits(state, q):
        return rank_one.masked_logits(state, state.extra @ q, tau)

    def scores(state, queries):
        return jnp.where(state.available, queries @ state.extra.T @ state.theta.T, -jnp.inf)

    def act(state, query, key):
        return policies.softmax().show(key, logits(state, query), None)

    def update(state, query, choice, feedback):
        c = coefficients(estimator, logits(state, query), choice, feedback, None)
        matrix = state.extra - eta / tau * jnp.outer(state.theta.T @ c, query)
        return where_observed(feedback, state, state._replace(extra=matrix))

    return jr.Learner("shared_map", init, act, update, scores, logits)


def test_the_size_and_key_of_the_problem_can_be_chosen():
    key = jax.random.key(1)
    check_learner(shared_map(tau=0.2, eta=0.01), items=13, width=5, rounds=31, key=key)
    jax.random.uniform(key)  # must not consume the caller's key
