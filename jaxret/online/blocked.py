"""Many rounds in one program: the exact blocked form, on one device and on a mesh.

A round read naively touches Theta three times (logits; read and write for the update). But
within a block of B rounds the pending updates have rank B, so

    Theta_t q_t = Theta q_t - sum_{s < t in block} e_s (q_s . q_t),      e_s = eta_s c_s / tau

needs Theta only through ``S = Q Theta^T`` and the Gram matrix ``Q Q^T``; the block ends with
``Theta <- Theta - E^T Q``. Two matrix products a block, the same items and the same Theta as
the scan but for rounding. Projections stay exact: a row's norm follows from its logit
(`jaxret.online.projections`), so a row carries a running factor, and what is pending is
divided by it. Inside a block, tiles of a few rounds keep the work of a round in cache.

A query map that stands still for the block (`jaxret.online.map_tiles`) puts u_t = A q_t in the
place of q_t, and asks at the block's end for ``Theta_s^T e_s`` of every round. With P_r what is
pending of round r, and f_s the rows' factors when round s begins,

    Theta_s       = f_s (Theta - sum_{r < s in block} P_r u_r^T)
    Theta_s^T e_s = Theta^T (f_s e_s) - sum_{r < s in block} (P_r . f_s e_s) u_r

is one matrix product more. The sum is there since rows move while the map stands still.

The kernel is written once. On a mesh it runs inside shard_map with the rows of Theta split
over the axis ``item``: a round exchanges a maximum, a few sums and the chosen entry.

Round t uses ``fold_in(key, t)``: a run cut at any multiple of the block and resumed from its
state goes on bit for bit. With a query map blocks lie where tiles do, at multiples of B in t.

Letters: I items, d width, B rounds a block, b rounds a tile, T rounds.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from jaxret import over_items
from jaxret.online import environment as world
from jaxret.online import map_tiles
from jaxret.online.deployment import intervenes
from jaxret.online.environment import Environment
from jaxret.online.learner import TILE, Learner, Rule
from jaxret.online.measure import measure
from jaxret.online.rank_one import coefficients, step_length
from jaxret.online.rounds import round_keys
from jaxret.over_items import Axis
from jaxret.types import PRNGKey, State, Stream, Trace
from jaxret.validate import require

BLOCK = 128


def simulate_blocked(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    *,
    block: int | None = None,
    tile: int = TILE,
    axis: Axis = None,
) -> tuple[State, Trace]:
    """The same rounds in blocks: two matrix products for every ``block`` rounds.

    Args:
      learner: one whose `Rule` is ``blocked``.
      state: as in `jaxret.online.rounds.scan_rounds`.
      environment: as there, but for what happens to the learner itself (delay, rewriting, restart).
      stream: as there. Where ``order`` is -1 nothing happens (its line of the trace means
        nothing), so that the chunks of a run can share one shape. With a query map the first -1
        ends it, as in the scan.
      key: as there.
      block: B, rounds between two reads of Theta; divides ``map_every`` where there is a query
        map. None: the largest that fits, 128 at most.
      tile: b, rounds between two reads of what is pending; divides B.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      as there.
    """
    rule = learner.rule
    if rule is None or not rule.blocked:
        raise ValueError(f"learner {learner.name!r} has no blocked form: use scan_rounds")
    if intervenes(environment):
        raise ValueError("delay, rewriting and restart have no blocked form: use scan_rounds")
    block = _largest_block(rule, tile) if block is None else block
    require("tile", tile, ">= 1", lambda x: x >= 1)
    require("block", block, f"a multiple of tile={tile}", lambda x: x >= tile and x % tile == 0)
    first, blocks = _cut(rule, state, stream.order, block)

    def run_block(state, order):
        return _run_block(rule, state, environment, stream, key, order, tile, axis)

    def skip(state, order):
        line = jax.eval_shape(run_block, state, order)[1]
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), line)

    def run_if_any(state, order):
        return lax.cond((order >= 0).any(), run_block, skip, state, order)

    state, trace = lax.scan(run_if_any, state, blocks)
    rounds = stream.order.shape[0]
    trace = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x.reshape(-1), first, rounds), trace)
    return state, trace


def simulate_on_mesh(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    *,
    mesh: Mesh,
    block: int | None = None,
    tile: int = TILE,
) -> tuple[State, Trace]:
    """`simulate_blocked` with the catalogue split over the mesh axis ``item``.

    The number of items must be a multiple of the axis (`jaxret.sharding.padded`).
    """
    items, devices = state.theta.shape[0], mesh.shape["item"]
    if items % devices:
        raise ValueError(
            f"{items} items do not divide over {devices} devices: pad the catalogue with"
            f" jaxret.sharding.padded(catalogue, {devices})"
        )
    states = State._make((P("item", None), P("item"), P(), P()))
    reranker, bare = environment.reranker, environment._replace(reranker=None)
    split = {"arrives": P("item"), "leaves": P("item")}  # the rest is copied to every device
    worlds = Environment._make(
        None if part is None else split.get(name, P()) for name, part in bare._asdict().items()
    )

    def local(state, environment, stream, key):
        environment = environment._replace(reranker=reranker)
        return simulate_blocked(
            learner, state, environment, stream, key, block=block, tile=tile, axis="item"
        )

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(states, worlds, P(), P()),
        out_specs=(states, P()),
        check_vma=False,
    )(state, bare, stream, key)


def _largest_block(rule: Rule, tile: int) -> int:
    """Rounds for which Theta may be left alone: all of BLOCK, or what divides a map's tile."""
    if rule.query_map is None:
        return BLOCK
    return max(n for n in range(tile, BLOCK + 1, tile) if rule.map_every % n == 0)


