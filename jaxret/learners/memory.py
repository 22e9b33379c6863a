"""A memory of past rounds, which treats a repeated query as a lookup table would.

    with_memory(mixture())                          remembers up to 4096 rounds
    with_memory(greedy(), bandwidth=0.02)           only for queries that are nearly the same
    with_memory(mixture(), discount=1.0)            every remembered round counts the same

All queries share the rows: later queries may overwrite what one query taught, and a repeated query
may get a wrong tool although its right tool was found before. The memory keeps the last C observed
rounds, and corrects the probability P_i that tool i is right by its rewards on similar queries:

    P'_i = (kappa P_i + n+_i) / (kappa + n+_i + n-_i)

    n+_i = sum_s w_s y_s exp((cos(q, q_s) - 1) / h)      over the remembered rounds s that showed i
    n-_i = sum_s w_s (1 - y_s) exp((cos(q, q_s) - 1) / h)

    w_s  = prod_r gamma^(exp((cos(q_r, q_s) - 1) / h))   over the later rounds r that showed i too

This is the mean of a Beta posterior whose prior is worth kappa rounds, and in which a past round
counts 1 if its query was the same and less if it was similar. A tool without similar rounds keeps
P_i. Absent tools keep P_i = 0; their rounds count again if they return.

**Drift.** The weight of a round is multiplied by gamma each time its tool is shown again for the
same query, and by a factor nearer to 1 for a similar query. However often a tool worked, its past
rounds for a query weigh at most 1 / (1 - gamma) together, so a few failures outweigh them when the
right tool changes. Rounds of other tools and of dissimilar queries are not discounted: a rare query
is remembered as well as a frequent one. The ring buffer overwrites rounds by age alone.

**Probabilities.** Of a mixture, P_i is its mixed probability sum_g w_g P_g(i), before the
recalibration of `jaxret.learners.confidence`; of any other learner, its softmax. The logits of the
new learner are ``ln P'_i``. P' need not sum to one, as in a mixture: it is normalised where a
distribution is needed, by a policy that draws and in the loss of a run. In a mixture, correcting
each expert's P_g before weighing would give the same P', since P' is linear in P.

**Learning.** The inner learner learns from the same feedback, with the propensity of the item that
was really shown. Its own probabilities, and the weights of a mixture, are not corrected, and
`jaxret.learners.confidence` is that of the inner mixture, without the memory.

A round costs O(C d) for the similarities, beside the inner learner. There is no blocked form.

Sources: kernel estimates of a probability, Nadaraya (1964) and Watson (1964), with pseudo-counts;
episodic control, Blundell et al. (2016), which also answers from similar past rounds; discounted
posteriors, Raj and Kalyani (2017), which discount by time.

Letters: I items, d width, C rounds in the memory, N queries.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner, acting_by, vector_of, where_observed
from jaxret.learners.mixture import Blend
from jaxret.learners.replay import Replay, without_buffer
from jaxret.learners.wrappers import Wrapped, wrap, wrapper
from jaxret.rules.policies import Policy
from jaxret.runtime.validate import as_number, require

NOTHING = -1  # item of a slot that holds no round


class Memory(NamedTuple):
    """The last C observed rounds; the oldest is overwritten first.

    Attributes:
      query: queries of length 1 [C, d].
      item: item shown [C], `NOTHING` in a slot without a round.
      reward: reward [C].
      weight: w_s, the product of the discounts by later rounds [C].
      count: rounds written so far [].
    """

    query: Float[Array, "C d"]
    item: Int[Array, " C"]
    reward: Float[Array, " C"]
    weight: Float[Array, " C"]
    count: Int[Array, ""]

    def without(self, items: Bool[Array, " I"]) -> "Memory":
        """Return the memory without the rounds that showed some items."""
        gone = jnp.asarray(items)[self.item]  # `NOTHING` stays `NOTHING`
        return self._replace(item=jnp.where(gone, NOTHING, self.item))


class Counts(NamedTuple):
    """Successes and failures of each item in similar rounds, n+ and n-."""

    successes: Float[Array, " I"]
    failures: Float[Array, " I"]


@wrapper
def with_memory(
    learner: Learner,
    *,
    bandwidth: float = 0.01,
    strength: float = 0.3,
    discount: float = 0.5,
    capacity: int = 4096,
    policy: Policy | None = None,
) -> Learner:
    """Correct the probabilities of a learner by the rewards of past rounds with similar queries.

    Args:
      learner: learner with a softmax, or a mixture; exploration and a guard are added afterwards.
      bandwidth: h > 0; a past round whose query has the cosine 1 - h counts 1 / e.
      strength: kappa > 0, number of remembered rounds that the learner's own probability is worth.
      discount: gamma in (0, 1], factor of a round's weight when its tool is shown for the same
        query again; 1 discounts nothing.
      capacity: C >= 1, rounds in the memory; the oldest is forgotten first. A query can only be
        remembered if it returns within C rounds.
      policy: maps the logits ``ln P'`` to the items shown; None: the policy of the learner.

    Raises:
      ValueError: if the learner has no softmax, is wrapped, or has no policy and none is given, or
        a number is out of its range.
    """
    bandwidth, strength, discount = map(as_number, (bandwidth, strength, discount))
    require("bandwidth", bandwidth, "> 0", lambda x: x > 0)
    require("strength", strength, "> 0", lambda x: x > 0)
    require("discount", discount, "in (0, 1]", lambda x: 0 < x <= 1)
    require("capacity", capacity, "a whole number >= 1", lambda n: isinstance(n, int) and n >= 1)
    if (own_logits := learner.logits) is None:
        raise ValueError(
            f"learner {learner.name!r} has no softmax: it has no probabilities to correct"
        )
    if isinstance(learner.structure, Wrapped):
        raise ValueError(
            f"learner {learner.name!r} is wrapped: call with_memory once, before with_exploration "
            "and guarded, whose choices it would replace"
        )
    if (policy := policy or _policy_of(learner)) is None:
        raise ValueError(f"learner {learner.name!r} has no known policy: give policy=")
    calibrated = isinstance(learner.structure, Blend)

    def init(theta, available=None):
        inner = learner.init(theta, available)
        memory = Memory(
            query=jnp.zeros((capacity, theta.shape[1]), theta.dtype),
            item=jnp.full(capacity, NOTHING, jnp.int32),
            reward=jnp.zeros(capacity, theta.dtype),
            weight=jnp.zeros(capacity, theta.dtype),
            count=jnp.zeros((), jnp.int32),
        )
        return inner._replace(extra=(inner.extra, memory))

    def rewrap(state, inner):
        return inner._replace(extra=(inner.extra, state.extra[1]))

    def corrected(state, query, log_p):
        counts = counts_of(state.extra[1], vector_of(query), bandwidth, len(state.theta))
        return posterior(log_p, counts, strength)

    def log_p(state, query):
        z = own_logits(without_buffer(state), query)
        return z if calibrated else jax.nn.log_softmax(z)

    def logits(state, query):
        return corrected(state, query, log_p(state, query))

    def scores(state, queries):
        with jax.default_matmul_precision("highest"):  # else accelerators round scores into ties
            if calibrated:
                own = learner.scores(without_buffer(state), queries)
            else:
                own = jax.vmap(log_p, (None, 0))(state, queries)
            return jax.vmap(corrected, (None, 0, 0))(state, queries, own)

    def update(state, query, choice, feedback):
        inner = learner.update(without_buffer(state), query, choice, feedback)
        line = vector_of(query), choice.item, feedback.reward
        memory = push(state.extra[1], *line, bandwidth, discount)
        new = inner._replace(extra=(inner.extra, memory))
        return where_observed(feedback, state, new)

    act, probabilities = acting_by(policy, logits)
    return wrap(
        learner,
        f"{learner.name}+memory",
        unwrap=without_buffer,
        rewrap=rewrap,
        init=init,
        act=act,
        update=update,
        scores=scores,
        logits=logits,
        probabilities=probabilities,
    )


def counts_of(
    memory: Memory, query: Float[Array, " d"], bandwidth: float | Float[Array, ""], items: int
) -> Counts:
    """Count the successes and failures of each item in remembered rounds with similar queries.

    Args:
      memory: memory before the round.
      query: vector of the query [d].
      bandwidth: h.
      items: I.
    """
    weights = memory.weight * similarities(memory, query, bandwidth)
    rows = jnp.where(memory.item == NOTHING, items, memory.item)  # beyond the last item: dropped

    def summed(shares):
        return jnp.zeros(items, query.dtype).at[rows].add(weights * shares, mode="drop")

    return Counts(summed(memory.reward), summed(1 - memory.reward))


def push(
    memory: Memory,
    query: Float[Array, " d"],
    item: Int[Array, "*k"],
    reward: Float[Array, "*k"],
    bandwidth: float | Float[Array, ""],
    discount: float | Float[Array, ""],
) -> Memory:
    """Write a round, one entry per item of a slate, and discount earlier rounds of its items.

    Args:
      memory: memory before the round.
      query: vector of the query [d].
      item: item shown [], or items [k].
      reward: reward in the shape of the items.
      bandwidth: h.
      discount: gamma.

    Raises:
      ValueError: if the slate has more items than the memory has slots.
    """
    item, reward = jnp.atleast_1d(item), jnp.atleast_1d(reward)
    capacity, k = len(memory.item), len(item)
    require("capacity", capacity, f">= {k}, the items of a slate", lambda x: x >= k)
    slot = (memory.count + jnp.arange(k)) % capacity
    shown = (memory.item[:, None] == item[None, :]).any(axis=1)
    left = jnp.where(shown, discount ** similarities(memory, query, bandwidth), 1)
    return Memory(
        query=memory.query.at[slot].set(unit(query)),
        item=memory.item.at[slot].set(item),
        reward=memory.reward.at[slot].set(reward),
        weight=(memory.weight * left).at[slot].set(1),
        count=memory.count + k,
    )


def similarities(
    memory: Memory, query: Float[Array, " d"], bandwidth: float | Float[Array, ""]
) -> Float[Array, " C"]:
    """Return ``exp((cos(q, q_s) - 1) / h)`` for each slot.

    Args:
      memory: the memory.
      query: vector of the query [d].
      bandwidth: h.

    Returns:
      [C].
    """
    cosine = jnp.matmul(memory.query, unit(query), precision=lax.Precision.HIGHEST)
    return jnp.exp((cosine - 1) / bandwidth)


def posterior(
    log_p: Float[Array, " I"], counts: Counts, strength: float | Float[Array, ""]
) -> Float[Array, " I"]:
    """Return ``ln P'``, exactly ``ln P`` for items without counts.

    Args:
      log_p: ``ln P`` [I], minus infinity where an item is absent.
      counts: successes and failures in similar rounds.
      strength: kappa.

    Returns:
      [I], minus infinity where an item is absent.
    """
    successes, failures = counts
    numerator = jnp.logaddexp(log_p, jnp.log(successes / strength))
    corrected = numerator - jnp.log1p((successes + failures) / strength)
    return jnp.where(jnp.isneginf(log_p), -jnp.inf, corrected)


def unit(query: Float[Array, " d"]) -> Float[Array, " d"]:
    """Scale a vector to length 1; zeros stay zeros.

    Returns:
      [d].
    """
    return query / jnp.maximum(jnp.linalg.norm(query), jnp.finfo(query.dtype).tiny)


def _policy_of(learner: Learner) -> Policy | None:
    structure: Any = learner.structure
    return getattr(structure.rule if isinstance(structure, Replay) else structure, "policy", None)
