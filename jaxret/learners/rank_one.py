"""The rank-one learner: ORAG (Algorithm 1) and its rivals, built from parts.

A learner acts, sees one bit and moves Theta:

    u     = apply(q)                                    the query, or a map of it
    p     = softmax(Theta u / tau)                      Eq. (1), (3), with a temperature
    slate ~ policy(p);  a, y from the environment       line 4
    Theta <- project(Theta - eta_t c u^T / tau)         lines 5-6, c from the estimator

The paper has no temperature (tau = 1); on unit vectors that makes p nearly uniform. Here
q / tau takes the place of q everywhere, in the theory too: the gradient of the loss is
``c q^T / tau``, and eta / tau is how far one unit of coefficient moves a row.

Letters: I items, d width, n past rounds, k items shown.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners import narrow_rows
from jaxret.learners.learner import Learner, Rule, where_observed
from jaxret.rules import map_tiles, projections, schedules
from jaxret.rules.estimators import Estimator, Observation
from jaxret.rules.policies import Policy
from jaxret.rules.preconditioners import Preconditioner
from jaxret.rules.projections import Projection
from jaxret.rules.schedules import Schedule
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.types import Choice, Feedback, State


def rank_one(
    name: str,
    *,
    estimator: Estimator,
    policy: Policy,
    projection: Projection | None = None,
    schedule: Schedule | None = None,
    tau: float,
    eta: float,
) -> Learner:
    """Builds a learner from its parts.

    Args:
      name: shown in tables.
      estimator: what one bit says.
      policy: who is shown.
      projection: where rows may lie; None is free.
      schedule: factor of eta by round; None is constant.
      tau: temperature, > 0; may be traced.
      eta: step size, >= 0; may be traced.
    """
    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    rule = Rule(
        policy=policy,
        estimator=estimator,
        projection=projection or projections.none(),
        schedule=schedule or schedules.constant(),
        tau=tau,
        eta=eta,
    )
    return from_rule(name, rule)


def from_rule(name: str, rule: Rule) -> Learner:
    """The learner that follows a rule; its ``extra`` is (query map, preconditioner's memory).

    Where the map stands still for tiles of rounds, that is a `jaxret.rules.map_tiles.Tile`.
    """
    query_map, every, preconditioner = rule.query_map, rule.map_every, rule.preconditioner
    policy_chances = rule.policy.chances

    def init(theta, available=None):
        theta = projections.project(rule.projection, narrow_rows.wide(theta))
        maps, memory = (), ()
        if query_map is not None:
            maps = map_tiles.begun(query_map.init(theta.shape[1], theta.dtype), every)
        if preconditioner is not None:
            memory = preconditioner.init(*theta.shape, theta.dtype)
        extra = () if rule.rows_alone else (maps, memory)
        here = jnp.ones(len(theta), bool) if available is None else available
        if rule.rounding is not None:
            theta = theta.astype(narrow_rows.NARROW)
        return State(theta=theta, available=here, t=jnp.zeros((), jnp.int32), extra=extra)

    def mapped(state, queries, t=None):
        if query_map is None:
            return queries
        t = state.t if t is None else t
        return query_map.apply(map_tiles.current(state.extra[0], t, every), queries)

    def logits(state, query):
        return masked_logits(state, mapped(state, query), rule.tau)

    def scores(state, queries):
        return scores_by_rows(state, mapped(state, queries))

    def act(state, query, key):
        return rule.policy.show(key, logits(state, query), None)

    def chances(state, query):
        assert policy_chances is not None
        return policy_chances(logits(state, query))

    def moved(state, t, queries, u, step, c):
        """The map moves before the rows do; ``c`` and ``u`` are of round t or of n past ones."""
        maps, memory = state.extra or ((), ())
        rows = narrow_rows.wide(state.theta)
        if query_map is not None:
            pull = step * (rows.T @ c) if c.ndim == 1 else step * c @ rows
            change = query_map.change(map_tiles.current(maps, t, every), queries, pull)
            maps = map_tiles.moved(maps, t, every, change)
        if preconditioner is not None:
            memory, c, u = conditioned(preconditioner, memory, c, u)
        theta = rows - (_outer(step * c, u) if c.ndim == 1 else step * c.T @ u)
        theta = projections.project(rule.projection, theta)
        if rule.rounding is not None:
            asked = (step * c != 0).reshape(-1, len(rows)).any(axis=0)
            writing = narrow_rows.writing(rule.rounding, state, None, again=c.ndim > 1)
            ids = jnp.arange(len(rows))
            bits = narrow_rows.written(writing, theta, narrow_rows.bits(state.theta), asked, ids)
            theta = narrow_rows.unpacked(state._replace(theta=bits)).theta
        extra = () if rule.rows_alone else (maps, memory)
        return state._replace(theta=theta, extra=extra)

    def update(state, query, choice, feedback):
        u = mapped(state, query)
        z = masked_logits(state, u, rule.tau)
        c = coefficients(rule.estimator, z, choice, feedback, None)
        new = moved(state, state.t, query, u, step_length(rule, state.t), c)
        return where_observed(feedback, state, new)

    def relearn(state, queries, choices, rewards, counts):
        t = jnp.maximum(state.t - 1, 0)  # the past belongs to the round that has just been
        u = mapped(state, queries, t)

        def one(u, choice, reward, count):
            z = masked_logits(state, u, rule.tau)
            return count * coefficients(rule.estimator, z, choice, Feedback(reward), None)

        c = jax.vmap(one)(u, choices, rewards, counts)
        return moved(state, t, queries, u, step_length(rule, state.t), c)

    return Learner(
        name=name,
        init=init,
        act=act,
        update=update,
        logits=logits,
        scores=scores_by_rows if query_map is None else scores,  # one, whose program all share
        oracle=not rule.estimator.bandit,
        map_queries=None if query_map is None else mapped,
        chances=None if policy_chances is None else chances,
        relearn=relearn if rule.estimator.bandit else None,
        rule=rule,
    )


def scores_by_rows(state: State, queries: Float[Array, "n d"]) -> Float[Array, "n I"]:
    """``Theta q``, by which items are ranked; minus infinity where one is absent.

    Returns:
      [n, I].
    """
    # Full precision: the faster default of accelerators would round scores into ties.
    bits = narrow_rows.bits(state.theta)
    rows = narrow_rows.products(queries, bits, precision=lax.Precision.HIGHEST)
    return jnp.where(state.available, rows, -jnp.inf)


def masked_logits(state: State, query: Float[Array, " d"], tau) -> Float[Array, " I"]:
    """``Theta q / tau``, minus infinity where an item is absent.

    Returns:
      [I].
    """
    bits = narrow_rows.bits(state.theta)
    narrow = bits.dtype == jnp.uint16
    rows = narrow_rows.products(query[None], bits)[0] if narrow else state.theta @ query
    return over_items.masked(rows / tau, state.available)


def coefficients(
    estimator: Estimator, z: Float[Array, " I"], choice: Choice, feedback: Feedback, axis: Axis
) -> Float[Array, " I"]:
    """The estimator's c, from logits and what came back.

    Where each item of a slate has its own reward, what they say is added up; what the estimator
    says of a round whoever was shown (the ``p`` of Eq. 4) counts once.

    Args:
      estimator: what a reward says.
      z: logits, minus infinity where an item is absent.
      choice: of one item, or fields [k].
      feedback: its reward has the shape of the choice; labels where the estimator is an oracle.
      axis: the mesh axis of the items, or None.

    Returns:
      c [I].
    """
    probs = over_items.softmax(z, axis)
    target = None
    if not estimator.bandit:
        if feedback.labels is None:
            raise ValueError(f"{estimator.name!r} is an oracle: it needs Feedback.labels")
        target = over_items.one_hot(feedback.labels, z, axis) * jnp.isfinite(z)
        target = target / jnp.maximum(over_items.total(target, axis), 1.0)
    nobody = Observation(
        probs=probs,
        chosen=jnp.zeros_like(z),
        best=over_items.one_hot(over_items.argmax(z, axis), z, axis),
        target=target,
        p_chosen=jnp.zeros_like(z[0]),
        propensity=jnp.ones_like(z[0]),
        reward=jnp.zeros_like(z[0]),
    )

    def shown(item, propensity, reward):
        return estimator.coefficients(
            nobody._replace(
                chosen=over_items.one_hot(item, z, axis),
                p_chosen=over_items.take(probs, item, axis),
                propensity=propensity,
                reward=reward,
            )
        )

    if choice.item.ndim == 0:
        return shown(choice.item, choice.propensity, feedback.reward)
    each = jax.vmap(shown)(choice.item, choice.propensity, feedback.reward)
    anyway = estimator.coefficients(nobody)
    return anyway + (each - anyway[None]).sum(axis=0)


def step_length(rule: Rule, t: Int[Array, ""]) -> Float[Array, ""]:
    """How far one unit of coefficient moves a row in round t: ``eta_t / tau``.

    Returns:
      [].
    """
    return jnp.asarray(rule.eta * rule.schedule(t) / rule.tau)


def _outer(c: Float[Array, " I"], u: Float[Array, " d"]) -> Float[Array, "I d"]:
    return c[:, None] * u[None, :]


def conditioned(preconditioner: Preconditioner, memory, c, u):
    """Steps as the preconditioner has them, of one round or of n one after the other."""
    if c.ndim == 1:
        return preconditioner.apply(memory, c, u)

    def next_round(memory, line):
        memory, *line = preconditioner.apply(memory, *line)
        return memory, line

    memory, (c, u) = lax.scan(next_round, memory, (c, u))
    return memory, c, u
