"""The rank-one learner: ORAG (Algorithm 1) and its relatives, built from parts.

A learner acts, sees one bit and moves Theta:

    u     = apply(q)                                    the query, or a map of it
    p     = softmax(Theta u / tau + offsets)            Eq. (1), (3), with a temperature
    slate ~ policy(p);  a, y from the environment       line 4
    Theta <- project(Theta - eta_t c u^T / tau)         lines 5-6, c from the estimator

The paper has no temperature (tau = 1), and on unit vectors p is then nearly uniform. Here q / tau
takes the place of q everywhere, in the theory too: the gradient of the loss is ``c q^T / tau``, and
``eta / tau`` is how far one unit of coefficient moves a row. The paper has no offsets either, which
are numbers per item that are known before the feedback (`jaxret.rules.offsets`).

Letters: I items, d width, n past rounds, k items shown.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import (
    ChangeRows,
    Facts,
    Learner,
    acting_by,
    first_state,
    vector_of,
    where_observed,
)
from jaxret.rules import offsets, projections, query_maps, schedules
from jaxret.rules.estimators import Estimator, Observation
from jaxret.rules.offsets import Offsets, first_usage
from jaxret.rules.policies import Policy, by_position
from jaxret.rules.preconditioners import Preconditioner
from jaxret.rules.projections import Projection
from jaxret.rules.query_maps import QueryMap
from jaxret.rules.schedules import Schedule
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import as_number, require
from jaxret.types import Choice, Feedback, Slate, State

TILE = 8  # rounds in a tile of the blocked form


class Rule(NamedTuple):
    """The parts of a rank-one learner.

    Attributes:
      policy: maps logits to the items shown.
      estimator: maps one reward to the coefficients c [I].
      projection: constraint on the rows, applied after each step.
      schedule: factor of ``eta`` by round.
      tau: temperature, > 0.
      eta: step size, >= 0.
      query_map: learnt map of the queries, shared by all items; None: no map.
      map_every: rounds between two updates of the query map.
      preconditioner: preconditioner of the rows' steps; None: none.
      offsets: weights of prior scores and usage in the logits; None: neither is used. With a
        weight w ``tau`` is the temperature of the rows, ``1 / (1 - w)`` times that of the logits.
    """

    policy: Policy
    estimator: Estimator
    projection: Projection
    schedule: Schedule
    tau: float | Float[Array, ""]
    eta: float | Float[Array, ""]
    query_map: QueryMap | None = None
    map_every: int = 1
    preconditioner: Preconditioner | None = None
    offsets: Offsets | None = None

    @property
    def rows_alone(self) -> bool:
        """True if the rows are the only learnt parameters, without map and preconditioner."""
        return self.query_map is None and self.preconditioner is None

    @property
    def blocked(self) -> bool:
        """True if the exact blocked form exists: a map must be constant for whole tiles."""
        constant = self.query_map is None or self.map_every % TILE == 0
        return constant and (self.preconditioner is None or self.preconditioner.by_row)

    @property
    def logit_tau(self) -> float | Float[Array, ""]:
        """Temperature of the logits, that of the preset: ``tau`` times ``1 - offsets.weight``."""
        weight = self.offsets.weight if self.offsets is not None else None
        return self.tau if weight is None else self.tau * (1 - weight)

    @property
    def reads_prior(self) -> bool:
        """True if prior scores are added to the logits."""
        return self.offsets is not None and self.offsets.weight is not None

    @property
    def is_balanced(self) -> bool:
        """True if probabilities are divided by usage."""
        return self.offsets is not None and self.offsets.strength is not None

    def pack(self, maps: Any, memory: Any, usage: Any) -> Any:
        """Pack the parts of ``State.extra``.

        Args:
          maps: parameters of the query map; () without a map.
          memory: memory of the preconditioner; () without one.
          usage: `jaxret.rules.offsets.Usage`; () without a balance.
        """
        if self.is_balanced:
            return maps, memory, usage
        return () if self.rows_alone else (maps, memory)

    def unpack(self, extra: Any) -> tuple[Any, Any, Any]:
        """Return query map, memory and usage of a ``State.extra``, () for an absent part."""
        maps, memory, *usage = extra or ((), ())
        return maps, memory, usage[0] if usage else ()

    def change_rows(self, state: State, change: ChangeRows) -> State:
        """Apply a function [I, d] -> [I', d] to Theta."""
        return state._replace(theta=change(state.theta))

    def map_queries(self, state: State, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Map queries to the vectors that are multiplied with the rows.

        Returns:
          [..., d].
        """
        return self.queries_at(state, queries, state.t)

    def queries_at(
        self, state: State, queries: Float[Array, "*n d"], t: Int[Array, ""]
    ) -> Float[Array, "*n d"]:
        """Map queries by the query map of round t.

        Args:
          state: state of the learner, which holds the parameters of the map.
          queries: embeddings [..., d].
          t: number of the round [], from 0; a map may stay the same for several rounds.

        Returns:
          [..., d].
        """
        if self.query_map is None:
            return queries
        params = query_maps.params_at(state.extra[0], t, self.map_every)
        return self.query_map.apply(params, queries)


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
    """Build a learner from its parts.

    Args:
      name: name of the learner in tables.
      estimator: maps one reward to the coefficients c [I].
      policy: maps logits to the items shown.
      projection: constraint on the rows, applied after each step; None: none.
      schedule: factor of ``eta`` by round; None: constant.
      tau: temperature, > 0; may be traced.
      eta: step size, >= 0; may be traced.

    Raises:
      ValueError: if a temperature or step size is out of its range.
    """
    tau, eta = as_number(tau), as_number(eta)
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
    """Build the learner of a rule.

    ``State.extra`` is (query map, memory of the preconditioner, usage) with a balance, else (query
    map, memory), or () without either; a part that is missing is (). The query map is a
    `jaxret.rules.query_maps.TiledMap` if it is updated once per tile.
    """

    def init(theta, available=None):
        theta = projections.project(rule.projection, theta)
        maps, memory = (), ()
        if rule.query_map is not None:
            params = rule.query_map.init(theta.shape[1], theta.dtype)
            maps = query_maps.start_map(params, rule.map_every)
        if rule.preconditioner is not None:
            memory = rule.preconditioner.init(*theta.shape, theta.dtype)
        usage = first_usage(theta) if rule.is_balanced else ()
        return first_state(theta, available, rule.pack(maps, memory, usage))

    def logits(state, query):
        u = rule.map_queries(state, vector_of(query))
        return logits_of(rule, state, u, query)

    def scores(state, queries):
        by_rows = scores_by_rows(state, rule.map_queries(state, vector_of(queries)))
        if rule.offsets is None:
            return by_rows
        return by_rows + rule.tau * offsets_of(rule, state, queries)

    def update(state, query, choice, feedback):
        u = rule.map_queries(state, vector_of(query))
        z = logits_of(rule, state, u, query)
        c = coefficients(rule.estimator, z, choice, feedback, None)
        new = step(rule, state, state.t, vector_of(query), u, c)
        if rule.offsets is not None and rule.is_balanced:
            maps, memory, usage = rule.unpack(new.extra)
            usage = offsets.counted(rule.offsets, usage, z, None)
            new = new._replace(extra=rule.pack(maps, memory, usage))
        return where_observed(feedback, state, new)

    act, probabilities = acting_by(rule.policy, logits)
    plain = rule.query_map is None and rule.offsets is None
    return Learner(
        name=name,
        init=init,
        act=act,
        update=update,
        scores=scores_by_rows if plain else scores,  # one program for all of these
        logits=logits,
        probabilities=probabilities,
        structure=rule,
        facts=Facts(
            oracle=not rule.estimator.bandit,
            prior_width=rule.offsets.width if rule.offsets is not None and rule.reads_prior else 0,
            prior_required=rule.reads_prior,
        ),
    )


def rule_of(learner: Learner) -> Rule | None:
    """Return the rule of a rank-one learner, None for any other."""
    return learner.structure if isinstance(learner.structure, Rule) else None


def relearn(
    rule: Rule,
    state: State,
    queries: Any,
    choices: Choice,
    rewards: Float[Array, " n"],
    counts: Float[Array, " n"],
) -> State:
    """Replay n past rounds at the current parameters; do not advance ``t``.

    Args:
      rule: rule of the learner.
      state: state after the update of the round that has just ended.
      queries: queries of the past rounds [n, d], with their priors if the rule reads them.
      choices: choices of the past rounds, fields [n].
      rewards: rewards of the past rounds [n].
      counts: [n], 1 for a round to replay and 0 for a round to skip.
    """
    t = jnp.maximum(state.t - 1, 0)  # the query map of the round that has just ended
    u = rule.queries_at(state, vector_of(queries), t)

    def one(u, query, choice, reward, count):
        z = logits_of(rule, state, u, query)
        return count * coefficients_again(rule.estimator, z, choice, reward, None)

    c = jax.vmap(one)(u, queries, choices, rewards, counts)
    return step(rule, state, t, vector_of(queries), u, c)


def step(
    rule: Rule,
    state: State,
    t: Int[Array, ""],
    queries: Float[Array, "*n d"],
    u: Float[Array, "*n d"],
    c: Float[Array, "*n I"],
) -> State:
    """Update the query map, then the rows, by one round or by n rounds at once.

    Args:
      rule: rule of the learner.
      state: state before the step.
      t: round whose query map gave ``u`` [].
      queries: [d] or [n, d].
      u: the mapped queries [d] or [n, d].
      c: coefficients [I] or [n, I].
    """
    maps, memory, usage = rule.unpack(state.extra)
    length, single = step_length(rule, state.t), c.ndim == 1
    if rule.query_map is not None:
        pull = length * (state.theta.T @ c) if single else length * c @ state.theta
        params = query_maps.params_at(maps, t, rule.map_every)
        change = rule.query_map.change(params, queries, pull)
        maps = query_maps.add_change(maps, t, rule.map_every, change)
    if rule.preconditioner is not None:
        memory, c, u = conditioned(rule.preconditioner, memory, c, u)
    change = (length * c)[:, None] * u[None, :] if single else length * c.T @ u
    theta = projections.project(rule.projection, state.theta - change)
    return state._replace(theta=theta, extra=rule.pack(maps, memory, usage))


def scores_by_rows(state: State, queries: Float[Array, "n d"]) -> Float[Array, "n I"]:
    """Return ``Theta q``, minus infinity where an item is absent.

    Returns:
      [n, I].
    """
    # Full precision: the faster default of accelerators would round scores into ties.
    scores = jnp.matmul(queries, state.theta.T, precision=lax.Precision.HIGHEST)
    return jnp.where(state.available, scores, -jnp.inf)


def logits_of(rule: Rule, state: State, u: Float[Array, " d"], query: Any) -> Float[Array, " I"]:
    """Return ``Theta u / tau + offsets``, minus infinity where an item is absent.

    Args:
      rule: rule of the learner.
      state: state of the learner.
      u: the mapped query [d].
      query: the query, whose prior is read.

    Returns:
      [I].
    """
    z = masked_logits(state, u, rule.tau)
    return z if rule.offsets is None else z + offsets_of(rule, state, query)


def offsets_of(rule: Rule, state: State, query: Any) -> Any:
    """Compute the offsets of the logits of a rule that has any.

    Args:
      rule: rule of the learner.
      state: state of the learner.
      query: one query, or n queries.

    Returns:
      [I] or [n, I].
    """
    assert rule.offsets is not None
    shape = (*vector_of(query).shape[:-1], len(state.theta))
    added = jnp.zeros(shape, state.theta.dtype)
    if rule.reads_prior:
        scores = offsets.dense(query.prior, state.theta[:, 0], None)
        added = added + offsets.of_prior(rule.offsets, scores, rule.tau)
    if rule.is_balanced:
        usage = offsets.of_usage(rule.offsets, rule.unpack(state.extra)[2])
        added = added + jnp.broadcast_to(usage, shape)
    return added


def masked_logits(
    state: State, query: Float[Array, " d"], tau: float | Float[Array, ""]
) -> Float[Array, " I"]:
    """Return ``Theta q / tau``, minus infinity where an item is absent.

    Args:
      state: state of any learner; ``extra`` is not read.
      query: [d].
      tau: temperature.

    Returns:
      [I].
    """
    return over_items.masked(state.theta @ query / tau, state.available)


def coefficients(
    estimator: Estimator, z: Float[Array, " I"], choice: Choice, feedback: Feedback, axis: Axis
) -> Float[Array, " I"]:
    """Compute the coefficients c of a round from its logits and feedback.

    If each item of a slate has its own reward, the contributions of the rewards are added; the part
    of an estimator that does not depend on the item shown (the ``p`` of Eq. 4) counts once.

    Args:
      estimator: maps a reward to coefficients.
      z: logits [I], minus infinity where an item is absent.
      choice: choice of one item, or fields [k].
      feedback: feedback whose reward has the shape of the choice, with labels for an oracle.
      axis: the mesh axis of the items, or None.

    Returns:
      c [I].

    Raises:
      ValueError: if an oracle gets no labels.
    """
    probs = over_items.softmax(z, axis)
    target = None
    if not estimator.bandit:
        if feedback.labels is None:
            raise ValueError(f"{estimator.name!r} is an oracle: it needs Feedback.labels")
        target = over_items.one_hot(feedback.labels, z, axis) * jnp.isfinite(z)
        target = target / jnp.maximum(over_items.total(target, axis), 1.0)
        target = jnp.where((feedback.labels >= 0).any(), target, probs)  # no right item: c = 0
    none_shown = Observation(
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
            none_shown._replace(
                chosen=over_items.one_hot(item, z, axis),
                p_chosen=over_items.take(probs, item, axis),
                propensity=propensity,
                reward=reward,
            )
        )

    if choice.item.ndim == 0:
        return shown(choice.item, choice.propensity, feedback.reward)
    each = jax.vmap(shown)(choice.item, choice.propensity, feedback.reward)
    common = estimator.coefficients(none_shown)
    return common + (each - common[None]).sum(axis=0)


def coefficients_again(
    estimator: Estimator,
    z: Float[Array, " I"],
    choice: Choice,
    reward: Float[Array, ""],
    axis: Axis,
) -> Float[Array, " I"]:
    """Compute the coefficients c of a past round from its current logits.

    Args:
      estimator: maps a reward to coefficients.
      z: current logits [I], minus infinity where an item is absent.
      choice: the item shown; for an oracle the right item.
      reward: reward of the round []; for an oracle 1, or 0 if the round had no right item.
      axis: the mesh axis of the items, or None.

    Returns:
      c [I].
    """
    if estimator.bandit:
        return coefficients(estimator, z, choice, Feedback(reward), axis)
    known = Feedback(reward, labels=choice.item[None])
    return reward * coefficients(estimator, z, choice, known, axis)


def step_length(rule: Rule, t: Int[Array, ""]) -> Float[Array, ""]:
    """Return ``eta_t / tau``, the step of a row per unit of coefficient in round t.

    Returns:
      [].
    """
    return jnp.asarray(rule.eta * rule.schedule(t) / rule.tau)


def conditioned(
    preconditioner: Preconditioner, memory: Any, c: Float[Array, "*n I"], u: Float[Array, "*n d"]
) -> tuple[Any, Float[Array, "*n I"], Float[Array, "*n d"]]:
    """Precondition the step ``c u^T`` of one round, or of n rounds in sequence.

    Args:
      preconditioner: preconditioner of the rule.
      memory: memory of the preconditioner.
      c: coefficients [I] or [n, I].
      u: directions [d] or [n, d].

    Returns:
      The new memory, coefficients [I] or [n, I], and directions [d] or [n, d].
    """
    if c.ndim == 1:
        return preconditioner.apply(memory, c, u)

    def next_round(memory, line):
        memory, *line = preconditioner.apply(memory, *line)
        return memory, line

    memory, (c, u) = lax.scan(next_round, memory, (c, u))
    return memory, c, u


def position_probabilities(
    learner: Learner, state: State, query: Float[Array, " d"], slate: Slate
) -> Float[Array, " k"]:
    """Return the probability of each item of a slate, given the items at the positions above.

    Args:
      learner: learner that showed the slate.
      state: state in which the slate was shown.
      query: [d].
      slate: slate of k items.

    Returns:
      [k]; NaN if the learner does not draw slates position by position (`Policy.drawn_from`).
    """
    if len(slate.items) == 1:
        return slate.propensity
    rule = rule_of(learner)
    drawn_from = None if rule is None else rule.policy.drawn_from
    if drawn_from is None or learner.logits is None:
        return jnp.full_like(slate.propensity, jnp.nan)
    return by_position(drawn_from(learner.logits(state, query)), slate.items)
