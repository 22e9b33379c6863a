"""The online learner: ORAG (Algorithm 1) and its rivals, as pure functions over a small state.

A learner acts, sees one bit and moves Theta:

    p     = softmax(Theta q / tau)                      Eq. (1), (3), with a temperature
    slate ~ policy(p);  a, y from the environment       line 4
    Theta <- project(Theta - eta_t c q^T / tau)         lines 5-6, c from the estimator

The paper has no temperature (tau = 1); on unit vectors that makes p nearly uniform. Here
q / tau takes the place of q everywhere, in the theory too: the gradient of the loss is
``c q^T / tau``, and eta / tau is how far one unit of coefficient moves a row.

Letters: I items, d width, L labels, k items shown.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret import sharding
from jaxret.online import estimators, policy, projections, schedules
from jaxret.online.estimators import Estimator, Round
from jaxret.online.policy import Policy
from jaxret.online.projections import Projection
from jaxret.online.protocols import Act, Init, Rehearse, See, Update
from jaxret.online.schedules import Schedule
from jaxret.sharding import Axis
from jaxret.types import Choice
from jaxret.validate import require


class State(NamedTuple):
    """What a rank-one learner carries from round to round."""

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]  # rounds so far


class Info(NamedTuple):
    """What can be said of a round when the labels are known; only looked at, never carried.

    Of the model's probabilities before the update; labels that are absent do not count.
    """

    p_success: Float[Array, ""]  # sum of p over the labels
    loss: Float[Array, ""]  # -log p, averaged over the labels
    inverse_p: Float[Array, ""]  # sum_i 1 / p_i
    logit_label: Float[Array, ""]  # theta . q / tau, averaged over the labels
    logit_sum: Float[Array, ""]  # sum_i theta_i . q / tau


class Rule(NamedTuple):
    """The parts of a rank-one learner: all that the blocked replay needs to know of it."""

    policy: Policy
    estimator: Estimator
    projection: Projection
    schedule: Schedule
    tau: float | Float[Array, ""]
    eta: float | Float[Array, ""]


def as_they_are(state, queries: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """What a learner sees that does not change queries."""
    del state
    return queries


class Learner(NamedTuple):
    """A learner.

    ``rule`` is None for those whose update is not rank one, ``rehearse`` for those that cannot.
    """

    name: str
    init: Init
    act: Act
    update: Update
    rule: Rule | None
    see: See = as_they_are
    rehearse: Rehearse | None = None


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

    def init(theta, available):
        theta = projections.project(rule.projection, theta)
        return State(theta=theta, available=available, t=jnp.zeros((), jnp.int32))

    def act(state, query, key):
        return rule.policy.show(key, logits(state, query, rule.tau), None)

    def update(state, query, choice, reward, labels):
        z = logits(state, query, rule.tau)
        step = step_length(rule, state.t)
        c = coefficients(rule.estimator, z, choice, reward, labels, None)
        theta = state.theta - (step * c)[:, None] * query[None, :]
        theta = projections.project(rule.projection, theta)
        return state._replace(theta=theta, t=state.t + 1), measure(z, labels, None)

    def rehearse(state, queries, choices, rewards, counts):
        c = past_coefficients(rule, state, queries, choices, rewards, counts)
        theta = state.theta - step_length(rule, state.t) * c.T @ queries
        return state._replace(theta=projections.project(rule.projection, theta))

    return Learner(name, init, act, update, rule, rehearse=rehearse)


def logits(state, query: Float[Array, " d"], tau) -> Float[Array, " I"]:
    """``Theta q / tau``, minus infinity where an item is absent."""
    return sharding.masked(state.theta @ query / tau, state.available)


def coefficients(
    estimator: Estimator,
    z: Float[Array, " I"],
    choice: Choice,
    reward: Float[Array, ""],
    labels: Int[Array, " L"],
    axis: Axis,
) -> Float[Array, " I"]:
    """The estimator's c, from logits and what came back."""
    probs = sharding.softmax(z, axis)
    target = sharding.one_hot(labels, z, axis) * jnp.isfinite(z)
    seen = Round(
        probs=probs,
        chosen=sharding.one_hot(choice.item, z, axis),
        best=sharding.one_hot(sharding.argmax(z, axis), z, axis),
        target=target / jnp.maximum(sharding.total(target, axis), 1.0),
        p_chosen=sharding.take(probs, choice.item, axis),
        propensity=choice.propensity,
        reward=reward,
    )
    return estimator.coefficients(seen)


