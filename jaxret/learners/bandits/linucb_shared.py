"""LinUCB with one model for all tools (Chu et al. 2011, Algorithm 1).

    show  argmax_a  w x(q, a) + alpha sqrt(x^T A^-1 x)      A = ridge I + sum_s x_s x_s^T

w and A^-1 are those of one regression on features of query and tool
(`jaxret.learners.bandits.shared`): ``[sqrt(d) q * theta_a, cosine, 1]``, so that every bit teaches
something of every tool. The paper leaves the features open, and its ridge is 1. alpha is a constant
here; with one that grows like sqrt(m log t) (OFUL, Abbasi-Yadkori et al. 2011) and ``E[y] = w x``
the regret is Õ(m sqrt(T)), whatever the number of tools. Bits of several right tools are what it
expects.

Not for 43,215 tools of width 1,536: every tool's bonus takes m^2 products, 10^11 a round. With some
thousands of tools it takes tens of milliseconds; `lints`, which has no bonus, goes on.
"""

from jaxret.learners.bandits import posterior, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.bandits.shared import constant, features, shared_learner
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require


@preset
def linucb_shared(*, alpha: float = 0.1, ridge: float = 1.0, start: Start = "document") -> Learner:
    """LinUCB, one model of query and tool for all tools.

    Args:
      alpha: width of the bonus, >= 0.
      ridge: precision of the prior, > 0.
      start: 'document', the prior mean is the cosine; or 'zero'.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)
    greedy = policies.greedy()

    def upper(state, query):
        x = features(state.theta, query, constant)
        bonus = alpha * posterior.deviations(state.extra, x)
        return rows.where_available(state, x @ state.extra.mean + bonus)

    def act(state, query, key):
        return greedy.show(key, upper(state, query), None)

    def probabilities(state, query):
        assert greedy.probabilities is not None
        return greedy.probabilities(upper(state, query))

    return shared_learner(
        "linucb_shared",
        base=constant,
        start=start,
        ridge=ridge,
        act=act,
        probabilities=probabilities,
    )
