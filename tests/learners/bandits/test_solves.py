"""A problem that static retrieval does not solve, and each of the field's learners does."""

import numpy as np
import pytest

import jaxret as jr
from jaxret.learners import bandits
from jaxret.learners.names import REGISTRY

# Settings for the three tools of `distracted`.
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


def distracted(seed=0):
    """Three tools whose documents and queries share a direction that says nothing of what is right.

    Static retrieval goes by it, and is right in a third of the rounds. To take it out, rows can
    turn away from it, and so can one map of all queries.
    """
    rng = np.random.default_rng(seed)
    theta = np.array([[1.0, 0, 0, 1], [0, 1, 0, -1], [0, 0, 1, 0]])
    labels, way = rng.integers(3, size=600), rng.choice([-1.6, 1.6], size=600)
    queries = np.concatenate([np.eye(3)[labels], way[:, None]], axis=1)
    queries += 0.1 * rng.normal(size=queries.shape)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (theta, queries)]
    return jr.Task.from_arrays(*unit, labels, name="distracted")


@pytest.mark.parametrize("name", bandits.__all__)
def test_it_solves_a_problem_that_static_retrieval_does_not(name):
    task = distracted()
    static = jr.simulate(jr.frozen(), task).accuracy.mean
    run = jr.simulate(REGISTRY[name](**SOLVES[name]), task, exposures=3, seeds=2)
    late = run.curves["success"][:, -300:].mean()
    assert static < 0.45
    assert late > 0.8
