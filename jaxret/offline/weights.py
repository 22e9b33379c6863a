"""How much more often a policy would have shown what a log shows: the importance weights.

    w = pi(a | q) / p(a | q)                              of the tool a that was used, one shown
    w = prod_j pi(a_j | above) / p(a_j | above)           of k shown, place by place

For slates the policy is one that draws them as the log's did: place by place from its chances, none
twice, ``pi(a_j | above) = pi_{a_j} / (1 - sum of pi above)``. The weight of all places estimates
what the item used would earn on the policy's slates, whoever uses it and however. With ``cascade``
the product ends at the place that was used (McInerney et al. 2020): fewer factors, and right if
what happens at a place depends on it and those above alone.

A round says nothing of a tool that could not be shown in it: where the log's chance is 1 and the
policy's is not, the policy has no support there, and its value cannot be known from the log.

Letters: I items, n rounds, k items shown.
"""

import numpy as np
from jaxtyping import Bool, Float

from jaxret.logs import Log

CERTAIN = 1 - 1e-6  # a chance of float32 that is 1


def importance_weights(
    log: Log, chances: Float[np.ndarray, "n I"], *, cascade: bool = False
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The weight of each round, and whether the log has no support for the policy in it.

    Args:
      log: n rounds.
      chances: of the policy, for each tool to be shown (first).
      cascade: whether the places below the one that was used do not count.

    Returns:
      weights [n], and the rounds without support [n].

    Raises:
      ValueError: for a log that does not know the chance of each place, and for a policy that has
        nothing left to show below a place.
    """
    n, k = log.slate.shape
    rows, left = np.arange(n), np.array(chances, np.float64)
    weight, bare, reached = np.ones(n), np.zeros(n, bool), np.ones(n, bool)
    for place in range(k):
        item, p = log.slate[:, place], log.by_place[:, place]
        counts = reached & (item >= 0)
        if not (p[counts] > 0).all():  # NaN too
            t = log.round[counts][(~(p[counts] > 0)).argmax()]
            raise ValueError(
                f"the log does not know the chance of place {place + 1} in round {t}: nothing can "
                "be divided by it"
            )
        rest = left.sum(axis=1)
        if (counts & (rest < 1e-12)).any():
            raise ValueError(
                "the policy shows one tool for certain and says nothing of the places below it: "
                f"for slates of {k} give one that draws them, with policies.softmax"
            )
        pi = np.divide(left[rows, item], rest, out=np.zeros(n), where=counts)
        bare |= counts & (p >= CERTAIN) & (pi < CERTAIN)
        weight = np.where(counts, weight * pi / np.where(counts, p, 1), weight)
        left[rows[counts], item[counts]] = 0
        reached = counts & (weight > 0)  # below what the policy never shows nothing matters
        if cascade:
            reached &= item != log.item
    if log.chances is not None:
        bare |= (chances * (log.chances == 0)).sum(axis=1) > 1 - CERTAIN
    return weight, bare


def effective_sample_size(weight: Float[np.ndarray, " n"]) -> float:
    """``(sum w)^2 / sum w^2``: so many rounds of the policy's own would say as much (Kish 1965)."""
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square else 0.0
