"""The exact blocked form: the rounds of `jaxret.simulation.scan`, computed block by block.

A stream is cut into blocks of B rounds. A block reads Theta two or three times, the scan three
times a round. `jaxret.simulation.blocked.rank_one` has the kernel and derives why it is exact;
`jaxret.simulation.blocked.mixture` has the kernel of a mixture, and
`jaxret.simulation.blocked.minibatch` that of mini-batches, whose blocks are the batches.

On a mesh the same kernel runs inside shard_map with the rows of Theta split over the axis ``item``.
A round exchanges a maximum, a few sums and the chosen entry; a block with a query map also
exchanges the [B, d] factors of the map's update.

Round t uses the keys of the scan (`jaxret.simulation.scan.round_keys`), so a run that is cut at a
multiple of the block and resumed from its state continues bit for bit. With a query map or
experience replay, blocks begin at multiples of B in t.

Letters: I items, d width, B rounds a block, b rounds a tile, T rounds.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from jaxret.environments.environment import Environment, effects_with, intervenes, partition_specs
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.learners.minibatch import Batches, OpenBatch
from jaxret.learners.mixture import Blend, ExpertRows, MixtureExtra, is_frozen
from jaxret.learners.rank_one import TILE, Rule
from jaxret.learners.replay import Replay
from jaxret.rules.offsets import Usage
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.minibatch import BatchKernel
from jaxret.simulation.blocked.mixture import MixtureKernel
from jaxret.simulation.blocked.rank_one import RankOneKernel, parts
from jaxret.simulation.blocked.rounds import Kernel, run_block
from jaxret.types import PRNGKey, State, Stream, Trace

BLOCK = 128
BLOCK_REPLAYED = 16  # with nine lines a round, the pending updates take about as much memory


def has_blocked_form(learner: Learner, environment: Environment) -> bool:
    """Return whether `simulate_blocked` can simulate a learner in an environment.

    The blocked form exists for rank-one learners without a query map or with one that is constant
    for a multiple of eight rounds, with or without a step size per row; for such learners with
    experience replay, if every round is observed; for mixtures of such learners; and for
    mini-batches, if every round is observed. The environment must not intervene on the learner
    itself.
    """
    observed = not effects_with(environment, "is_observed")

    def blocks(one):
        if isinstance(structure := one.structure, Replay):  # sampling assumes observed rounds
            return structure.rule.blocked and observed
        if isinstance(structure, Batches):  # rounds without feedback would lengthen a batch
            return observed and one is learner  # a mixture's kernel has no mini-batches
        return isinstance(structure, Rule) and structure.blocked

    return all(map(blocks, _movers(learner))) and not intervenes(environment)


def parts_of_all(learner: Learner) -> list[tuple[Rule, Replay | None]]:
    """Return rule and replay of a learner, or of each kind of a mixture's experts that move."""
    return [parts(one) for one in _movers(learner)]


def any_block(learner: Learner) -> bool:
    """Return whether blocks may have any length; mini-batches and query maps fix the length."""
    if isinstance(learner.structure, Batches):
        return False
    return all(rule.query_map is None for rule, _ in parts_of_all(learner))


def simulate_blocked(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    *,
    block: int | None = None,
    tile: int | None = None,
    axis: Axis = None,
) -> tuple[State, Trace]:
    """Simulate a stream in blocks: two matrix products per ``block`` rounds.

    Args:
      learner: learner for which `has_blocked_form` is True.
      state: state from ``learner.init`` or an earlier call; ``state.t`` is the first round.
      environment: environment that does not intervene on the learner.
      stream: queries, labels, and the order of these T rounds. Rounds with ``order`` -1 are
        padding, so that all chunks of a run have one shape; their lines of the trace are undefined.
        With a query map or experience replay the first -1 ends the stream.
      key: random key of the whole run.
      block: B, rounds between two reads of Theta; divides ``map_every`` if there is a query map.
        None: the largest that fits, at most 128, or 16 with experience replay. With mini-batches
        it is the batch.
      tile: b, rounds between two reads of the pending updates; divides B. None: 8, or the largest
        divisor of a mini-batch up to 8.
      axis: the mesh axis of the items, inside shard_map; else None.

    Returns:
      The last state, and the trace [T].

    Raises:
      ValueError: if the learner or environment has no blocked form, or the sizes do not fit.
    """
    if intervenes(environment):
        raise ValueError("interventions on the learner have no blocked form: use scan_rounds")
    if not has_blocked_form(learner, environment):
        raise ValueError(f"learner {learner.name!r} has no blocked form: use scan_rounds")
    tile = _largest_tile(learner) if tile is None else tile
    block = _largest_block(learner, tile) if block is None else block
    require("tile", tile, ">= 1", lambda x: x >= 1)
    require("block", block, f"a multiple of tile={tile}", lambda x: x >= tile and x % tile == 0)
    first, blocks = _cut(learner, state, stream.order, block)
    kernel = _kernel(learner)

    @partial(jax.jit, inline=True)  # traced once for both branches
    def run(state, order):
        oracle = learner.facts.oracle
        return run_block(kernel, state, environment, stream, key, order, tile, axis, oracle=oracle)

    def skip(state, order):
        line = jax.eval_shape(run, state, order)[1]
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), line)

    def run_if_any(state, order):
        return lax.cond((order >= 0).any(), run, skip, state, order)

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
    tile: int | None = None,
) -> tuple[State, Trace]:
    """Simulate a stream in blocks, with the catalogue split over the mesh axis ``item``.

    Args:
      learner: learner for which `has_blocked_form` is True.
      state: state whose number of items is a multiple of the axis
        (`jaxret.runtime.sharding.padded`).
      environment: environment that does not intervene on the learner.
      stream: queries, labels, and the order of these T rounds.
      key: random key of the whole run.
      mesh: mesh with an axis ``item``.
      block: B, rounds between two reads of Theta; None: the largest that fits.
      tile: b, rounds between two reads of the pending updates; None: the largest that fits.

    Returns:
      The last state, and the trace [T].

    Raises:
      ValueError: if the items do not divide over the axis, the learner or environment has no
        blocked form, or the sizes do not fit.
    """
    items, devices = state.theta.shape[0], mesh.shape["item"]
    if items % devices:
        raise ValueError(
            f"{items} items do not divide over {devices} devices: pad the catalogue with"
            f" jaxret.runtime.sharding.padded(catalogue, {devices})"
        )
    states = state_specs(learner)
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
    """Return the learner itself, or one expert of each kind in a mixture that moves."""
    if isinstance(learner.structure, Blend):
        return [kind.learner(0) for kind in learner.structure.kinds if not is_frozen(kind)]
    return [learner]


