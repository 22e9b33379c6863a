"""Classification calibration of cross-entropy: from its excess risk to the error of the first tool.

ORAG, Proposition B.1, with eta_i(q) = P(I* = i | q), p(q) any prediction and g(q) the tool
that it ranks first:

    (i)    for each q, E[-log p_{I*} | q] has the unique minimiser p = eta(q)
    (ii)   R_CE(p) - inf R_CE = E[KL(eta(Q) || p(Q))], and inf R_CE = E[H(eta(Q))]
    (iii)  R_CE(p_n) -> inf R_CE implies P(g_n(Q) != I*) -> its minimum, where eta has no ties

The paper's proof of (iii) uses Pinsker's inequality and takes a limit. Before the limit the
inequality holds for every prediction (not in the paper, but standard; Bartlett et al. 2006):

    eta_(1)(q) - eta_{g(q)}(q)  <=  ||eta(q) - p(q)||_1  <=  sqrt(2 KL(eta(q) || p(q)))

The first tool is therefore the best one wherever the KL divergence is below Delta(q)^2 / 2, with
Delta = eta_(1) - eta_(2), and by Jensen's inequality the excess error is at most
sqrt(2 (R_CE(p) - inf R_CE)).

Letters: Q queries, I tools.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import entr, rel_entr, xlogy

from jaxret.runtime.validate import require

_SLACK = 1e-6  # of a sum of probabilities, which may have been computed in float32


class ExcessRisk(NamedTuple):
    """The cross-entropy risk of a prediction in nats, and the error of its most probable tool.

    ``risk = least_risk + divergence``, and ``error <= least_error + bound``.
    """

    risk: float  # E[-log p_{I*}]
    least_risk: float  # E[H(eta)], the infimum over all predictions
    divergence: float  # E[KL(eta || p)], the excess risk
    error: float  # P(g(Q) != I*)
    least_error: float  # 1 - E[max_i eta_i], the error of the Bayes rule
    bound: float  # sqrt(2 E[KL(eta || p)])
    certified: Bool[np.ndarray, " Q"]  # KL < Delta^2 / 2: the first tool must be the best one


def excess_risk(
    posteriors: Float[np.ndarray, "Q I"],
    predictions: Float[np.ndarray, "Q I"],
    shares: Float[np.ndarray, " Q"],
) -> ExcessRisk:
    """Compute the risks and errors of Proposition B.1, and the bound on the excess error.

    Args:
      posteriors: eta(q), the probability of each tool to be right [Q, I].
      predictions: p(q) [Q, I]; 0 where eta is positive makes the risk infinite. Of equally
        probable tools the first is shown.
      shares: the probability of each query [Q].

    Returns:
      the risk, its infimum and the divergence, each computed on its own; and the errors.

    Raises:
      ValueError: unless the arrays have these shapes and hold probabilities that sum to 1.
    """
    eta, p, weights = _probabilities(posteriors, predictions, shares)
    divergences = rel_entr(eta, p).sum(axis=1)
    divergence = float(weights @ divergences)
    with np.errstate(divide="ignore"):
        risk = -float(weights @ xlogy(eta, p).sum(axis=1))
    shown = np.take_along_axis(eta, p.argmax(axis=1)[:, None], axis=1)[:, 0]
    second, first = np.sort(eta, axis=1)[:, -2:].T
    return ExcessRisk(
        risk=risk,
        least_risk=float(weights @ entr(eta).sum(axis=1)),
        divergence=divergence,
        error=float(1 - weights @ shown),
        least_error=float(1 - weights @ first),
        bound=float(np.sqrt(2 * max(divergence, 0.0))),
        certified=divergences < (first - second) ** 2 / 2,
    )


def _probabilities(posteriors, predictions, shares) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert the arrays to float64 and check them."""
    eta, p, weights = (np.asarray(x, np.float64) for x in (posteriors, predictions, shares))
    shapes = [x.shape for x in (eta, p, weights)]
    allowed = "[Q, I], [Q, I] and [Q] with at least two tools"
    require(
        "the shapes of posteriors, predictions and shares",
        shapes,
        allowed,
        lambda x: len(x[0]) == 2 and x[0][1] > 1 and x[1] == x[0] and x[2] == x[0][:1],
    )
    for name, x in (("posteriors", eta), ("predictions", p), ("shares", weights)):
        require(f"the least of {name}", x.min(), ">= 0", lambda least: least >= 0)
        off = float(np.abs(x.sum(axis=-1) - 1).max())
        allowed = f"within {_SLACK:g} of 1: divide them by their sum"
        require(f"the sums of {name}", 1 + off, allowed, lambda s: s - 1 <= _SLACK)
    return eta, p, weights
