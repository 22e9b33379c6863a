"""A rank-one learner in a block of rounds: the exact kernel of the blocked form.

A round read naively touches Theta three times (logits; read and write for the update). But
within a block of B rounds the pending updates have rank B, so

    Theta_t q_t = Theta q_t - sum_{s < t in block} e_s (q_s . q_t),      e_s = eta_s c_s / tau

needs Theta only through ``S = Q Theta^T`` and the Gram matrix ``Q Q^T``; the block ends with
``Theta <- Theta - E^T Q``. Two matrix products per block, the same items and the same Theta as
the scan but for rounding. Projections stay exact: a row's norm follows from its logit
(`jaxret.rules.projections`), so a row carries a running factor f, by which its pending updates
are divided. Inside a block, tiles of a few rounds keep the work of a round in cache.

A query map that is constant within the block (`jaxret.rules.query_maps`) replaces q_t by
u_t = A q_t and needs ``Theta_s^T e_s`` of every round at the end of the block. With P_r the pending
update of round r, and f_s the rows' factors at the start of round s,

    Theta_s       = f_s (Theta - sum_{r < s in block} P_r u_r^T)
    Theta_s^T e_s = Theta^T (f_s e_s) - sum_{r < s in block} (P_r . f_s e_s) u_r

is one more matrix product. The sum is needed because rows move while the map is constant.

Offsets (`jaxret.rules.offsets`) are added to the logits. Those of the prior are known before the
block; usage changes with every round, and is carried.

With experience replay a round ends by replaying n past rounds, which are sampled before the block
begins (`jaxret.learners.replay`). A round then has m = 1 + n lines of u, its own first, and two
phases: the replayed lines come after the round's own line, and all n at once.

`jaxret.simulation.blocked.rounds` runs the rounds and defines the interface of kernels.

Letters: I items, d width, B rounds per block, b rounds per tile, m lines per round, n of them past.
"""

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner, vector_of
from jaxret.learners.rank_one import (
    Rule,
    coefficients,
    coefficients_again,
    conditioned,
    step_length,
)
from jaxret.learners.replay import Replay, entry_of, push_block, push_reward, sample_block
from jaxret.rules.offsets import counted, dense, of_prior, of_usage, padded
from jaxret.rules.policies import Policy
from jaxret.rules.query_maps import add_change, params_at
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked.rounds import Kernel, Rounds, Turn
from jaxret.types import Choice, Feedback, Query, State

_NOTHING: Any = (None, None)
PART = 2048  # rows of Theta that are updated at a time


class Constants(NamedTuple):
    """Constants of a block."""

    params: Any  # parameters of the query map; () without one
    lines: Float[Array, "Bm d"]  # queries [Bm, d]
    u: Float[Array, "Bm d"]  # mapped queries [Bm, d]
    scores: Float[Array, "Bm I"]  # S [Bm, I]
    gram: Float[Array, "Bm Bm"]  # Gram matrix of u [Bm, Bm]
    offsets: Any  # offsets of the prior [Bm, I]; () without one
    slots: Any  # `replay.Slots`; () without experience replay


class Lines(NamedTuple):
    """The lines of a tile, or the m lines of one round.

    Attributes:
      scores: inner products with Theta as it is when the tile begins, before factors [bm, I].
      gram: inner products with all lines of the tile [bm, bm].
      u: mapped queries [bm, d].
      offsets: offsets of the prior [bm, I]; () without one.
      slots: `replay.Slots`; () without experience replay.
    """

    scores: Float[Array, "bm I"]
    gram: Float[Array, "bm bm"]
    u: Float[Array, "bm d"]
    offsets: Any
    slots: Any


class Carry(NamedTuple):
    """Carry of the loop over rounds, per row: ``theta_i = factor_i (row_i - pending)``.

    Attributes:
      pending: P, e_s / factor of each line so far [Bm, I]; within a tile [bm, I].
      factor: f [I].
      norm2: squared norms of the projected rows [I].
      memory: memory of a preconditioner by row [I]; () without one.
      usage: `jaxret.rules.offsets.Usage`; () without a balance.
      rewards: `replay.ReplayBuffer` without its queries; () without experience replay.
      map_steps: `MapSteps`; () without a query map.
    """

    pending: Float[Array, "Bm I"]
    factor: Float[Array, " I"]
    norm2: Float[Array, " I"]
    memory: Any
    usage: Any
    rewards: Any
    map_steps: Any


