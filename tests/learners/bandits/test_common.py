"""Tests that every bandit must pass: contract, start, settings, index and a small problem."""

import inspect
import re
from functools import cache

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners import bandits
from jaxret.learners.registry import factories
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback
from tests.learners.bandits.rounds import TWINS, make_rounds
from tests.slow import slowly

NAMES = bandits.__all__
DOCUMENTS, NEW = np.eye(4, 6, dtype=np.float32), np.eye(6, dtype=np.float32)[4]
# Settings with which each bandit solves the three tools of `distracted`.
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
REFUSED = [  # a value just outside the range, or at its open end
    ("alpha", -1.0, ">= 0", ["lints", "linucb", "linucb_shared", "logistic_ucb"]),
    ("capacity", 0, ">= 1", ["linucb"]),
    ("epsilon", 1.5, "in [0, 1]", ["banditron", "ridge_epsilon_greedy"]),
    ("eta", -0.1, ">= 0", ["fastcb", "squarecb", "success_prior"]),
    ("failures", 0.0, "> 0", ["success_prior"]),
    ("gamma", 0.0, "> 0", ["fastcb", "squarecb"]),
    ("gamma", 0.0, "in (0, 1]", ["gaptron", "soba"]),
    ("gamma", 1.5, "in (0, 1]", ["gaptron"]),
    ("heads", 0, ">= 1", ["bootstrapped"]),
    ("rate", 0.0, "> 0", ["neural_linear"]),
    ("ridge", 0.0, "> 0", ["linucb", "linucb_shared", "logistic_ucb", "neural_linear", "soba"]),
    ("scale", 0.0, "> 0", ["linucb"]),
    ("shape", 1.0, "> 1", ["neural_linear"]),
    ("start", "warm", "'document', 'zero' or 'hybrid'", NAMES),
    ("successes", 0.0, "> 0", ["success_prior"]),
    ("tau", 0.0, "> 0", ["fastcb", "logistic_ucb", "soba", "success_prior"]),
]


def learner(name, **settings):
    return factories()[name](**settings)


# Words and usage reach every rule in one way; one with further rows is checked quickly.
CONTRACTS = [
    (name, start) for name in NAMES if name not in TWINS for start in ("document", "hybrid", "zero")
]
CONTRACTS += [(name, "hybrid") for name in sorted(TWINS)]
QUICK = {(name, "hybrid" if name == "bootstrapped" else "document") for name in NAMES}


@pytest.mark.parametrize(("name", "start"), slowly(CONTRACTS, {*CONTRACTS} - QUICK))
def test_every_bandit_satisfies_the_contract(name, start):
    check_learner(learner(name, start=start))


@pytest.mark.parametrize(("setting", "value", "allowed", "names"), REFUSED)
def test_a_setting_outside_its_range_is_refused(setting, value, allowed, names):
    message = re.escape(f"{setting} must be {allowed}, got {value}")
    for name in names:
        with pytest.raises(ValueError, match=f"^{message}$"):
            learner(name, **{setting: value})


WORLD, AVAILABLE = make_rounds(items=30, width=8, rounds=4), np.arange(30) != 7


def simulated(name, *numbers):
    """Return the scores before and after four rounds, and the items that `act` chose.

    The numbers replace the default values of the bandit's float settings.
    """
    rule = learner(name, **dict(zip(defaults(name), numbers, strict=True)))
    start = rule.init(WORLD.theta.astype(np.float32), AVAILABLE)
    queries = jax.numpy.asarray(WORLD.queries, np.float32)

    def one(state, log):
        key, query, item, propensity, reward = log
        slate = rule.act(state, query, key)
        state = rule.update(state, query, Choice(item, propensity), Feedback(reward))
        return state, slate.items[0]

    keys = jax.vmap(jax.random.key)(np.arange(4))
    items, rest = WORLD.items.astype(np.int32), (WORLD.propensities, WORLD.rewards)
    log = keys, queries, items, *(x.astype(np.float32) for x in rest)
    state, shown = jax.lax.scan(one, start, log)
    return rule.scores(start, queries), rule.scores(state, queries), shown


@cache
def defaults(name):
    """Return the names of a bandit's float settings with their default values."""
    parameters = inspect.signature(factories()[name]).parameters.values()
    return {p.name: p.default for p in parameters if isinstance(p.default, float)}


def settings(name):
    """Scale each default value by powers of its own, so that ratios of settings differ, too.

    Returns:
      two values for each float setting.
    """
    factors = np.array([0.7, 0.9])
    return [value * factors**n for n, value in enumerate(defaults(name).values(), start=1)]


