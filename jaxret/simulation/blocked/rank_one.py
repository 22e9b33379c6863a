"""One learner in a block of rounds: the exact kernel behind `jaxret.simulation.blocked.simulate`.

A round read naively touches Theta three times (logits; read and write for the update). But
within a block of B rounds the pending updates have rank B, so

    Theta_t q_t = Theta q_t - sum_{s < t in block} e_s (q_s . q_t),      e_s = eta_s c_s / tau

needs Theta only through ``S = Q Theta^T`` and the Gram matrix ``Q Q^T``; the block ends with
``Theta <- Theta - E^T Q``. Two matrix products a block, the same items and the same Theta as
the scan but for rounding. Projections stay exact: a row's norm follows from its logit
(`jaxret.rules.projections`), so a row carries a running factor f, and what is pending is
divided by it. Inside a block, tiles of a few rounds keep the work of a round in cache.

A query map that stands still for the block (`jaxret.rules.map_tiles`) puts u_t = A q_t in the
place of q_t, and asks at the block's end for ``Theta_s^T e_s`` of every round. With P_r what is
pending of round r, and f_s the rows' factors when round s begins,

    Theta_s       = f_s (Theta - sum_{r < s in block} P_r u_r^T)
    Theta_s^T e_s = Theta^T (f_s e_s) - sum_{r < s in block} (P_r . f_s e_s) u_r

is one matrix product more. The sum is there since rows move while the map stands still.

With experience replay a round has n past bits more, learnt from at once when it is over. Which
they are is drawn before anything is known (`jaxret.learners.replay`), so a round brings m = 1 + n
lines of u, the present one first; "earlier" then goes by phases, two a round.

`jaxret.simulation.blocked.rounds` plays the rounds, and asks here what a learner makes of them:

    begin      S and the Gram matrix of the block
    open       those of a tile's lines, less what is pending of the tiles before
    logits     of a round, less what is pending of its own tile
    learn      a round's coefficients are pending, too
    close      what the tile leaves pending goes to that of the block
    end        the products that end the block

Letters: I items, d width, B rounds a block, b rounds a tile, m lines a round, n past bits of them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners import narrow_rows
from jaxret.learners import replay as recall
from jaxret.learners.learner import Learner, Replay, Rule
from jaxret.learners.rank_one import coefficients, conditioned, step_length
from jaxret.learners.replay import Bits
from jaxret.rules import map_tiles
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked import query_maps
from jaxret.simulation.blocked.settling import settled
from jaxret.types import Choice, Feedback, State

_NOTHING: Any = (None, None)


class Rounds(NamedTuple):
    """What is known of a block's rounds before they are played; fields [B]."""

    t: Int[Array, " B"]
    query: Int[Array, " B"]
    asked: Float[Array, "B d"]
    labels: Int[Array, "B L"]
    keys: tuple
    real: Bool[Array, " B"]  # False where there is no query: nothing moves


class Turn(NamedTuple):
    """A round that is being played."""

    place: Int[Array, ""]  # in its tile
    t: Int[Array, ""]
    real: Bool[Array, ""]
    here: Bool[Array, " I"]  # the items that are there


class Still(NamedTuple):
    """What stands still for a block."""

    params: Any  # of the query map; () without one
    lines: Float[Array, "Bm d"]  # queries as they are asked
    u: Float[Array, "Bm d"]  # as the rows are compared with them
    scores: Float[Array, "Bm I"]  # S
    gram: Float[Array, "Bm Bm"]
    slots: Any  # `replay.Slots`; () without experience replay


class Lines(NamedTuple):
    """The same of a tile; or of one of its rounds, m lines for the bm."""

    scores: Float[Array, "bm I"]  # less what was pending when the tile began
    gram: Float[Array, "bm bm"]  # with all lines of the tile
    u: Float[Array, "bm d"]
    slots: Any


class Moving(NamedTuple):
    """What changes within a block, per row: ``theta_i = factor_i (row_i - pending)``."""

    pending: Float[Array, "Bm I"]  # P: e_s / factor, one for each line so far; of a tile [bm, I]
    factor: Float[Array, " I"]  # f
    norm2: Float[Array, " I"]  # squared norms of theta, as projected
    memory: Any  # [I], of a preconditioner by row; or ()
    bits: Any  # `replay.Bits`, of experience replay; or ()
    asks: Any  # `query_maps.Asks`; () without a query map


