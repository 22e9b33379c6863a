"""A toy deployment: 8 items and 40 queries in 5 dimensions, every fourth label at random."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

import jaxret as jr
from jaxret.environments.environment import Environment, always_available
from jaxret.simulation.scan import scan_rounds
from jaxret.theory.assumptions import Evidence
from jaxret.types import Stream

ITEMS, QUERIES, WIDTH, SEEDS, TIMES = 8, 40, 5, 96, 8
RADIUS = 10.0


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def near_tools(items, width, queries, noise, seed) -> jr.Task:
    """Make a task whose queries lie near the documents of their tools."""
    rng = np.random.default_rng(seed)
    theta = unit(rng.normal(size=(items, width)))
    labels = rng.integers(items, size=queries)
    vectors = unit(theta[labels] + noise * rng.normal(size=(queries, width)))
    return jr.Task.from_arrays(theta, vectors, labels, name="near")


def losses_and_steps(theta, queries, labels, tau):
    """Compute -log p of the labels [N] and p - target [N, I] in float64; -1 pads labels [N, L]."""
    z = np.float64(queries) @ np.float64(theta).T / tau
    right = (np.asarray(labels)[:, :, None] == np.arange(len(theta))).any(axis=1)
    target = right / right.sum(axis=1, keepdims=True)
    return logsumexp(z, axis=1) - (z * target).sum(axis=1), softmax(z, axis=1) - target


def stated(run, against=None):
    return {one.name: one for one in jr.bounds(run, against)}


def failing(bound):
    """Return the assumptions that fail, without their details."""
    return [a.name.split(":")[0] for a in bound.assumptions if not a.holds]


def evidence_of(run, comparator) -> Evidence:
    """Return the evidence of a run of a rank-one learner, for statements that need no rerun."""
    stream = Stream(*map(jnp.asarray, (run.task.queries, run.task.labels, run.order)))
    theta_1, u = map(jnp.asarray, (run.task.theta, comparator))
    return Evidence(run.learner.structure, theta_1, stream, run.trace, u)


class Toy:
    """Theta_1 [I, d], queries [N, d], labels [N, 1], and runs over 96 seeds of 320 rounds."""

    def __init__(self):
        rng = np.random.default_rng(3)
        hidden = unit(rng.normal(size=(ITEMS, WIDTH)))
        queries = unit(rng.normal(size=(QUERIES, WIDTH)))
        labels = (queries @ hidden.T).argmax(axis=1)
        labels[::4] = rng.integers(0, ITEMS, len(labels[::4]))
        self.theta_1 = 0.5 * unit(hidden + 0.7 * rng.normal(size=hidden.shape)).astype(np.float32)
        self.queries = queries.astype(np.float32)
        self.labels = labels[:, None].astype(np.int32)
        orders = [[rng.permutation(QUERIES) for _ in range(TIMES)] for _ in range(SEEDS)]
        self.order = np.array(orders, np.int32).reshape(SEEDS, -1)

    def run(self, learner, *, noise_rate=None, comparator=None):
        """Return the `Evidence` of a run; U is Theta_1 unless given."""
        stream = Stream(jnp.asarray(self.queries), jnp.asarray(self.labels), self.order)
        start = learner.init(jnp.asarray(self.theta_1), jnp.ones(ITEMS, bool))
        environment = Environment(noise_rate=noise_rate)

        def one(key, order):
            return scan_rounds(learner, start, environment, stream._replace(order=order), key)[1]

        trace = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), SEEDS), self.order)
        return Evidence(
            rule=learner.structure,
            theta_1=start.theta,
            stream=stream,
            trace=trace,
            comparator=start.theta if comparator is None else jnp.asarray(comparator),
            always_available=always_available(environment, self.order.shape[1], start.available),
        )


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="session")
def clean(toy) -> Evidence:
    """Run Algorithm 1 with clean rewards; its comparator is Theta_1."""
    return toy.run(jr.orag(tau=0.3, eta=0.003, projection=jr.projections.none()))


@pytest.fixture(scope="session")
def noisy(toy) -> Evidence:
    """Run Algorithm 1 with wrong rewards, in a ball that no row leaves."""
    rule = jr.orag(tau=0.3, eta=0.003, projection=jr.ball(radius=RADIUS))
    return toy.run(rule, noise_rate=0.45)
