"""Learners made of other learners.

    with_query_map(greedy(), rate=3.0)                  learns a map of the queries, for all tools
    with_preconditioner(greedy(), by_row())             changes how far, and where to, rows move
    with_experience_replay(greedy(), per_round=8)       learns from past bits again each round
    with_exploration(greedy(), epsilon=0.05)            shows a random tool in a share of rounds
    in_bfloat16(greedy())                               keeps rows in half of the memory

They compose: experience replay last, since it is built on what a learner can relearn from. A query
map that moves once in B rounds (``map_every``, a multiple of 8) leaves a rank-one learner its
blocked form, and so do steps by row and experience replay (`jaxret.simulation.blocked.simulate`);
and a mixture all of whose experts have one.

Letters: I items, C rounds remembered, d width.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from jaxret.learners.learner import Learner, Replay, Rule, where_observed
from jaxret.learners.narrow_rows import Rounding
from jaxret.learners.rank_one import from_rule
from jaxret.learners.replay import Past, draw_key
from jaxret.rules import policies, query_maps
from jaxret.rules.preconditioners import Preconditioner
from jaxret.rules.query_maps import QueryMap
from jaxret.runtime.validate import require
from jaxret.types import Choice


def with_query_map(
    learner: Learner,
    query_map: QueryMap | None = None,
    *,
    rate: float = 3.0,
    map_every: int = 1,
) -> Learner:
    """A rank-one learner that also learns a map of the queries.

    Args:
      learner: from `rank_one` or a preset; not yet with experience replay.
      query_map: None is `query_maps.linear`.
      rate: of the linear map; not read where a map is given.
      map_every: B >= 1, rounds between two moves of the map, by what all of them ask for
        (`jaxret.rules.map_tiles`); rows move every round.

    Raises:
      ValueError: if the learner is not rank one, or has a query map.
    """
    require("map_every", map_every, "a whole number >= 1", lambda n: isinstance(n, int) and n >= 1)
    query_map = query_map or query_maps.linear(rate=rate)
    rule = _rule(learner, "a query map")
    if rule.query_map is not None:
        raise ValueError(
            f"learner {learner.name!r} already has the query map {rule.query_map.name!r}: give one"
        )
    rule = rule._replace(query_map=query_map, map_every=map_every)
    return from_rule(f"{learner.name}+{query_map.name}", rule)


def with_preconditioner(learner: Learner, preconditioner: Preconditioner) -> Learner:
    """A rank-one learner whose rows' steps are preconditioned.

    Args:
      learner: from `rank_one` or a preset; not yet with experience replay.
      preconditioner: from `jaxret.rules.preconditioners`.

    Raises:
      ValueError: if the learner is not rank one, or has a preconditioner.
    """
    rule = _rule(learner, "a preconditioner")
    if (first := rule.preconditioner) is not None:
        raise ValueError(
            f"learner {learner.name!r} already has the preconditioner {first.name!r}: give one"
        )
    name = f"{learner.name}+{preconditioner.name}"
    return from_rule(name, rule._replace(preconditioner=preconditioner))


def with_exploration(learner: Learner, epsilon: float = 0.05) -> Learner:
    """A learner that shows any available tool in a share of the rounds, with exact propensities.

    Without it, the logs of a rule that always shows its best tool can never evaluate another rule.

    Args:
      learner: any that shows one item a round and knows the chance of each.
      epsilon: share of the rounds, in [0, 1].

    Raises:
      ValueError: if the learner cannot say with which chance it shows each item.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    name = f"{learner.name}+exploration"
    if learner.rule is not None:  # as a policy, so that a blocked form stays one
        policy = policies.exploring(learner.rule.policy, epsilon=epsilon)
        return from_rule(name, learner.rule._replace(policy=policy))
    if (inner_chances := learner.chances) is None:
        raise ValueError(
            f"learner {learner.name!r} does not say with which chance it shows each item: "
            "exploration needs `Learner.chances` to know its propensities"
        )

    def chances(state, query):
        here = state.available.astype(query.dtype)
        return (1 - epsilon) * inner_chances(state, query) + epsilon * here / here.sum()

    def act(state, query, key):
        coin, lot, key = jax.random.split(key, 3)
        slate = learner.act(state, query, key)
        return policies.explored(
            coin, lot, slate, chances(state, query), state.available, epsilon, None
        )

    alone = learner._replace(origin=None, replay=None, blend=None)
    return alone._replace(name=name, act=act, chances=chances)


