"""Variants of the mixture learner, on the small world."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from experiments import mixture_variants as variants
from jaxret.learners.learner import query_for
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of


def configure(world, directory, *more):
    small = [*in_world(world, directory), "seeds=2", "clusters=2"]
    return config_of("mixture_variants", *small, *more)


@pytest.fixture
def few(monkeypatch):
    """Give the mixture one expert that never learns, and two that do."""
    experts = [jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1, 1.0], eta=[0.1])]
    few = jr.mixture(experts)
    monkeypatch.setattr(jr, "mixture", lambda: few)


@pytest.fixture(scope="module")
def problem():
    """Return rows, queries and labels."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(6, 8)).astype(np.float32)
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(6, size=40)
    queries = theta[labels] + 0.5 * rng.normal(size=(40, 8)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return jnp.asarray(theta), jnp.asarray(queries, jnp.float32), labels


def streamed(learner, problem):
    """Return the learner's state after the stream and the tools shown."""
    theta, queries, labels = problem

    def one(state, line):
        query, label, t = line
        slate = learner.act(state, query, jax.random.key(t))
        item = slate.items[0]
        feedback = Feedback((item == label).astype(jnp.float32))
        return learner.update(state, query, Choice(item, slate.propensity[0]), feedback), item

    lines = queries, labels, np.arange(len(queries))
    state, shown = quick_jit(lambda: jax.lax.scan(one, learner.init(theta), lines))()
    return state, shown.tolist()


def test_every_variant_makes_a_learner(problem):
    """A setting out of its range or experts that do not fit raise."""
    theta, queries, labels = problem
    made = variants.variants(jr.Task.from_arrays(theta, queries, labels), clusters=2)
    assert len(made) > 20
    assert next(iter(made)) == "as it is"
    for name, make in made.items():
        state = jax.eval_shape(make().init, theta)
        assert state.t.shape == (), name


@pytest.mark.slow
def test_variants_are_simulated_and_compared_with_the_first(world, tmp_path, monkeypatch):
    names, every = ("as it is", "alpha 0", "no replay", "clusters"), variants.variants
    few = lambda *args: {name: every(*args)[name] for name in names}  # noqa: E731
    monkeypatch.setattr(variants, "variants", few)
    variants.main(configure(world, tmp_path))
    results = values_of(tmp_path)
    for name in names:
        gain = results[f"{name}/online"] - results["as it is/online"]
        np.testing.assert_allclose(results[f"{name}/gain"], gain)
    assert (results["clusters/gain"] != 0).any()


@pytest.mark.slow
def test_equal_weights_stay_equal_and_one_cluster_is_no_cluster(problem):
    state, _ = streamed(jr.mixture(beta=1e-9, alpha=0.0), problem)
    weights = np.exp(state.extra.log_weights)
    np.testing.assert_allclose(weights, 1 / len(weights), rtol=1e-4)
    whole, shown = streamed(jr.mixture(), problem)
    one, also = streamed(variants.clustered(np.zeros(6, int)), problem)
    assert shown == also
    np.testing.assert_allclose(one.extra[1][0], whole.extra.log_weights, atol=1e-5)


@pytest.mark.usefixtures("few")
def test_weights_of_a_cluster_change_only_with_its_own_queries(problem):
    theta, queries, labels = problem
    groups = np.array([0, 0, 0, 1, 1, 1])
    mine = groups[np.argmax(np.asarray(queries) @ np.asarray(theta).T, axis=1)] == 1
    state, _ = streamed(variants.clustered(groups), (theta, queries[mine], labels[mine]))
    _, blend = variants.unchanged()
    moved = np.abs(np.asarray(state.extra[1]) - np.log(1 / len(blend.experts))).max(axis=1)
    assert moved[0] < 1e-6
    assert moved[1] > 1e-3


@pytest.mark.usefixtures("few")
def test_stacked_and_drawn_experts_follow_an_expert_with_all_the_weight(problem):
    theta, queries, _ = problem
    learner, blend = variants.unchanged()
    state = quick_jit(learner.init)(theta)
    frozen, moved = state.extra.rows
    given = {
        "rows": (frozen, moved._replace(theta=-moved.theta)),
        "log_weights": np.float32([-1e9, -1e9, 0]),
    }
    state = state._replace(extra=state.extra._replace(**jax.tree.map(jnp.asarray, given)))
    expert, own = blend.expert(state, 2)
    best = quick_jit(jax.vmap(expert.logits, (None, 0)))(
        own, query_for(expert, queries[:5])
    ).argmax(axis=1)
    keys = jax.random.split(jax.random.key(0), 5)
    for make in (variants.stacked, variants.thompson):
        act = quick_jit(jax.vmap(make().act, (None, 0, 0)))
        np.testing.assert_array_equal(act(state, queries[:5], keys).items[:, 0], best)


@pytest.mark.usefixtures("few")
def test_an_expert_learns_from_no_tool_that_it_would_not_have_shown(problem):
    learner, (_, blend) = variants.own_choice(), variants.unchanged()
    state, _ = streamed(learner, problem)  # after this stream the experts disagree
    logits = quick_jit(jax.vmap(lambda query: variants.predicted(blend, state, query)))(problem[1])
    choices = np.asarray(logits).argmax(axis=2)  # [T, G]
    t = next(t for t, (_, one, other) in enumerate(choices) if one != other)
    choice = Choice(item=jnp.asarray(choices[t, 1]), propensity=jnp.float32(1))
    new = quick_jit(learner.update)(state, problem[1][t], choice, Feedback(jnp.float32(1)))
    for g, learns in enumerate((False, True, False)):
        (_, before), (_, after) = (blend.expert(one, g) for one in (state, new))
        moved = (np.asarray(before.theta) != np.asarray(after.theta)).any()
        assert moved == learns
