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
from jaxret.testing import check_learner
from tests.problems import make_hub

SHORT = {"tau": 0.2, "eta": 0.01}
LEARNERS = [
    jr.with_lexical(jr.orag(**SHORT)),
    jr.with_balance(jr.hybrid(), 0.5),
    jr.with_balance(jr.with_lexical(jr.centred(**SHORT, map_every=8), width=3)),
    jr.with_lexical(jr.with_balance(jr.mapped_replayed(**SHORT, per_round=2, map_every=8))),
    jr.with_exploration(jr.with_balance(jr.with_lexical(jr.greedy_replayed(**SHORT))), 0.2),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: one.name)
def test_they_satisfy_the_contract(learner):
    check_learner(learner)


def test_a_mixture_of_experts_with_and_without_offsets_satisfies_the_contract():
    check_learner(informed_mixture())


def informed_mixture():
    known = {"lexical": [0.35], "balance": [1.0], "map_every": 8}
    return mixture(
        [
            jr.paired(jr.hybrid, tau=[0.2, 0.2], lexical=[0.0, 0.35], balance=[0.0, 0.5]),
            jr.grid(jr.hybrid, tau=[0.2], lexical=[0.6]),
            jr.grid(jr.frozen, tau=[0.1]),
            jr.grid(informed, of=jr.centred, tau=[0.2], eta=[0.01], **known),
            jr.grid(informed, of=jr.centred_replayed, tau=[0.2], eta=[0.01], **known),
        ]
    )


@pytest.fixture(scope="module")
def hub():
    return make_hub(300)


def test_balance_corrects_a_hub_and_the_prior_helps_before_any_feedback(hub):
    static = jr.simulate(jr.frozen(tau=0.1), hub)
    balanced = jr.simulate(jr.with_balance(jr.frozen(tau=0.1)), hub)
    lexical = jr.simulate(jr.hybrid(tau=0.1, lexical=0.35), hub)
    both = jr.simulate(jr.hybrid(tau=0.1, lexical=0.35, balance=1.0), hub)
    assert (static.trace.item == 0).mean() > 0.25
    assert (balanced.trace.item == 0).mean() < 0.15
    found = [run.accuracy.mean for run in (static, balanced, lexical, both)]
    assert found[1] > found[0] + 0.1, found
    assert found[2] > found[0] + 0.1, found
    assert found[3] > max(found[1:3]) + 0.02, found


@pytest.mark.parametrize("form", ["scan", "blocked"])
def test_a_mixture_gives_its_experts_what_each_of_them_reads(hub, form):
    learner = informed_mixture()
    assert learner.facts.prior_width == 64
    run = jr.simulate(learner, hub, form=form, rounds=100)
    vectors_alone = jr.Task.from_arrays(hub.theta, hub.queries, hub.labels)
    without = jr.simulate(learner, vectors_alone, form=form, rounds=100)
    assert run.accuracy.mean > without.accuracy.mean


def test_the_forms_of_an_informed_mixture_agree(hub):
    blocked, scan = (
        jr.simulate(informed_mixture(), hub, form=form, rounds=100) for form in ("blocked", "scan")
    )
    np.testing.assert_array_equal(blocked.trace.item, scan.trace.item)
    np.testing.assert_allclose(blocked.trace.loss, scan.trace.loss, atol=1e-4)


@pytest.mark.parametrize("form", ["scan", "blocked"])
def test_usage_counts_the_rounds_with_feedback_alone(hub, form):
    missing = Environment(censoring=censored_by_success(after_success=0.5, after_failure=0.2))
    static = jr.grid(jr.hybrid, tau=[0.1], lexical=[0.35], balance=[1.0])
    for learner in (jr.hybrid(tau=0.1, balance=1.0), mixture([static])):
        run = jr.simulate(learner, hub, rounds=100, form=form, environment=missing)
        extra = run.states.extra
        usage = extra.rows[0].extra[2] if learner.name == "mixture" else extra[2]
        observed = (~np.isnan(run.trace.reward)).sum()
        assert 20 < observed < 90
        np.testing.assert_array_equal(np.ravel(usage.count), 20 + observed)


def test_a_mixture_ranks_by_the_scores_of_experts_with_their_priors(hub):
    learner = informed_mixture()
    state = jr.simulate(learner, hub, rounds=100).state(0)
    few = hub.select(range(5))
    asked = query_for(learner, jnp.asarray(few.queries), few.prior)
    logits = jax.vmap(learner.logits, (None, 0))(state, asked)
    np.testing.assert_allclose(learner.scores(state, asked), logits, rtol=1e-3)


def test_a_guarded_learner_ranks_by_its_scores_with_priors(hub):
    learner = jr.with_lexical(jr.greedy(**SHORT), 0.4)
    guarded = jr.guarded(learner, budget=1000)
    asked = query_for(learner, jnp.asarray(hub.queries), hub.prior)
    found = guarded.scores(guarded.init(hub.theta), asked)
    np.testing.assert_allclose(found, learner.scores(learner.init(hub.theta), asked), rtol=1e-6)


def test_the_preset_has_the_weight_and_the_strength_that_are_given(hub):
    preset = jr.hybrid(tau=0.1, lexical=0.4, balance=0.5)
    wrapped = jr.with_balance(jr.with_lexical(jr.frozen(tau=0.1), 0.4), 0.5)
    runs = [jr.simulate(one, hub) for one in (preset, wrapped)]
    np.testing.assert_array_equal(runs[0].trace.item, runs[1].trace.item)


def test_a_grid_varies_the_weights_in_one_program(hub):
    grid = jr.grid(jr.hybrid, tau=[0.1], lexical=[0.0, 0.35], balance=[0.0, 1.0])
    sweep = jr.sweep(grid, hub, seeds=1)
    alone = [
        jr.simulate(jr.hybrid(tau=0.1, lexical=w, balance=s), hub).accuracy.mean
        for _, w, s in grid.settings
    ]
    np.testing.assert_allclose([run.accuracy.mean for run in sweep.runs], alone, atol=1e-6)


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


def test_the_default_experts_begin_better_than_those_without_offsets(hub):
    learner = mixture(jr.default_experts(map_every=8))
    names = learner.structure.experts
    assert len(names) == 6
    assert names[0] == "frozen(tau=0.02)"
    assert sum("lexical=0.25" in one for one in names) == 4
    plain = mixture(jr.default_experts(map_every=8, offsets=False))
    runs = [jr.simulate(one, hub, rounds=100) for one in (learner, plain)]
    assert runs[0].accuracy.mean > runs[1].accuracy.mean + 0.05
    assert runs[0].form == "blocked"
