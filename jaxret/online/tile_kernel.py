"""A tile of rounds as one GPU kernel, to be measured against the form that XLA makes.

`jaxret.online.blocked` runs a round as some ten launches of a few microseconds each, whatever the
catalogue's size. Here the b rounds of a tile are one Pallas kernel, of which every run of a grid is
one program: its logits ``[b, I]`` stay on one multiprocessor, where round i does

    z = factor (row_i)                        row_r = (Theta q_r) so far, for r = i .. b
    p = softmax(z / tau);  a by argmax or draw;  y = 1[a right];  e = eta_t c / tau
    row_r <- row_r - (q_r . q_i) e / factor   for r > i
    factor, norm2 by the projection

with the letters of `jaxret.online.blocked`. Between two tiles it is one matrix product, between two
blocks two, as there. That jnp form remains what defines the rounds (the same items, numbers to
rounding; the tests hold them to it), what runs on a CPU, and the default everywhere: **nothing but
the benchmark uses this file until it was measured faster on a GPU.**

Backend: Triton, which wants sizes that are powers of two, so I is padded to one. Mosaic GPU, which
jax 0.10 takes where no backend is named, refuses: it stages whole arrays in shared memory (3,000
items, b = 8: "smem_bytes=485384 > max_smem_bytes=232448") in copies of at most 256 elements along
each dimension (b = 2: "Async copies only support copying <=256 elements along each dimension, got
(2, 4096)"). jax 0.12 takes Triton by itself.

Letters: I items, d width, B rounds a block, b rounds a tile, T rounds, L labels.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from jaxret.online.blocked import BLOCK, TILE
from jaxret.online.estimators import Observation
from jaxret.online.learner import Learner, Rule
from jaxret.online.measure import measure
from jaxret.online.rank_one import step_length
from jaxret.online.rounds import round_keys
from jaxret.types import PRNGKey, State, Stream, Trace
from jaxret.validate import require

LARGEST = 16384  # items: past it the rows of a tile fit on no multiprocessor
POLICIES = ("greedy", "softmax")


def simulate_tiled(
    learner: Learner,
    state: State,
    stream: Stream,
    key: PRNGKey,
    *,
    block: int = BLOCK,
    tile: int = TILE,
    warps: int = 16,
    interpret: bool = False,
) -> tuple[State, Trace]:
    """The rounds of `jaxret.online.blocked.simulate_blocked` with a kernel a tile; maps over runs.

    Args:
      learner: shows one item, the best (`policies.greedy`) or one drawn from p
        (`policies.softmax`), and learns from bits; of its numbers tau and eta may be traced.
      state: as there, with at most `LARGEST` items.
      stream: as there. The environment is the plain one, ``Environment()``.
      key: as there.
      block: B, rounds between two reads of Theta.
      tile: b, rounds a kernel; divides B. Their rows live in registers, so few of many items.
      warps: of 32 threads, that share a run.
      interpret: runs the kernel as plain JAX, on any device; slow, for tests.

    Returns:
      as there.

    Raises:
      ValueError: for a learner or a catalogue that the kernel does not do.
    """
    rule, items = learner.rule, len(state.theta)
    _check(learner, items, block, tile)
    assert rule is not None
    rounds, width = len(stream.order), pl.next_power_of_2(items)
    order = jnp.pad(stream.order, (0, -rounds % block), constant_values=-1).reshape(-1, block)
    rows = ((0, width - items),)
    whole = state._replace(
        theta=jnp.pad(state.theta, (*rows, (0, 0))), available=jnp.pad(state.available, rows)
    )
    run_tile = _tile_kernel(rule, tile, width, stream.labels.shape[1], warps, interpret)

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
        project = rule.projection.factor
        norm2 = blank if project is None else jnp.sum(state.theta**2, axis=1)
        here = state.available.astype(dtype)
        tau = jnp.asarray(rule.tau, dtype)[None]

        def next_tile(carry, xs):
            pending, factor, norm2 = carry
            start, numbers = xs
            lines = lax.dynamic_slice_in_dim(gram, start, tile)
            within = lax.dynamic_slice_in_dim(lines, start, tile, axis=1)
            left = lax.dynamic_slice_in_dim(scores, start, tile) - lines @ pending
            fresh, factor, norm2, logits, *shown = run_tile(
                left, within, factor, norm2, here, tau, *numbers
            )
            pending = lax.dynamic_update_slice_in_dim(pending, fresh, start, 0)
            return (pending, factor, norm2), (logits, *shown)

        tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), (labels, uniform, steps))
        (pending, factor, _), found = lax.scan(
            next_tile,
            (jnp.zeros_like(scores), jnp.ones_like(blank), norm2),
            (jnp.arange(0, block, tile), tiles),
        )
        logits, item, propensity, reward = (x.reshape(block, *x.shape[2:]) for x in found)
        theta = state.theta - pending.T @ queries
        if project is not None:
            theta = theta * factor[:, None]
        info = jax.vmap(measure)(logits, labels)._asdict()
        trace = Trace(item=item, propensity=propensity, reward=reward, success=reward, **info)
        return state._replace(theta=theta, t=state.t + real.sum(dtype=state.t.dtype)), trace

    new, trace = lax.scan(run_block, whole, order)
    new = new._replace(theta=new.theta[:items], available=state.available)
    return new, jax.tree.map(lambda x: x.reshape(-1)[:rounds], trace)


def _check(learner: Learner, items: int, block: int, tile: int) -> None:
    rule = learner.rule
    narrow = rule is not None and rule.rounding is not None
    if rule is None or narrow or not rule.blocked or not rule.estimator.bandit:
        raise ValueError(f"learner {learner.name!r} has no kernel: use simulate_blocked")
    if rule.policy.name not in POLICIES or rule.policy.k != 1:
        raise ValueError(
            f"the kernel shows one item by {' or '.join(POLICIES)}, got {rule.policy.name} of "
            f"k={rule.policy.k}: use simulate_blocked"
        )
    require("items", items, f"at most {LARGEST}, else simulate_blocked", lambda n: n <= LARGEST)
    require("tile", tile, ">= 1", lambda x: x >= 1)
    require("block", block, f"a multiple of tile={tile}", lambda x: x >= tile and x % tile == 0)


def _tile_kernel(rule: Rule, tile: int, width: int, n_labels: int, warps: int, interpret: bool):
    """The kernel as a function of arrays; `jax.vmap` makes every run a program of its grid."""
    real, whole = jnp.float32, jnp.int32
    outputs = (
        jax.ShapeDtypeStruct((tile, width), real),  # e / factor
        jax.ShapeDtypeStruct((width,), real),  # factor
        jax.ShapeDtypeStruct((width,), real),  # norm2
        jax.ShapeDtypeStruct((tile, width), real),  # logits
        jax.ShapeDtypeStruct((tile,), whole),  # item
        jax.ShapeDtypeStruct((tile,), real),  # propensity
        jax.ShapeDtypeStruct((tile,), real),  # reward
    )
    return pl.pallas_call(
        partial(_rounds, rule, tile, n_labels),
        out_shape=outputs,
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="tile_of_rounds",
    )


def _rounds(rule: Rule, tile: int, n_labels: int, *refs) -> None:
    """The rounds of one tile of one run; the loops are unrolled, so that rows stay in registers."""
    left, within, factor_in, norm2_in, here, tau, labels, uniform, steps = refs[:9]
    fresh, factor_out, norm2_out, logits, item_out, propensity_out, reward_out = refs[9:]
    factor, norm2 = factor_in[...], norm2_in[...]
    available, temperature = here[...] > 0, tau[0]
    ids = lax.iota(jnp.int32, factor.shape[0])
    rows = [left[r, :] for r in range(tile)]
    for i in range(tile):
        plain = factor * rows[i]
        z = jnp.where(available, plain / temperature, -jnp.inf)
        weights = jnp.exp(z - jnp.max(z))
        probs = weights / jnp.sum(weights)
        best = jnp.argmax(z).astype(jnp.int32)
        item = best if rule.policy.name == "greedy" else _draw(probs, ids, uniform[i])
        chosen = (ids == item).astype(z.dtype)
        p_chosen = jnp.sum(probs * chosen)
        propensity = jnp.ones_like(p_chosen) if rule.policy.name == "greedy" else p_chosen
        right = labels[i, 0] == item
        for position in range(1, n_labels):
            right |= labels[i, position] == item
        reward = right.astype(z.dtype)
        c = rule.estimator.coefficients(
            Observation(
                probs=probs,
                chosen=chosen,
                best=(ids == best).astype(z.dtype),
                target=None,
                p_chosen=p_chosen,
                propensity=propensity,
                reward=reward,
            )
        )
        e = steps[i] * c
        pending = e / factor
        for r in range(i + 1, tile):
            rows[r] = rows[r] - within[r, i] * pending
        if (project := rule.projection.factor) is not None:
            norm2 = norm2 - 2 * e * plain + e**2 * within[i, i]
            shrink = jnp.where(steps[i] > 0, project(norm2), 1.0)
            factor, norm2 = factor * shrink, norm2 * shrink**2
        fresh[i, :], logits[i, :] = pending, z
        item_out[i], propensity_out[i], reward_out[i] = item, propensity, reward
    factor_out[...], norm2_out[...] = factor, norm2


def _draw(probs: Float[Array, " I"], ids, uniform):
    """`jaxret.over_items.draw`, in one piece."""
    cumulative = jnp.where(probs > 0, jnp.cumsum(probs), 0)
    target = jnp.minimum(uniform, 1 - jnp.finfo(probs.dtype).eps) * jnp.max(cumulative)
    return jnp.min(jnp.where(cumulative > target, ids, probs.shape[0] - 1))
