"""The small problem on which `jaxret.testing` tries a learner, and how it is run.

Letters: I items, d width, T rounds, N queries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.learners.learner import Learner
from jaxret.runtime import sharding
from jaxret.types import Catalogue, PRNGKey, Stream


class Case(NamedTuple):
    """Everything happens here: noise, a reranker, tools that come, go, return or never are."""

    learner: Learner
    state: tuple
    environment: Environment
    stream: Stream
    key: PRNGKey


def make_case(learner: Learner, items: int, width: int, rounds: int, key: PRNGKey) -> Case:
    """One of I items (filled up to a multiple of 8), d numbers a row and T rounds.

    In the precision of the moment: made anew under `jax.enable_x64`, it is in float64.

    Returns:
      The case, its state started and its stream on the host.
    """
    # NumPy draws, and the rest is one program: what JAX computes for itself it compiles for itself.
    rng, n = np.random.default_rng(np.asarray(jax.random.key_data(key))), 16
    theta, queries = _unit_rows(rng, items, width), _unit_rows(rng, n, width)

    def start(theta):
        catalogue = Catalogue(theta=theta, available=jnp.arange(items) % 6 != 5)
        return learner.init(*sharding.padded(catalogue, 8))

    dtype = jnp.result_type(float)
    state = quick_jit(start)(theta.astype(dtype))
    ids = np.arange(len(state.theta))
    arrives = np.select([ids % 6 == 1, ids % 6 == 2], [rounds // 2, 3 * rounds // 4], 0)
    leaves = np.select([ids % 6 == 3, ids % 6 == 2], [rounds // 2, rounds // 4], rounds)
    label = 5 * np.arange(n) % items
    second = np.where(label % 2 == 0, (label + 1) % items, -1)
    stream = Stream(
        queries=jnp.asarray(queries, dtype),
        labels=jnp.asarray(np.stack([label, second], axis=1), jnp.int32),
        order=jnp.asarray(7 * np.arange(rounds) % n, jnp.int32),
    )
    return Case(
        learner=learner,
        state=state,
        environment=Environment(
            noise_rate=0.1,
            reranker=simulated_reranker(accuracy=0.8),
            arrives=jnp.asarray(arrives),
            leaves=jnp.asarray(leaves),
        ),
        stream=jax.device_get(stream),  # a row of it is taken without a program
        key=jax.random.clone(key),  # once in each precision
    )


def _unit_rows(rng, n, width):
    rows = rng.normal(size=(n, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def quick_jit(fn):
    """Compiling is what a check costs; on CPU half of it is optimisation."""
    cpu = jax.default_backend() == "cpu"
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0} if cpu else None)


def run(case: Case, form, state, order, seed):
    """One seed of a case, from a state, by a form of simulation: final state and trace."""
    stream = jax.tree.map(jnp.asarray, case.stream._replace(order=order))
    key = jax.random.fold_in(case.key, seed)
    return form(case.learner, state, case.environment, stream, key)
