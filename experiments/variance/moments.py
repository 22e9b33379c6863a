"""Bias and variance of a bandit's coefficients as estimates of the gradient.

    bias       || E[c] - (p - 1[i*]) ||        with the gradient of Lemma 3.1
    variance   E || c - E[c] ||^2

over the item, with the policy's probabilities, and over the bit, wrong with probability rho.
Both are exact sums, so they include draws that never occur in a stream: with p* = 1e-9 the variance
of Eq. (4), 1 / p* - 1, is a billion, while in a stream of a million rounds the right item is hardly
ever drawn and the estimate is biased in practice. Use float64 (`jax.enable_x64`) for such small p.

One label a query. Letters: I items, d width, N queries.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.rank_one import Rule
from jaxret.rules.estimators import expected_coefficients
from jaxret.runtime import over_items


class Moments(NamedTuple):
    """Moments for one query, or for N queries with a leading axis."""

    mean: Float[Array, "*N I"]  # E[c]
    bias: Float[Array, "*N"]
    variance: Float[Array, "*N"]


def moments(
    rule: Rule,
    logits: Float[Array, " I"],
    label: Int[Array, ""],
    *,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Moments:
    """Computes the moments of one round, with 4 I evaluations of the estimator.

    Args:
      rule: rule with the policy and the estimator.
      logits: ``theta . q / tau``, minus infinity where an item is absent.
      label: right item, which is available.
      noise_rate: rho.

    Raises:
      ValueError: if the policy has no probabilities.
    """
    probabilities = rule.policy.probabilities
    if probabilities is None:
        raise ValueError(
            f"policy {rule.policy.name!r} with k={rule.policy.k} has no probabilities: exact "
            "averages need a policy that shows one item with known probabilities"
        )
    probs = over_items.softmax(logits, None)
    average = partial(
        expected_coefficients,
        probs=probs,
        target=label,
        propensity=probabilities(logits),
        noise_rate=noise_rate,
    )
    mean = average(rule.estimator)

    def deviation(obs):
        return (rule.estimator.coefficients(obs) - mean) ** 2

    return Moments(
        mean=mean,
        bias=jnp.linalg.norm(mean - probs.at[label].add(-1.0)),
        variance=average(rule.estimator._replace(coefficients=deviation)).sum(),
    )


def over_queries(
    rule: Rule,
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, " N"],
    *,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Moments:
    """Computes the moments of a round with each query, at constant embeddings."""

    def one(query_and_label):
        query, label = query_and_label
        return moments(rule, theta @ query / rule.tau, label, noise_rate=noise_rate)

    return lax.map(one, (queries, labels))
