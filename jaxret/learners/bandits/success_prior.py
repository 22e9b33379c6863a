"""A success prior: the rate at which each tool succeeded when shown, over all queries."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import coefficients
from jaxret.learners.registry import preset
from jaxret.rules import estimators, policies, projections
from jaxret.runtime.validate import require


class Counts(NamedTuple):
    """Successes and failures of each tool, those of the prior included."""

    successes: Float[Array, " I"]
    failures: Float[Array, " I"]


@preset
def success_prior(
    *,
    tau: float = 0.03,
    eta: float = 3e-3,
    successes: float = 1.0,
    failures: float = 3.0,
    start: Start = "document",
) -> Learner:
    """Learn as `greedy`, with the log odds of each tool's success rate added to its logit.

        logits  = Theta q / tau + log(a_i / b_i)          a_i, b_i: successes and failures of tool i
        show      argmax_i logits_i
        learn     Theta <- sphere(Theta - eta c q^T / tau),  c of the likelihood of the bit, as in
                  `greedy`;  a_i <- a_i + y,  b_i <- b_i + 1 - y  of the tool shown

    a_i / b_i are the odds of tool i under Beta(a_i, b_i), the posterior of its rewards under the
    Bernoulli model (Thompson 1933; Chapelle and Li 2011, Section 2, for clicks). They act as prior
    odds, which similarity multiplies: a tool that is shown for many queries and fails becomes less
    likely for all queries at once. With start 'hybrid' the match of words and the usage are two
    more factors: the logits are ``(Theta q + o) / tau + log(a_i / b_i)``.

    This is a heuristic without a guarantee. The rewards of a tool come from the queries for which
    it was shown, so they change both the prior and the rows. The softmax assumes one right tool:
    with several right tools their rewards are spread over them.

    Cost per round: that of `greedy` by the scan, since offsets of the logits that change every
    round rule out the blocked form; 2 I more numbers in memory. 43,215 tools of width 1,536 are
    feasible.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      successes: prior successes of each tool, > 0, in rounds.
      failures: prior failures of each tool, > 0, in rounds.
      start: 'document', with rows on the unit sphere; 'zero', with free rows; or 'hybrid', as
        'document', with words and usage.

    Returns:
      The learner; `State.extra` is a `Counts`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    require("successes", successes, "> 0", lambda x: x > 0)
    require("failures", failures, "> 0", lambda x: x > 0)
    estimator, projection = estimators.bandit_likelihood(), common.default_projection(start)

    def extra(theta):
        one = jnp.ones(len(theta), theta.dtype)
        return Counts(successes * one, failures * one)

    def log_odds(state):
        return jnp.log(state.extra.successes) - jnp.log(state.extra.failures)

    def logits(state, query):
        values = common.cosines(state, query) / tau + log_odds(state)
        return common.where_available(state, values)

    def learn(state, query, choice, feedback):
        c = coefficients(estimator, logits(state, query), choice, feedback, None)
        theta = state.theta - (eta / tau * c)[:, None] * query.vector[None, :]
        counts = Counts(
            successes=state.extra.successes.at[choice.item].add(feedback.reward),
            failures=state.extra.failures.at[choice.item].add(1.0 - feedback.reward),
        )
        return state._replace(theta=projections.project(projection, theta), extra=counts)

    def predict(state, queries):
        return common.cosines_of_all(state, queries) / tau + log_odds(state)[None]

    return common.bandit(
        "success_prior",
        start=start,
        acting=common.acting_by(policies.greedy(), logits),
        learn=learn,
        predict=predict,
        extra=extra,
        projection=projection,
        values=lambda state, query: tau * logits(state, query),
        logits=logits,
    )
