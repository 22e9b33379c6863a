"""One block of rounds: the exact kernel behind `jaxret.online.blocked`.

A round read naively touches Theta three times (logits; read and write for the update). But
within a block of B rounds the pending updates have rank B, so

    Theta_t q_t = Theta q_t - sum_{s < t in block} e_s (q_s . q_t),      e_s = eta_s c_s / tau

needs Theta only through ``S = Q Theta^T`` and the Gram matrix ``Q Q^T``; the block ends with
``Theta <- Theta - E^T Q``. Two matrix products a block, the same items and the same Theta as
the scan but for rounding. Projections stay exact: a row's norm follows from its logit
(`jaxret.online.projections`), so a row carries a running factor f, and what is pending is
divided by it. Inside a block, tiles of a few rounds keep the work of a round in cache.

A query map that stands still for the block (`jaxret.online.map_tiles`) puts u_t = A q_t in the
place of q_t, and asks at the block's end for ``Theta_s^T e_s`` of every round. With P_r what is
pending of round r, and f_s the rows' factors when round s begins,

    Theta_s       = f_s (Theta - sum_{r < s in block} P_r u_r^T)
    Theta_s^T e_s = Theta^T (f_s e_s) - sum_{r < s in block} (P_r . f_s e_s) u_r

is one matrix product more. The sum is there since rows move while the map stands still.

With experience replay a round has n past bits more, learnt from at once when it is over. Which
they are is drawn before anything is known (`jaxret.online.recall`), so a round brings m = 1 + n
lines of u, the present one first; "earlier" then goes by phases, two a round.

Letters: I items, d width, B rounds a block, b rounds a tile, m lines a round, n past bits of them.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret import over_items
from jaxret.online import environment as world
from jaxret.online import map_tiles, recall
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner, Replay, Rule
from jaxret.online.measure import measure
from jaxret.online.rank_one import coefficients, conditioned, step_length
from jaxret.online.recall import Bits
from jaxret.online.rounds import round_keys
from jaxret.online.settling import settled
from jaxret.over_items import Axis
from jaxret.types import Choice, Feedback, PRNGKey, State, Stream, Trace

_NOTHING: Any = ((), ())


def parts(learner: Learner) -> tuple[Rule, Replay | None]:
    """The rule of a learner that has the blocked form, and how it learns from past bits again."""
    rule = learner.rule if learner.replay is None else learner.replay.rule
    assert rule is not None
    return rule, learner.replay


class _Rounds(NamedTuple):
    """What is known of a block's rounds before they are run; fields [B]."""

    t: Int[Array, " B"]
    query: Int[Array, " B"]
    labels: Int[Array, "B L"]
    keys: tuple
    real: Bool[Array, " B"]  # False where there is no query: nothing moves
    slots: Any  # `recall.Slots`; () without experience replay