def _cut(rule: Rule, state: State, order: Int[Array, " T"], block: int):
    """The stream in blocks [n, B], filled up with -1, and where in them it begins."""
    fill = -len(order) % block
    if rule.query_map is None:
        return 0, jnp.pad(order, (0, fill), constant_values=-1).reshape(-1, block)
    divides = f"a divisor of map_every={rule.map_every}"
    require("block", block, divides, lambda x: rule.map_every % x == 0)
    first = state.t % block
    order = jnp.where(jnp.cumprod(order >= 0) == 1, order, -1)
    empty = jnp.full(len(order) + fill + block, -1, order.dtype)
    return first, lax.dynamic_update_slice_in_dim(empty, order, first, 0).reshape(-1, block)


class _Rounds(NamedTuple):
    """What is known of a block's rounds before they are run; fields [B]."""

    t: Int[Array, " B"]
    query: Int[Array, " B"]
    labels: Int[Array, "B L"]
    keys: tuple
    real: Bool[Array, " B"]  # False where there is no query: nothing moves


class _Rows(NamedTuple):
    """What changes within a block, per row: ``theta_i = factor_i (row_i - pending)``."""

    pending: Float[Array, "B I"]  # P: e_s / factor, one line for each round so far
    factor: Float[Array, " I"]
    norm2: Float[Array, " I"]  # squared norms of theta, as projected


