"""What holds for every bandit: promises, start, refusals, propensities, an index, a problem."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners import bandits
from jaxret.learners.registry import factories
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback

NAMES = bandits.__all__
DOCUMENTS, NEW = np.eye(4, 6, dtype=np.float32), np.eye(6, dtype=np.float32)[4]
# Settings that solve the three tools of `distracted`.
SOLVES = {
    "banditron": {"epsilon": 0.05},
    "bootstrapped": {"tau": 0.3, "eta": 0.05},
    "fastcb": {"gamma": 30.0, "tau": 0.3, "eta": 0.1},
    "gaptron": {"gamma": 0.1, "tau": 0.1, "eta": 0.01},
    "lints": {"alpha": 0.1},
    "linucb": {"alpha": 0.3},
    "linucb_shared": {"alpha": 0.2},
    "logistic_ucb": {"alpha": 0.5, "tau": 0.3},
    "neural_linear": {"ridge": 1.0},
    "ridge_epsilon_greedy": {"epsilon": 0.1},
    "soba": {"gamma": 0.1},
    "squarecb": {"gamma": 30.0},
    "success_prior": {"tau": 0.3, "eta": 0.05},
}
REFUSED = [  # the value lies just outside the range, or at its open end
    ("banditron", "epsilon", 1.5, "in [0, 1]"),
    ("bootstrapped", "heads", 0, ">= 1"),
    ("fastcb", "gamma", 0.0, "> 0"),
    ("fastcb", "eta", -0.1, ">= 0"),
    ("fastcb", "tau", 0.0, "> 0"),
    ("gaptron", "gamma", 0.0, "in (0, 1]"),
    ("gaptron", "gamma", 1.5, "in (0, 1]"),
    ("lints", "alpha", -1.0, ">= 0"),
    ("linucb", "alpha", -1.0, ">= 0"),
    ("linucb", "ridge", 0, "> 0"),
    ("linucb", "scale", 0, "> 0"),
    ("linucb", "capacity", 0, ">= 1"),
    ("linucb_shared", "alpha", -1.0, ">= 0"),
    ("linucb_shared", "ridge", 0.0, "> 0"),
    ("logistic_ucb", "alpha", -1.0, ">= 0"),
    ("logistic_ucb", "ridge", 0.0, "> 0"),
    ("logistic_ucb", "tau", 0.0, "> 0"),
    ("neural_linear", "shape", 1.0, "> 1"),
    ("neural_linear", "rate", 0.0, "> 0"),
    ("neural_linear", "ridge", 0.0, "> 0"),
    ("ridge_epsilon_greedy", "epsilon", 1.5, "in [0, 1]"),
    ("soba", "gamma", 0.0, "in (0, 1]"),
    ("soba", "ridge", 0.0, "> 0"),
    ("soba", "tau", 0.0, "> 0"),
    ("squarecb", "gamma", 0.0, "> 0"),
    ("squarecb", "eta", -0.1, ">= 0"),
    ("success_prior", "tau", 0.0, "> 0"),
    ("success_prior", "eta", -0.1, ">= 0"),
    ("success_prior", "successes", 0.0, "> 0"),
    ("success_prior", "failures", 0.0, "> 0"),
    *((name, "start", "warm", "'document' or 'zero'") for name in NAMES),
]


def learner(name, **settings):
    return factories()[name](**settings)


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_common_promises(name, start):
    check_learner(learner(name, start=start))


@pytest.mark.parametrize(("name", "setting", "value", "allowed"), REFUSED)
def test_a_setting_outside_its_range_is_refused(name, setting, value, allowed):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        learner(name, **{setting: value})
    assert str(refusal.value) == f"{setting} must be {allowed}, got {value}"


@pytest.mark.parametrize("name", NAMES)
def test_with_no_data_it_ranks_as_static_retrieval_does(rounds, name):
    world, here = rounds(items=30, width=8), np.arange(30) != 7
    rule = learner(name)
    state = rule.init(jnp.asarray(world.theta, jnp.float32), jnp.asarray(here))
    scores = np.asarray(rule.scores(state, jnp.asarray(world.queries, jnp.float32)))
    expected = np.where(here, world.queries @ world.theta.T, -np.inf)
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(-expected))
    np.testing.assert_array_equal(np.isneginf(scores), np.isneginf(expected))


@pytest.mark.parametrize("name", NAMES)
def test_from_zero_it_ranks_nothing(rounds, name):
    world = rounds()
    rule = learner(name, start="zero")
    state = rule.init(jnp.asarray(world.theta, jnp.float32))
    scores = np.asarray(rule.scores(state, jnp.asarray(world.queries, jnp.float32)))
    np.testing.assert_array_equal(scores, np.full_like(scores, scores[0, 0]))


@pytest.mark.parametrize("name", NAMES)
def test_tools_are_shown_with_the_probabilities_that_it_states(rounds, taught, name):
    """With one tool absent; draws whose probability has no closed form have propensity NaN."""
    world, rule, n = rounds(), learner(name, **SOLVES[name]), 3000
    state = taught(rule, world)[-1]._replace(available=np.arange(5) != 2)
    act = quick_jit(jax.vmap(rule.act, (None, None, 0)))
    with jax.enable_x64(True):
        for t, query in enumerate(jnp.asarray(world.queries[:3])):
            slates = act(state, query, jax.random.split(jax.random.key(t), n))
            items, propensity = np.asarray(slates.items[:, 0]), slates.propensity[:, 0]
            if rule.probabilities is None:
                assert np.isnan(propensity).all()
                assert (items != 2).all()
                continue
            stated = np.asarray(rule.probabilities(state, query))
            np.testing.assert_allclose(stated.sum(), 1, atol=1e-12)
            assert stated[2] == 0
            shown = np.bincount(items, minlength=5) / n
            np.testing.assert_allclose(shown, stated, atol=4 * np.sqrt(0.25 / n))
            assert shown[2] == 0
            np.testing.assert_allclose(propensity, stated[items], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_may_be_data_of_the_program(rounds, name):
    """Two settings side by side; the second is what it is alone, as a constant."""
    world = jax.tree.map(jnp.asarray, rounds(rounds=4))
    parameters = inspect.signature(factories()[name]).parameters.values()
    floats = {p.name: p.default for p in parameters if isinstance(p.default, float)}
    assert len(floats) >= 2
    factors = np.array([0.7, 0.9])  # to another power for each number: some rules read a ratio

    def scores(*numbers):
        rule = learner(name, **dict(zip(floats, numbers, strict=True)))
        state = rule.init(world.theta)
        for t in range(4):
            slate = rule.act(state, world.queries[t], jax.random.key(t))
            choice = Choice(world.items[t].astype(jnp.int32), world.propensities[t])
            state = rule.update(state, world.queries[t], choice, Feedback(world.rewards[t]))
        return rule.scores(state, world.queries), slate.items

    values = [value * factors**n for n, value in enumerate(floats.values(), start=1)]
    together = quick_jit(jax.vmap(scores))(*(jnp.asarray(x, jnp.float32) for x in values))
    numbers = [float(x[1]) for x in values]
    alone = quick_jit(lambda: scores(*numbers))()
    np.testing.assert_allclose(together[0][1], alone[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(together[1][1], alone[1])
    assert np.abs(together[0][0] - together[0][1]).max() > 1e-6  # the numbers are read


@pytest.mark.parametrize("name", NAMES)
def test_an_index_learns_grows_and_goes_on_from_its_folder(name, tmp_path):
    task = jr.Task.from_arrays(DOCUMENTS, DOCUMENTS, np.arange(4))
    index = jr.Index(learner(name), task)
    late = index.search(DOCUMENTS[0])
    for document in DOCUMENTS:
        ticket = index.search(document, k=2)
        index.feedback(ticket, worked=True)
    index.add(["new"], NEW[None])
    np.testing.assert_allclose(index.state.theta[index.names.index("new")], NEW)
    assert index.learner.scores(index.state, jnp.asarray(NEW[None]))[0].argmax() == 4
    index.remove([late.ids[0]])
    index.feedback(late, worked=True)  # of a tool that has gone: nothing to learn
    index.save(tmp_path)
    again = jr.Index.load(tmp_path)
    for query in (NEW, DOCUMENTS[2]):
        here, there = index.search(query), again.search(query)
        assert here.ids == there.ids != late.ids
        index.feedback(here, worked=False)
        again.feedback(there, worked=False)
    np.testing.assert_array_equal(index.state.theta, again.state.theta)
    assert np.isfinite(index.state.theta).all()


def distracted(seed=0):
    """Three tools whose documents share with the queries a direction that does not tell them apart.

    Static retrieval follows that direction, and is right in a third of the rounds. To take it out,
    rows can turn away from it, and so can one map of all queries.
    """
    rng = np.random.default_rng(seed)
    theta = np.array([[1.0, 0, 0, 1], [0, 1, 0, -1], [0, 0, 1, 0]])
    labels, way = rng.integers(3, size=600), rng.choice([-1.6, 1.6], size=600)
    queries = np.concatenate([np.eye(3)[labels], way[:, None]], axis=1)
    queries += 0.1 * rng.normal(size=queries.shape)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (theta, queries)]
    return jr.Task.from_arrays(*unit, labels, name="distracted")


@pytest.mark.parametrize("name", NAMES)
def test_it_solves_a_problem_that_static_retrieval_does_not(name):
    task = distracted()
    static = jr.simulate(jr.frozen(), task).accuracy.mean
    run = jr.simulate(learner(name, **SOLVES[name]), task, exposures=3, seeds=2)
    late = run.curves["success"][:, -300:].mean()
    assert static < 0.45
    assert late > 0.8
