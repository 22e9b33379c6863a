"""Lemma 3.1 on a run: the distance of the summed bandit gradients from the summed gradients.

    E || sum_t (c_t - g_t) q_t^T ||_F  <=  sqrt( E sum_t (1/p* - 1) ||q_t||^2 ),   g = p - 1[i*]

Proof. By the lemma E_t[c_t] = g_t, so the terms are martingale differences, orthogonal on average:
the mean of the squared left side is the sum of E||c_t - g_t||^2 ||q_t||^2. Eq. (4) with clean bits
has c - g = 1[i*](1 - y / p*), whose square has the mean 1/p* - 1; the root is Jensen's inequality.
So for Eq. (4) the means of squares are equal, and the left side is smaller because rare draws, of
size 1 / p* each, hardly ever happen within a run.

The mean norm M of S runs exceeds its expectation about half of the time, so the statement about M
needs a margin. With V the expected sum of variances and m the mean of one norm,
Var M = (V' - m^2) / S with V' <= V, and by Cantelli's inequality, with probability 1 - delta,
M <= m + sqrt((V - m^2) (1 - delta) / (delta S)). Maximised over m this is

    M  <=  sqrt( V (1 + (1 - delta) / (delta S)) ),   delta = 0.05; 2.2 sqrt(V) for five runs.

V is estimated from the same runs, as the mean of their sums.

A run can test one part of the lemma, that tools are drawn with the probabilities p: given all
earlier rounds, y_t is a bit with probability p*_t (`jaxret.theory.calibration`).

Here q stands for q / tau. Letters: I items, d width, S seeds, T rounds.
"""

import numpy as np
from jaxtyping import Float

from jaxret.evaluation.estimate import Estimate
from jaxret.learners.rank_one import coefficients, logits_of
from jaxret.runtime import over_items
from jaxret.simulation.run import Run
from jaxret.theory import assumptions, calibration
from jaxret.theory.assumptions import Evidence, norm2, p_label
from jaxret.theory.rerun import Watch, one_hot_labels
from jaxret.theory.theorems import Bound, Statement
from jaxret.types import Choice, Feedback

DELTA = 0.05  # probability that the mean of the runs is above the stated value


def watch(run: Run, evidence: Evidence) -> Watch:
    """Make the quantity that sums ``(c - g) q^T`` over rounds, with q not divided by tau."""
    rule = evidence.rule

    def look(noise, state, line):
        z = logits_of(rule, state, line.query, line.learner_query)
        choice = Choice(line.item, line.propensity)
        feedback = Feedback(line.reward, labels=None if rule.estimator.bandit else line.labels)
        c = coefficients(rule.estimator, z, choice, feedback, None)
        off = c - (over_items.softmax(z, None) - one_hot_labels(line.labels, z))
        return noise + off[:, None] * line.query[None, :], None

    return Watch(np.zeros(run.task.theta.shape, np.float32), look)


def lemma_3_1(evidence: Evidence, noise: Float[np.ndarray, "S I d"]) -> Statement:
    """Compute the bound for clean bits and a rank-one rule without query map or preconditioner.

    Args:
      evidence: evidence of any such run.
      noise: sums of a rerun with `watch` [S, I, d].

    Returns:
      The bound, and the norm of each seed.
    """
    rule = evidence.rule
    norms = np.sqrt((noise**2).sum(axis=(1, 2))) / float(rule.tau)
    with np.errstate(all="ignore"):  # p* may underflow and give infinite bounds
        squares = ((1.0 / p_label(evidence) - 1.0) * norm2(evidence)).sum(axis=1)
    expected = float(np.sqrt(squares.mean()))
    error = squares.std(ddof=1) / np.sqrt(len(squares)) if len(squares) > 1 else np.nan
    chance = float(np.sqrt(1.0 + (1.0 - DELTA) / (DELTA * len(squares))))
    value = chance * expected
    bound = Bound(
        name="Lemma 3.1, accumulated",
        value=value,
        stderr=chance * float(error / (2.0 * expected)) if expected else 0.0,
        terms={"root of the summed variance": expected, "luck of the draws": value - expected},
        assumptions=(
            assumptions.same_start(evidence),
            assumptions.drawn_from_model(evidence),
            assumptions.estimator_mean(evidence, noise_rate=0.0, bias=0.0),
            assumptions.estimator_variance(evidence),
            assumptions.one_label(evidence),
            assumptions.label_noise(evidence, 0.0),
            calibration.as_predicted(
                "success as frequent as p says: least p by decile",
                np.asarray(evidence.trace.p_success, np.float64),
                np.asarray(evidence.trace.reward, np.float64),
            ),
        ),
    )
    return Statement(bound, Estimate.of(norms), "||sum of c - g||")