@cache
def simulated_alone(name):
    """Simulate the second setting, whose numbers are constants of the program.

    Also return the scores of a bandit that starts from zero.
    """

    def run():
        zero, theta, queries = learner(name, start="zero"), WORLD.theta, WORLD.queries
        state = zero.init(theta.astype(np.float32))
        numbers = (x[1].item() for x in settings(name))
        return simulated(name, *numbers), zero.scores(state, queries.astype(np.float32))

    return jax.device_get(quick_jit(run)())


@pytest.mark.parametrize("name", NAMES)
def test_without_data_it_ranks_as_static_retrieval_does(name):
    (scores, *_), from_zero = simulated_alone(name)
    expected = np.where(AVAILABLE, WORLD.queries @ WORLD.theta.T, -np.inf)
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(-expected))
    np.testing.assert_array_equal(np.isneginf(scores), np.isneginf(expected))
    np.testing.assert_array_equal(from_zero, np.full_like(from_zero, from_zero[0, 0]))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_may_be_an_argument_of_the_program(name):
    """Simulate two settings with one program; the second equals a run with constants."""
    numbers = np.float32(settings(name))
    assert len(numbers) >= 2
    run = quick_jit(lambda *numbers: simulated(name, *numbers))
    (_, other, _), (_, scores, items) = (jax.device_get(run(*one)) for one in numbers.T)
    (_, expected, shown), _ = simulated_alone(name)
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(items, shown)
    moved = scores[:, AVAILABLE] - other[:, AVAILABLE]
    assert np.abs(moved).max() > 1e-6  # the numbers take effect


ONE_OF_A_KIND = {"bootstrapped", "linucb", "neural_linear", "success_prior"}


@pytest.mark.parametrize("name", slowly(NAMES, {*NAMES} - ONE_OF_A_KIND))
def test_an_index_learns_grows_and_is_restored_from_its_folder(name, tmp_path):
    task = jr.Task.from_arrays(DOCUMENTS, DOCUMENTS, np.arange(4))
    index = jr.Index(learner(name), task)
    late = index.search(DOCUMENTS[0])
    for document in DOCUMENTS:
        ticket = index.search(document, k=2)
        index.feedback(ticket, worked=True)
    index.add(["new"], NEW[None])
    np.testing.assert_allclose(index.state.theta[index.names.index("new")], NEW)
    index.remove([late.ids[0]])
    before = index.state
    index.feedback(late, worked=True)  # feedback on a removed tool changes nothing
    jax.tree.map(np.testing.assert_array_equal, index.state, before._replace(t=before.t + 1))
    best = index.search(NEW, k=2)
    assert np.argmax(best.scores) == best.ids.index("new")
    index.feedback(best, worked=False)
    assert np.isfinite(index.state.theta).all()
    index.save(tmp_path)
    again = jr.Index.load(tmp_path)
    assert again.learner.facts.origin == index.learner.facts.origin is not None
    jax.tree.map(np.testing.assert_array_equal, again.state, index.state)
    search = index.search(DOCUMENTS[2]), again.search(DOCUMENTS[2])
    assert search[0].ids == search[1].ids != late.ids


@cache
def distracted():
    """Make three tools whose documents share an uninformative direction with the queries.

    Static retrieval follows that direction, and is right in a third of the rounds. Rows can turn
    away from it, and a map of the queries can remove it.
    """
    rng = np.random.default_rng(0)
    theta = np.array([[1.0, 0, 0, 1], [0, 1, 0, -1], [0, 0, 1, 0]])
    labels, way = rng.integers(3, size=600), rng.choice([-1.6, 1.6], size=600)
    queries = np.concatenate([np.eye(3)[labels], way[:, None]], axis=1)
    queries += 0.1 * rng.normal(size=queries.shape)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (theta, queries)]
    return jr.Task.from_arrays(*unit, labels, name="distracted")


def test_static_retrieval_does_not_solve_the_problem():
    assert jr.simulate(jr.frozen(), distracted()).accuracy.mean < 0.45


@pytest.mark.parametrize("name", slowly(NAMES, TWINS))
def test_every_bandit_solves_a_problem_that_static_retrieval_does_not(name):
    run = jr.simulate(learner(name, **SOLVES[name]), distracted(), exposures=3, seeds=2)
    assert run.curves["success"][:, -300:].mean() > 0.8
