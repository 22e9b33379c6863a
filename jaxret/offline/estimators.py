"""Estimators of a policy's value from another policy's log, as terms of one round each.

The value V is the mean over queries of ``sum_a pi(a | q) r(q, a)``, r the mean reward of tool a.
With the weight ``w = pi / p`` of the used tool, its reward y, the modelled reward m, and
``e = sum_a pi(a | q) m(q, a)``, an estimate is the mean of

    IPS            w y                                        unbiased                [1]
    SNIPS          w y / mean(w)                              consistent              [2]
    clipped IPS    min(w, M) y                                mean at most V          [3]
    DR             e + w (y - m)                              unbiased, see below     [4]
    Switch-DR      e + w (y - m) 1[w <= s]                    biased, less variance   [5]
    DRos           e + l w / (w^2 + l) (y - m)                biased, less variance   [6]
    MIPS           w_g y,  w_g = pi(g | q) / p(g | q)         biased, see below       [7]

DR is unbiased for every m that was not fitted on the round itself, and its variance falls as m
approaches r. Switch-DR and DRos (optimistic shrinkage) rely on m if weights are large: both become
DR as s and l go to infinity, and the model alone for s = 0 and l = 0. MIPS weights the group of the
used tool (``g``, k-means groups of Theta): it is unbiased if all tools of a group have the same
reward for a query. With one group per tool MIPS is IPS, with a single group the mean of the log.

s and l are tuned on the log, as [5] does for s: the value of a grid is chosen that minimises the
estimated variance plus the square of a bound on the bias. As rewards and m lie in [0, 1], the bias
is at most the weight left out, ``1 - mean(w 1[w <= s])`` and ``1 - mean(l w / (w^2 + l))``.

[1] Horvitz and Thompson 1952. [2] Swaminathan and Joachims 2015. [3] Ionides 2008; Bottou et al.
2013. [4] Dudik, Langford and Li 2011. [5] Wang, Agarwal and Dudik 2017, with DR in place of IPS.
[6] Su, Dimakopoulou, Krishnamurthy and Dudik 2020, who tune l with other estimates of the bias.
[7] Saito and Joachims 2022.

Every function takes and returns arrays [T] in float64: ``weight`` w, ``reward`` y, ``model`` m and
``expected`` e; ``most`` is M or s, ``scale`` is l.

Letters: T rounds.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Terms = Float[np.ndarray, " T"]


def inverse_propensity(weight: Terms, reward: Terms) -> Terms:
    """Compute the terms of IPS, or of MIPS.

    Returns:
      terms [T].
    """
    return weight * reward


def self_normalised(weight: Terms, reward: Terms) -> Terms:
    """Compute the terms of SNIPS, which are 0 if all weights are 0.

    Returns:
      terms [T].
    """
    mean = weight.mean()
    return weight * reward / mean if mean else np.zeros_like(reward)


def clipped(weight: Terms, reward: Terms, most: float) -> Terms:
    """Compute the terms of clipped IPS, whose mean is at most that of IPS.

    Args:
      weight: w, ``pi / p`` of the tool that was used in each round [T], >= 0.
      reward: y of the tool that was used [T], in [0, 1].
      most: M, the largest weight that counts in full; a larger one counts as M.

    Returns:
      terms [T].
    """
    return np.minimum(weight, most) * reward


def doubly_robust(weight: Terms, reward: Terms, model: Terms, expected: Terms) -> Terms:
    """Compute the terms of DR.

    Args:
      weight: w, ``pi / p`` of the tool that was used in each round [T], >= 0.
      reward: y of the tool that was used [T], in [0, 1].
      model: m, the reward that the model predicts for the tool that was used [T].
      expected: e, the model's reward averaged over the tools that pi may show [T].

    Returns:
      terms [T].
    """
    return expected + weight * (reward - model)


def switched(weight: Terms, most: float) -> Terms:
    """Replace weights above ``most`` by 0: DR with these weights is Switch-DR.

    Returns:
      weights [T].
    """
    return np.where(weight <= most, weight, 0)


def shrunk(weight: Terms, scale: float) -> Terms:
    """Shrink weights optimistically: DR with these weights is DRos.

    Returns:
      weights [T].
    """
    return scale * weight / (weight**2 + scale)


def tuned(
    shrink: Callable[[Terms, float], Terms],
    weight: Terms,
    reward: Terms,
    model: Terms,
    expected: Terms,
) -> Terms:
    """Compute the terms of Switch-DR or DRos with the s or l of the smallest estimated error.

    Args:
      shrink: `switched` or `shrunk`. 20 values of s are tried, from 1 to beyond the largest weight,
        and as values of l their squares.
      weight: w, ``pi / p`` of the tool that was used in each round [T], >= 0.
      reward: y of the tool that was used [T], in [0, 1].
      model: m, the reward that the model predicts for the tool that was used [T].
      expected: e, the model's reward averaged over the tools that pi may show [T].

    Returns:
      terms [T].
    """
    grid = np.geomspace(1, max(10 * weight.max(), 10), 20)
    weights = [shrink(weight, x) for x in (grid**2 if shrink is shrunk else grid)]
    lines = [doubly_robust(one, reward, model, expected) for one in weights]
    bounds = [max(1 - one.mean(), 0) ** 2 for one in weights]
    errors = [line.var() / len(line) + bound for line, bound in zip(lines, bounds, strict=True)]
    return lines[int(np.argmin(errors))]