def parts(learner: Learner) -> tuple[Rule, Replay | None]:
    """Return the rule of a rank-one learner, and its experience replay or None."""
    structure = learner.structure
    if isinstance(structure, Replay):
        return structure.rule, structure
    assert isinstance(structure, Rule)
    return structure, None


@dataclass(frozen=True)
class RankOneKernel(Kernel):
    """The kernel of a rank-one learner, with or without experience replay."""

    rule: Rule
    replay: Replay | None = None

    @property
    def policy(self) -> Policy:
        """Return the policy of the learner."""
        return self.rule.policy

    def begin(self, state: State, rounds: Rounds, axis: Axis) -> tuple[Constants, Carry]:
        """Compute S and the Gram matrix of a block."""
        rule = self.rule
        (maps, memory, usage), past, count = self._extra(state)
        slots, rewards, lines, prior = (), (), rounds.vectors, rounds.scores
        if self.replay:
            real, queries = rounds.real, self._queries(rounds)
            slots, old = sample_block(self.replay, past.query, count, rounds.t, real, queries)
            rewards = past._replace(query=())
            lines = _with_old(lines, vector_of(old))
            if prior is not None and rule.reads_prior:
                prior = _with_old(prior, dense(old.prior, state.theta[:, 0], axis))
        params, u = (), lines
        if rule.query_map is not None:
            params = params_at(maps, state.t, rule.map_every)
            u = rule.query_map.apply(params, lines)
        scores = u @ state.theta.T
        blank, free = jnp.zeros_like(scores[0]), rule.projection.factor is None
        carry = Carry(
            pending=jnp.zeros_like(scores),
            factor=jnp.ones_like(blank),
            norm2=blank if free else jnp.sum(state.theta**2, axis=1),
            memory=memory,
            usage=usage,
            rewards=rewards,
            map_steps=no_map_steps(rule, scores),
        )
        reads = prior is not None and rule.offsets is not None and rule.reads_prior
        prior = of_prior(rule.offsets, prior, rule.tau) if reads else ()
        return Constants(params, lines, u, scores, u @ u.T, prior, slots), carry

    def open(
        self, constants: Constants, carry: Carry, first: Int[Array, ""], tile: int
    ) -> tuple[Lines, Carry]:
        """Read the lines of a tile, minus the pending updates of earlier tiles."""
        start, length = first * self._lines_a_round, tile * self._lines_a_round
        gram = lax.dynamic_slice_in_dim(constants.gram, start, length)  # [bm, Bm]
        scores = lax.dynamic_slice_in_dim(constants.scores, start, length) - gram @ carry.pending
        within = lax.dynamic_slice_in_dim(gram, start, length, axis=1)  # [bm, bm]
        u = lax.dynamic_slice_in_dim(constants.u, start, length)
        slots = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, tile), constants.slots)
        prior = jax.tree.map(
            lambda x: lax.dynamic_slice_in_dim(x, start, length), constants.offsets
        )
        map_steps = no_map_steps(self.rule, scores)
        fresh = carry._replace(pending=jnp.zeros_like(scores), map_steps=map_steps)
        return Lines(scores, within, u, prior, slots), fresh

    def logits(
        self, carry: Carry, lines: Lines, turn: Turn, axis: Axis
    ) -> tuple[Float[Array, " I"], Any]:
        """Compute the logits of a round, minus the pending updates of its own tile."""
        del axis  # each device computes the logits of its own rows
        own = self._of_round(lines, turn)
        plain = carry.factor * (own.scores[0] - own.gram[0] @ carry.pending)  # theta . u
        added = jax.tree.map(itemgetter(0), own.offsets)
        z = logits_from(self.rule, plain, added, carry.usage, turn.available)
        return z, (z, plain)

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
        """Add the steps of a round and of its replayed rounds to the pending updates."""
        rule, (z, plain), own = self.rule, computed, self._of_round(lines, turn)
        moves = turn.real if feedback.observed is True else turn.real & feedback.observed
        line = turn.position * len(own.u)
        c = coefficients(rule.estimator, z, choice, feedback, axis)
        step = step_length(rule, turn.t)
        f_e = carry.factor * jnp.where(moves, step * c, 0.0)
        carry = carry._replace(map_steps=add_map_steps(carry.map_steps, f_e[None], moves, line))
        carry, c = _conditioned(rule, carry, moves, c, own.u[0])
        e = jnp.where(moves, step * c, 0.0)
        pending = lax.dynamic_update_index_in_dim(carry.pending, e / carry.factor, line, 0)
        norm2 = carry.norm2 - 2 * e * plain + e**2 * own.gram[0, line]
        carry = _projected(rule, carry._replace(pending=pending), moves, norm2)
        if rule.offsets is not None and rule.is_balanced:
            usage = counted(rule.offsets, carry.usage, z, axis)
            usage = jax.tree.map(lambda new, old: jnp.where(moves, new, old), usage, carry.usage)
            carry = carry._replace(usage=usage)
        if self.replay:
            kept = entry_of(rule, turn.t, choice, feedback)
            rewards = push_reward(carry.rewards, own.slots.own, turn.real, *kept)
            carry = _replay(rule, carry._replace(rewards=rewards), own, turn, line + 1, axis)
        return carry

    def close(self, carry: Carry, fresh: Carry, first: Int[Array, ""]) -> Carry:
        """Add the pending updates of a tile to those of the block."""
        start = first * self._lines_a_round

        def put(whole, part):
            return lax.dynamic_update_slice_in_dim(whole, part, start, 0)

        map_steps = jax.tree.map(put, carry.map_steps, fresh.map_steps)
        return fresh._replace(pending=put(carry.pending, fresh.pending), map_steps=map_steps)

    def end(
        self, state: State, constants: Constants, carry: Carry, rounds: Rounds, axis: Axis
    ) -> State:
        """Return the state after a block."""
        rule, m = self.rule, self._lines_a_round
        (maps, _, _), past, count = self._extra(state)
        factor = None if rule.projection.factor is None else carry.factor
        f_e, moves = carry.map_steps or _NOTHING
        theta, sums = apply_pending(state.theta, carry.pending, constants.u, factor, f_e)
        if rule.query_map is not None:
            pulls = map_pulls(sums, constants.u, carry.pending, f_e, m, axis)
            change = rule.query_map.change(
                constants.params, constants.lines, pulls, moves.astype(pulls.dtype)
            )
            new = add_change(maps, state.t, rule.map_every, change)
            maps = jax.tree.map(lambda new, old: jnp.where(moves.any(), new, old), new, maps)
        extra = rule.pack(maps, carry.memory, carry.usage)
        if self.replay:
            queries = self._queries(rounds)
            extra = (extra, *push_block(past.query, carry.rewards, count, rounds.real, queries))
        t = state.t + rounds.real.sum(dtype=state.t.dtype)
        return state._replace(theta=theta, t=t, extra=extra)

    @property
    def _lines_a_round(self) -> int:
        """Return m."""
        return 1 if self.replay is None else 1 + self.replay.per_round

    def _extra(self, state: State) -> tuple[Any, Any, Any]:
        """Return (query map, memory, usage), replay buffer and count of a state."""
        own, past, count = state.extra if self.replay else (state.extra, *_NOTHING)
        return self.rule.unpack(own), past, count

    def _queries(self, rounds: Rounds) -> Any:
        """Return the queries of a block in the form in which they are replayed."""
        offsets = self.rule.offsets
        if offsets is None or not self.rule.reads_prior:
            return rounds.vectors
        prior = padded(rounds.prior, rounds.vectors.shape[:1], offsets.width)
        return Query(rounds.vectors, prior)

    def _of_round(self, lines: Lines, turn: Turn) -> Lines:
        """Select the lines of one round of a tile."""
        slots = jax.tree.map(lambda x: x[turn.position], lines.slots)
        m = self._lines_a_round
        of_lines = jax.tree.map(
            lambda x: lax.dynamic_slice_in_dim(x, turn.position * m, m), lines[:4]
        )
        return Lines(*of_lines, slots)


