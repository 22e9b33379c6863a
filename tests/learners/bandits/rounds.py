"""Twins among the bandits, small logs, and the states of a learner that learns from them."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback, State

# Bandits that share most of their code with another one: banditron, neural_linear, linucb, fastcb.
TWINS = {"gaptron", "linucb_shared", "lints", "ridge_epsilon_greedy", "squarecb"}


def slowly(cases, slow):
    """Mark some cases of a parametrised test as slow; a case is a value or a tuple of values."""
    parts = [(case if isinstance(case, tuple) else (case,), case in slow) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.slow if slow else ()) for case, slow in parts]


class Rounds(NamedTuple):
    """T rounds with I tools of width d, as NumPy arrays."""

    theta: np.ndarray  # [I, d]
    queries: np.ndarray  # [T, d]
    items: np.ndarray  # [T]
    propensities: np.ndarray  # [T]
    rewards: np.ndarray  # [T]


def make_rounds(items=5, width=6, rounds=60, seed=0) -> Rounds:
    """Sample unit vectors, and random rewards of tools that are chosen uniformly."""
    rng = np.random.default_rng(seed)
    theta, queries = rng.normal(size=(items, width)), rng.normal(size=(rounds, width))
    return Rounds(
        theta=theta / np.linalg.norm(theta, axis=1, keepdims=True),
        queries=queries / np.linalg.norm(queries, axis=1, keepdims=True),
        items=rng.integers(items, size=rounds),
        propensities=rng.uniform(0.2, 1.0, size=rounds),
        rewards=rng.integers(2, size=rounds).astype(float),
    )


def make_mabwiser_log() -> tuple[Rounds, np.ndarray]:
    """Make the log from which mabwiser 2.7.4 learned, and four contexts that it then scored.

    mabwiser is not installed; the tests contain the numbers that it computed. All of its rules are
    disjoint: for a shared regression, mabwiser received a single arm and, as contexts, the features
    of the tool shown. Its LinUCB is Algorithm 1 of Li et al. (2010) with l2_lambda in place of the
    ridge 1. The inverse of tools that were never shown is l2_lambda I instead of I / l2_lambda; in
    this log, each tool was shown at least six times.
    """
    rng = np.random.default_rng(0)
    log = Rounds(
        theta=rng.normal(size=(4, 3)),
        queries=rng.normal(size=(30, 3)),
        items=rng.integers(4, size=30),
        rewards=rng.integers(2, size=30).astype(float),
        propensities=np.full(30, np.nan),  # these rules do not read propensities
    )
    return log, rng.normal(size=(4, 3))


def compute(fn, *args):
    """Compile and call a function in float64, with NumPy results."""
    with jax.enable_x64(True):
        return jax.device_get(quick_jit(fn)(*args))


def taught(learner, rounds: Rounds) -> list[State]:
    """Return the states [T + 1] before the first round and after each, in float64."""
    with jax.enable_x64(True):
        update = quick_jit(learner.update)
        states = [quick_jit(learner.init)(rounds.theta)]
        for query, item, propensity, reward in zip(*rounds[1:], strict=True):
            choice, feedback = Choice(np.int32(item), propensity), Feedback(reward)
            states.append(update(states[-1], query, choice, feedback))
        return jax.device_get(states)