def parts(learner: Learner) -> tuple[Rule, Replay | None]:
    """The rule of a learner that has the blocked form, and how it learns from past bits again."""
    rule = learner.rule if learner.replay is None else learner.replay.rule
    assert rule is not None
    return rule, learner.replay


def policy(learner: Learner) -> Policy:
    """Who is shown."""
    return parts(learner)[0].policy


def begin(learner: Learner, state: State, rounds: Rounds) -> tuple[Still, Moving]:
    """S and the Gram matrix of a block; nothing is pending."""
    rule, replay = parts(learner)
    own, past, count = state.extra if replay else (state.extra, *_NOTHING)
    maps, memory = own or _NOTHING
    slots, bits, lines = (), (), rounds.asked
    if replay:
        slots, old = recall.drawn(replay, past.query, count, rounds.t, rounds.real, lines)
        bits = Bits(past.item, past.propensity, past.reward)
        lines = jnp.concatenate([lines[:, None], old], axis=1).reshape(-1, lines.shape[1])
    params, u = (), lines
    if rule.query_map is not None:
        params = map_tiles.current(maps, state.t, rule.map_every)
        u = rule.query_map.apply(params, lines)
    scores = narrow_rows.products(u, state.theta)
    blank, free = jnp.zeros_like(scores[0]), rule.projection.factor is None
    moving = Moving(
        pending=jnp.zeros_like(scores),
        factor=jnp.ones_like(blank),
        norm2=blank if free else narrow_rows.squared_norms(state.theta, u.dtype),
        memory=memory,
        bits=bits,
        asks=query_maps.nothing(rule, scores),
    )
    return Still(params, lines, u, scores, u @ u.T, slots), moving


def open(
    learner: Learner, still: Still, moving: Moving, first: Int[Array, ""], tile: int
) -> tuple[Lines, Moving]:
    """The lines of the tile whose first round is ``first``, and nothing pending in it."""
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
    """The logits of a round, minus infinity where an item is absent.

    Returns:
      logits [I], and what `learn` wants of them.
    """
    del axis
    rule, _ = parts(learner)
    own = _of_round(learner, lines, turn)
    plain = moving.factor * (own.scores[0] - own.gram[0] @ moving.pending)  # theta . u
    z = over_items.masked(plain / rule.tau, turn.here)
    return z, (z, plain)


def learn(
    learner: Learner,
    moving: Moving,
    lines: Lines,
    turn: Turn,
    said: Any,
    choice: Choice,
    feedback: Feedback,
    axis: Axis,
) -> Moving:
    """A round more is pending; nothing of one that is none, or that had no answer."""
    rule, replay = parts(learner)
    (z, plain), own = said, _of_round(learner, lines, turn)
    moves = turn.real if feedback.observed is True else turn.real & feedback.observed
    line = turn.place * len(own.u)
    c = coefficients(rule.estimator, z, choice, feedback, axis)
    step = step_length(rule, turn.t)
    f_e = moving.factor * jnp.where(moves, step * c, 0.0)
    moving = moving._replace(asks=query_maps.asked(moving.asks, f_e[None], moves, line))
    moving, c = _conditioned(rule, moving, moves, c, own.u[0])
    e = jnp.where(moves, step * c, 0.0)
    pending = lax.dynamic_update_index_in_dim(moving.pending, e / moving.factor, line, 0)
    norm2 = moving.norm2 - 2 * e * plain + e**2 * own.gram[0, line]
    moving = _projected(rule, moving._replace(pending=pending), moves, norm2)
    if replay:
        bits = recall.written(moving.bits, own.slots.own, turn.real, choice, feedback.reward)
        moving = _relearn(rule, moving._replace(bits=bits), own, turn, line + 1, axis)
    return moving


def close(learner: Learner, moving: Moving, fresh: Moving, first: Int[Array, ""]) -> Moving:
    """What is pending of a block, with that of the tile whose first round is ``first``."""
    start = first * _lines_a_round(learner)

    def put(whole, part):
        return lax.dynamic_update_slice_in_dim(whole, part, start, 0)

    asks = jax.tree.map(put, moving.asks, fresh.asks)
    return fresh._replace(pending=put(moving.pending, fresh.pending), asks=asks)


