"""Theorem 5.1 with the cost of its projection, for any projection and the sphere too (ours).

With Theta_{t+1} = Pi(X_t), X_t = Theta_t - eta G_t, for any map Pi of rows, convex or not,

    sum_t <G_t, Theta_t - U> = (||Theta_1 - U||^2 - ||Theta_{T+1} - U||^2) / (2 eta)
                             + eta/2 sum_t ||G_t||^2 + sum_t Delta_t / (2 eta)
    Delta_t = ||Pi(X_t) - U||^2 - ||X_t - U||^2

is an identity: expand ||X_t - U||^2 and telescope. The loss is convex in Theta, E_t[G_t] is its
gradient (Lemma 3.1) and U does not depend on the draws, so with E_t over a round's draw, given the
past,

    E regret(U) <= ||Theta_1 - U||^2 / (2 eta) + E sum_t E_t[eta/2 ||G_t||^2 + Delta_t / (2 eta)].

A row x of length r that is put on the sphere (radius 1), for u with ||u|| <= 1 and k = <x, u> / r:

    delta = ||x / r - u||^2 - ||x - u||^2 = (1 - r)(1 + r - 2 k)

If r >= 1, delta <= 0, since k <= 1: shortening a row lowers the bound. If r < 1, delta > 0 exactly
for k < (1 + r) / 2: **stretching** a row raises the bound, unless the row already points to u. The
projection onto the ball never stretches a row, so its bound is Theorem 5.1 minus the savings of
shortening.

On the sphere a step shortens row i by 1 - r = eta p_i <theta_i, q> + O(eta^2), so that
delta / (2 eta) = p_i <theta_i, q> (1 - k_i) + O(eta), which does not vanish with eta. Stretching
undoes the radial part of every gradient, and its cost is linear in T for a U at an angle. No step
size avoids the cost, so no rate follows, and the cost is measured.

E_t is exact, not sampled: Eq. (4) with clean bits has two outcomes, a = i* with probability p*, and
a failure, whose c = p is the same for every tool that fails. A draw of a rare tool moves its row by
1 / p*, which costs Theorem 5.1 eta / (2 p*); the row is then shortened, and the sum of both is
bounded. The sum is computed as a whole,

    <E_t G_t, Theta_t - U> + (E_t ||Theta_{t+1} - U||^2 - ||Theta_t - U||^2) / (2 eta).

On average the value is that of `duality` for this U plus E ||Theta_{T+1} - U||^2 / (2 eta): a
looser bound, whose terms measure the cost of the projection.

Here q stands for q / tau. Letters: I items, d width, S seeds, T rounds.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxret.evaluation.estimate import Estimate
from jaxret.learners.rank_one import Rule
from jaxret.simulation.run import Run
from jaxret.theory import assumptions
from jaxret.theory.assumptions import Evidence, distance2
from jaxret.theory.offsets import offsets_at
from jaxret.theory.rerun import Watch, available_rows
from jaxret.theory.theorems import Bound, clean_variance

_RARE = 1e-12  # lower bound of the probabilities that a step is divided by


def watch(run: Run, evidence: Evidence) -> Watch:
    """Make the quantity that computes `expected_costs` of each round."""
    rule = evidence.rule
    u, rows = jnp.asarray(evidence.comparator), available_rows(run.task)
    positions = np.zeros(len(run.task.ids), np.int32)
    positions[rows] = np.arange(len(rows))
    positions = jax.device_put(positions)

    def look(nothing, state, line):
        label = positions[line.labels[0]]
        own = offsets_at(rule, state, line.learner_query)[rows]
        return nothing, expected_costs(rule, state.theta[rows], line.query, label, u, own)

    return Watch((), look)


def with_projection(
    evidence: Evidence, costs: tuple[Float[np.ndarray, "S T"], Float[np.ndarray, "S T"]]
) -> Bound:
    """Compute the bound for a run of a rank-one learner without query map or preconditioner.

    Args:
      evidence: evidence of any such run, with the comparator U.
      costs: values of a rerun with `watch`, each [S, T].

    Returns:
      The bound, with the terms start, shortened steps and stretched rows.
    """
    eta = float(evidence.rule.eta)
    total, stretched = (x.sum(axis=1) for x in costs)
    start = np.full(len(total), distance2(evidence) / (2.0 * eta))
    terms = {"start": start, "steps, shortened": total - stretched, "stretched rows": stretched}
    value = Estimate.of(start + total)
    return Bound(
        name="Theorem 5.1, projection counted",
        value=value.mean,
        stderr=value.error,
        terms={name: float(values.mean()) for name, values in terms.items()},
        assumptions=(
            assumptions.same_start(evidence),
            assumptions.every_item_available(evidence),
            assumptions.constant_step(evidence),
            assumptions.drawn_from_model(evidence),
            assumptions.estimator_mean(evidence, noise_rate=0.0, bias=0.0),
            assumptions.estimator_second_moment(evidence, noise_rate=0.0, allowed=clean_variance),
            assumptions.same_failure(evidence),
            assumptions.one_label(evidence),
            assumptions.label_noise(evidence, 0.0),
        ),
    )


def expected_costs(
    rule: Rule,
    theta: Float[Array, "I d"],
    query: Float[Array, " d"],
    label: Any,
    u: Float[Array, "I d"],
    offsets: Any = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Compute ``E_t[eta/2 ||G_t||^2 + Delta_t / (2 eta)]`` of Eq. (4) for one round.

    Args:
      rule: rule with projection, tau and eta, and with the estimator of Eq. (4).
      theta: rows before the round [I, d].
      query: q [d], not divided by tau.
      label: i*.
      u: U [I, d].
      offsets: offsets of the logits [I]; 0 without any.

    Returns:
      The expectation [], and its part due to stretched rows [].
    """
    z = theta @ query / rule.tau + offsets
    p = jnp.exp(z - z.max())
    p = p / p.sum()
    right = jnp.arange(len(p)) == label
    p_right = p[label]
    row = {
        "theta2": (theta**2).sum(axis=1),
        "theta_q": theta @ query,
        "theta_u": (theta * u).sum(axis=1),
        "q_u": u @ query,
        "q2": query @ query,
    }
    moved, stretched = 0.0, 0.0
    reached = p - right / jnp.maximum(p_right, _RARE)
    for probability, c in ((p_right, reached), (1.0 - p_right, p)):
        closer, stretch = _after(rule, row, c)
        moved = moved + probability * closer.sum()
        stretched = stretched + probability * stretch.sum()
    linear = (p - right) @ (row["theta_q"] - row["q_u"]) / rule.tau
    return linear + moved / (2.0 * rule.eta), stretched / (2.0 * rule.eta)


def _after(rule: Rule, row: dict[str, Array], c: Float[Array, " I"]):
    """Return ``||pi(x) - u||^2 - ||theta - u||^2`` of every row, and Delta of stretched rows."""
    e = rule.eta / rule.tau * c
    length2 = row["theta2"] - 2.0 * e * row["theta_q"] + e**2 * row["q2"]
    x_u = row["theta_u"] - e * row["q_u"]
    factor = jnp.ones_like(e)
    if rule.projection.factor is not None:
        factor = rule.projection.factor(length2)
    closer = factor**2 * length2 - row["theta2"] - 2.0 * (factor * x_u - row["theta_u"])
    delta = (factor**2 - 1.0) * length2 - 2.0 * (factor - 1.0) * x_u
    return closer, jnp.where(factor > 1.0, delta, 0.0)
