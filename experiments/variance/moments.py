"""How far a bandit's coefficients are from the gradient: on average (bias), and around that.

    bias       || E[c] - (p - 1[i*]) ||        the gradient of Lemma 3.1 is what it should be
    variance   E || c - E[c] ||^2

over the item, with the policy's probabilities, and over the bit, wrong with probability rho.
Both are exact sums. So they count draws that no stream will see: with a right item of p* = 1e-9
the variance of Eq. (4), 1 / p* - 1, is a billion, and a stream of a million rounds mostly meets a
rule that is off. Call it in float64 (`jax.enable_x64`) where p is that small.

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
    """Of one query, or of N with a leading axis."""

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
    """The moments of one round. Costs 4 I evaluations of the estimator.

    Args:
      rule: its policy and estimator are used as they stand.
      logits: ``theta . q / tau``, minus infinity where an item is absent.
      label: the right item, available.
      noise_rate: rho.

    Raises:
      ValueError: if the policy cannot say with which chance it shows each item.
    """
    probabilities = rule.policy.probabilities
    if probabilities is None:
        raise ValueError(
            f"policy {rule.policy.name!r} with k={rule.policy.k} has no probabilities: exact "
            "averages need a policy that shows one item, and knows the probability of each"
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
    """The moments of a round with each query, at embeddings that stay as they are."""

    def one(query_and_label):
        query, label = query_and_label
        return moments(rule, theta @ query / rule.tau, label, noise_rate=noise_rate)

    return lax.map(one, (queries, labels))
