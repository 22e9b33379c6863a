"""Logistic UCB: one logistic regression per tool with a diagonal Hessian, and a bonus."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require

_HALVINGS = 48  # halvings of an interval of length 1, enough for float64


@preset
def logistic_ucb(
    *,
    alpha: float = 0.3,
    ridge: float = 1.0,
    tau: float = 0.1,
    centre: float = 0.6,
    start: Start = "document",
) -> Learner:
    """Learn by logistic UCB, with a model and a diagonal Hessian per tool.

        E[y]  = sigmoid(W_a q - centre / tau)
        show    argmax_a  W_a q + alpha sqrt(sum_j q_j^2 / H_aj)
        learn   W_a <- argmin_w  1/2 sum_j H_aj (w_j - W_aj)^2 + log loss of the bit at w
                H_aj <- H_aj + p (1 - p) q_j^2,   p at the new W_a

    The bonus is that of GLM-UCB (Filippi et al. 2010; Faury et al. 2020 for the logistic model)
    with the diagonal of the Hessian; the regret Õ(d sqrt(T)) of those papers is for the full
    Hessian. The step is that of Chapelle and Li (2011), Algorithm 3, with batches of one reward. It
    is solved exactly: the new W_a is ``W_a + s q / H_a``, where s is the unique root of
    ``s = y - sigmoid(logit + s sum_j q_j^2 / H_aj)``. Each tool has its own prediction, so queries
    with several right tools need no special case.

    Rows are stored as ``Theta = tau W``, on the scale of cosines. With start 'hybrid' every W_a q
    has the known offset o_a / tau, also within the log loss. Cost per round: 2 I d products,
    one row is updated; I d more numbers in memory (265 MB for 43,215 tools of width 1,536).

    Args:
      alpha: factor of the bonus, >= 0, in log odds per standard deviation.
      ridge: H at the start, > 0.
      tau: difference of cosines that is one unit of log odds, > 0.
      centre: cosine at which success has probability 1/2; 0 with start 'zero'.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Returns:
      The learner; `State.extra` is 1 / H [I, d].

    Raises:
      ValueError: if a setting is out of range.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("tau", tau, "> 0", lambda x: x > 0)
    even = 0.0 if start == "zero" else centre

    def upper(state, query):
        bonus = alpha * jnp.sqrt(state.extra @ query.vector**2)
        return common.cosines(state, query) / tau + bonus

    def learn(state, query, choice, feedback):
        q, variance = query.vector, state.extra[choice.item]
        logit = (common.cosine_of(state, query, choice.item) - even) / tau
        width = variance @ q**2
        s = proximal_step(logit, width, feedback.reward)
        p = jax.nn.sigmoid(logit + s * width)
        less = variance / (1.0 + p * (1.0 - p) * q**2 * variance)
        return state._replace(
            theta=state.theta.at[choice.item].add(tau * s * variance * q),
            extra=state.extra.at[choice.item].set(less),
        )

    def predict(state, queries):
        return jax.nn.sigmoid((common.cosines_of_all(state, queries) - even) / tau)

    return common.bandit(
        "logistic_ucb",
        start=start,
        acting=common.acting_by(policies.greedy(), upper),
        learn=learn,
        predict=predict,
        extra=lambda theta: jnp.full_like(theta, 1.0) / ridge,
    )


def proximal_step(
    logit: Float[Array, ""], width: Float[Array, ""], reward: Float[Array, ""]
) -> Float[Array, ""]:
    """Solve ``s = y - sigmoid(logit + s width)`` by bisection of [y - 1, y].

    Args:
      logit: log odds of success before the step [].
      width: change of the log odds by a step of 1 [], >= 0.
      reward: y [], in [0, 1].

    Returns:
      s [].
    """

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        above = middle + jax.nn.sigmoid(logit + middle * width) > reward
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = lax.fori_loop(0, _HALVINGS, halve, (reward - 1.0, reward))
    return 0.5 * (low + high)