class _Rows(NamedTuple):
    """What changes within a block, per row: ``theta_i = factor_i (row_i - pending)``."""

    pending: Float[Array, "Bm I"]  # P: e_s / factor, one for each line so far
    factor: Float[Array, " I"]  # f
    norm2: Float[Array, " I"]  # squared norms of theta, as projected
    memory: Any  # [I], of a preconditioner by row; or ()
    bits: Any  # `recall.Bits`, of experience replay; or ()


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
    """One block: S and the Gram matrix, its rounds, and the products that end it.

    Args:
      learner: as in `jaxret.online.blocked.simulate_blocked`.
      state: as there; its round lies in the block.
      environment: as there.
      stream: as there, but for its order.
      key: as there.
      order: [B] queries, -1 where there is no round.
      tile: b, as there.
      axis: as there.

    Returns:
      the state after the block, and its trace [B].
    """
    rule, replay = parts(learner)
    own, past, count = state.extra if replay else (state.extra, *_NOTHING)
    maps, memory = own or _NOTHING
    real = order >= 0
    query = jnp.maximum(order, 0)
    t = state.t + jnp.cumsum(real, dtype=state.t.dtype) - real
    labels = jax.vmap(partial(world.right_tools, environment))(t, query, stream.labels[query])
    queries = jax.vmap(partial(world.asked, environment))(t, query, stream.queries[query])
    slots, bits, lines = (), (), queries
    if replay:
        slots, old = recall.drawn(replay, past.query, count, t, real, queries)
        bits = Bits(past.item, past.propensity, past.reward)
        lines = jnp.concatenate([queries[:, None], old], axis=1).reshape(-1, queries.shape[1])
    rounds = _Rounds(t, query, labels, round_keys(key, t), real, slots)
    params, u = (), lines
    if rule.query_map is not None:
        params = map_tiles.current(maps, state.t, rule.map_every)
        u = rule.query_map.apply(params, lines)
    scores = u @ state.theta.T  # S [Bm, I]
    gram = u @ u.T
    project = rule.projection.factor
    blank = jnp.zeros_like(scores[0])
    rows = _Rows(
        pending=jnp.zeros_like(scores),
        factor=jnp.ones_like(blank),
        norm2=blank if project is None else jnp.sum(state.theta**2, axis=1),
        memory=memory,
        bits=bits,
    )
    play = partial(_play, rule, replay, environment, state.available, axis)
    m, tiles = len(lines) // len(order), _in_tiles(tile, rounds)

    def run_tile(rows, xs):
        start, now, u = xs
        gram_rows = lax.dynamic_slice_in_dim(gram, start, tile * m)  # [bm, Bm]
        within = lax.dynamic_slice_in_dim(gram_rows, start, tile * m, axis=1)  # [bm, bm]
        left = lax.dynamic_slice_in_dim(scores, start, tile * m) - gram_rows @ rows.pending
        by_round = jax.tree.map(lambda x: x.reshape(tile, m, *x.shape[1:]), (left, within, u))
        fresh, ((logits, choice, reward, success), asks) = lax.scan(
            play, rows._replace(pending=jnp.zeros_like(left)), (jnp.arange(tile), now, *by_round)
        )
        info = jax.vmap(lambda z, labels: measure(z, labels, axis))(logits, now.labels)
        trace = Trace(**choice._asdict(), reward=reward, success=success, **info._asdict())
        pending = lax.dynamic_update_slice_in_dim(rows.pending, fresh.pending, start, 0)
        return fresh._replace(pending=pending), (trace, asks)

    starts = jnp.arange(0, len(lines), tile * m)
    rows, (trace, asks) = lax.scan(run_tile, rows, (starts, tiles, _in_tiles(tile * m, u)))
    if rule.query_map is not None:
        fe, moves = (x.reshape(-1, *x.shape[3:]) for x in asks)
        pulls = _pulls(state.theta, u, rows.pending, fe, m, axis)
        change = rule.query_map.change(params, lines, pulls, moves.astype(pulls.dtype))
        new = map_tiles.moved(maps, state.t, rule.map_every, change)
        maps = jax.tree.map(lambda new, old: jnp.where(moves.any(), new, old), new, maps)
    factor = None if project is None else rows.factor
    theta = settled(state.theta, rows.pending, u, factor)
    extra = () if rule.rows_alone else (maps, rows.memory)
    if replay:
        extra = (extra, *recall.remembered(past, rows.bits, count, real, queries))
    trace = jax.tree.map(lambda x: x.reshape(-1), trace)
    t = state.t + real.sum(dtype=state.t.dtype)
    return state._replace(theta=theta, t=t, extra=extra), trace


def _play(
    rule: Rule,
    replay: Replay | None,
    environment: Environment,
    available: Bool[Array, " I"],
    axis: Axis,
    rows: _Rows,
    xs: tuple,
) -> tuple[_Rows, tuple]:
    """One round: what is shown, what comes back, how rows move; ``pending`` is that of its tile."""
    i, now, z, gram, u = xs  # z [m, I], gram [m, bm], u [m, d]
    line, (act_key, respond_key) = i * len(z), now.keys
    plain = rows.factor * (z[0] - gram[0] @ rows.pending)  # theta . u
    here = world.available_at(environment, now.t, available)
    logits = over_items.masked(plain / rule.tau, here)
    slate = rule.policy.show(act_key, logits, axis)
    choice, feedback, success = world.respond(
        environment, respond_key, slate, now.labels, now.query
    )
    seen = feedback if rule.estimator.bandit else feedback._replace(labels=now.labels)
    c = coefficients(rule.estimator, logits, choice, seen, axis)
    moves = now.real if feedback.observed is True else now.real & feedback.observed
    step = step_length(rule, now.t)
    asks = rows.factor * jnp.where(moves, step * c, 0.0), moves  # f e
    rows, c = _conditioned(rule, rows, moves, c, u[0])
    e = jnp.where(moves, step * c, 0.0)
    pending = lax.dynamic_update_index_in_dim(rows.pending, e / rows.factor, line, 0)
    norm2 = rows.norm2 - 2 * e * plain + e**2 * gram[0, line]
    rows = _projected(rule, rows._replace(pending=pending), moves, norm2)
    asks = jax.tree.map(lambda x: x[None], asks)
    if replay:
        bits = recall.written(rows.bits, now.slots.own, now.real, choice, feedback.reward)
        rows, more = _relearn(rule, rows._replace(bits=bits), here, axis, line + 1, xs)
        asks = jax.tree.map(lambda *both: jnp.concatenate(both), asks, more)
    return rows, ((logits, choice, world.reported(feedback), success), asks)


