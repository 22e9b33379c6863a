"""A rank-one learner in a block of rounds: the exact kernel of the blocked form.

A round read naively touches Theta three times (logits; read and write for the update). But
within a block of B rounds the pending updates have rank B, so

    Theta_t q_t = Theta q_t - sum_{s < t in block} e_s (q_s . q_t),      e_s = eta_s c_s / tau

needs Theta only through ``S = Q Theta^T`` and the Gram matrix ``Q Q^T``; the block ends with
``Theta <- Theta - E^T Q``. Two matrix products a block, the same items and the same Theta as
the scan but for rounding. Projections stay exact: a row's norm follows from its logit
(`jaxret.rules.projections`), so a row carries a running factor f, and what is pending is
divided by it. Inside a block, tiles of a few rounds keep the work of a round in cache.

A query map that is constant within the block (`jaxret.rules.query_maps`) replaces q_t by
u_t = A q_t and needs at the block's end ``Theta_s^T e_s`` of every round. With P_r what is pending
of round r, and f_s the rows' factors when round s begins,

    Theta_s       = f_s (Theta - sum_{r < s in block} P_r u_r^T)
    Theta_s^T e_s = Theta^T (f_s e_s) - sum_{r < s in block} (P_r . f_s e_s) u_r

is one more matrix product. The sum is needed because rows move while the map is constant.

With experience replay a round also replays n past rounds when it is over. Which rounds these are is
drawn before the block begins (`jaxret.learners.replay`), so a round has m = 1 + n lines of u, its
own first; "earlier" then goes by phases, two per round.

`jaxret.simulation.blocked.rounds` runs the rounds, and calls:

    begin      S and the Gram matrix of the block
    open       those of a tile's lines, minus what is pending from earlier tiles
    logits     of a round, minus what is pending from its own tile
    learn      adds a round's coefficients to what is pending
    close      adds what is pending of the tile to that of the block
    end        the products that end the block

Letters: I items, d width, B rounds a block, b rounds a tile, m lines a round, n past
rounds of them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import Rule, coefficients, conditioned, step_length
from jaxret.learners.replay import Replay, Rewards, push_block, push_reward, sample_block
from jaxret.rules.policies import Policy
from jaxret.rules.query_maps import add_change, params_at
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked import query_maps
from jaxret.types import Choice, Feedback, State

_NOTHING: Any = (None, None)
PART = 2048  # rows of Theta that are updated at a time


class Rounds(NamedTuple):
    """What is known of a block's rounds before they are simulated; fields [B].

    Attributes:
      t: the number of each round.
      query: position in the stream's queries.
      vectors: the queries [B, d].
      labels: the right items [B, L], -1 pads.
      keys: of `act` and of the environment.
      real: False where the block is padded: nothing happens.
    """

    t: Int[Array, " B"]
    query: Int[Array, " B"]
    vectors: Float[Array, "B d"]
    labels: Int[Array, "B L"]
    keys: tuple
    real: Bool[Array, " B"]


class Turn(NamedTuple):
    """A round that is being simulated.

    Attributes:
      position: in its tile [].
      t: the number of the round [].
      real: False where the block is padded [].
      available: the items that are available [I].
    """

    position: Int[Array, ""]
    t: Int[Array, ""]
    real: Bool[Array, ""]
    available: Bool[Array, " I"]


class Still(NamedTuple):
    """What is constant within a block.

    Attributes:
      params: of the query map; () without one.
      lines: the queries [Bm, d].
      u: the queries as the rows are compared with them [Bm, d].
      scores: S [Bm, I].
      gram: of u [Bm, Bm].
      slots: `replay.Slots`; () without experience replay.
    """

    params: Any
    lines: Float[Array, "Bm d"]
    u: Float[Array, "Bm d"]
    scores: Float[Array, "Bm I"]
    gram: Float[Array, "Bm Bm"]
    slots: Any


class Lines(NamedTuple):
    """The lines of a tile, or the m lines of one round.

    Attributes:
      scores: minus what was pending when the tile began [bm, I].
      gram: with all lines of the tile [bm, bm].
      u: [bm, d].
      slots: `replay.Slots`; () without experience replay.
    """

    scores: Float[Array, "bm I"]
    gram: Float[Array, "bm bm"]
    u: Float[Array, "bm d"]
    slots: Any


class Moving(NamedTuple):
    """What changes within a block, per row: ``theta_i = factor_i (row_i - pending)``.

    Attributes:
      pending: P, e_s / factor of each line so far [Bm, I]; of a tile [bm, I].
      factor: f [I].
      norm2: squared norms of theta, as projected [I].
      memory: of a preconditioner by row [I]; or ().
      rewards: `replay.Rewards`, of experience replay; or ().
      asks: `query_maps.Asks`; () without a query map.
    """

    pending: Float[Array, "Bm I"]
    factor: Float[Array, " I"]
    norm2: Float[Array, " I"]
    memory: Any
    rewards: Any
    asks: Any


def parts(learner: Learner) -> tuple[Rule, Replay | None]:
    """Returns the rule of a rank-one learner, and its experience replay.

    Args:
      learner: one that has the blocked form.
    """
    structure = learner.structure
    if isinstance(structure, Replay):
        return structure.rule, structure
    assert isinstance(structure, Rule)
    return structure, None


def policy(learner: Learner) -> Policy:
    """Returns the policy of the learner."""
    return parts(learner)[0].policy


def begin(learner: Learner, state: State, rounds: Rounds) -> tuple[Still, Moving]:
    """Computes S and the Gram matrix of a block; nothing is pending.

    Args:
      learner: a rank-one one, with experience replay or without.
      state: before the block.
      rounds: of the block, fields [B].

    Returns:
      what is constant within the block, and what changes in it as it is before the first round.
    """
    rule, replay = parts(learner)
    own, past, count = state.extra if replay else (state.extra, *_NOTHING)
    maps, memory = own or _NOTHING
    slots, rewards, lines = (), (), rounds.vectors
    if replay:
        slots, old = sample_block(replay, past.query, count, rounds.t, rounds.real, lines)
        rewards = Rewards(past.item, past.propensity, past.reward)
        lines = jnp.concatenate([lines[:, None], old], axis=1).reshape(-1, lines.shape[1])
    params, u = (), lines
    if rule.query_map is not None:
        params = params_at(maps, state.t, rule.map_every)
        u = rule.query_map.apply(params, lines)
    scores = u @ state.theta.T
    blank, free = jnp.zeros_like(scores[0]), rule.projection.factor is None
    moving = Moving(
        pending=jnp.zeros_like(scores),
        factor=jnp.ones_like(blank),
        norm2=blank if free else jnp.sum(state.theta**2, axis=1),
        memory=memory,
        rewards=rewards,
        asks=query_maps.nothing(rule, scores),
    )
    return Still(params, lines, u, scores, u @ u.T, slots), moving


def open(
    learner: Learner, still: Still, moving: Moving, first: Int[Array, ""], tile: int
) -> tuple[Lines, Moving]:
    """Reads the lines of a tile, less what is pending of earlier tiles.

    Args:
      learner: a rank-one one, with experience replay or without.
      still: what is constant within the block.
      moving: what has changed in the block before the tile.
      first: position of the tile's first round in the block [].
      tile: b, rounds of the tile.

    Returns:
      the lines of the tile, and what changes in it, with nothing pending.
    """
    m = _lines_a_round(learner)
    start, length = first * m, tile * m
    gram = lax.dynamic_slice_in_dim(still.gram, start, length)  # [bm, Bm]
    scores = lax.dynamic_slice_in_dim(still.scores, start, length) - gram @ moving.pending
    within = lax.dynamic_slice_in_dim(gram, start, length, axis=1)  # [bm, bm]
    u = lax.dynamic_slice_in_dim(still.u, start, length)
    slots = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, tile), still.slots)
    asks = query_maps.nothing(parts(learner)[0], scores)
    fresh = moving._replace(pending=jnp.zeros_like(scores), asks=asks)
    return Lines(scores, within, u, slots), fresh


def logits(
    learner: Learner, moving: Moving, lines: Lines, turn: Turn, axis: Axis
) -> tuple[Float[Array, " I"], Any]:
    """Computes the logits of a round, minus infinity where an item is absent.

    Args:
      learner: a rank-one one, with experience replay or without.
      moving: what has changed in the tile before the round.
      lines: of the tile.
      turn: the round.
      axis: the mesh axis of the items; not needed, since a logit is computed where its row is.

    Returns:
      logits [I], and what `learn` needs of them.
    """
    del axis
    rule, _ = parts(learner)
    own = _of_round(learner, lines, turn)
    plain = moving.factor * (own.scores[0] - own.gram[0] @ moving.pending)  # theta . u
    z = over_items.masked(plain / rule.tau, turn.available)
    return z, (z, plain)


def learn(
    learner: Learner,
    moving: Moving,
    lines: Lines,
    turn: Turn,
    computed: Any,
    choice: Choice,
    feedback: Feedback,
    axis: Axis,
) -> Moving:
    """Adds the step of a round to what is pending; nothing without feedback.

    Args:
      learner: a rank-one one, with experience replay or without.
      moving: what has changed in the tile before the round.
      lines: of the tile.
      turn: the round.
      computed: the second part of what `logits` has returned for the round.
      choice: the item that was used, and its propensity.
      feedback: the reward and whether it was observed; labels for an oracle alone.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      what has changed in the tile after the round, replayed rounds included.
    """
    rule, replay = parts(learner)
    (z, plain), own = computed, _of_round(learner, lines, turn)
    moves = turn.real if feedback.observed is True else turn.real & feedback.observed
    line = turn.position * len(own.u)
    c = coefficients(rule.estimator, z, choice, feedback, axis)
    step = step_length(rule, turn.t)
    f_e = moving.factor * jnp.where(moves, step * c, 0.0)
    moving = moving._replace(asks=query_maps.add(moving.asks, f_e[None], moves, line))
    moving, c = _conditioned(rule, moving, moves, c, own.u[0])
    e = jnp.where(moves, step * c, 0.0)
    pending = lax.dynamic_update_index_in_dim(moving.pending, e / moving.factor, line, 0)
    norm2 = moving.norm2 - 2 * e * plain + e**2 * own.gram[0, line]
    moving = _projected(rule, moving._replace(pending=pending), moves, norm2)
    if replay:
        rewards = push_reward(moving.rewards, own.slots.own, turn.real, choice, feedback.reward)
        moving = _relearn(rule, moving._replace(rewards=rewards), own, turn, line + 1, axis)
    return moving


def close(learner: Learner, moving: Moving, fresh: Moving, first: Int[Array, ""]) -> Moving:
    """Adds what is pending of a tile to what is pending of the block.

    Args:
      learner: a rank-one one, with experience replay or without.
      moving: of the block, as it was before the tile.
      fresh: of the tile, after its last round.
      first: position of the tile's first round in the block [].

    Returns:
      what has changed in the block after the tile.
    """
    start = first * _lines_a_round(learner)

    def put(whole, part):
        return lax.dynamic_update_slice_in_dim(whole, part, start, 0)

    asks = jax.tree.map(put, moving.asks, fresh.asks)
    return fresh._replace(pending=put(moving.pending, fresh.pending), asks=asks)


def end(
    learner: Learner, state: State, still: Still, moving: Moving, rounds: Rounds, axis: Axis
) -> State:
    """Returns the state after a block.

    Args:
      learner: a rank-one one, with experience replay or without.
      state: before the block.
      still: what is constant within the block.
      moving: what has changed in the block after its last tile.
      rounds: of the block, fields [B].
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      the state, with the rows [I, d] after all that was pending and ``t`` after the block.
    """
    rule, replay = parts(learner)
    own, past, count = state.extra if replay else (state.extra, *_NOTHING)
    (maps, _), m = own or _NOTHING, _lines_a_round(learner)
    factor = None if rule.projection.factor is None else moving.factor
    f_e, moves = moving.asks or _NOTHING
    theta, sums = apply_pending(state.theta, moving.pending, still.u, factor, f_e)
    if rule.query_map is not None:
        pulls = query_maps.pulls(sums, still.u, moving.pending, f_e, m, axis)
        change = rule.query_map.change(still.params, still.lines, pulls, moves.astype(pulls.dtype))
        new = add_change(maps, state.t, rule.map_every, change)
        maps = jax.tree.map(lambda new, old: jnp.where(moves.any(), new, old), new, maps)
    extra = () if rule.rows_alone else (maps, moving.memory)
    if replay:
        extra = (extra, *push_block(past, moving.rewards, count, rounds.real, rounds.vectors))
    t = state.t + rounds.real.sum(dtype=state.t.dtype)
    return state._replace(theta=theta, t=t, extra=extra)


def _lines_a_round(learner: Learner) -> int:
    """m."""
    return 1 + getattr(learner.structure, "per_round", 0)


def _of_round(learner: Learner, lines: Lines, turn: Turn) -> Lines:
    """The lines of one round of a tile."""
    slots = jax.tree.map(lambda x: x[turn.position], lines.slots)
    m = _lines_a_round(learner)
    of_lines = (lax.dynamic_slice_in_dim(x, turn.position * m, m) for x in lines[:3])
    return Lines(*of_lines, slots)


def _relearn(
    rule: Rule, moving: Moving, own: Lines, turn: Turn, line: Int[Array, ""], axis: Axis
) -> Moving:
    """Replays past rounds, all at the Theta that the round itself has left."""
    z, gram, u = own.scores[1:], own.gram[1:], own.u[1:]
    available, factor = turn.available, moving.factor[None]
    plain = factor * (z - gram @ moving.pending)  # [n, I]
    item, propensity, reward = (x[own.slots.drawn] for x in moving.rewards)
    counts = over_items.take(available.astype(reward.dtype), item, axis)  # not of absent items

    def one(plain, item, propensity, reward, count):
        logits = over_items.masked(plain / rule.tau, available)
        choice, feedback = Choice(item=item, propensity=propensity), Feedback(reward)
        return count * coefficients(rule.estimator, logits, choice, feedback, axis)

    c = jax.vmap(one)(plain, item, propensity, reward, counts)
    step = step_length(rule, turn.t + 1)
    f_e = factor * jnp.where(turn.real, step * c, 0.0)
    moving = moving._replace(asks=query_maps.add(moving.asks, f_e, turn.real, line))
    moving, c = _conditioned(rule, moving, turn.real, c, u)
    e = jnp.where(turn.real, step * c, 0.0)
    pending = lax.dynamic_update_slice_in_dim(moving.pending, e / factor, line, 0)
    among = lax.dynamic_slice_in_dim(gram, line, len(z), axis=1)  # [n, n]
    norm2 = moving.norm2 - 2 * (e * plain).sum(axis=0) + (e * (among @ e)).sum(axis=0)
    return _projected(rule, moving._replace(pending=pending), turn.real, norm2)


def _conditioned(rule: Rule, moving: Moving, moves: Bool[Array, ""], c, u):
    """Preconditions coefficients by row."""
    if rule.preconditioner is None:
        return moving, c
    memory, c, _ = conditioned(rule.preconditioner, moving.memory, c, u)
    return moving._replace(memory=jnp.where(moves, memory, moving.memory)), c


def _projected(
    rule: Rule, moving: Moving, moves: Bool[Array, ""], norm2: Float[Array, " I"]
) -> Moving:
    """Projects rows that have moved to the squared norms ``norm2``."""
    if (project := rule.projection.factor) is None:
        return moving
    shrink = jnp.where(moves, project(norm2), 1.0)
    return moving._replace(factor=moving.factor * shrink, norm2=norm2 * shrink**2)


def apply_pending(
    theta: Float[Array, "I d"],
    pending: Float[Array, "B I"],
    u: Float[Array, "B d"],
    factor: Float[Array, " I"] | None,
    weights: Float[Array, "B I"] | None = None,
    *,
    part: int = PART,
) -> tuple[Float[Array, "I d"], Float[Array, "B d"]]:
    """Computes ``Theta <- f (Theta - P^T u)`` in place, and sums over the old rows.

    A product of all rows at once needs room for a second Theta, most of the memory of a run of a
    large catalogue. Updating some rows at a time needs none, and takes no more time, because the
    product is bound by reading. The sums over the old rows, ``W Theta``, are computed first: XLA
    would copy the rows otherwise.

    Args:
      theta: rows when the block began [I, d].
      pending: P, the step of each line for each row [B, I].
      u: the direction of each line [B, d].
      factor: f, by which projections have scaled the rows [I]; None: they have not.
      weights: W, of each row in each line [B, I]; None: no sums are needed.
      part: rows at a time, where there are twice as many or more.

    Returns:
      theta [I, d], and the sums [B, d], zero where none are needed.
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
