"""Epsilon-greedy with a ridge regression a tool: the plainest contextual bandit.

    show  argmax_a W_a q;  with probability epsilon any tool that is there

W_a is the exact ridge regression of the bits of tool a (`jaxret.learners.bandits.ridge`; Langford
and Zhang 2007 for exploring in a share of the rounds, here a constant one and not an epoch). Bits
of several right tools are what it expects. A share that stays makes the regret grow linearly,
whatever is learnt: there is no guarantee.

43,215 tools of width 1,536: I d + C d numbers in memory, as many products a round.
"""

from jaxret.learners.bandits.ridge import ridge_learner
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.rules import policies


@preset
def ridge_epsilon_greedy(
    *,
    epsilon: float = 0.05,
    ridge: float = 1.0,
    scale: float = 0.5,
    start: Start = "document",
    capacity: int = 4096,
) -> Learner:
    """Epsilon-greedy by the means of an exact ridge regression a tool.

    Args:
      epsilon: share of the rounds with any tool, in [0, 1].
      ridge: precision of the prior, > 0.
      scale: what a cosine of 1 with the document promises, > 0; the rows are W / scale.
      start: 'document', W begins at scale times the documents; or 'zero'.
      capacity: C, rounds that are remembered.
    """
    return ridge_learner(
        "ridge_epsilon_greedy",
        policy=policies.epsilon_greedy(epsilon=epsilon),
        values=lambda state, query: scale * (state.theta @ query),
        ridge=ridge,
        scale=scale,
        start=start,
        capacity=capacity,
    )
