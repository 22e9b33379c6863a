"""Published contextual bandits as learners of tools.

    linucb, ridge_epsilon_greedy    one ridge regression per tool: a bonus, or epsilon-greedy
    linucb_shared, lints            one regression on features of query and tool: a bonus, or
                                    Thompson draws
    neural_linear                   Thompson draws of that regression, with learnt noise
    squarecb, fastcb                a regression per tool by descent, inverse-gap weighting
    banditron, gaptron, soba        multiclass perceptrons with bandit feedback
    logistic_ucb                    a logistic regression per tool, a diagonal Hessian, a bonus
    bootstrapped                    copies of `greedy` that weight the rewards differently
    success_prior                   `greedy`, with each tool's success rate added to its logit

Each takes ``start``: 'document', with the documents as the prior mean; 'zero', as in the papers; or
'hybrid', with documents, the match of words and usage (`jaxret.learners.bandits.common`).
All but `linucb_shared` and `bootstrapped` are feasible with 43,215 tools of width 1,536. Importing
this package registers the presets.
"""

from jaxret.learners.bandits.bootstrapped import bootstrapped
from jaxret.learners.bandits.inverse_gap import fastcb, squarecb
from jaxret.learners.bandits.linear import lints, linucb_shared, neural_linear
from jaxret.learners.bandits.linucb import linucb, ridge_epsilon_greedy
from jaxret.learners.bandits.logistic_ucb import logistic_ucb
from jaxret.learners.bandits.perceptrons import banditron, gaptron, soba
from jaxret.learners.bandits.success_prior import success_prior

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
