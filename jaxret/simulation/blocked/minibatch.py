"""A learner that is trained by mini-batches, in a block of rounds: a block is a batch.

Theta is constant within a batch of B rounds, so all logits are one matrix product,
``Q Theta^T / tau``, and the gradient is another, ``C^T Q / (B tau)``: the same items as the scan,
and the same Theta but for rounding. A stream that stopped within a batch continues the batch.

The functions are those of `jaxret.simulation.blocked.rank_one`.

Letters: I items, d width, B rounds per block and per batch, b rounds per tile.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner
from jaxret.learners.minibatch import Batches
from jaxret.learners.rank_one import coefficients
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked.rank_one import Rounds, Turn
from jaxret.types import Choice, Feedback, State


class Carry(NamedTuple):
    """Carry of the loop over rounds.

    Attributes:
      coefficients: c of each round of the batch so far [B, I]; within a tile [b, I].
      available: mask of the available items in the last round [I].
    """

    coefficients: Float[Array, "B I"]
    available: Bool[Array, " I"]


def batches_of(learner: Learner) -> Batches:
    """Return the structure of a learner that is trained by mini-batches."""
    assert isinstance(learner.structure, Batches)
    return learner.structure


def policy(learner: Learner) -> Policy:
    """Return the policy of the learner."""
    return batches_of(learner).policy


def begin(learner: Learner, state: State, rounds: Rounds) -> tuple[Float[Array, "B I"], Carry]:
    """Compute the logits of a block.

    Args:
      learner: trained by mini-batches.
      state: state before the block, which may hold the first rounds of the batch.
      rounds: rounds of the block, fields [B].

    Returns:
      The logits [B, I], and the carry before the first round.
    """
    logits = rounds.vectors @ state.theta.T / batches_of(learner).tau
    return logits, Carry(state.extra.coefficients, state.available)


def open(
    learner: Learner, constants: Float[Array, "B I"], carry: Carry, first: Int[Array, ""], tile: int
) -> tuple[Float[Array, "b I"], Carry]:
    """Read the logits and the coefficients of a tile.

    Args:
      learner: trained by mini-batches.
      constants: logits of the block.
      carry: carry of the block before the tile.
      first: position of the tile's first round in the block [].
      tile: b, rounds of the tile.

    Returns:
      The logits of the tile [b, I], and its carry.
    """
    del learner
    logits, own = (
        lax.dynamic_slice_in_dim(x, first, tile) for x in (constants, carry.coefficients)
    )
    return logits, carry._replace(coefficients=own)


def logits(
    learner: Learner, carry: Carry, lines: Float[Array, "b I"], turn: Turn, axis: Axis
) -> tuple[Float[Array, " I"], Float[Array, " I"]]:
    """Select the logits of a round, minus infinity where an item is absent.

    Args:
      learner: trained by mini-batches.
      carry: carry of the tile before the round.
      lines: logits of the tile.
      turn: the round.
      axis: mesh axis of the items; unused, since each device has the logits of its own rows.

    Returns:
      Logits [I], and the same for `learn`.
    """
    del learner, carry, axis
    z = over_items.masked(lines[turn.position], turn.available)
    return z, z


def learn(
    learner: Learner,
    carry: Carry,
    lines: Float[Array, "b I"],
    turn: Turn,
    computed: Float[Array, " I"],
    choice: Choice,
    feedback: Feedback,
    axis: Axis,
) -> Carry:
    """Keep the coefficients of a round.

    Args:
      learner: trained by mini-batches.
      carry: carry of the tile before the round.
      lines: logits of the tile.
      turn: the round.
      computed: second value that `logits` returned for the round.
      choice: the item that was used, and its propensity.
      feedback: the reward, which is observed; labels for an oracle alone.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      The carry of the tile after the round.
    """
    del lines
    c = coefficients(batches_of(learner).estimator, computed, choice, feedback, axis)
    c = jnp.where(turn.real, c, carry.coefficients[turn.position])
    kept = lax.dynamic_update_index_in_dim(carry.coefficients, c, turn.position, 0)
    return Carry(kept, jnp.where(turn.real, turn.available, carry.available))


def close(learner: Learner, carry: Carry, fresh: Carry, first: Int[Array, ""]) -> Carry:
    """Add the coefficients of a tile to those of the block.

    Args:
      learner: trained by mini-batches.
      carry: carry of the block before the tile.
      fresh: carry of the tile after its last round.
      first: position of the tile's first round in the block [].

    Returns:
      The carry of the block after the tile.
    """
    del learner
    whole = lax.dynamic_update_slice_in_dim(carry.coefficients, fresh.coefficients, first, 0)
    return fresh._replace(coefficients=whole)


def end(
    learner: Learner,
    state: State,
    constants: Float[Array, "B I"],
    carry: Carry,
    rounds: Rounds,
    axis: Axis,
) -> State:
    """Return the state after a block, whose rows have moved if the batch is complete.

    Args:
      learner: trained by mini-batches.
      state: state before the block.
      constants: logits of the block.
      carry: carry of the block after its last tile.
      rounds: rounds of the block, fields [B].
      axis: mesh axis of the items; unused, since each device moves its own rows.

    Returns:
      The state.
    """
    del constants, axis
    batches, real = batches_of(learner), rounds.real
    count = state.extra.count + real.sum(dtype=state.extra.count.dtype)
    extra = state.extra._replace(
        coefficients=carry.coefficients,
        queries=jnp.where(real[:, None], rounds.vectors / batches.tau, state.extra.queries),
        count=count,
    )
    t = state.t + real.sum(dtype=state.t.dtype)
    new = state._replace(t=t, available=carry.available, extra=extra)
    full = (count % batches.batch == 0) & real.any()
    new = lax.cond(full, batches.end_batch, lambda state: state, new)
    return new._replace(available=state.available)
