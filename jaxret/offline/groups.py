"""Groups of tools that lie close together: k-means of the rows of Theta.

Letters: I items, d width, k groups.
"""

import warnings

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans2

from jaxret.runtime.validate import require


def groups_of_rows(
    theta: Float[np.ndarray, "I d"], k: int | None = None, *, seed: int = 0
) -> Int[np.ndarray, " I"]:
    """Puts tools into groups, by Lloyd's algorithm from k-means++ (Arthur and Vassilvitskii 2007).

    Args:
      theta: rows.
      k: how many, in 1 .. I; fewer where fewer rows differ, or a group ends up empty. None: the
        root of I.
      seed: of the start.

    Returns:
      the group of each tool [I], numbered from 0.
    """
    items = len(theta)
    count = round(items**0.5) if k is None else k
    require("groups", count, f"in 1 .. {items}", lambda n: 1 <= n <= items)
    rows, alike = np.unique(np.asarray(theta, np.float64), axis=0, return_inverse=True)
    if count >= len(rows):
        return alike.reshape(-1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        _, nearest = kmeans2(np.asarray(theta, np.float64), count, iter=50, minit="++", seed=seed)
    return np.unique(nearest, return_inverse=True)[1]
