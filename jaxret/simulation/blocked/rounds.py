"""The rounds of one block: queries, items shown, feedback.

A round accesses the learner only through its kernel (`jaxret.simulation.blocked.kernel`). The
kernel of a rank-one learner is `jaxret.simulation.blocked.rank_one`, that of a mixture
`jaxret.simulation.blocked.mixture`, that of mini-batches `jaxret.simulation.blocked.minibatch`.

Letters: I items, d width, B rounds per block, b rounds per tile.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from jaxret.environments.environment import (
    Environment,
    available_at,
    labels_at,
    queries_at,
    respond,
)
from jaxret.learners.learner import Learner
from jaxret.learners.minibatch import Batches
from jaxret.learners.mixture import Blend
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked.kernel import Kernel, Rounds, Turn
from jaxret.simulation.blocked.minibatch import BatchKernel
from jaxret.simulation.blocked.mixture import MixtureKernel
from jaxret.simulation.blocked.rank_one import RankOneKernel, parts
from jaxret.simulation.scan import round_keys
from jaxret.simulation.trace import measure, reported
from jaxret.types import PRNGKey, State, Stream, Trace


def run_block(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    order: Int[Array, " B"],
    tile: int,
    axis: Axis,
) -> tuple[State, Trace]:
    """Simulate one block.

    Args:
      learner: learner with a blocked form.
      state: state before the block; ``state.t`` is its first round.
      environment: environment of the rounds.
      stream: queries and their labels.
      key: random key of the whole run.
      order: positions of the queries [B], -1 for padding.
      tile: b, rounds between two reads of the pending updates; divides B.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      The state after the block, and its trace [B].
    """
    kernel, oracle = _kernel(learner), learner.facts.oracle
    rounds = _rounds(state, environment, stream, key, order)
    constants, carry = kernel.begin(state, rounds)

    def run_tile(carry, xs):
        first, now = xs
        lines, fresh = kernel.open(constants, carry, first, tile)
        play = partial(_play, kernel, oracle, environment, state.available, axis, lines)
        fresh, (logits, choice, reward, success) = lax.scan(play, fresh, (jnp.arange(tile), now))
        info = jax.vmap(lambda z, labels: measure(z, labels, axis))(logits, now.labels)
        trace = Trace(**choice._asdict(), reward=reward, success=success, **info._asdict())
        return kernel.close(carry, fresh, first), trace

    tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), rounds)
    starts = jnp.arange(0, len(order), tile)
    carry, trace = lax.scan(run_tile, carry, (starts, tiles))
    state = kernel.end(state, constants, carry, rounds, axis)
    return state, jax.tree.map(lambda x: x.reshape(-1), trace)


def _play(
    kernel: Kernel,
    oracle: bool,
    environment: Environment,
    available: Bool[Array, " I"],
    axis: Axis,
    lines: Any,
    carry: Any,
    xs: tuple,
) -> tuple[Any, tuple]:
    """Simulate one round with the carry of its tile."""
    position, now = xs
    act_key, respond_key = now.keys
    turn = Turn(position, now.t, now.real, available_at(environment, now.t, available))
    logits, computed = kernel.logits(carry, lines, turn, axis)
    slate = kernel.policy.show(act_key, logits, axis)
    choice, feedback, success = respond(environment, respond_key, slate, now.labels, now.query)
    seen = feedback._replace(labels=now.labels) if oracle else feedback
    carry = kernel.learn(carry, lines, turn, computed, choice, seen, axis)
    return carry, (logits, choice, reported(feedback), success)


def _rounds(
    state: State, environment: Environment, stream: Stream, key: PRNGKey, order: Int[Array, " B"]
) -> Rounds:
    """Gather the inputs of a block's rounds."""
    real, query = order >= 0, jnp.maximum(order, 0)
    t = state.t + jnp.cumsum(real, dtype=state.t.dtype) - real
    labels = jax.vmap(partial(labels_at, environment))(t, query, stream.labels[query])
    vectors = jax.vmap(partial(queries_at, environment))(t, query, stream.queries[query])
    return Rounds(t, query, vectors, labels, round_keys(key, t), real)


def _kernel(learner: Learner) -> Kernel:
    structure = learner.structure
    if isinstance(structure, Batches):
        return BatchKernel(structure)
    return (
        MixtureKernel(structure) if isinstance(structure, Blend) else RankOneKernel(*parts(learner))
    )
