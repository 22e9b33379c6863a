"""`check_learner` on valid and broken learners, and updates computed by hand."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners import presets, rank_one
from jaxret.learners.learner import Facts, Learner
from jaxret.learners.mixture import blend_of
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_query_map
from jaxret.rules import estimators, policies, projections, query_maps
from jaxret.runtime import sharding
from jaxret.simulation.trace import measure
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback

STEPS = {"tau": 0.2, "eta": 0.02}
FREE = {"projection": projections.none()}
ORAG = presets.orag(**STEPS, **FREE)
GREEDY = presets.greedy(**STEPS)
MAPPED_ORACLE = with_query_map(presets.full_information(**STEPS), rate=0.5)


def altered(change, structure=ORAG.structure):
    """Make ORAG with an additional change of the state, declared by ``structure=None``."""

    def update(state, query, choice, feedback):
        return change(ORAG.update(state, query, choice, feedback), feedback.observed)

    return ORAG._replace(update=update, structure=structure)


def shrunk(state, where):
    return state._replace(theta=jnp.where(where, 0.99, 1.0) * state.theta)


def with_labels_read(inner):
    """Replace a bandit's reward by whether the labels contain the item."""

    def update(state, query, choice, feedback):
        if feedback.labels is not None:
            truth = (choice.item == feedback.labels).any()
            feedback = feedback._replace(reward=truth.astype(feedback.reward.dtype))
        return inner.update(state, query, choice, feedback)

    return inner._replace(name=f"{inner.name}+labels", update=update)


def with_missing_feedback_as_failure(inner):
    def update(state, query, choice, feedback):
        reward = jnp.where(feedback.observed, feedback.reward, 0.0)
        return inner.update(state, query, choice, Feedback(reward))

    return inner._replace(update=update)


def reporting(inner, change):
    def act(state, q, key):
        slate = inner.act(state, q, key)
        return slate._replace(propensity=change(slate.propensity, key))

    return inner._replace(act=act)


def jittered(propensity, key):
    """Make the reciprocal right only on average."""
    return propensity / jax.random.choice(jax.random.fold_in(key, 9), jnp.array([0.5, 1.5]))


def blind_act(state, q, key):
    return policies.softmax().show(key, state.theta @ q / 0.2, None)


def even(state, q):
    return state.available / state.available.sum()


