"""Estimators of a policy's value from another policy's log: each a formula for one round's term.

V is what the policy would earn a round: the mean over queries of ``sum_a pi(a | q) r(q, a)``, r the
mean reward of tool a. With the weight ``w = pi / p`` of what was used, its reward y, the model's
``m`` of that reward, and ``e = sum_a pi(a | q) m(q, a)``, an estimate is the mean of

    IPS            w y                                        unbiased                [1]
    SNIPS          w y / mean(w)                              consistent              [2]
    clipped IPS    min(w, M) y                                mean at most V          [3]
    DR             e + w (y - m)                              unbiased, see below     [4]
    Switch-DR      e + w (y - m) 1[w <= s]                    biased, less variance   [5]
    DRos           e + l w / (w^2 + l) (y - m)                biased, less variance   [6]
    MIPS           w_g y,  w_g = pi(g | q) / p(g | q)         biased, see below       [7]

DR is unbiased whatever m is, as long as m was not fitted on the round itself; the nearer m to r,
the less variance. Switch-DR and DRos (optimistic shrinkage) trust m where weights are large: s and
l to infinity make DR of them, s = 0 and l = 0 the model alone. MIPS weighs the group of the tool
that was used (``g``, k-means groups of Theta): unbiased where tools of a group earn the same for a
query, else off by what the tool says beyond its group. A group for each tool makes IPS of it, one
group for all the mean of the log.

s and l are tuned on the log, as [5] does for s: of a grid the one with the least sum of the
variance, estimated, and the square of a bound on the bias. As rewards and m lie in [0, 1], that
bias is at most the weight left out, ``1 - mean(w 1[w <= s])`` and ``1 - mean(l w / (w^2 + l))``.

[1] Horvitz and Thompson 1952. [2] Swaminathan and Joachims 2015. [3] Ionides 2008; Bottou et al.
2013. [4] Dudik, Langford and Li 2011. [5] Wang, Agarwal and Dudik 2017, with DR in place of IPS.
[6] Su, Dimakopoulou, Krishnamurthy and Dudik 2020, who tune l by other estimates of the bias.
[7] Saito and Joachims 2022.

Letters: T rounds; every argument is [T] in float64.
"""

import numpy as np
from jaxtyping import Float

Terms = Float[np.ndarray, " T"]


def inverse_propensity(weight: Terms, reward: Terms) -> Terms:
    """IPS.

    Returns:
      terms [T].
    """
    return weight * reward


def self_normalised(weight: Terms, reward: Terms) -> Terms:
    """SNIPS: 0 where the policy never shows what the log did.

    Returns:
      terms [T].
    """
    mean = weight.mean()
    return weight * reward / mean if mean else np.zeros_like(reward)


def clipped(weight: Terms, reward: Terms, most: float) -> Terms:
    """Clipped IPS; what is cut off is reward, so that the mean can only fall.

    Returns:
      terms [T].
    """
    return np.minimum(weight, most) * reward


def doubly_robust(weight: Terms, reward: Terms, model: Terms, expected: Terms) -> Terms:
    """DR.

    Returns:
      terms [T].
    """
    return expected + weight * (reward - model)


def switch(weight: Terms, reward: Terms, model: Terms, expected: Terms, most: float) -> Terms:
    """Switch-DR.

    Returns:
      terms [T].
    """
    return expected + np.where(weight <= most, weight, 0) * (reward - model)


def optimistic_shrinkage(
    weight: Terms, reward: Terms, model: Terms, expected: Terms, scale: float
) -> Terms:
    """DR with optimistic shrinkage.

    Returns:
      terms [T].
    """
    return expected + scale * weight / (weight**2 + scale) * (reward - model)


def tuned_switch(weight: Terms, reward: Terms, model: Terms, expected: Terms) -> Terms:
    """Switch-DR with the s that promises the least error.

    Returns:
      terms [T].
    """
    grid = _grid(weight)
    left_out = [1 - np.where(weight <= most, weight, 0).mean() for most in grid]
    return _least_error([switch(weight, reward, model, expected, s) for s in grid], left_out)


def tuned_shrinkage(weight: Terms, reward: Terms, model: Terms, expected: Terms) -> Terms:
    """DRos with the l that promises the least error.

    Returns:
      terms [T].
    """
    scales = _grid(weight) ** 2
    left_out = [1 - (scale * weight / (weight**2 + scale)).mean() for scale in scales]
    lines = [optimistic_shrinkage(weight, reward, model, expected, scale) for scale in scales]
    return _least_error(lines, left_out)


def _grid(weight: Terms) -> np.ndarray:
    """From 1 to beyond the largest weight."""
    return np.geomspace(1, max(10 * weight.max(), 10), 20)


def _least_error(lines: list[Terms], left_out: list[float]) -> Terms:
    bounds = np.maximum(left_out, 0) ** 2
    errors = [line.var() / len(line) + bound for line, bound in zip(lines, bounds, strict=True)]
    return lines[int(np.argmin(errors))]


def marginalised(group_weight: Terms, reward: Terms) -> Terms:
    """MIPS.

    Returns:
      terms [T].
    """
    return group_weight * reward