def logits_from(
    rule: Rule,
    plain: Float[Array, " I"],
    added: Any,
    usage: Any,
    available: Bool[Array, " I"],
) -> Float[Array, " I"]:
    """Compute logits from inner products, as `jaxret.learners.rank_one.logits_of` from rows.

    Args:
      rule: rule of the learner.
      plain: ``theta . u`` [I].
      added: offsets of the prior [I]; () without one.
      usage: `jaxret.rules.offsets.Usage`; () without a balance.
      available: mask of the available items [I].

    Returns:
      [I], minus infinity where an item is absent.
    """
    z = plain / rule.tau
    if rule.offsets is not None:
        z = z + added if rule.reads_prior else z
        z = z + of_usage(rule.offsets, usage) if rule.is_balanced else z
    return over_items.masked(z, available)


def _with_old(own: Float[Array, "B x"], old: Float[Array, "B n x"]) -> Float[Array, "Bm x"]:
    """Join the line of each round with those of the rounds that it replays."""
    return jnp.concatenate([own[:, None], old], axis=1).reshape(-1, own.shape[1])


def _replay(
    rule: Rule, carry: Carry, own: Lines, turn: Turn, line: Int[Array, ""], axis: Axis
) -> Carry:
    """Replay past rounds, all at Theta as it is after the round's own update."""
    z, gram, u = own.scores[1:], own.gram[1:], own.u[1:]
    available, factor = turn.available, carry.factor[None]
    plain = factor * (z - gram @ carry.pending)  # [n, I]
    _, item, propensity, reward = jax.tree.map(itemgetter(own.slots.sampled), carry.rewards)
    counts = over_items.take(available.astype(reward.dtype), item, axis)  # 0 for absent items

    def one(plain, added, item, propensity, reward, count):
        logits = logits_from(rule, plain, added, carry.usage, available)
        choice = Choice(item=item, propensity=propensity)
        return count * coefficients_again(rule.estimator, logits, choice, reward, axis)

    added = jax.tree.map(lambda x: x[1:], own.offsets)
    c = jax.vmap(one)(plain, added, item, propensity, reward, counts)
    step = step_length(rule, turn.t + 1)
    f_e = factor * jnp.where(turn.real, step * c, 0.0)
    carry = carry._replace(map_steps=add_map_steps(carry.map_steps, f_e, turn.real, line))
    carry, c = _conditioned(rule, carry, turn.real, c, u)
    e = jnp.where(turn.real, step * c, 0.0)
    pending = lax.dynamic_update_slice_in_dim(carry.pending, e / factor, line, 0)
    among = lax.dynamic_slice_in_dim(gram, line, len(z), axis=1)  # [n, n]
    norm2 = carry.norm2 - 2 * (e * plain).sum(axis=0) + (e * (among @ e)).sum(axis=0)
    return _projected(rule, carry._replace(pending=pending), turn.real, norm2)


