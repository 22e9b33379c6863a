"""A mixture in a block of rounds: the kernels of its experts, side by side.

Experts share only the queries, the items shown and the rewards. A round mixes their logits
(`jaxret.learners.mixture`), and each expert then updates from the reward of the item shown as it
would alone (`jaxret.simulation.blocked.rank_one`, mapped over experts). Experts of one kind are
one program; experts that never move share one product with the documents.

Letters: I items, d width, B rounds per block, b rounds per tile, G experts, g of one kind.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Learner
from jaxret.learners.mixture import (
    Blend,
    ExpertRows,
    MixtureExtra,
    expert_logits,
    expert_state,
    is_frozen,
    mixed_logits,
    update_weights,
)
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked import rank_one
from jaxret.simulation.blocked.rank_one import Rounds, Turn
from jaxret.types import Choice, Feedback, State

Kinds = tuple[Any, ...]  # per kind, the NamedTuples of `rank_one` [g, ..]; () if frozen


class Constants(NamedTuple):
    """Constants of a block."""

    documents: Float[Array, "B I"]  # inner products of queries and documents [B, I]
    kinds: Kinds  # `rank_one.Constants` of each kind


class Lines(NamedTuple):
    """The lines of a tile."""

    documents: Float[Array, "b I"]  # inner products of queries and documents [b, I]
    kinds: Kinds  # `rank_one.Lines` of each kind


class Carry(NamedTuple):
    """Carry of the loop over rounds."""

    mixed: MixtureExtra  # `MixtureExtra` of the mixture, without rows
    kinds: Kinds  # `rank_one.Carry` of each kind


def policy(learner: Learner) -> Policy:
    """Return the policy of the mixture."""
    return _blend(learner).policy


def begin(learner: Learner, state: State, rounds: Rounds) -> tuple[Constants, Carry]:
    """Compute the products of every expert with the queries.

    Args:
      learner: the mixture.
      state: before the block; ``theta`` holds the documents, ``extra`` the rows of the experts.
      rounds: rounds of the block, fields [B].

    Returns:
      The constants of the block, and the carry before its first round.
    """

    def one(expert, rows, vectors):
        return rank_one.begin(expert, expert_state(state, rows), rounds._replace(vectors=vectors))

    # Copy the queries for each expert: with a shared array XLA would copy every Theta.
    sizes = [len(kind.settings) for kind in _blend(learner).kinds]
    vectors = [jnp.broadcast_to(rounds.vectors, (size, *rounds.vectors.shape)) for size in sizes]
    constants, carry = _of_two(_experts(learner, state.theta.dtype, one, state.extra.rows, vectors))
    documents = rounds.vectors @ state.theta.T
    return Constants(documents, constants), Carry(state.extra._replace(rows=()), carry)


def open(
    learner: Learner, constants: Constants, carry: Carry, first: Int[Array, ""], tile: int
) -> tuple[Lines, Carry]:
    """Read the lines of a tile, of every expert and of the documents.

    Args:
      learner: the mixture.
      constants: constants of the block.
      carry: carry of the block before the tile.
      first: position of the tile's first round in the block [].
      tile: b, rounds of the tile.

    Returns:
      The lines of the tile, and its carry, with no pending updates.
    """

    def one(expert, constants, carry):
        return rank_one.open(expert, constants, carry, first, tile)

    lines, fresh = _of_two(_experts(learner, _dtype(carry), one, constants.kinds, carry.kinds))
    documents = lax.dynamic_slice_in_dim(constants.documents, first, tile)
    return Lines(documents, lines), carry._replace(kinds=fresh)


def logits(
    learner: Learner, carry: Carry, lines: Lines, turn: Turn, axis: Axis
) -> tuple[Float[Array, " I"], Any]:
    """Compute the logarithms of the mixed probabilities.

    Args:
      learner: the mixture.
      carry: carry of the tile before the round.
      lines: lines of the tile.
      turn: the round.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      Logits [I], and each expert's intermediate values for `learn`.
    """

    def one(expert, carry, lines):
        return rank_one.logits(expert, carry, lines, turn, axis)

    of_experts, computed = _of_two(_experts(learner, _dtype(carry), one, carry.kinds, lines.kinds))
    plain = lines.documents[turn.position]

    def of_documents(kind):
        taus = [rank_one.parts(kind.learner(g))[0].tau for g in range(len(kind.settings))]
        return jnp.stack([over_items.masked(plain / tau, turn.available) for tau in taus])

    kinds = _blend(learner).kinds
    pairs = zip(kinds, of_experts, strict=True)
    z = [of_documents(kind) if is_frozen(kind) else z for kind, z in pairs]
    predicted = expert_logits(jnp.concatenate(z), axis)
    return mixed_logits(carry.mixed, predicted, turn.available), (predicted, computed)


def learn(
    learner: Learner,
    carry: Carry,
    lines: Lines,
    turn: Turn,
    computed: Any,
    choice: Choice,
    feedback: Feedback,
    axis: Axis,
) -> Carry:
    """Update weights and calibration; every expert learns from the reward of the item shown.

    Args:
      learner: the mixture.
      carry: carry of the tile before the round.
      lines: lines of the tile.
      turn: the round.
      computed: second value that `logits` returned for the round.
      choice: the item that was used, and its propensity under the mixture.
      feedback: the reward, and whether it was observed.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      The carry of the tile after the round; unchanged without feedback.
    """
    predicted, of_experts = computed

    def one(expert, carry, lines, computed):
        return rank_one.learn(expert, carry, lines, turn, computed, choice, feedback, axis)

    kinds = _experts(learner, _dtype(carry), one, carry.kinds, lines.kinds, of_experts)
    of_shown = jax.vmap(lambda z: over_items.take(z, choice.item, axis))(predicted)
    new = update_weights(_blend(learner), carry.mixed, of_shown, feedback.reward)
    moves = turn.real & feedback.observed
    mixed = jax.tree.map(lambda new, old: jnp.where(moves, new, old), new, carry.mixed)
    return Carry(mixed, kinds)


def close(learner: Learner, carry: Carry, fresh: Carry, first: Int[Array, ""]) -> Carry:
    """Add the pending updates of a tile to those of the block, for every expert.

    Args:
      learner: the mixture.
      carry: carry of the block before the tile.
      fresh: carry of the tile after its last round.
      first: position of the tile's first round in the block [].

    Returns:
      The carry of the block after the tile.
    """

    def one(expert, carry, fresh):
        return rank_one.close(expert, carry, fresh, first)

    kinds = _experts(learner, _dtype(carry), one, carry.kinds, fresh.kinds)
    return fresh._replace(kinds=kinds)


def end(
    learner: Learner, state: State, constants: Constants, carry: Carry, rounds: Rounds, axis: Axis
) -> State:
    """Return the state after a block; ``theta`` holds the documents and do not change.

    Args:
      learner: the mixture.
      state: state before the block.
      constants: constants of the block.
      carry: carry of the block after its last tile.
      rounds: rounds of the block, fields [B].
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      the state, with the weights, calibration and rows of the experts and ``t`` after the block.
    """

    def one(expert, rows, constants, carry):
        new = rank_one.end(expert, expert_state(state, rows), constants, carry, rounds, axis)
        return ExpertRows(theta=new.theta, extra=new.extra)

    old = state.extra.rows
    new = _experts(learner, state.theta.dtype, one, old, constants.kinds, carry.kinds)
    rows = tuple(after or before for after, before in zip(new, old, strict=True))
    t = state.t + rounds.real.sum(dtype=state.t.dtype)
    return state._replace(t=t, extra=carry.mixed._replace(rows=rows))


def _experts(learner: Learner, dtype: Any, function: Callable, *of_kinds: Sequence[Any]) -> Kinds:
    """Map a function over the experts that move and their entries of each of ``of_kinds``."""

    def of_kind(kind, *own):
        def one(numbers, own):
            return function(kind.family(*numbers), *own)

        return () if is_frozen(kind) else jax.vmap(one)(jnp.asarray(kind.settings, dtype), own)

    return tuple(of_kind(*one) for one in zip(_blend(learner).kinds, *of_kinds, strict=True))


def _of_two(pairs: Kinds) -> tuple[Kinds, Kinds]:
    """Unzip the pairs of all kinds."""
    firsts, seconds = zip(*(pair or ((), ()) for pair in pairs), strict=True)
    return firsts, seconds


def _dtype(carry: Carry) -> Any:
    return carry.mixed.log_weights.dtype


def _blend(learner: Learner) -> Blend:
    assert isinstance(learner.structure, Blend)
    return learner.structure
