"""Bounds on the log loss of a mixture of experts, for any sequence of queries, tools and bits.

L is the sum over rounds of ``-ln P(y_t | q_t, a_t)``: L_mix of the mixture, L_g of expert g, on the
tools that the mixture showed and the rewards it received. Expert g alone would have shown other
tools, so L_g is not the loss of a run of expert g.

    against one expert    L_mix <= L_g + (ln(1 / prior_g) + share) / beta             for every g
                          share = (T - 1) ln(1 / (1 - alpha + alpha prior_g))
    against k switches    L_mix <= L_path + ln(1 / prior_1) + sum_switches ln(1 / (alpha prior_g))
                                   + sum_stays ln(1 / (1 - alpha + alpha prior_g))    beta = 1
    sure errors           #{t: P_mix(y_t = 1) >= 1/2, y_t = 0} <= L_mix / ln 2

Proof of the first for alpha = 0: with u_t = prod_{s<t} P_g(y_s)^beta prior_g the weight of g is u_t
over W_t, its sum over experts, and W_{T+1} >= u_{T+1} of every g. For beta <= 1 (power means)
``-ln (W_{t+1} / W_t) = -ln sum_g w_g P_g^beta >= -beta ln sum_g w_g P_g``, beta times the mixture's
loss in round t; summed over rounds, ``beta L_mix <= -ln W_{T+1} <= -ln u_{T+1}``. With the fixed
share the weight of g keeps at least the factor ``1 - alpha + alpha prior_g`` between two rounds,
since no weight exceeds 1. beta > 1 reverses the inequality, so there is no statement. Vovk (1990),
Herbster and Warmuth (1998); the bits may be chosen by an adversary who sees the tools shown.

Proof of the third: a failure of a tool with P_mix >= 1/2 costs at least ln 2. The bound does not
cover wrong tools with a smaller P_mix: an expert that gives every tool a small probability has a
small loss and may always show wrong tools. So none of the three bounds the number of wrong tools.

Letters: S seeds, T rounds, G experts, k switches.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.evaluation.estimate import Estimate
from jaxret.learners.learner import Learner, prior_for, query_for
from jaxret.learners.mixture import Blend, MixtureExtra, blend_of
from jaxret.learners.wrappers import innermost
from jaxret.runtime.validate import require
from jaxret.simulation.run import Run
from jaxret.theory.assumptions import at_most
from jaxret.theory.rerun import require_constant
from jaxret.theory.theorems import Statement, from_terms
from jaxret.types import Choice, Feedback


class History(NamedTuple):
    """The rounds of one seed of a mixture."""

    weights: Float[np.ndarray, "T G"]  # before the round's update
    losses: Float[np.ndarray, "T G"]  # -ln P_g(y | q, a)
    mixed: Float[np.ndarray, " T"]  # -ln P_mix(y | q, a)


def against_one_expert(run: Run) -> Statement:
    """Bound the log loss of the mixture by the loss of the best expert of each seed.

    Raises:
      ValueError: if the learner is not a mixture.
    """
    mixing, losses = _mixing(run.learner), _losses(run)
    prior, rounds = np.asarray(mixing.prior), run.order.shape[1]
    start = -np.log(prior) / mixing.beta
    share = -(rounds - 1) * np.log1p(-mixing.alpha * (1 - prior)) / mixing.beta
    best = (losses[:, 1:] + start + share).argmin(axis=1)
    terms = {
        "best expert": losses[np.arange(len(losses)), 1 + best],
        "prior": start[best],
        "share": share[best],
    }
    power = at_most("power of the likelihood: beta", float(mixing.beta), 1.0)
    bound = from_terms("mixture against its best expert", terms, power)
    return Statement(bound, Estimate.of(losses[:, 0]), "log loss")


def sure_errors(run: Run) -> Statement:
    """Bound the number of rounds in which a tool with P_mix >= 1/2 failed.

    Raises:
      ValueError: if the learner is not a mixture.
    """
    _mixing(run.learner)
    wrong = np.asarray(_extra(run).sure, np.float64)[:, 1]
    rewards = np.asarray(run.trace.reward)
    between = float(np.minimum(rewards, 1 - rewards).max(initial=0.0))
    terms = {"loss of the mixture / ln 2": _losses(run)[:, 0] / np.log(2)}
    bits = at_most("rewards are bits: largest distance from 0 and 1", between, 0.0)
    bound = from_terms("sure errors of the mixture", terms, bits)
    return Statement(bound, Estimate.of(wrong), "rounds")


def against_switches(history: History, mixing: Blend, k: int) -> float:
    """Compute the smallest bound on the mixture's loss over paths of experts with k switches.

    Args:
      history: rounds from `history`.
      mixing: structure of the learner; beta = 1, and alpha > 0 unless k = 0.
      k: number of switches, 0 <= k < T.

    Raises:
      ValueError: if k, beta or alpha is out of its range.
    """
    rounds, experts = history.losses.shape
    require("k", k, f"in 0 .. {rounds - 1}", lambda k: 0 <= k < rounds)
    require("beta", mixing.beta, "1 for a bound with switches", lambda beta: beta == 1)
    require("alpha", mixing.alpha, "> 0 for a bound with switches", lambda a: a > 0 or not k)
    prior = np.asarray(mixing.prior)
    stay = -np.log1p(-mixing.alpha * (1 - prior))
    turn = np.inf if k == 0 else -np.log(mixing.alpha * prior)
    # best[j, g]: smallest bound over paths with j switches so far that end at expert g
    best = np.full((k + 1, experts), np.inf)
    best[0] = -np.log(prior) + history.losses[0]
    for losses in history.losses[1:]:
        moved = np.full_like(best, np.inf)
        moved[1:] = _least_of_others(best[:-1]) + turn
        best = np.minimum(best + stay, moved) + losses
    return float(best[k].min())


def history(run: Run, seed: int) -> History:
    """Compute the weights and losses of one seed's rounds again, from its tools and rewards.

    Returns:
      Weights and losses of every round.

    Raises:
      ValueError: if the learner is not a mixture, the seed did not run, or an effect of the
        environment changes queries, labels, tools or updates.
    """
    _mixing(run.learner)
    require("seed", seed, f"one of {list(run.seeds)}", run.seeds.__contains__)
    learner, trace, task, place = run.learner, run.trace, run.task, run.seeds.index(seed)
    require_constant(run)
    lines = [x[place] for x in (run.order, trace.item, trace.propensity, trace.reward)]
    queries = query_for(learner, jnp.asarray(task.queries), prior_for(learner, task))
    found = jax.device_get(_play(learner, task.theta, task.available, queries, lines))
    weights, losses = (np.asarray(x, np.float64) for x in found)
    return History(weights, losses[:, 1:], losses[:, 0])


@partial(jax.jit, static_argnames="learner")
def _play(learner: Learner, theta, available, queries, lines):
    """Return the weights before each update and the losses of each round of a mixture."""

    def one(state, line):
        query, item, propensity, reward = line
        nothing = jnp.zeros_like(state.extra.losses)
        state = state._replace(extra=state.extra._replace(losses=nothing, rounding=nothing))
        learner_query = jax.tree.map(lambda x: x[query], queries)
        new = learner.update(state, learner_query, Choice(item, propensity), Feedback(reward))
        return new, (jnp.exp(state.extra.log_weights), new.extra.losses)

    return jax.lax.scan(one, learner.init(theta, available), lines)[1]


def _least_of_others(values: Float[np.ndarray, "k G"]) -> Float[np.ndarray, "k G"]:
    """Return the smallest value of the other experts, for each expert."""
    if values.shape[1] == 1:
        return np.full_like(values, np.inf)
    first, second = np.sort(values, axis=1)[:, :2].T
    at = values.argmin(axis=1)
    return np.where(np.arange(values.shape[1]) == at[:, None], second[:, None], first[:, None])


def _extra(run: Run) -> MixtureExtra:
    """Return the extra states of the mixture [S, ..], also inside wrappers."""
    return innermost(run.learner, run.states)[1].extra


def _losses(run: Run) -> Float[np.ndarray, "S 1+G"]:
    extra = _extra(run)
    return np.asarray(extra.losses, np.float64) - np.asarray(extra.rounding, np.float64)


def _mixing(learner: Learner) -> Blend:
    if (blend := blend_of(learner)) is None:
        raise ValueError(f"learner {learner.name!r} is not a mixture: it has no experts")
    return blend