OVERCONFIDENT = rank_one.rank_one(
    "broken",
    estimator=estimators.implicit_exploration(gamma=1e-3)._replace(unbiased=True),
    policy=policies.softmax(),
    **STEPS,
)
BROKEN = {
    "was shown with a propensity of": reporting(ORAG, jittered),
    "with a mean propensity of 0.5": reporting(GREEDY, lambda propensity, _: propensity / 2),
    "Learner.probabilities says": ORAG._replace(probabilities=even),
    "update turns a state": altered(lambda s, _: s._replace(theta=s.theta.astype(jnp.float16))),
    "was compiled 2 times": altered(
        lambda s, _: s._replace(theta=jnp.where(s.theta > 0, 0.5, 0.1))  # a weak type
    ),
    "update turns t = 0 into 0": altered(lambda s, _: s._replace(t=jnp.zeros_like(s.t))),
    "reads labels: others move the state": with_labels_read(ORAG),
    "learner 'greedy.linear.labels': update reads labels": with_labels_read(
        with_query_map(GREEDY, query_maps.linear())
    ),
    "learner 'greedy.replay.labels': update reads labels": with_labels_read(
        with_experience_replay(GREEDY, capacity=9)
    ),
    "oracle=False with an estimator that says bandit=False": MAPPED_ORACLE._replace(facts=Facts()),
    "a round without feedback moves the state": with_missing_feedback_as_failure(ORAG),
    "claims no bias and has one of": OVERCONFIDENT,
    "absent items were shown in": ORAG._replace(act=blind_act),
    "rows of absent items moved by": altered(shrunk, None),
    "blocked form and the plain scan": altered(
        lambda s, heard: shrunk(s, heard & s.available[:, None])
    ),
    "a straight one differ by nan": altered(
        lambda s, heard: s._replace(theta=jnp.where(heard & (s.t > 9), jnp.nan, s.theta)), None
    ),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_violated_property_is_named(sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_learner(BROKEN[sentence])


def test_a_copy_with_another_function_loses_its_structure():
    greedy = presets.greedy()
    assert greedy._replace(name="mine").structure is greedy.structure
    for name in ("init", "act", "update", "scores", "logits", "probabilities"):
        copy = greedy._replace(**{name: getattr(greedy, name)})
        assert (copy.structure, copy.facts.origin) == (None, None), name
    kept = greedy._replace(init=greedy.init, structure=greedy.structure)
    assert kept.structure is greedy.structure


THETA = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


def told(rule, state, query, *labels):
    """Update an oracle, which does not read the choice and the reward."""
    choice = Choice(jnp.asarray(0), jnp.asarray(1.0))
    return rule.update(state, query, choice, Feedback(jnp.asarray(0.0), labels=jnp.array(labels)))


def test_rows_start_projected_and_without_a_mask_every_item_is_available():
    state = presets.orag(**STEPS, projection=projections.sphere(radius=2.0)).init(THETA)
    np.testing.assert_allclose(state.theta, [[2, 0], [0, 2], [1.2, 1.6]], rtol=1e-6)
    np.testing.assert_array_equal(state.available, [True, True, True])


def test_one_round_of_orag_equals_a_round_by_hand():
    rule = presets.orag(tau=0.5, eta=0.1, **FREE)
    choice = Choice(item=jnp.asarray(1), propensity=jnp.asarray(0.25))
    query, labels = jnp.array([1.0, 0.0]), jnp.array([1, -1])
    # logits q . theta / tau = 2, 0, 1.2; e^2, e^0, e^1.2 = 7.3890561, 1, 3.3201169
    p = np.array([7.3890561, 1.0, 3.3201169]) / 11.709173

    @quick_jit
    def learnt():
        before = rule.init(THETA)
        info = measure(rule.logits(before, query), labels)
        return rule.update(before, query, choice, Feedback(jnp.asarray(1.0))), info

    state, info = learnt()
    c = p - np.array([0, 1 / 0.25, 0])
    expected = THETA - 0.2 * c[:, None] * [1, 0]  # eta / tau
    np.testing.assert_allclose(state.theta, expected, rtol=1e-6)
    assert state.t == 1
    described = [info.p_success, info.loss, info.inverse_p, info.logit_label, info.logit_sum]
    by_hand = [p[1], -np.log(p[1]), (1 / p).sum(), 0.0, 3.2]
    np.testing.assert_allclose(described, by_hand, rtol=1e-5, atol=1e-6)


def test_full_information_spreads_the_target_over_the_available_labels():
    rule = presets.full_information(tau=1.0, eta=1.0, **FREE)
    query = jnp.array([1e-9, 0.0])  # so small that p is uniform over the available items
    before = rule.init(THETA, jnp.array([True, True, False]))
    state = told(rule, before, query, 0, 1, 2)
    info = measure(rule.logits(before, query), jnp.array([0, 1, 2]))
    np.testing.assert_allclose(info.loss, np.log(2), rtol=1e-6)  # the unavailable label is ignored
    np.testing.assert_allclose(info.p_success, 1.0, rtol=1e-6)
    np.testing.assert_array_equal(state.theta, before.theta)  # p = target = (1/2, 1/2, 0)


def test_measures_are_zero_without_labels_and_nan_without_a_softmax():
    info = measure(ORAG.logits(ORAG.init(THETA), jnp.array([0.6, 0.8])), jnp.array([-1, -1]))
    assert (info.p_success, info.loss, info.logit_label) == (0, 0, 0)
    assert np.isnan(measure(None, jnp.array([1]))).all()


def test_tau_and_eta_may_be_swept_inside_one_program():
    def moved(tau, eta):
        rule = presets.full_information(tau=tau, eta=eta, **FREE)
        before = rule.init(THETA)
        return told(rule, before, jnp.array([0.6, 0.8]), 1).theta - before.theta

    grid = jnp.array([[0.5, 0.1], [0.5, 0.2], [1.0, 0.1]])
    steps = jax.jit(lambda grid: sharding.sweep(moved, *grid.T))(grid)
    np.testing.assert_allclose(steps[1], 2 * steps[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(steps[2], moved(1.0, 0.1), rtol=1e-4, atol=1e-6)


def test_help_of_a_learner_explains_each_field():
    """Require more than two words in addition to references to code."""
    shown = inspect.getdoc(Learner).partition("Attributes:")[2]
    for field in Learner._fields:
        meaning = re.search(rf"^ *{field}: (.*\n(?:    .*\n)*)", shown + "\n", re.MULTILINE)
        assert meaning is not None, field
        assert len(re.sub(r"`.*?`", "", meaning[1]).split()) > 2, field


def test_a_family_has_the_settings_that_were_given_by_position():
    learner = jr.mixture([jr.grid(jr.frozen, tau=[0.02, 0.04])])
    assert learner.facts.origin is None  # experts cannot be written as JSON
    family, numbers = jr.traced(learner)
    assert blend_of(family(*numbers)) == blend_of(learner)


def test_scalars_of_numpy_and_jax_are_numbers():
    assert jr.greedy(tau=np.float64(0.25), eta=jnp.float32(0.5)) is jr.greedy(tau=0.25, eta=0.5)
    parts = {"estimator": estimators.clipped(floor=0.1), "policy": policies.softmax()}
    hash(jr.rank_one("mine", **parts, tau=jnp.float32(0.25), eta=np.array(0.5)))
