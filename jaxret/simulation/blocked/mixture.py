"""A mixture in a block of rounds: the kernels of its experts, side by side.

Experts share only the queries, the items shown and the rewards. A round mixes their logits
(`jaxret.learners.mixture`), and each expert then updates from the reward of the item shown as it
would alone (`jaxret.simulation.blocked.rank_one`, mapped over experts). Experts of one kind are
one program; experts that never move share one product with the documents.

Letters: I items, d width, B rounds per block, b rounds per tile, G experts, g of one kind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.mixture import (
    Blend,
    ExpertRows,
    MixtureExtra,
    confidence_of,
    expert_logits,
    expert_state,
    is_frozen,
    mixed_logits,
    update_weights,
)
from jaxret.rules.offsets import counted, of_prior
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked.rank_one import RankOneKernel, logits_from, parts
from jaxret.simulation.blocked.rounds import Kernel, Rounds, Turn
from jaxret.types import Choice, Feedback, State

Kinds = tuple[Any, ...]  # per kind, the NamedTuples of `rank_one` [g, ..]; () if frozen


class Constants(NamedTuple):
    """Constants of a block."""

    documents: Float[Array, "B I"]  # inner products of queries and documents [B, I]
    prior: Any  # prior scores [B, I]; () without them
    kinds: Kinds  # `rank_one.Constants` of each kind


class Lines(NamedTuple):
    """The lines of a tile."""

    documents: Float[Array, "b I"]  # inner products of queries and documents [b, I]
    prior: Any  # prior scores [b, I]; () without them
    kinds: Kinds  # `rank_one.Lines` of each kind


class Carry(NamedTuple):
    """Carry of the loop over rounds."""

    mixed: MixtureExtra  # `MixtureExtra` of the mixture, without rows
    kinds: Kinds  # `rank_one.Carry` of each kind
    frozen: Kinds  # extra state of the experts of each frozen kind, () for all others


@dataclass(frozen=True)
class MixtureKernel(Kernel):
    """The kernel of a mixture, whose ``theta`` holds the documents, which do not change."""

    blend: Blend

    @property
    def policy(self) -> Policy:
        """Return the policy of the mixture."""
        return self.blend.policy

    def begin(self, state: State, rounds: Rounds, axis: Axis) -> tuple[Constants, Carry]:
        """Compute the products of every expert with the queries."""

        def one(expert, rows, vectors):
            return expert.begin(expert_state(state, rows), rounds._replace(vectors=vectors), axis)

        # Copy the queries for each expert: with a shared array XLA would copy every Theta.
        sizes = [len(kind.settings) for kind in self.blend.kinds]
        vectors = [jnp.broadcast_to(rounds.vectors, (n, *rounds.vectors.shape)) for n in sizes]
        constants, carry = _of_two(self._experts(state.theta.dtype, one, state.extra.rows, vectors))
        documents = rounds.vectors @ state.theta.T
        prior = () if rounds.scores is None else rounds.scores
        frozen = tuple(
            rows.extra if is_frozen(kind) else ()
            for kind, rows in zip(self.blend.kinds, state.extra.rows, strict=True)
        )
        mixed = state.extra._replace(rows=())
        return Constants(documents, prior, constants), Carry(mixed, carry, frozen)

    def open(
        self, constants: Constants, carry: Carry, first: Int[Array, ""], tile: int
    ) -> tuple[Lines, Carry]:
        """Read the lines of a tile, of every expert and of the documents."""

        def one(expert, constants, carry):
            return expert.open(constants, carry, first, tile)

        lines, fresh = _of_two(self._experts(_dtype(carry), one, constants.kinds, carry.kinds))
        documents, prior = jax.tree.map(
            lambda x: lax.dynamic_slice_in_dim(x, first, tile),
            (constants.documents, constants.prior),
        )
        return Lines(documents, prior, lines), carry._replace(kinds=fresh)

    def logits(
        self, carry: Carry, lines: Lines, turn: Turn, axis: Axis
    ) -> tuple[Float[Array, " I"], Any]:
        """Compute the logarithms of the mixed probabilities."""

        def one(expert, carry, lines):
            return expert.logits(carry, lines, turn, axis)

        experts = self._experts(_dtype(carry), one, carry.kinds, lines.kinds)
        of_experts, computed = _of_two(experts)
        plain, scores = jax.tree.map(itemgetter(turn.position), (lines.documents, lines.prior))

        def of_documents(kind, extra):
            def one(numbers, extra):
                rule, _ = parts(kind.family(*numbers))
                reads = rule.offsets is not None and rule.reads_prior
                added = of_prior(rule.offsets, scores, rule.tau) if reads else ()
                return logits_from(rule, plain, added, rule.unpack(extra)[2], turn.available)

            return jax.vmap(one)(jnp.asarray(kind.settings, plain.dtype), extra)

        z = [
            of_documents(kind, extra) if is_frozen(kind) else z
            for kind, z, extra in zip(self.blend.kinds, of_experts, carry.frozen, strict=True)
        ]
        predicted = expert_logits(jnp.concatenate(z), axis)
        frozen = [z if is_frozen(kind) else () for kind, z in zip(self.blend.kinds, z, strict=True)]
        mixed = mixed_logits(carry.mixed, predicted, turn.available)
        return mixed, (predicted, computed, frozen)

    def confidence(self, carry: Carry, logits: Float[Array, " I"]) -> Float[Array, " I"]:
        """Recalibrate the mixed probabilities."""
        return confidence_of(carry.mixed, logits)

    def learn(
        self,
        carry: Carry,
        lines: Lines,
        turn: Turn,
        computed: Any,
        choice: Choice,
        feedback: Feedback,
        axis: Axis,
    ) -> Carry:
        """Update weights and calibration; every expert learns from the reward of the item shown."""
        predicted, of_experts, of_frozen = computed

        def one(expert, carry, lines, computed):
            return expert.learn(carry, lines, turn, computed, choice, feedback, axis)

        kinds = self._experts(_dtype(carry), one, carry.kinds, lines.kinds, of_experts)
        of_shown = jax.vmap(lambda z: over_items.take(z, choice.item, axis))(predicted)
        new = update_weights(self.blend, carry.mixed, of_shown, feedback.reward)
        moves = turn.real & feedback.observed

        def counted_by(kind, extra, z):
            """Count the round in the usage of the experts of a frozen kind."""

            def one(numbers, extra, z):
                rule, _ = parts(kind.family(*numbers))
                maps, memory, usage = extra
                assert rule.offsets is not None  # the expert has a usage
                return maps, memory, counted(rule.offsets, usage, z, axis)

            if not jax.tree.leaves(extra):
                return extra
            return jax.vmap(one)(jnp.asarray(kind.settings, z.dtype), extra, z)

        counts = zip(self.blend.kinds, carry.frozen, of_frozen, strict=True)
        frozen = tuple(counted_by(*one) for one in counts)
        after, before = (new, frozen), (carry.mixed, carry.frozen)
        mixed, frozen = jax.tree.map(lambda x, y: jnp.where(moves, x, y), after, before)
        return Carry(mixed, kinds, frozen)

    def close(self, carry: Carry, fresh: Carry, first: Int[Array, ""]) -> Carry:
        """Add the pending updates of a tile to those of the block, for every expert."""

        def one(expert, carry, fresh):
            return expert.close(carry, fresh, first)

        return fresh._replace(kinds=self._experts(_dtype(carry), one, carry.kinds, fresh.kinds))

    def end(
        self, state: State, constants: Constants, carry: Carry, rounds: Rounds, axis: Axis
    ) -> State:
        """Return the state after a block."""

        def one(expert, rows, constants, carry):
            new = expert.end(expert_state(state, rows), constants, carry, rounds, axis)
            return ExpertRows(theta=new.theta, extra=new.extra)

        old = state.extra.rows
        new = self._experts(state.theta.dtype, one, old, constants.kinds, carry.kinds)
        rows = tuple(
            after or before._replace(extra=extra)
            for after, before, extra in zip(new, old, carry.frozen, strict=True)
        )
        t = state.t + rounds.real.sum(dtype=state.t.dtype)
        return state._replace(t=t, extra=carry.mixed._replace(rows=rows))

    def _experts(self, dtype: Any, function: Callable, *of_kinds: Sequence[Any]) -> Kinds:
        """Map a function over the experts that move and their entries of each of ``of_kinds``."""

        def of_kind(kind, *own):
            def one(numbers, own):
                return function(RankOneKernel(*parts(kind.family(*numbers))), *own)

            return () if is_frozen(kind) else jax.vmap(one)(jnp.asarray(kind.settings, dtype), own)

        return tuple(of_kind(*one) for one in zip(self.blend.kinds, *of_kinds, strict=True))


def _of_two(pairs: Kinds) -> tuple[Kinds, Kinds]:
    """Unzip the pairs of all kinds."""
    firsts, seconds = zip(*(pair or ((), ()) for pair in pairs), strict=True)
    return firsts, seconds


def _dtype(carry: Carry) -> Any:
    return carry.mixed.log_weights.dtype
