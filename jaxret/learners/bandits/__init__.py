"""The field's contextual bandits as learners of tools, each by its own paper.

    ridge_epsilon_greedy   a ridge regression a tool, any tool in a share of the rounds
    linucb                 the same regressions, with a bonus
    linucb_shared, lints   one regression on features of query and tool: a bonus, or Thompson draws
    neural_linear          the same with the noise learnt
    squarecb, fastcb       a regression a tool by descent, inverse-gap weighting
    logistic_ucb           a logistic regression a tool, a diagonal Hessian, a bonus
    banditron, gaptron,
    soba                   multiclass perceptrons for bits
    bootstrapped           heads that saw different bits
    success_prior          each tool's own rate of success, on top of `greedy`

Each takes ``start``: the documents as the prior mean, or zero, with which the field's rules begin.
All but `linucb_shared` and `bootstrapped` go on to 43,215 tools of width 1,536. Importing this
package enters them in the registry.
"""

from jaxret.learners.bandits import (
    banditron,
    bootstrapped,
    fastcb,
    gaptron,
    lints,
    linucb,
    linucb_shared,
    logistic_ucb,
    neural_linear,
    ridge_epsilon_greedy,
    soba,
    squarecb,
    success_prior,
)

__all__ = [
    "banditron",
    "bootstrapped",
    "fastcb",
    "gaptron",
    "lints",
    "linucb",
    "linucb_shared",
    "logistic_ucb",
    "neural_linear",
    "ridge_epsilon_greedy",
    "soba",
    "squarecb",
    "success_prior",
]