def past_coefficients(
    rule: Rule,
    state,
    queries: Float[Array, "n d"],
    choices: Choice,
    rewards: Float[Array, " n"],
    counts: Float[Array, " n"],
) -> Float[Array, "n I"]:
    """c of past rounds as today's rows see them, with the arguments of `Rehearse`."""

    def one(query, choice, reward, count):
        z = logits(state, query, rule.tau)
        return count * coefficients(rule.estimator, z, choice, reward, jnp.array([-1]), None)

    return jax.vmap(one)(queries, choices, rewards, counts)


def measure(z: Float[Array, " I"], labels: Int[Array, " L"], axis: Axis) -> Info:
    """Describes a round whose labels are known; 0 throughout where no label is available."""
    here = jnp.isfinite(z)
    finite = jnp.where(here, z, 0.0)
    top = sharding.maximum(z, axis)
    log_total = top + jnp.log(sharding.total(jnp.exp(z - top), axis))
    counts = (labels >= 0) & (sharding.take(here.astype(z.dtype), labels, axis) > 0)
    n = jnp.maximum(counts.sum(), 1)
    z_labels = sharding.take(finite, labels, axis)
    log_p = jnp.where(counts, z_labels - log_total, 0.0)
    return Info(
        p_success=jnp.where(counts, jnp.exp(log_p), 0.0).sum(),
        loss=-log_p.sum() / n,
        inverse_p=sharding.total(jnp.where(here, jnp.exp(log_total - finite), 0.0), axis),
        logit_label=jnp.where(counts, z_labels, 0.0).sum() / n,
        logit_sum=sharding.total(finite, axis),
    )


def step_length(rule: Rule, t: Int[Array, ""]) -> Float[Array, ""]:
    """How far one unit of coefficient moves a row in round t: ``eta_t / tau``."""
    return jnp.asarray(rule.eta * rule.schedule(t) / rule.tau)


def orag(*, tau: float, eta: float, k: int = 1, divide_by: str = "propensity", **where) -> Learner:
    """Online-Optimized RAG: items drawn from p, Eq. (4). Algorithm 1; with k > 1 Algorithm 2.

    Args:
      tau: temperature; the paper's is 1.
      eta: step size.
      k: items shown to the environment's reranker.
      divide_by: 'propensity', or 'model' for Algorithm 2 as it is printed.
      **where: ``projection`` and ``schedule``, as in `rank_one`.
    """
    estimator = estimators.importance_weighted(divide_by=divide_by)
    return rank_one(
        "orag", estimator=estimator, policy=policy.softmax(k=k), tau=tau, eta=eta, **where
    )


def chosen_only(*, tau: float, eta: float, **where) -> Learner:
    """App. B.2: as ORAG, but only the chosen row moves."""
    estimator = estimators.chosen_only()
    return rank_one(
        "chosen_only", estimator=estimator, policy=policy.softmax(), tau=tau, eta=eta, **where
    )


def greedy(*, tau: float, eta: float, estimator: Estimator | None = None, **where) -> Learner:
    """Shows the best item and learns by the bandit likelihood, which needs no exploration."""
    return rank_one(
        "greedy",
        estimator=estimator or estimators.bandit_likelihood(),
        policy=policy.greedy(),
        tau=tau,
        eta=eta,
        **where,
    )


def banditron(*, tau: float, eta: float, epsilon: float, **where) -> Learner:
    """Kakade et al. (2008): epsilon-greedy with the perceptron step, started at Theta_1."""
    return rank_one(
        "banditron",
        estimator=estimators.banditron(),
        policy=policy.epsilon_greedy(epsilon=epsilon),
        tau=tau,
        eta=eta,
        **where,
    )


def full_information(*, tau: float, eta: float, **where) -> Learner:
    """The oracle: acts greedily, is told the labels, follows the gradient itself."""
    return rank_one(
        "full_information",
        estimator=estimators.full_information(),
        policy=policy.greedy(),
        tau=tau,
        eta=eta,
        **where,
    )


def frozen(*, tau: float = 1.0) -> Learner:
    """Static retrieval: the best item by Theta_1, for ever."""
    return rank_one("frozen", estimator=estimators.none(), policy=policy.greedy(), tau=tau, eta=0.0)
