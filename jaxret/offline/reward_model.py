"""A model of the reward of each tool, fitted only on earlier rounds.

    r(q, a) = sigmoid(b . f(q, a)) + o_a,   clipped to [0, 1]

``f`` is (1, z, z - max z) with z the policy's score of tool a, standardised over the scores for the
query; b is fitted by logistic regression with a ridge; o_a is the mean residual of tool a, shrunk
towards 0: the sum of its residuals over its rounds + 10. For a policy without scores, f is (1).

Rounds are cut into blocks that grow with the log, and each block is predicted by the model of the
rounds before it. The model of a round is thus known before the round, and the centred terms of
doubly robust estimators are martingale differences, however accurate the model is.

Letters: I items, n rounds, m features, T rounds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

FIRST, GROWTH = 32, 1.25  # rounds of the first block, and growth of the past with each block
RIDGE, SHRINKAGE = 1.0, 10.0
STEPS = 8  # steps of Newton's method


class RewardModel(NamedTuple):
    """Parameters of the model."""

    weights: Float[np.ndarray, " m"]
    offsets: Float[np.ndarray, " I"]


def blocks(rounds: int) -> list[slice]:
    """Cut rounds 0 .. T - 1 into blocks, each about a quarter as long as all rounds before it."""
    ends = [min(FIRST, rounds)]
    while ends[-1] < rounds:
        ends.append(min(rounds, int(np.ceil(ends[-1] * GROWTH))))
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def features(scores: Float[np.ndarray, "n I"] | None, shape: tuple[int, int]) -> np.ndarray:
    """Compute the features of each query and tool, 0 for absent tools.

    Args:
      scores: scores of the policy [n, I], minus infinity for absent tools; None: no scores.
      shape: (n, I).

    Returns:
      features [n, I, m].
    """
    if scores is None:
        return np.ones((*shape, 1))
    finite = np.isfinite(scores)
    z = np.where(finite, scores, np.nan)
    spread = np.nanstd(z, axis=1, keepdims=True)
    z = (z - np.nanmean(z, axis=1, keepdims=True)) / np.maximum(spread, 1e-9)
    gap = z - np.nanmax(z, axis=1, keepdims=True)
    return np.where(finite[..., None], np.stack([np.ones(shape), z, gap], axis=-1), 0.0)


def fit(
    seen: Float[np.ndarray, "n m"],
    item: Int[np.ndarray, " n"],
    reward: Float[np.ndarray, " n"],
    items: int,
) -> RewardModel:
    """Fit the model to past rounds; without rounds the model predicts 1/2.

    Args:
      seen: features of the used tools [n, m].
      item: used tools [n].
      reward: rewards in [0, 1] [n].
      items: I.
    """
    b = np.zeros(seen.shape[1])
    ridge = RIDGE * np.eye(len(b))
    for _ in range(STEPS):
        p = expit(seen @ b)
        curvature = (seen * (p * (1 - p))[:, None]).T @ seen + ridge
        step = np.linalg.solve(curvature, seen.T @ (reward - p) - RIDGE * b)
        b = b + np.clip(step, -4, 4)
    left = np.bincount(item, reward - expit(seen @ b), minlength=items)
    return RewardModel(b, left / (np.bincount(item, minlength=items) + SHRINKAGE))


def predict(model: RewardModel, seen: Float[np.ndarray, "n I m"]) -> Float[np.ndarray, "n I"]:
    """Predict the reward of each tool.

    Returns:
      rewards [n, I], in [0, 1].
    """
    return np.clip(expit(seen @ model.weights) + model.offsets, 0, 1)
