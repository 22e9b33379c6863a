"""Many rounds in one program: the exact blocked form, on one device and on a mesh.

A stream is cut into blocks of B rounds, each of which reads Theta twice or three times where the
scan reads it three times a round (`jaxret.simulation.blocked.rank_one`: the kernel, and why it is
exact; of a mixture `jaxret.simulation.blocked.mixture`).

The kernel is written once. On a mesh it runs inside shard_map with the rows of Theta split
over the axis ``item``: a round exchanges a maximum, a few sums and the chosen entry; a block
with a query map also what the map learns, [B, d].

Round t uses ``fold_in(key, t)``: a run cut at any multiple of the block and resumed from its
state goes on bit for bit. With a query map or experience replay, blocks lie at multiples of B in t.

Letters: I items, d width, B rounds a block, b rounds a tile, T rounds.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from jaxret.environments.environment import (
    Environment,
    effects_with,
    intervenes,
    partition_specs,
)
from jaxret.learners import narrow_rows
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import TILE, Learner, Replay, Rule
from jaxret.learners.mixing import Mixed, Rows, stays
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.rank_one import parts
from jaxret.simulation.blocked.rounds import run_block
from jaxret.types import PRNGKey, State, Stream, Trace

BLOCK = 128
BLOCK_REPLAYED = 16  # of nine lines a round: what is pending stays about as large


def has_blocked_form(learner: Learner, environment: Environment) -> bool:
    """Whether `simulate_blocked` can run it; what cannot takes the scan.

    A rank-one learner whose rows move along the queries, or along a map of them that stands still
    for a multiple of eight rounds, each row at a step size of its own or not; and such a learner
    with experience replay, where every round is answered. A mixture of learners all of which have
    that form. Nothing may happen to the learner itself.
    """
    answered = not effects_with(environment, "is_observed")

    def moves(one):
        rule = one.rule if one.replay is None else one.replay.rule
        known = one.replay is None or answered  # the draws of a block
        return rule is not None and rule.blocked and known

    return all(map(moves, _movers(learner))) and not intervenes(environment)


def parts_of_all(learner: Learner) -> list[tuple[Rule, Replay | None]]:
    """The parts of a learner that has the blocked form; of a mixture those of each form."""
    return [parts(one) for one in _movers(learner)]


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
      learner: one that `has_blocked_form`.
      state: as in `jaxret.simulation.scan.scan_rounds`.
      environment: as there, without interventions on the learner.
      stream: as there. Where ``order`` is -1 nothing happens (its line of the trace means
        nothing), so that the chunks of a run can share one shape. With a query map or experience
        replay the first -1 ends it, as in the scan.
      key: as there.
      block: B, rounds between two reads of Theta; divides ``map_every`` where there is a query
        map. None: the largest that fits, 128 at most, or 16 with experience replay.
      tile: b, rounds between two reads of what is pending; divides B.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      as there.
    """
    if intervenes(environment):
        raise ValueError("interventions on the learner have no blocked form: use scan_rounds")
    if not has_blocked_form(learner, environment):
        raise ValueError(f"learner {learner.name!r} has no blocked form: use scan_rounds")
    block = _largest_block(learner, tile) if block is None else block
    require("tile", tile, ">= 1", lambda x: x >= 1)
    require("block", block, f"a multiple of tile={tile}", lambda x: x >= tile and x % tile == 0)
    first, blocks = _cut(learner, state, stream.order, block)

    def run(state, order):
        return run_block(learner, state, environment, stream, key, order, tile, axis)

    def skip(state, order):
        line = jax.eval_shape(run, state, order)[1]
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), line)

    def run_if_any(state, order):
        return lax.cond((order >= 0).any(), run, skip, state, order)

    kind, packed = state.theta.dtype, narrow_rows.packed(state)
    packed, trace = lax.scan(run_if_any, packed, blocks)
    state = packed if kind == packed.theta.dtype else narrow_rows.unpacked(packed)
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

    The number of items must be a multiple of the axis (`jaxret.runtime.sharding.padded`).
    """
    items, devices = state.theta.shape[0], mesh.shape["item"]
    if items % devices:
        raise ValueError(
            f"{items} items do not divide over {devices} devices: pad the catalogue with"
            f" jaxret.runtime.sharding.padded(catalogue, {devices})"
        )
    states = State._make((P("item", None), P("item"), P(), _extra_lies(learner)))
    reranker, bare = environment.reranker, environment._replace(reranker=None)

    def local(state, environment, stream, key):
        environment = environment._replace(reranker=reranker)
        return simulate_blocked(
            learner, state, environment, stream, key, block=block, tile=tile, axis="item"
        )

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(states, partition_specs(bare, "item"), P(), P()),
        out_specs=(states, P()),
        check_vma=False,
    )(state, bare, stream, key)


def _movers(learner: Learner) -> list[Learner]:
    """A learner alone; of a mixture an expert of each form that moves."""
    if learner.blend is None:
        return [learner]
    return [form.learner(0) for form in learner.blend.forms if not stays(form)]


def _largest_block(learner: Learner, tile: int) -> int:
    """Rounds for which Theta may be left alone: as many as serve, that a map's tile is made of."""
    found = parts_of_all(learner)
    replays = any(replay is not None for _, replay in found)
    most = max(tile, BLOCK_REPLAYED) if replays else BLOCK
    tiles = [rule.map_every for rule, _ in found if rule.query_map is not None]
    fits = range(tile, most + 1, tile)
    return max(n for n in fits if all(every % n == 0 for every in tiles))


def _cut(learner: Learner, state: State, order: Int[Array, " T"], block: int):
    """The stream in blocks [n, B], filled up with -1, and where in them it begins."""
    found, fill = parts_of_all(learner), -len(order) % block
    if all(rule.query_map is None and replay is None for rule, replay in found):
        return 0, jnp.pad(order, (0, fill), constant_values=-1).reshape(-1, block)
    for rule, _ in found:
        if rule.query_map is not None:
            divides = f"a divisor of map_every={rule.map_every}"
            require("block", block, divides, lambda x, every=rule.map_every: every % x == 0)
    first = state.t % block
    order = jnp.where(jnp.cumprod(order >= 0) == 1, order, -1)
    empty = jnp.full(len(order) + fill + block, -1, order.dtype)
    return first, lax.dynamic_update_slice_in_dim(empty, order, first, 0).reshape(-1, block)


def _extra_lies(learner: Learner, rows: tuple = ("item",)):
    """Where on the mesh `State.extra` lies: what is of rows with them, the rest everywhere."""
    if learner.blend is not None:
        lies = {"rows": tuple(map(_form_lies, learner.blend.forms))}
        return Mixed._make(lies.get(name, P()) for name in Mixed._fields)
    rule, replay = parts(learner)
    memory = () if rule.preconditioner is None else P(*rows)
    own = () if rule.rows_alone else (P(), memory)
    return own if replay is None else (own, P(), P())


def _form_lies(form: LearnerGrid) -> Rows:
    """The same of the experts of one form."""
    if stays(form):
        return Rows((), ())
    return Rows(P(None, "item", None), _extra_lies(form.learner(0), (None, "item")))
