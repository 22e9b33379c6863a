"""A learner that is trained by mini-batches, in a block of rounds: a block is a batch.

Theta is constant within a batch of B rounds, so all logits are one matrix product,
``Q Theta^T / tau``, and the gradient is another, ``C^T Q / (B tau)``: the same items as the scan,
and the same Theta but for rounding. A stream that stopped within a batch continues the batch.

Letters: I items, d width, B rounds per block and per batch, b rounds per tile.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.minibatch import Batches
from jaxret.learners.rank_one import coefficients
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked.rounds import Kernel, Rounds, Turn
from jaxret.types import Choice, Feedback, State


class Carry(NamedTuple):
    """Carry of the loop over rounds.

    Attributes:
      coefficients: c of each round of the batch so far [B, I]; within a tile [b, I].
      available: mask of the available items in the last round [I].
    """

    coefficients: Float[Array, "B I"]
    available: Bool[Array, " I"]


@dataclass(frozen=True)
class BatchKernel(Kernel):
    """The kernel of a learner that is trained by mini-batches."""

    batches: Batches

    @property
    def policy(self) -> Policy:
        """Return the policy of the learner."""
        return self.batches.policy

    def begin(self, state: State, rounds: Rounds, axis: Axis) -> tuple[Float[Array, "B I"], Carry]:
        """Compute the logits of a block, which may begin within a batch.

        Returns:
          The logits [B, I], and the carry before the first round.
        """
        del axis
        logits = rounds.vectors @ state.theta.T / self.batches.tau
        return logits, Carry(state.extra.coefficients, state.available)

    def open(
        self, constants: Float[Array, "B I"], carry: Carry, first: Int[Array, ""], tile: int
    ) -> tuple[Float[Array, "b I"], Carry]:
        """Read the logits and the coefficients of a tile.

        Returns:
          The logits of the tile [b, I], and its carry.
        """
        both = (constants, carry.coefficients)
        logits, own = (lax.dynamic_slice_in_dim(x, first, tile) for x in both)
        return logits, carry._replace(coefficients=own)

    def logits(
        self, carry: Carry, lines: Float[Array, "b I"], turn: Turn, axis: Axis
    ) -> tuple[Float[Array, " I"], Float[Array, " I"]]:
        """Select the logits of a round."""
        del carry, axis
        z = over_items.masked(lines[turn.position], turn.available)
        return z, z

    def learn(
        self,
        carry: Carry,
        lines: Float[Array, "b I"],
        turn: Turn,
        computed: Float[Array, " I"],
        choice: Choice,
        feedback: Feedback,
        axis: Axis,
    ) -> Carry:
        """Keep the coefficients of a round."""
        del lines
        c = coefficients(self.batches.estimator, computed, choice, feedback, axis)
        c = jnp.where(turn.real, c, carry.coefficients[turn.position])
        kept = lax.dynamic_update_index_in_dim(carry.coefficients, c, turn.position, 0)
        return Carry(kept, jnp.where(turn.real, turn.available, carry.available))

    def close(self, carry: Carry, fresh: Carry, first: Int[Array, ""]) -> Carry:
        """Add the coefficients of a tile to those of the block."""
        whole = lax.dynamic_update_slice_in_dim(carry.coefficients, fresh.coefficients, first, 0)
        return fresh._replace(coefficients=whole)

    def end(
        self, state: State, constants: Float[Array, "B I"], carry: Carry, rounds: Rounds, axis: Axis
    ) -> State:
        """Return the state after a block, whose rows have moved if the batch is complete."""
        del constants, axis
        batches, real = self.batches, rounds.real
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