def _conditioned(rule: Rule, carry: Carry, moves: Bool[Array, ""], c, u):
    """Precondition coefficients by row."""
    if rule.preconditioner is None:
        return carry, c
    memory, c, _ = conditioned(rule.preconditioner, carry.memory, c, u)
    return carry._replace(memory=jnp.where(moves, memory, carry.memory)), c


def _projected(
    rule: Rule, carry: Carry, moves: Bool[Array, ""], norm2: Float[Array, " I"]
) -> Carry:
    """Project rows that have moved to the squared norms ``norm2``."""
    if (project := rule.projection.factor) is None:
        return carry
    shrink = jnp.where(moves, project(norm2), 1.0)
    return carry._replace(factor=carry.factor * shrink, norm2=norm2 * shrink**2)


def apply_pending(
    theta: Float[Array, "I d"],
    pending: Float[Array, "B I"],
    u: Float[Array, "B d"],
    factor: Float[Array, " I"] | None,
    weights: Float[Array, "B I"] | None = None,
    *,
    part: int = PART,
) -> tuple[Float[Array, "I d"], Float[Array, "B d"]]:
    """Compute ``Theta <- f (Theta - P^T u)`` in place, and sum over the old rows.

    Updating all rows at once would allocate a second Theta, which dominates the memory of a run on
    a large catalogue. Updating ``part`` rows at a time avoids this at no cost in time, because the
    product is memory-bound. The sums over the old rows, ``W Theta``, are computed first: otherwise
    XLA would copy the rows.

    Args:
      theta: rows at the start of the block [I, d].
      pending: P, the step of each line for each row [B, I].
      u: direction of each line [B, d].
      factor: f, by which projections have scaled the rows [I]; None: no projection.
      weights: W, weight of each row in each line's sum [B, I]; None: no sums.
      part: rows updated at a time, if there are at least twice as many.

    Returns:
      Theta [I, d], and the sums [B, d], zero without ``weights``.
    """
    items = len(theta)
    sums = jnp.zeros_like(u) if weights is None else weights @ theta
    if items < 2 * part:
        moved = theta - pending.T @ u
        return moved if factor is None else moved * factor[:, None], sums

    def update(i, carry):
        theta, sums = carry
        first = jnp.minimum(i * part, items - part)
        fresh = first + jnp.arange(part) >= i * part  # the last part overlaps the one before
        own = lax.dynamic_slice_in_dim(theta, first, part)
        moved = own - lax.dynamic_slice_in_dim(pending, first, part, axis=1).T @ u
        if factor is not None:
            moved = moved * lax.dynamic_slice_in_dim(factor, first, part)[:, None]
        moved = jnp.where(fresh[:, None], moved, own)
        theta = lax.dynamic_update_slice_in_dim(theta, moved, first, 0)
        return theta, jnp.where(i < 0, 0, sums)  # never 0: keeps the sums before the updates

    return lax.fori_loop(0, -(-items // part), update, (theta, sums))


class MapSteps(NamedTuple):
    """The factors from which a query map is updated at the end of a block.

    Attributes:
      f_e: the rows' factors when the line's round began, times e before a preconditioner [Bm, I].
      moves: whether the line counts [Bm].
    """

    f_e: Float[Array, "Bm I"]
    moves: Bool[Array, " Bm"]


def no_map_steps(rule: Rule, scores: Float[Array, "n I"]) -> Any:
    """Return empty `MapSteps` for n lines; () without a map."""
    if rule.query_map is None:
        return ()
    return MapSteps(jnp.zeros_like(scores), jnp.zeros(len(scores), bool))


def add_map_steps(
    map_steps: Any, f_e: Float[Array, "n I"], moves: Bool[Array, ""], line: Int[Array, ""]
) -> Any:
    """Write n lines into the `MapSteps` of a block or tile.

    Args:
      map_steps: steps of the lines so far; () without a map.
      f_e: factors of the n lines [n, I].
      moves: whether the lines count [].
      line: position of the first line [].
    """
    if not map_steps:
        return ()
    return MapSteps(
        lax.dynamic_update_slice_in_dim(map_steps.f_e, f_e, line, 0),
        lax.dynamic_update_slice_in_dim(map_steps.moves, jnp.full(len(f_e), moves), line, 0),
    )


def map_pulls(
    sums: Float[Array, "Bm d"],
    u: Float[Array, "Bm d"],
    pending: Float[Array, "Bm I"],
    f_e: Float[Array, "Bm I"],
    m: int,
    axis: Axis,
) -> Float[Array, "Bm d"]:
    """Compute ``Theta_s^T e_s`` of every line from ``Theta^T f_s e_s`` and the pending updates.

    Args:
      sums: ``Theta^T f_s e_s`` [Bm, d].
      u: direction of each line [Bm, d].
      pending: P [Bm, I].
      f_e: f_s e_s [Bm, I].
      m: lines per round.
      axis: the mesh axis of the items, or None.

    Returns:
      [Bm, d], the same on all devices.
    """
    line = np.arange(len(u))
    phase = 2 * (line // m) + (line % m > 0)
    earlier = phase[None, :] < phase[:, None]
    local = sums - jnp.where(earlier, f_e @ pending.T, 0.0) @ u
    return local if axis is None else lax.psum(local, axis)
