"""What experience replay remembers, and which of it a round is reminded of.

Past rounds stand in a ring of C. Which slots a round draws depends on its number and on how many
rounds were answered before it, never on what was learnt. Where every round is answered the draws of
a block are known before its first round, and so are their queries, of rounds in the block too; the
bits of these come one by one (`jaxret.simulation.blocked.rank_one`).

Letters: C rounds remembered, d width, B rounds a block, n past rounds a round.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Replay
from jaxret.types import Choice, PRNGKey


class Past(NamedTuple):
    """Rounds that have been; a ring, the oldest is overwritten first."""

    query: Float[Array, "C d"]
    item: Int[Array, " C"]
    propensity: Float[Array, " C"]
    reward: Float[Array, " C"]


class Bits(NamedTuple):
    """`Past` without its queries."""

    item: Int[Array, " C"]
    propensity: Float[Array, " C"]
    reward: Float[Array, " C"]


class Slots(NamedTuple):
    """Places in the ring."""

    own: Int[Array, " B"]  # where the round itself is written
    drawn: Int[Array, "B n"]


def draw_key(seed: int, t: Int[Array, ""]) -> PRNGKey:
    """The key of round t's draws from the past: they do not depend on what the policy draws.

    Returns:
      a key [].
    """
    return jax.random.fold_in(jax.random.key(seed), t)


def drawn(
    replay: Replay,
    past: Float[Array, "C d"],
    count: Int[Array, ""],
    t: Int[Array, " B"],
    real: Bool[Array, " B"],
    queries: Float[Array, "B d"],
) -> tuple[Slots, Float[Array, "B n d"]]:
    """What the rounds of a block are reminded of.

    Args:
      replay: how many, and of which seed.
      past: the queries in the ring before the block.
      count: rounds remembered so far.
      t: the rounds.
      real: which of them are; these stand together.
      queries: of the rounds.

    Returns:
      the slots of each round, and their queries [B, n, d].
    """
    before = jnp.cumsum(real, dtype=count.dtype) - real  # rounds of the block
    counts, capacity = count + before, replay.capacity

    def draw(t, count):
        known = jnp.minimum(count + 1, capacity)
        return jax.random.randint(draw_key(replay.seed, t), (replay.per_round,), 0, known)

    slots = jax.vmap(draw)(t, counts)
    ago = (counts[:, None] - slots) % capacity  # rounds since the slot was written
    place = jnp.argmax(real) + before[:, None] - ago  # in the block
    in_block = (ago <= before[:, None])[..., None]
    old = jnp.where(in_block, queries[jnp.maximum(place, 0)], past[slots])
    return Slots(own=counts % capacity, drawn=slots), old


def written(
    bits: Bits,
    slot: Int[Array, ""],
    real: Bool[Array, ""],
    choice: Choice,
    reward: Float[Array, ""],
) -> Bits:
    """The bits with that of one round more, where it is a round."""
    new = Bits(choice.item, choice.propensity, reward)
    return jax.tree.map(lambda x, y: x.at[slot].set(jnp.where(real, y, x[slot])), bits, new)


def remembered(
    past: Past,
    bits: Bits,
    count: Int[Array, ""],
    real: Bool[Array, " B"],
    queries: Float[Array, "B d"],
) -> tuple[Past, Int[Array, ""]]:
    """The past with a block more, whose bits are written.

    Returns:
      the past, and how many rounds it has seen [].
    """
    capacity, new = len(past.item), real.sum(dtype=count.dtype)
    before = jnp.cumsum(real, dtype=count.dtype) - real
    stays = real & (before >= new - capacity)  # is not overwritten by the same block
    slot = jnp.where(stays, (count + before) % capacity, capacity)
    query = past.query.at[slot].set(queries, mode="drop")
    return Past(query, *bits), count + new