def end(
    learner: Learner, state: State, still: Still, moving: Moving, rounds: Rounds, axis: Axis
) -> State:
    """The state after a block."""
    rule, replay = parts(learner)
    own, past, count = state.extra if replay else (state.extra, *_NOTHING)
    (maps, _), m = own or _NOTHING, _lines_a_round(learner)
    factor = None if rule.projection.factor is None else moving.factor
    writing = narrow_rows.writing(rule.rounding, state, axis)
    f_e, moves = moving.asks or _NOTHING
    theta, sums = settled(state.theta, moving.pending, still.u, factor, f_e, writing=writing)
    if rule.query_map is not None:
        pulls = query_maps.pulls(sums, still.u, moving.pending, f_e, m, axis)
        change = rule.query_map.change(still.params, still.lines, pulls, moves.astype(pulls.dtype))
        new = map_tiles.moved(maps, state.t, rule.map_every, change)
        maps = jax.tree.map(lambda new, old: jnp.where(moves.any(), new, old), new, maps)
    extra = () if rule.rows_alone else (maps, moving.memory)
    if replay:
        extra = (extra, *recall.remembered(past, moving.bits, count, rounds.real, rounds.asked))
    t = state.t + rounds.real.sum(dtype=state.t.dtype)
    return state._replace(theta=theta, t=t, extra=extra)


def _lines_a_round(learner: Learner) -> int:
    """m."""
    return 1 if learner.replay is None else 1 + learner.replay.per_round


def _of_round(learner: Learner, lines: Lines, turn: Turn) -> Lines:
    """Those of a tile's lines that are the round's."""
    slots = jax.tree.map(lambda x: x[turn.place], lines.slots)
    m = _lines_a_round(learner)
    of_lines = (lax.dynamic_slice_in_dim(x, turn.place * m, m) for x in lines[:3])
    return Lines(*of_lines, slots)


def _relearn(
    rule: Rule, moving: Moving, own: Lines, turn: Turn, line: Int[Array, ""], axis: Axis
) -> Moving:
    """The past bits of a round, all at the Theta that the round itself has left."""
    z, gram, u = own.scores[1:], own.gram[1:], own.u[1:]
    here, factor = turn.here, moving.factor[None]
    plain = factor * (z - gram @ moving.pending)  # [n, I]
    item, propensity, reward = (x[own.slots.drawn] for x in moving.bits)
    counts = over_items.take(here.astype(reward.dtype), item, axis)  # not of a tool that has gone

    def one(plain, item, propensity, reward, count):
        logits = over_items.masked(plain / rule.tau, here)
        choice, feedback = Choice(item=item, propensity=propensity), Feedback(reward)
        return count * coefficients(rule.estimator, logits, choice, feedback, axis)

    c = jax.vmap(one)(plain, item, propensity, reward, counts)
    step = step_length(rule, turn.t + 1)
    f_e = factor * jnp.where(turn.real, step * c, 0.0)
    moving = moving._replace(asks=query_maps.asked(moving.asks, f_e, turn.real, line))
    moving, c = _conditioned(rule, moving, turn.real, c, u)
    e = jnp.where(turn.real, step * c, 0.0)
    pending = lax.dynamic_update_slice_in_dim(moving.pending, e / factor, line, 0)
    among = lax.dynamic_slice_in_dim(gram, line, len(z), axis=1)  # [n, n]
    norm2 = moving.norm2 - 2 * (e * plain).sum(axis=0) + (e * (among @ e)).sum(axis=0)
    return _projected(rule, moving._replace(pending=pending), turn.real, norm2)


def _conditioned(rule: Rule, moving: Moving, moves: Bool[Array, ""], c, u):
    """Coefficients as a preconditioner by row has them, which remembers them."""
    if rule.preconditioner is None:
        return moving, c
    memory, c, _ = conditioned(rule.preconditioner, moving.memory, c, u)
    return moving._replace(memory=jnp.where(moves, memory, moving.memory)), c


def _projected(
    rule: Rule, moving: Moving, moves: Bool[Array, ""], norm2: Float[Array, " I"]
) -> Moving:
    """Rows that have moved to these squared norms, back where they may lie."""
    if (project := rule.projection.factor) is None:
        return moving
    shrink = jnp.where(moves, project(norm2), 1.0)
    return moving._replace(factor=moving.factor * shrink, norm2=norm2 * shrink**2)