def in_bfloat16(learner: Learner, *, rounding: Rounding = "stochastic") -> Learner:
    """A rank-one learner that keeps Theta in bfloat16 (`jaxret.learners.narrow_rows`).

    Queries, logits, steps, what is pending, maps and memories stay as they are, and sums are made
    in their precision. Rows are rounded where they are written: each round in the scan (with
    experience replay twice), once a block in the blocked form, which also makes no float32 copy of
    Theta. So the two agree but for rounding, and bit for bit as a rule where blocks have one round:
    that is what `jaxret.check_learner` holds them to, without experience replay. A mesh does what
    one device does, and a run that is cut goes on bit for bit. The bounds are for exact steps, and
    `jaxret.bounds` refuses it.

    Args:
      learner: from `rank_one` or a preset; not yet with experience replay.
      rounding: stochastic, right on average whatever the steps; or to the nearest number, which
        swallows steps below 1/512 of it.

    Raises:
      ValueError: if the learner is not rank one, or rounds already; for another rounding.
    """
    known = "stochastic or nearest"
    require("rounding", rounding, known, lambda x: x in ("stochastic", "nearest"))
    rule = _rule(learner, "bfloat16")
    if rule.rounding is not None:
        raise ValueError(f"learner {learner.name!r} keeps its rows in bfloat16 already")
    return from_rule(f"{learner.name}+bfloat16", rule._replace(rounding=rounding))


def with_experience_replay(
    learner: Learner, *, per_round: int = 8, capacity: int = 4096, seed: int = 0
) -> Learner:
    """A learner that learns from ``per_round`` past rounds again after each new one.

    A bit is dear and a step is cheap. A learner whose estimator is a likelihood may learn from a
    bit as often as it likes: the gradient of ``-log P(y | q, a)`` at today's Theta needs no new
    feedback, and vanishes where the model has come to agree with the bit. (Eq. (4) does not: of a
    success it says ``p - 1 / pi`` however large p has grown, and rows that are free run away.)
    Past rounds are learnt from at once, at the Theta that the new round left: together they cost
    one more step.

    Args:
      learner: one that learns from bits, best by a likelihood.
      per_round: past rounds a round, >= 1, drawn evenly from those that are remembered.
      capacity: C, rounds that are remembered, >= 1.
      seed: of the draws.

    Raises:
      ValueError: for an oracle, and for a learner that cannot relearn.
    """
    if learner.oracle:
        raise ValueError(f"learner {learner.name!r} is an oracle, and bits alone are remembered")
    if (relearn := learner.relearn) is None:
        raise ValueError(f"learner {learner.name!r} cannot learn from past bits: it has no relearn")
    require("per_round", per_round, ">= 1", lambda x: x >= 1)
    require("capacity", capacity, ">= 1", lambda x: x >= 1)

    def init(theta, available=None):
        inner = learner.init(theta, available)
        past = Past(
            query=jnp.zeros((capacity, theta.shape[1]), theta.dtype),
            item=jnp.zeros(capacity, jnp.int32),
            propensity=jnp.ones(capacity, theta.dtype),
            reward=jnp.zeros(capacity, theta.dtype),
        )
        return inner._replace(extra=(inner.extra, past, jnp.zeros((), jnp.int32)))

    def bare(state):
        return state._replace(extra=state.extra[0])

    def update(state, query, choice, feedback):
        inner = learner.update(bare(state), query, choice, feedback)
        past, count = _remember(*state.extra[1:], query, choice, feedback.reward)
        known = jnp.minimum(count, capacity)
        drawn = jax.random.randint(draw_key(seed, state.t), (per_round,), 0, known)
        # A loop: XLA would join a gather to the writing above, and copy all of the past for it.
        old = lax.map(lambda i: jax.tree.map(lambda x: x[i], past), drawn)
        here = state.available[old.item]  # a tool that has gone is not spoken of
        choices = Choice(item=old.item, propensity=old.propensity)
        inner = relearn(inner, old.query, choices, old.reward, here.astype(old.reward.dtype))
        return where_observed(feedback, state, inner._replace(extra=(inner.extra, past, count)))

    def act(state, query, key):
        return learner.act(bare(state), query, key)

    def of_inner(function):
        return None if function is None else lambda state, queries: function(bare(state), queries)

    return Learner(
        name=f"{learner.name}+replay",
        init=init,
        act=act,
        update=update,
        logits=of_inner(learner.logits),
        scores=lambda state, queries: learner.scores(bare(state), queries),
        map_queries=of_inner(learner.map_queries),
        chances=of_inner(learner.chances),
        replay=None if learner.rule is None else Replay(learner.rule, per_round, capacity, seed),
    )


def _remember(past: Past, count: Int[Array, ""], query, choice: Choice, reward):
    """The past with one more round, or one more for each item of a slate; and their number."""
    capacity, k = len(past.item), choice.item.size
    require("capacity", capacity, f">= {k}, the items of a slate", lambda x: x >= k)
    slot = (count + jnp.arange(k)) % capacity if choice.item.ndim else count % capacity
    past = Past(
        query=past.query.at[slot].set(query),
        item=past.item.at[slot].set(choice.item),
        propensity=past.propensity.at[slot].set(choice.propensity),
        reward=past.reward.at[slot].set(reward),
    )
    return past, count + k


def _rule(learner: Learner, what: str) -> Rule:
    if learner.rule is None:
        raise ValueError(
            f"learner {learner.name!r} is not rank one: {what} needs the parts of a rank-one "
            "learner (give it before experience replay, not after)"
        )
    return learner.rule
