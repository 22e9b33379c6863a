"""Experience replay: a ring buffer of past rounds, a few of which are replayed in each round.

    with_experience_replay(greedy(), per_round=8)

Rewards are expensive and gradient steps are cheap. A learner whose estimator is a likelihood can
learn from a reward any number of times: the gradient of ``-log P(y | q, a)`` at the current Theta
needs no new feedback, and vanishes once the model agrees with the reward. (The gradient of Eq. (4)
does not vanish: after a success it is ``p - 1 / pi`` however large p is, and free rows diverge.)
For an oracle the buffer stores a right item of the round instead of the item shown.

The buffer holds the last C rounds. The slots that a round samples depend only on the round's number
and on the number of rounds observed before. If every round is observed, the samples of a block are
therefore known before its first round, and so are the sampled queries, including queries of the
block itself, whose rewards arrive during the block (`jaxret.simulation.blocked.rank_one`).

Letters: C rounds in the buffer, d width, B rounds per block, n past rounds per round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import ChangeRows, Learner, query_for, where_observed
from jaxret.learners.rank_one import Rule, from_rule, relearn, rule_of
from jaxret.learners.wrappers import wrap
from jaxret.runtime.validate import require
from jaxret.types import Choice, Feedback, PRNGKey, State


class ReplayBuffer(NamedTuple):
    """The last C observed rounds; the oldest is overwritten first."""

    query: Any  # [C, d], with the prior [C, K] if the learner reads it; () within a block
    item: Int[Array, " C"]  # the item shown; for an oracle a right item
    propensity: Float[Array, " C"]
    reward: Float[Array, " C"]


class Slots(NamedTuple):
    """Slots of the buffer."""

    own: Int[Array, " B"]  # slot into which each round is written [B]
    sampled: Int[Array, "B n"]  # slots that each round replays [B, n]


class Replay(NamedTuple):
    """The structure of a rank-one learner with experience replay.

    ``State.extra`` is (the extra of the rule, `ReplayBuffer`, the number of observed rounds []).
    """

    rule: Rule  # rule of the learner
    per_round: int  # n, past rounds replayed per round
    capacity: int  # C, rounds in the buffer
    seed: int  # seed of the samples

    def change_rows(self, state: State, change: ChangeRows) -> State:
        """Apply a function [I, d] -> [I', d] to Theta."""
        return state._replace(theta=change(state.theta))

    def map_queries(self, state: State, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Map queries to the vectors that are multiplied with the rows.

        Returns:
          [..., d].
        """
        return self.rule.map_queries(without_buffer(state), queries)


def with_experience_replay(
    learner: Learner, *, per_round: int = 8, capacity: int = 4096, seed: int = 0
) -> Learner:
    """Replay ``per_round`` past rounds after each new one.

    The past rounds are replayed together, in one more step at Theta as it is after the new round.

    Args:
      learner: rank-one learner, preferably one that learns by a likelihood, or an oracle.
      per_round: n >= 1, past rounds per round, drawn uniformly from the buffer.
      capacity: C >= 1, rounds in the buffer.
      seed: seed of the samples.

    Raises:
      ValueError: if the learner is not rank one, or a number is out of its range.
    """
    if (rule := rule_of(learner)) is None:
        raise ValueError(
            f"learner {learner.name!r} is not rank one: experience replay needs the parts of a "
            "rank-one learner"
        )
    require("per_round", per_round, ">= 1", lambda x: x >= 1)
    require("capacity", capacity, ">= 1", lambda x: x >= 1)

    def init(theta, available=None):
        inner = learner.init(theta, available)
        buffer = ReplayBuffer(
            query=query_for(learner, jnp.zeros((capacity, theta.shape[1]), theta.dtype)),
            item=jnp.zeros(capacity, jnp.int32),
            propensity=jnp.ones(capacity, theta.dtype),
            reward=jnp.zeros(capacity, theta.dtype),
        )
        return inner._replace(extra=(inner.extra, buffer, jnp.zeros((), jnp.int32)))

    def update(state, query, choice, feedback):
        inner = learner.update(without_buffer(state), query, choice, feedback)
        kept = entry_of(rule, state.t, choice, feedback)
        buffer, count = push(*state.extra[1:], query, *kept)
        known = jnp.minimum(count, capacity)
        samples = jax.random.randint(draw_key(seed, state.t), (per_round,), 0, known)
        # Loop, because XLA would fuse a gather with the write above and copy the whole buffer.
        old = lax.map(lambda i: jax.tree.map(lambda x: x[i], buffer), samples)
        available = state.available[old.item]  # rounds of items that are absent are skipped
        choices = Choice(item=old.item, propensity=old.propensity)
        counts = available.astype(old.reward.dtype)
        inner = relearn(rule, inner, old.query, choices, old.reward, counts)
        return where_observed(feedback, state, inner._replace(extra=(inner.extra, buffer, count)))

    return wrap(
        learner,
        f"{learner.name}+replay",
        unwrap=without_buffer,
        init=init,
        update=update,
        structure=Replay(rule, per_round, capacity, seed),
    )


def with_rule(learner: Learner, name: str, change: Callable[[Rule], Rule]) -> Learner:
    """Change the rule of a rank-one learner, with or without experience replay.

    Args:
      learner: any learner.
      name: name of the new learner.
      change: function from the rule to the new one.

    Raises:
      ValueError: if the learner is not rank one.
    """
    if isinstance(structure := learner.structure, Replay):
        settings = structure._asdict()
        inner = from_rule(name, change(settings.pop("rule")))
        return with_experience_replay(inner, **settings)._replace(name=name)
    if (rule := rule_of(learner)) is None:
        raise ValueError(
            f"learner {learner.name!r} is not rank one: this changes the parts of a rank-one "
            "learner (of a mixture, change the experts; change before `guarded`)"
        )
    return from_rule(name, change(rule))


def without_buffer(state: State) -> State:
    """Return the state of the inner learner."""
    return state._replace(extra=state.extra[0])


def push(
    buffer: ReplayBuffer,
    count: Int[Array, ""],
    query: Any,
    choice: Choice,
    reward: Float[Array, "*k"],
) -> tuple[ReplayBuffer, Int[Array, ""]]:
    """Write a round into the buffer, or one entry per item of a slate.

    Args:
      buffer: buffer before the round.
      count: entries written so far [].
      query: query of the round.
      choice: choice of one item, or fields [k].
      reward: reward in the shape of the choice.

    Returns:
      The buffer, and the new count [].

    Raises:
      ValueError: if the buffer has less room than the slate has items.
    """
    capacity, k = len(buffer.item), choice.item.size
    require("capacity", capacity, f">= {k}, the items of a slate", lambda x: x >= k)
    slot = (count + jnp.arange(k)) % capacity if choice.item.ndim else count % capacity
    buffer = ReplayBuffer(
        query=jax.tree.map(lambda ring, x: ring.at[slot].set(x), buffer.query, query),
        item=buffer.item.at[slot].set(choice.item),
        propensity=buffer.propensity.at[slot].set(choice.propensity),
        reward=buffer.reward.at[slot].set(reward),
    )
    return buffer, count + k


def entry_of(
    rule: Rule, t: Int[Array, ""], choice: Choice, feedback: Feedback
) -> tuple[Choice, Float[Array, "*k"]]:
    """Return the entry that the buffer stores for a round.

    Args:
      rule: rule of the learner.
      t: number of the round [].
      choice: choice of one item, or fields [k].
      feedback: feedback of the round, with labels for an oracle.

    Returns:
      The choice and its reward [] or [k]; for an oracle the right item, with the reward 1, or 0 if
      the round has none. Rounds take turns among several right items.
    """
    if rule.estimator.bandit:
        return choice, feedback.reward
    assert feedback.labels is not None  # else the update of the round has raised
    count = (feedback.labels >= 0).sum()
    first = jnp.argsort(feedback.labels < 0, stable=True)
    item = feedback.labels[first[t % jnp.maximum(count, 1)]]
    right = (count > 0).astype(choice.propensity.dtype)
    return Choice(item=jnp.maximum(item, 0), propensity=jnp.ones_like(right)), right


def draw_key(seed: int, t: Int[Array, ""]) -> PRNGKey:
    """Return the key of round t's samples, which is independent of the policy's key.

    Returns:
      The key [].
    """
    return jax.random.fold_in(jax.random.key(seed), t)


def sample_block(
    replay: Replay,
    past: Any,
    count: Int[Array, ""],
    t: Int[Array, " B"],
    real: Bool[Array, " B"],
    queries: Any,
) -> tuple[Slots, Any]:
    """Sample the rounds that a block replays, before the block is simulated.

    Args:
      replay: structure of the learner.
      past: queries in the buffer before the block, with leading axis C.
      count: rounds observed before the block [].
      t: number of each round [B].
      real: [B], False for padding; real rounds are contiguous.
      queries: queries of the rounds, with leading axis B.

    Returns:
      The slots of each round, and the queries that it replays, with leading axes [B, n].
    """
    before = jnp.cumsum(real, dtype=count.dtype) - real  # rounds of the block
    counts, capacity = count + before, replay.capacity

    def draw(t, count):
        known = jnp.minimum(count + 1, capacity)
        return jax.random.randint(draw_key(replay.seed, t), (replay.per_round,), 0, known)

    slots = jax.vmap(draw)(t, counts)
    ago = (counts[:, None] - slots) % capacity  # rounds since the slot was written
    position = jnp.argmax(real) + before[:, None] - ago  # in the block
    in_block = (ago <= before[:, None])[..., None]

    def of_slots(past, queries):
        return jnp.where(in_block, queries[jnp.maximum(position, 0)], past[slots])

    return Slots(own=counts % capacity, sampled=slots), jax.tree.map(of_slots, past, queries)


def push_reward(
    rewards: ReplayBuffer,
    slot: Int[Array, ""],
    real: Bool[Array, ""],
    choice: Choice,
    reward: Float[Array, ""],
) -> ReplayBuffer:
    """Write the reward of one round of a block.

    Args:
      rewards: buffer so far, without its queries.
      slot: slot into which the round is written [].
      real: False for padding [].
      choice: choice of the round.
      reward: reward of the round [].
    """
    new = ReplayBuffer((), *choice, reward)
    return jax.tree.map(lambda x, y: x.at[slot].set(jnp.where(real, y, x[slot])), rewards, new)


def push_block(
    past: Any,
    rewards: ReplayBuffer,
    count: Int[Array, ""],
    real: Bool[Array, " B"],
    queries: Any,
) -> tuple[ReplayBuffer, Int[Array, ""]]:
    """Write the queries of a block whose rewards have been written.

    Args:
      past: queries in the buffer before the block, with leading axis C.
      rewards: buffer after the block, without its queries.
      count: rounds observed before the block [].
      real: [B], False for padding.
      queries: queries of the rounds, with leading axis B.

    Returns:
      The buffer, and the new count [].
    """
    capacity, new = len(rewards.item), real.sum(dtype=count.dtype)
    before = jnp.cumsum(real, dtype=count.dtype) - real
    kept = real & (before >= new - capacity)  # not overwritten by the same block
    slot = jnp.where(kept, (count + before) % capacity, capacity)
    query = jax.tree.map(lambda ring, new: ring.at[slot].set(new, mode="drop"), past, queries)
    return rewards._replace(query=query), count + new