def _largest_tile(learner: Learner) -> int:
    """Return the largest tile, at most 8, that divides a mini-batch; 8 for other learners."""
    if isinstance(batches := learner.structure, Batches):
        return max(n for n in range(1, TILE + 1) if batches.batch % n == 0)
    return TILE


def _largest_block(learner: Learner, tile: int) -> int:
    """Return the largest block, at most 128, that divides ``map_every``; or a mini-batch."""
    if isinstance(batches := learner.structure, Batches):
        return batches.batch
    found = parts_of_all(learner)
    replays = any(replay is not None for _, replay in found)
    most = max(tile, BLOCK_REPLAYED) if replays else BLOCK
    tiles = [rule.map_every for rule, _ in found if rule.query_map is not None]
    fits = range(tile, most + 1, tile)
    return max(n for n in fits if all(every % n == 0 for every in tiles))


def _cut(learner: Learner, state: State, order: Int[Array, " T"], block: int):
    """Cut the stream into blocks [n, B], padded with -1; also return its first position."""
    if isinstance(batches := learner.structure, Batches):
        require("block", block, f"the batch, {batches.batch}", batches.batch.__eq__)
        return _aligned(state.extra.count % block, order, block)
    found = parts_of_all(learner)
    if all(rule.query_map is None and replay is None for rule, replay in found):
        padded = jnp.pad(order, (0, -len(order) % block), constant_values=-1)
        return 0, padded.reshape(-1, block)
    for rule, _ in found:
        if rule.query_map is not None:
            divides = f"a divisor of map_every={rule.map_every}"
            require("block", block, divides, lambda x, every=rule.map_every: every % x == 0)
    return _aligned(state.t % block, order, block)


def _aligned(first: Int[Array, ""], order: Int[Array, " T"], block: int):
    """Cut into blocks a stream that begins at a position of a block and ends at the first -1."""
    order = jnp.where(jnp.cumprod(order >= 0) == 1, order, -1)
    empty = jnp.full(len(order) + -len(order) % block + block, -1, order.dtype)
    return first, lax.dynamic_update_slice_in_dim(empty, order, first, 0).reshape(-1, block)


def state_specs(learner: Learner) -> State:
    """Return the PartitionSpecs of a state on the mesh axis ``item``."""
    return State._make((P("item", None), P("item"), P(), extra_specs(learner)))


def extra_specs(learner: Learner, rows: tuple = ("item",)) -> Any:
    """Return PartitionSpecs of ``State.extra``: per-item arrays are sharded like Theta, the rest
    is replicated.

    Args:
      learner: learner with a blocked form.
      rows: the spec of an array with one number per item.
    """
    if isinstance(learner.structure, Blend):
        kinds = {"rows": tuple(map(_kind_specs, learner.structure.kinds))}
        return MixtureExtra._make(kinds.get(name, P()) for name in MixtureExtra._fields)
    if isinstance(batches := learner.structure, Batches):
        moments = jax.eval_shape(batches.optimiser.init, jax.ShapeDtypeStruct((1, 1), jnp.float32))
        of_rows = jax.tree.map(lambda x: P(*rows, None) if x.ndim == 2 else P(), moments)
        return OpenBatch._make((P(None, *rows), P(), P(), of_rows))
    rule, replay = parts(learner)
    memory = () if rule.preconditioner is None else P(*rows)
    own = rule.pack(P(), memory, Usage._make(P(*rows) for _ in Usage._fields))
    return own if replay is None else (own, P(), P())


def _kind_specs(kind: LearnerGrid) -> ExpertRows:
    """Return the PartitionSpecs of the experts of one kind."""
    own = extra_specs(kind.learner(0), (None, "item"))
    if is_frozen(kind):
        return ExpertRows((), own)
    return ExpertRows(P(None, "item", None), own)


def _kernel(learner: Learner) -> Kernel:
    structure = learner.structure
    if isinstance(structure, Batches):
        return BatchKernel(structure)
    if isinstance(structure, Blend):
        return MixtureKernel(structure)
    return RankOneKernel(*parts(learner))