def _relearn(
    rule: Rule,
    rows: _Rows,
    here: Bool[Array, " I"],
    axis: Axis,
    line: Int[Array, ""],
    xs: tuple,
) -> tuple[_Rows, tuple]:
    """The past bits of a round, all at the Theta that the round itself has left."""
    _, now, z, gram, u = xs
    z, gram, u, n = z[1:], gram[1:], u[1:], len(z) - 1
    factor = rows.factor[None]
    plain = factor * (z - gram @ rows.pending)  # [n, I]
    item, propensity, reward = (x[now.slots.drawn] for x in rows.bits)
    counts = over_items.take(here.astype(reward.dtype), item, axis)  # not of a tool that has gone

    def one(plain, item, propensity, reward, count):
        logits = over_items.masked(plain / rule.tau, here)
        choice, feedback = Choice(item=item, propensity=propensity), Feedback(reward)
        return count * coefficients(rule.estimator, logits, choice, feedback, axis)

    c = jax.vmap(one)(plain, item, propensity, reward, counts)
    step = step_length(rule, now.t + 1)
    asks = factor * jnp.where(now.real, step * c, 0.0), jnp.full(n, now.real)
    rows, c = _conditioned(rule, rows, now.real, c, u)
    e = jnp.where(now.real, step * c, 0.0)
    pending = lax.dynamic_update_slice_in_dim(rows.pending, e / factor, line, 0)
    among = lax.dynamic_slice_in_dim(gram, line, n, axis=1)  # [n, n]
    norm2 = rows.norm2 - 2 * (e * plain).sum(axis=0) + (e * (among @ e)).sum(axis=0)
    return _projected(rule, rows._replace(pending=pending), now.real, norm2), asks


def _conditioned(rule: Rule, rows: _Rows, moves: Bool[Array, ""], c, u):
    """Coefficients as a preconditioner by row has them, which remembers them."""
    if rule.preconditioner is None:
        return rows, c
    memory, c, _ = conditioned(rule.preconditioner, rows.memory, c, u)
    return rows._replace(memory=jnp.where(moves, memory, rows.memory)), c


def _projected(rule: Rule, rows: _Rows, moves: Bool[Array, ""], norm2: Float[Array, " I"]) -> _Rows:
    """Rows that have moved to these squared norms, back where they may lie."""
    if (project := rule.projection.factor) is None:
        return rows
    shrink = jnp.where(moves, project(norm2), 1.0)
    return rows._replace(factor=rows.factor * shrink, norm2=norm2 * shrink**2)


def _pulls(
    theta: Float[Array, "I d"],
    u: Float[Array, "Bm d"],
    pending: Float[Array, "Bm I"],
    fe: Float[Array, "Bm I"],
    m: int,
    axis: Axis,
) -> Float[Array, "Bm d"]:
    """``Theta_s^T e_s`` of every line, from the block's first Theta and what was pending in each.

    Returns:
      [Bm, d], the same on all devices.
    """
    line = np.arange(len(u))
    phase = 2 * (line // m) + (line % m > 0)
    earlier = phase[None, :] < phase[:, None]
    local = fe @ theta - jnp.where(earlier, fe @ pending.T, 0.0) @ u
    return local if axis is None else lax.psum(local, axis)


def _in_tiles(length: int, tree):
    return jax.tree.map(lambda x: x.reshape(-1, length, *x.shape[1:]), tree)
