"""Small random retrieval problems that many tests share."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.environments.interventions import Delay
from jaxret.simulation import streams
from jaxret.testing import quick_jit
from jaxret.types import Catalogue, Stream


def unit(rows):
    """Scale rows to length 1."""
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def make_problem(items=40, width=8, queries=20, times=5, labels=2, seed=0):
    """Make a catalogue and a stream of random unit vectors; every second query has all labels.

    Call this function inside `jax.enable_x64` where float64 is wanted.
    """
    rng = np.random.default_rng(seed)
    theta, query = rng.normal(size=(items, width)), rng.normal(size=(queries, width))
    table = np.stack([rng.permutation(items)[:labels] for _ in range(queries)])
    table[::2, 1:] = -1
    catalogue = Catalogue(
        theta=jnp.asarray(theta / np.linalg.norm(theta, axis=1, keepdims=True)),
        available=jnp.asarray(rng.random(items) < 0.9),
    )
    stream = Stream(
        queries=jnp.asarray(query / np.linalg.norm(query, axis=1, keepdims=True)),
        labels=jnp.asarray(table, jnp.int32),
        order=jnp.asarray(streams.exposures(queries, times, seed)),
    )
    return catalogue, stream


def make_task(items=12, width=8, queries=60, seed=0, **options) -> jr.Task:
    """Make a task whose queries differ in direction from the documents of their tools.

    A query lies near its tool, and near a direction that all queries of the tool share.
    """
    rng = np.random.default_rng(seed)
    theta, habit = unit(rng.normal(size=(2, items, width)))
    labels = rng.integers(items, size=queries)
    noise = rng.normal(size=(queries, width)) / width**0.5
    vectors = unit(0.5 * theta[labels] + 0.6 * habit[labels] + 0.2 * noise)
    options = {"ids": [f"tool_{i}" for i in range(items)], "name": "small"} | options
    return jr.Task.from_arrays(theta, vectors, labels, **options)


def coming_and_going(items=40, **effects) -> Environment:
    """Let a quarter of the tools come in round 30, a quarter go in round 50, the rest in 100."""
    ids = np.arange(items)
    arrives, leaves = np.where(ids % 4 == 1, 30, 0), np.where(ids % 4 == 2, 50, 100)
    return Environment(arrives=jnp.asarray(arrives), leaves=jnp.asarray(leaves), **effects)


def fixed_delay(rounds) -> Delay:
    """Delay each answer by the same number of rounds."""
    return Delay(jnp.asarray(np.arange(rounds + 1) == rounds, jnp.float32))


def same(got, expected, tolerance=0.0):
    """Compare two trees of arrays: exactly, or up to a relative and absolute tolerance."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def enumerated_inclusion(p, k):
    """Compute P(item among the first k) for sequential sampling without replacement."""
    chance = np.zeros(len(p))
    for drawn in itertools.permutations(range(len(p)), k):
        left, together = 1.0, 1.0
        for item in drawn:
            together *= p[item] / left if p[item] > 0 else 0.0
            left -= p[item]
        chance[list(drawn)] += together
    return chance


def check_shown(rule, state, query, exact, draws=20_000):
    """Compare probabilities, propensities and frequencies of the tools shown with exact ones."""

    @quick_jit
    def computed(state, query, key):
        slates = jax.vmap(rule.act, (None, None, 0))(state, query, jax.random.split(key, draws))
        return rule.probabilities(state, query), slates

    probabilities, slates = jax.device_get(computed(state, query, jax.random.key(7)))
    np.testing.assert_allclose(probabilities, exact, atol=1e-6)
    items = slates.items[:, 0]
    np.testing.assert_allclose(slates.propensity[:, 0], exact[items], rtol=1e-5)
    often = np.bincount(items, minlength=len(exact)) / draws
    assert (np.abs(often - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / draws) + 1e-9).all()


def slope(loss, at, step=1e-6):
    """Differentiate a function of an array by central differences."""
    found, way = np.zeros_like(at), np.zeros_like(at)
    for place in np.ndindex(at.shape):
        way[place] = step
        found[place] = (loss(at + way) - loss(at - way)) / (2 * step)
        way[place] = 0
    return found


def make_hub(n: int, *, length: float = 1.0, noise: float = 0.2, right: float = 1.0) -> jr.Task:
    """Make a task in which one tool is near every query, and a prior knows some right tools.

    Args:
      n: queries.
      length: length of the queries; short ones have near ties, which usage decides.
      noise: largest prior score of any tool.
      right: prior score of the right tool of every second query.
    """
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(12, 8))
    theta[0] = theta.mean(axis=0) * 5
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(1, 12, n)
    queries = theta[labels] + 0.9 * theta[0] + 0.25 * rng.normal(size=(n, 8))
    queries *= length / np.linalg.norm(queries, axis=1, keepdims=True)
    prior = noise * rng.random((n, 12))
    prior[np.arange(0, n, 2), labels[::2]] = right
    return jr.Task.from_arrays(theta, queries, labels, prior=prior)
