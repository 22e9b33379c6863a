"""A tile of rounds as one GPU kernel, to be measured against the form that XLA makes.

`jaxret.simulation.blocked.simulate` runs a round as some ten launches of a few microseconds each,
whatever the catalogue's size. Here the b rounds of a tile are one Pallas kernel, of which every run
of a grid is one program: its logits ``[b, I]`` stay on one multiprocessor, where round i does

    z = factor (row_i)                        row_r = (Theta q_r) so far, for r = i .. b
    p = softmax(z / tau);  a by argmax or draw;  y = 1[a right];  e = eta_t c / tau
    row_r <- row_r - (q_r . q_i) e / factor   for r > i
    factor, norm2 by the projection

with the letters of `jaxret.simulation.blocked.simulate`; `jaxret.simulation.blocked.kernel_blocks`
has what lies around it.

Backend: Triton, which wants sizes that are powers of two, so I is padded to one. Mosaic GPU, which
jax 0.10 takes where no backend is named, refuses: it stages whole arrays in shared memory (3,000
items, b = 8: "smem_bytes=485384 > max_smem_bytes=232448") in copies of at most 256 elements along
each dimension (b = 2: "Async copies only support copying <=256 elements along each dimension, got
(2, 4096)"). jax 0.12 takes Triton by itself, and says that it will be removed one day.

Letters: I items, d width, B rounds a block, b rounds a tile, T rounds, L labels.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from jaxret.learners.learner import Learner, Rule
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.kernel_blocks import (
    Tile,
    answered,
    inverted,
    play_blocks,
    projected,
    require_kernel,
)
from jaxret.simulation.blocked.simulate import BLOCK, TILE
from jaxret.simulation.trace import measure
from jaxret.types import PRNGKey, State, Stream, Trace

LARGEST = 16384  # items: past it the rows of a tile fit on no multiprocessor


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
    """The rounds of `jaxret.simulation.blocked.simulate.simulate_blocked` with a kernel a tile;
    maps over runs.

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
    rule, items = require_kernel(learner, state, block, tile), len(state.theta)
    require("items", items, f"at most {LARGEST}, else simulate_blocked", lambda n: n <= LARGEST)
    play = partial(_play, rule, warps, interpret)
    sizes = {"block": block, "tile": tile, "padded": pl.next_power_of_2(items)}
    return play_blocks(play, _described, learner, state, stream, key, **sizes)


def _described(said, labels) -> Trace:
    logits, item, propensity, reward = said
    info = jax.vmap(measure)(logits, labels)._asdict()
    return Trace(item=item, propensity=propensity, reward=reward, success=reward, **info)


def _play(rule: Rule, warps: int, interpret: bool, tile: Tile):
    """The kernel as a function of arrays; `jax.vmap` makes every run a program of its grid."""
    real, whole = jnp.float32, jnp.int32
    rounds, items = tile.left.shape
    outputs = (
        jax.ShapeDtypeStruct((rounds, items), real),  # e / factor
        jax.ShapeDtypeStruct((items,), real),  # factor
        jax.ShapeDtypeStruct((items,), real),  # norm2
        jax.ShapeDtypeStruct((rounds, items), real),  # logits
        jax.ShapeDtypeStruct((rounds,), whole),  # item
        jax.ShapeDtypeStruct((rounds,), real),  # propensity
        jax.ShapeDtypeStruct((rounds,), real),  # reward
    )
    pending, factor, norm2, *said = pl.pallas_call(
        partial(_rounds, rule),
        out_shape=outputs,
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="tile_of_rounds",
    )(tile)
    return pending, factor, norm2, tuple(said)


def _rounds(rule: Rule, tile: Tile, *outputs) -> None:
    """The rounds of one tile of one run; the loops are unrolled, so that rows stay in registers."""
    fresh, factor_out, norm2_out, logits, item_out, propensity_out, reward_out = outputs
    factor, norm2 = tile.factor[...], tile.norm2[...]
    available, temperature = tile.here[...] > 0, tile.tau[0]
    ids = lax.iota(jnp.int32, factor.shape[0])
    rounds = tile.left.shape[0]
    rows = [tile.left[r, :] for r in range(rounds)]
    for i in range(rounds):
        plain = factor * rows[i]
        z = jnp.where(available, plain / temperature, -jnp.inf)
        weights = jnp.exp(z - jnp.max(z))
        probs = weights / jnp.sum(weights)
        best = jnp.argmax(z).astype(jnp.int32)
        item = best if rule.policy.name == "greedy" else inverted(probs, ids, tile.uniform[i])[0]
        p_chosen = jnp.sum(jnp.where(ids == item, probs, 0))
        e, propensity, reward = answered(rule, tile, i, probs, ids, item, best, p_chosen)
        pending = e / factor
        for r in range(i + 1, rounds):
            rows[r] = rows[r] - tile.gram[r, i] * pending
        factor, norm2 = projected(rule, tile, i, e, plain, factor, norm2)
        fresh[i, :], logits[i, :] = pending, z
        item_out[i], propensity_out[i], reward_out[i] = item, propensity, reward
    factor_out[...], norm2_out[...] = factor, norm2
