"""Learners with offsets: the contract, the errors, and a hub that balance corrects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.environments.feedback import censored_by_success
from jaxret.learners.learner import query_for
from jaxret.learners.mixture import mixture
from jaxret.learners.offsets import informed
from jaxret.testing import check_learner, quick_jit
from tests.problems import make_hub

SHORT = {"tau": 0.2, "eta": 0.01}


KNOWN = {"tau": [0.2], "eta": [0.01], "lexical": [0.35], "balance": [1.0]}
LEARNING = jr.grid(informed, of=jr.greedy_replayed, **KNOWN, per_round=2)
MIXTURE = mixture([jr.grid(jr.frozen, tau=[0.1]), LEARNING])  # one expert has no offsets
QUICK = jr.with_exploration(jr.with_balance(jr.with_lexical(jr.greedy(**SHORT))), 0.2)
SLOW = [
    jr.with_lexical(
        jr.with_balance(jr.mapped_replayed(**SHORT, per_round=2, map_every=8)), width=3
    ),
    jr.with_lexical(jr.orag(**SHORT)),
    jr.with_balance(jr.hybrid(), 0.5),
]


@pytest.mark.parametrize(
    "learner",
    [QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)],
    ids=lambda one: one.name,
)
def test_they_satisfy_the_contract(learner):
    check_learner(learner)


@pytest.fixture(scope="module")
def hub():
    return make_hub(300)


@pytest.fixture(scope="module")
def static(hub):
    """Return a run of static retrieval by each weight of words and strength of balance."""
    return {
        (weight, strength): jr.simulate(jr.hybrid(tau=0.1, lexical=weight, balance=strength), hub)
        for weight in (0.0, 0.35)
        for strength in (0.0, 1.0)
    }


def test_balance_corrects_a_hub_and_the_prior_helps_before_any_feedback(static):
    vectors, balanced, lexical, both = (run.accuracy.mean for run in static.values())
    assert (static[0.0, 0.0].trace.item == 0).mean() > 0.25
    assert (static[0.0, 1.0].trace.item == 0).mean() < 0.15
    assert balanced > vectors + 0.1
    assert lexical > vectors + 0.1
    assert both > max(balanced, lexical) + 0.02


def test_presets_wrappers_and_grids_have_the_weights_and_strengths_that_are_given(hub, static):
    grid = jr.grid(jr.hybrid, tau=[0.1], lexical=[0.0, 0.35], balance=[0.0, 1.0])
    runs = dict(zip(static, jr.sweep(grid, hub, seeds=1).runs, strict=True))
    balanced = jr.with_balance(jr.frozen(tau=0.1))
    wrapped = {(0.0, 1.0): balanced, (0.35, 1.0): jr.with_lexical(balanced)}
    found = [*runs.items(), *((key, jr.simulate(one, hub)) for key, one in wrapped.items())]
    for setting, run in found:
        np.testing.assert_array_equal(run.trace.item, static[setting].trace.item)


@pytest.fixture(scope="module")
def run(hub):
    return jr.simulate(MIXTURE, hub, form="blocked")


def test_a_mixture_reads_missing_scores_as_zero_and_begins_better_with_scores(hub, run):
    arrays = hub.theta, hub.queries, hub.labels
    scan, blocked, zero = (
        jr.simulate(MIXTURE, jr.Task.from_arrays(*arrays, prior=prior), form=form)
        for prior, form in [(None, "scan"), (None, "blocked"), (np.zeros((300, 12)), "blocked")]
    )
    for without in (scan, blocked):
        np.testing.assert_array_equal(without.trace.item, zero.trace.item)
        assert run.accuracy.mean > without.accuracy.mean


def test_a_mixture_ranks_by_the_scores_of_experts_with_their_priors(hub, run):
    few = hub.select(range(5))
    queries = query_for(MIXTURE, jnp.asarray(few.queries), few.prior)

    @quick_jit
    def ranked(state):
        return MIXTURE.scores(state, queries), jax.vmap(MIXTURE.logits, (None, 0))(state, queries)

    np.testing.assert_allclose(*ranked(run.state(0)), rtol=1e-3)


def test_usage_counts_the_rounds_with_feedback_alone(hub):
    """In blocks, of a mixture on eight devices; `check_learner` compares them with the scan."""
    missing = Environment(censoring=censored_by_success(after_success=0.5, after_failure=0.2))
    static = mixture([jr.grid(jr.hybrid, tau=[0.1], lexical=[0.35], balance=[1.0])])
    for learner, how in ((jr.hybrid(tau=0.1, balance=1.0), {}), (static, {"devices": 8})):
        run = jr.simulate(learner, hub, rounds=100, environment=missing, **how)
        assert run.form == ("mesh of 8 devices" if how else "blocked")
        extra = run.states.extra
        usage = extra.rows[0].extra[2] if learner is static else extra[2]
        observed = (~np.isnan(run.trace.reward)).sum()
        assert 20 < observed < 90
        np.testing.assert_array_equal(np.ravel(usage.count), 20 + observed)


def test_a_guarded_learner_ranks_by_its_scores_with_priors(hub):
    learner = jr.with_lexical(jr.greedy(**SHORT), 0.4)
    queries = query_for(learner, jnp.asarray(hub.queries), hub.prior)
    found, expected = (
        quick_jit(lambda theta, one=one: one.scores(one.init(theta), queries))(hub.theta)
        for one in (jr.guarded(learner, budget=1000), learner)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_wrong_settings_and_missing_scores_are_refused(hub, small):
    for call, message in {
        lambda: jr.with_lexical(jr.greedy(), 1.0): r"weight must be in \[0, 1\), got 1.0",
        lambda: jr.with_lexical(jr.greedy(), width=0): "width must be a whole number >= 1",
        lambda: jr.with_balance(jr.greedy(), -1.0): "strength must be >= 0, got -1.0",
        lambda: jr.with_lexical(jr.hybrid()): "'hybrid' already has a lexical weight",
        lambda: jr.with_balance(jr.with_balance(jr.greedy())): "already has a balance",
        lambda: jr.with_lexical(jr.mixture()): "'mixture' is not rank one: .* change the experts",
        lambda: jr.with_balance(jr.linucb()): "'linucb' is not rank one",
        lambda: jr.simulate(jr.hybrid(), small()): (
            "'hybrid' reads prior scores, and small has none: .*from_arrays"
        ),
        lambda: jr.simulate(mixture([jr.grid(jr.hybrid, lexical=[0.2, 0.5])]), small()): (
            "'mixture' reads prior scores, and small has none"
        ),
        lambda: jr.simulate(jr.with_lexical(jr.greedy(), width=4), hub): (
            "up to 12 prior scores per query, and learner 'greedy.lexical' reads 4: .*width="
        ),
        lambda: mixture(
            [jr.grid(informed, of=jr.greedy, lexical=[0.1]), jr.grid(_narrow, tau=[0.1])]
        ): r"experts that read prior scores must have one width, got \[5, 64\]",
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_a_preset_reads_scores_of_every_tool():
    scores = np.random.default_rng(0).normal(size=(60, 70))
    task = _wide(scores)
    alone = jr.simulate(jr.hybrid(lexical=0.3, width=70), task)
    best = (0.7 * task.queries @ task.theta.T + 0.3 * scores).argmax(axis=1)
    np.testing.assert_array_equal(alone.trace.item[0], best[alone.order[0]])
    grids = [jr.grid(jr.hybrid, lexical=[0.3], width=70)]
    grids.append(jr.grid(informed, of=jr.frozen, lexical=[0.3], width=70))
    for grid in grids:
        run = jr.sweep(grid, task, seeds=1).runs[0]
        np.testing.assert_array_equal(run.trace.item, alone.trace.item)


def _wide(scores):
    rng = np.random.default_rng(1)
    theta, queries = rng.normal(size=(70, 5)), rng.normal(size=(60, 5))
    return jr.Task.from_arrays(theta, queries, rng.integers(0, 70, 60), prior=scores)


def _narrow(tau):
    return jr.with_lexical(jr.frozen(tau=tau), width=5)


@pytest.mark.slow
def test_the_default_experts_begin_better_than_those_without_offsets(hub):
    experts = (jr.default_experts(map_every=8, offsets=offsets) for offsets in (True, False))
    runs = [jr.simulate(mixture(one), hub, rounds=100) for one in experts]
    assert runs[0].accuracy.mean > runs[1].accuracy.mean + 0.05
    assert runs[0].form == "blocked"
