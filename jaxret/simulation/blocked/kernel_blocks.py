"""What the two GPU kernels share: the blocks around them, and what a bit does in a round.

A block is that of `jaxret.simulation.blocked.simulate`: a product before its rounds, a product
after them, and a product between two tiles. How the b rounds of a tile are played is left to a
kernel:

    jaxret.simulation.blocked.tile_kernel     all of them in one launch, a run on one multiprocessor
    jaxret.simulation.blocked.round_kernel    each in a launch, a run on all of them

The jnp form remains what defines the rounds (the same items, numbers to rounding; the tests hold
both kernels to it), what runs on a CPU, and the default everywhere: **nothing but the benchmark
uses a kernel until it was measured faster on a GPU.**

Letters: I items, those of padding too; d width, B rounds a block, b rounds a tile, T rounds,
L labels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Learner, Rule
from jaxret.learners.rank_one import step_length
from jaxret.rules.estimators import Observation
from jaxret.runtime.validate import require
from jaxret.simulation.scan import round_keys
from jaxret.types import PRNGKey, State, Stream, Trace

POLICIES = ("greedy", "softmax")


class Tile(NamedTuple):
    """What a kernel is given of b rounds; arrays outside of it, references inside."""

    left: Float[Array, "b I"]  # scores, less what was pending when the tile began
    gram: Float[Array, "b b"]
    factor: Float[Array, " I"]  # f, the rows' running factors
    norm2: Float[Array, " I"]  # squared norms of theta, as projected
    here: Float[Array, " I"]  # 1 where an item is available
    tau: Float[Array, " 1"]
    labels: Int[Array, "b L"]
    uniform: Float[Array, " b"]  # of which a draw is made
    steps: Float[Array, " b"]  # eta_t / tau, 0 where there is no query


#: A tile -> pending [b, I], factor, norm2, and what is to be said of its rounds, [b, ..] each.
Play = Callable[[Tile], tuple[Any, Any, Any, Any]]
#: What is to be said of a block's rounds, and their labels [B, L] -> their trace.
Describe = Callable[[Any, Any], Trace]


def play_blocks(
    play: Play,
    describe: Describe,
    learner: Learner,
    state: State,
    stream: Stream,
    key: PRNGKey,
    *,
    block: int,
    tile: int,
    padded: int,
) -> tuple[State, Trace]:
    """The rounds of `jaxret.simulation.blocked.simulate.simulate_blocked`, whose tiles a kernel
    plays.

    Args:
      play: the kernel.
      describe: makes a trace of what it says.
      learner: as `require_kernel` has it.
      state: as there.
      stream: as there.
      key: as there.
      block: B.
      tile: b.
      padded: I, items that the kernel wants; those added are absent.

    Returns:
      as there.
    """
    rule, items, rounds = _rule(learner), len(state.theta), len(stream.order)
    order = jnp.pad(stream.order, (0, -rounds % block), constant_values=-1).reshape(-1, block)
    more = ((0, padded - items),)
    whole = state._replace(
        theta=jnp.pad(state.theta, (*more, (0, 0))), available=jnp.pad(state.available, more)
    )

    def run_block(state, order):
        real, query = order >= 0, jnp.maximum(order, 0)
        t = state.t + jnp.cumsum(real, dtype=state.t.dtype) - real
        labels, queries = stream.labels[query], stream.queries[query]
        act_keys, _ = round_keys(key, t)
        dtype = queries.dtype
        uniform = jax.vmap(partial(jax.random.uniform, dtype=dtype))(act_keys)
        steps = jnp.where(real, jax.vmap(partial(step_length, rule))(t), 0).astype(dtype)
        scores, gram = queries @ state.theta.T, queries @ queries.T
        blank = jnp.zeros_like(scores[0])
        projects = rule.projection.factor is not None
        norm2 = jnp.sum(state.theta**2, axis=1) if projects else blank
        here = state.available.astype(dtype)
        tau = jnp.asarray(rule.tau, dtype)[None]

        def next_tile(carry, xs):
            pending, factor, norm2 = carry
            start, numbers = xs
            lines = lax.dynamic_slice_in_dim(gram, start, tile)
            within = lax.dynamic_slice_in_dim(lines, start, tile, axis=1)
            left = lax.dynamic_slice_in_dim(scores, start, tile) - lines @ pending
            fresh, factor, norm2, said = play(
                Tile(left, within, factor, norm2, here, tau, *numbers)
            )
            pending = lax.dynamic_update_slice_in_dim(pending, fresh, start, 0)
            return (pending, factor, norm2), said

        tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), (labels, uniform, steps))
        (pending, factor, _), said = lax.scan(
            next_tile,
            (jnp.zeros_like(scores), jnp.ones_like(blank), norm2),
            (jnp.arange(0, block, tile), tiles),
        )
        theta = state.theta - pending.T @ queries
        if projects:
            theta = theta * factor[:, None]
        trace = describe(jax.tree.map(lambda x: x.reshape(block, *x.shape[2:]), said), labels)
        return state._replace(theta=theta, t=state.t + real.sum(dtype=state.t.dtype)), trace

    new, trace = lax.scan(run_block, whole, order)
    new = new._replace(theta=new.theta[:items], available=state.available)
    return new, jax.tree.map(lambda x: x.reshape(-1)[:rounds], trace)


def require_kernel(learner: Learner, state: State, block: int, tile: int) -> Rule:
    """Raises ValueError for what no kernel does; returns the rule of a learner that one does.

    That is one whose rows alone move, by bits, in float32, and that shows one item: the best
    (`policies.greedy`) or one drawn from p (`policies.softmax`, at the model's own temperature).
    """
    rule = learner.rule
    if rule is None or not rule.rows_alone or not rule.estimator.bandit:
        raise ValueError(f"learner {learner.name!r} has no kernel: use simulate_blocked")
    policy = rule.policy
    if policy.name not in POLICIES or policy.k != 1:
        raise ValueError(
            f"the kernel shows one item by {' or '.join(POLICIES)}, got {policy.name} of "
            f"k={policy.k}: use simulate_blocked"
        )
    if not (isinstance(policy.temperature, float) and policy.temperature == 1.0):
        raise ValueError(
            f"the kernel draws from p itself, got temperature={policy.temperature}: "
            "use simulate_blocked"
        )
    dtype = state.theta.dtype
    require("theta", dtype, "float32, else simulate_blocked", lambda x: x == jnp.float32)
    require("tile", tile, ">= 1", lambda x: x >= 1)
    require("block", block, f"a multiple of tile={tile}", lambda x: x >= tile and x % tile == 0)
    return rule


def _rule(learner: Learner) -> Rule:
    assert learner.rule is not None
    return learner.rule


def answered(rule: Rule, tile: Tile, i, probs, ids, item, best, p_chosen):
    """What round i of a tile is answered, and what a rule makes of the bit.

    Args:
      rule: the learner's.
      tile: references.
      i: the round.
      probs: p of some items, or of all.
      ids: which items they are.
      item: a, which was shown.
      best: the best of all items.
      p_chosen: p_a.

    Returns:
      e of these items, the propensity of a, its reward.
    """
    dtype = probs.dtype
    propensity = jnp.ones_like(p_chosen) if rule.policy.name == "greedy" else p_chosen
    right = tile.labels[i, 0] == item
    for position in range(1, tile.labels.shape[1]):
        right |= tile.labels[i, position] == item
    reward = right.astype(dtype)
    c = rule.estimator.coefficients(
        Observation(
            probs=probs,
            chosen=(ids == item).astype(dtype),
            best=(ids == best).astype(dtype),
            target=None,
            p_chosen=p_chosen,
            propensity=propensity,
            reward=reward,
        )
    )
    return tile.steps[i] * c, propensity, reward


def projected(rule: Rule, tile: Tile, i, e, plain, factor, norm2):
    """Factors and squared norms of rows with ``theta . q = plain``, after round i moved them by e.

    Returns:
      factor and norm2, as they were where rows are free.
    """
    if (project := rule.projection.factor) is None:
        return factor, norm2
    norm2 = norm2 - 2 * e * plain + e**2 * tile.gram[i, i]
    shrink = jnp.where(tile.steps[i] > 0, project(norm2), 1.0)
    return factor * shrink, norm2 * shrink**2


def inverted(weights, ids, uniform):
    """`jaxret.runtime.over_items.draw` in one piece, by what Triton has.

    Returns:
      that of the ascending ``ids`` on whose weight ``uniform`` falls, and where in that weight,
      again in [0, 1).
    """
    below_one = 1 - jnp.finfo(weights.dtype).eps
    cumulative = jnp.where(weights > 0, jnp.cumsum(weights), 0)
    target = jnp.minimum(uniform, below_one) * jnp.max(cumulative)
    index = jnp.min(jnp.where(cumulative > target, ids, jnp.max(ids)))
    weight = jnp.sum(jnp.where(ids == index, weights, 0))
    before = jnp.sum(jnp.where(ids == index, cumulative, 0)) - weight
    rest = (target - before) / jnp.where(weight > 0, weight, 1)
    return index, jnp.clip(rest, 0, below_one)