def _run_block(
    rule: Rule,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    order: Int[Array, " B"],
    tile: int,
    axis: Axis,
) -> tuple[State, Trace]:
    """One block: S and the Gram matrix, its rounds, and the product that ends it."""
    real = order >= 0
    query = jnp.maximum(order, 0)
    t = state.t + jnp.cumsum(real, dtype=state.t.dtype) - real
    labels = jax.vmap(partial(world.right_tools, environment))(t, query, stream.labels[query])
    rounds = _Rounds(t, query, labels, round_keys(key, t), real)
    queries = jax.vmap(partial(world.asked, environment))(t, query, stream.queries[query])
    u, query_map = queries, rule.query_map
    if query_map is not None:
        params = map_tiles.current(state.extra[0], state.t, rule.map_every)
        u = query_map.apply(params, queries)
    scores = u @ state.theta.T  # S [B, I]
    gram = u @ u.T
    project = rule.projection.factor
    blank = jnp.zeros_like(scores[0])
    rows = _Rows(
        pending=jnp.zeros_like(scores),
        factor=jnp.ones_like(blank),
        norm2=blank if project is None else jnp.sum(state.theta**2, axis=1),
    )

    def run_round(carry, xs):
        fresh, factor, norm2 = carry
        i, z, gram_row, now = xs
        act_key, respond_key = now.keys
        plain = factor * (z - gram_row @ fresh)  # theta . u
        available = world.available_at(environment, now.t, state.available)
        logits = over_items.masked(plain / rule.tau, available)
        slate = rule.policy.show(act_key, logits, axis)
        choice, feedback, success = world.respond(
            environment, respond_key, slate, now.labels, now.query
        )
        seen = feedback if rule.estimator.bandit else feedback._replace(labels=now.labels)
        c = coefficients(rule.estimator, logits, choice, seen, axis)
        moves = now.real if feedback.observed is True else now.real & feedback.observed
        e = jnp.where(moves, step_length(rule, now.t) * c, 0.0)
        fresh = lax.dynamic_update_index_in_dim(fresh, e / factor, i, 0)
        asks = () if query_map is None else (factor * e, moves)
        if project is not None:
            norm2 = norm2 - 2 * e * plain + e**2 * gram_row[i]
            shrink = jnp.where(moves, project(norm2), 1.0)
            factor, norm2 = factor * shrink, norm2 * shrink**2
        line = logits, choice, world.reported(feedback), success
        return (fresh, factor, norm2), (line, asks)

    def run_tile(rows, xs):
        start, now = xs
        gram_rows = lax.dynamic_slice_in_dim(gram, start, tile)  # [b, B]
        within = lax.dynamic_slice_in_dim(gram_rows, start, tile, axis=1)  # [b, b]
        left = lax.dynamic_slice_in_dim(scores, start, tile) - gram_rows @ rows.pending
        (fresh, factor, norm2), ((logits, choice, reward, success), asks) = lax.scan(
            run_round,
            (jnp.zeros_like(left), rows.factor, rows.norm2),
            (jnp.arange(tile), left, within, now),
        )
        info = jax.vmap(lambda z, labels: measure(z, labels, axis))(logits, now.labels)
        trace = Trace(**choice._asdict(), reward=reward, success=success, **info._asdict())
        pending = lax.dynamic_update_slice_in_dim(rows.pending, fresh, start, 0)
        return _Rows(pending=pending, factor=factor, norm2=norm2), (trace, asks)

    tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), rounds)
    rows, (trace, asks) = lax.scan(run_tile, rows, (jnp.arange(0, len(order), tile), tiles))
    extra = state.extra
    if query_map is not None:
        fe, moves = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), asks)
        pulls = _pulls(state.theta, u, rows.pending, fe, axis)
        change = query_map.change(params, queries, pulls, moves.astype(pulls.dtype))
        maps = map_tiles.moved(extra[0], state.t, rule.map_every, change)
        maps = jax.tree.map(lambda new, old: jnp.where(moves.any(), new, old), maps, extra[0])
        extra = (maps, *extra[1:])
    theta = state.theta - rows.pending.T @ u
    if project is not None:
        theta = theta * rows.factor[:, None]
    trace = jax.tree.map(lambda x: x.reshape(-1), trace)
    t = state.t + real.sum(dtype=state.t.dtype)
    return state._replace(theta=theta, t=t, extra=extra), trace


def _pulls(
    theta: Float[Array, "I d"],
    u: Float[Array, "B d"],
    pending: Float[Array, "B I"],
    fe: Float[Array, "B I"],
    axis: Axis,
) -> Float[Array, "B d"]:
    """``Theta_s^T e_s`` of every round, from the block's first Theta and what was pending in each.

    Returns:
      [B, d], the same on all devices.
    """
    before = jnp.tril(fe @ pending.T, -1)  # P_r . f_s e_s, r < s
    local = fe @ theta - before @ u
    return local if axis is None else lax.psum(local, axis)
