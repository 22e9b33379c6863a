"""A prior of success for each tool: how often it worked when it was shown, whatever the query.

    logits  = Theta q / tau + log(a_i / b_i)            a_i = successes + those seen, b_i likewise
    show      argmax_i logits_i
    learn     Theta <- sphere(Theta - eta c q^T / tau),  c of the likelihood of the bit, as `greedy`
              a_i or b_i one up

a_i / b_i are the odds of tool i under Beta(a_i, b_i), the posterior of its bits under the Bernoulli
model (Thompson 1933; Chapelle and Li 2011, Section 2, for clicks); added to the logit they are the
prior odds that similarity multiplies. Tools that are shown for everything and fail lose, once, for
all queries. It is a heuristic: the bits of a tool are those of queries for which it was shown, so
what the prior says is counted a second time by what the rows learn, and nothing is guaranteed. The
softmax says that one tool is right; bits of several are spread over them.

43,215 tools of width 1,536: 2 I numbers more; all rows move, as with `greedy`, but without a
blocked form, since what is added to the logits changes every round.

Letters: I items, d width.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.rank_one import coefficients
from jaxret.learners.registry import preset
from jaxret.rules import estimators, policies, projections
from jaxret.runtime.validate import require


class Counts(NamedTuple):
    """Of each tool, those of the prior included."""

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
    """`greedy`, with each tool's own rate of success added to its logit.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      successes: of each tool before the first bit, > 0.
      failures: likewise, > 0.
      start: 'document', with rows on the unit sphere; or 'zero', with free rows.
    """
    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    require("successes", successes, "> 0", lambda x: x > 0)
    require("failures", failures, "> 0", lambda x: x > 0)
    rows.require_start(start)
    estimator, policy = estimators.bandit_likelihood(), policies.greedy()
    # A row of length 0 has no direction that a sphere could keep.
    projection = projections.sphere() if start == "document" else projections.none()

    def init(theta, available=None):
        theta = projections.project(projection, rows.first_rows(start, theta))
        one = jnp.ones(len(theta), theta.dtype)
        return rows.begin(theta, available, Counts(successes * one, failures * one))

    def log_odds(state):
        return jnp.log(state.extra.successes) - jnp.log(state.extra.failures)

    def logits(state, query):
        return rows.where_available(state, state.theta @ query / tau + log_odds(state))

    def act(state, query, key):
        return policy.show(key, logits(state, query), None)

    def probabilities(state, query):
        assert policy.probabilities is not None
        return policy.probabilities(logits(state, query))

    def update(state, query, choice, feedback):
        c = coefficients(estimator, logits(state, query), choice, feedback, None)
        theta = state.theta - (eta / tau * c)[:, None] * query[None, :]
        counts = Counts(
            successes=state.extra.successes.at[choice.item].add(feedback.reward),
            failures=state.extra.failures.at[choice.item].add(1.0 - feedback.reward),
        )
        new = state._replace(theta=projections.project(projection, theta), extra=counts)
        return where_observed(feedback, state, new)

    def scores(state, queries):
        values = rows.compare(queries, state.theta) / tau + log_odds(state)[None]
        return rows.where_available(state, values)

    return Learner(
        name="success_prior",
        init=init,
        act=act,
        update=update,
        logits=logits,
        scores=scores,
        probabilities=probabilities,
    )
