"""Bounds on the number of wrong tools shown by Banditron and Gaptron.

**Banditron** (Kakade, Shalev-Shwartz and Tewari 2008, Theorem 2), for rows W = s Theta at any scale
s > 0, which leaves the best tool unchanged. c = 1[best] - 1[a] y / pi has the mean
g = 1[best] - 1[i*], and if the best tool is wrong,
h_t(U) = max_{r != i*} [1 - (u_{i*} - u_r) q_t]_+ gives

    1 - h_t(U)  <=  -<g_t q_t^T, U>  <=  <g_t q_t^T, W_t - U>,

the last because the best tool scores no less than i*. Gradient descent of step e = s eta / tau
bounds the sum of the right side by ||W_1 - U||^2 / (2 e) + e/2 sum E||c_t||^2 ||q_t||^2. By
enumeration E||c||^2 = 1 + K / epsilon if the best tool is wrong, and 1/pi_b - 1 if it is right,
pi_b = 1 - epsilon + epsilon / K. With x = e/2 Q^2 (1 + K / epsilon) < 1, ||q_t|| <= Q, M the number
of rounds in which the best tool is wrong and U with rows in s times the ball, if there is one,

    E M <= (sum_t h_t(U) + ||W_1 - U||^2 / (2 e) + e/2 Q^2 T (1/pi_b - 1)) / (1 - x)
    E wrong tools shown <= E M + epsilon T (1 - 1 / K)

for every U and s. The bound does not depend on draws, so it can be computed before the run from the
labels. Theorem 2 of the paper has W_1 = 0, where the step is irrelevant, and the best s in closed
form. Here s is the best of those given by the values `SHARES` of x, and U the result of 64
subgradient steps; the bound holds for any U.

**Gaptron** (van der Hoeven 2020), at any step eta <= tau^2 gamma / (2 K^2), the paper's step, for
W = Theta / tau with rows of Theta in the ball, and the logistic loss in base 2:

    E wrong tools shown <= sum_t l_t(U) / ln 2 + gamma T + ||Theta_1 - U||^2 / (2 eta ln 2).

Letters: I = K tools, d width, N queries, S seeds, T rounds; Q the longest query.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.evaluation.estimate import Estimate
from jaxret.rules.estimators import expected_coefficients
from jaxret.rules.policies import Policy
from jaxret.rules.projections import ball, project
from jaxret.theory import assumptions
from jaxret.theory.assumptions import Assumption, Evidence, at_most, distance2
from jaxret.theory.comparators import losses, proximal_losses
from jaxret.theory.theorems import WRONG, Bound, Statement

SHARES = (0.03, 0.1, 0.3, 0.6)  # values of x, the share of the variance in the bound
_PROBE = np.linspace(-2.0, 2.0, 8, dtype=np.float32)
_STEPS = 64


class Solved(NamedTuple):
    """Banditron's bound at the best of a few scales s."""

    hinge: float  # each term over 1 - x
    start: float
    variance: float
    exploring: float
    scale: float  # s
    comparator: Float[np.ndarray, "I d"]  # U / s, as rows of Theta

    @property
    def value(self) -> float:
        return self.hinge + self.start + self.variance + self.exploring


def banditron(evidence: Evidence) -> Statement:
    """Compute Banditron's bound on the wrong tools of a run."""
    rule, stream = evidence.rule, evidence.stream
    epsilon = max(_explores(rule.policy), 1e-9)  # 0 for another policy, which voids the bound
    counts = np.bincount(np.asarray(stream.order)[0], minlength=len(stream.queries))
    solved = solve_banditron(
        evidence.theta_1,
        stream.queries,
        stream.labels[:, 0],
        jnp.asarray(counts, jnp.float32),
        step=float(rule.eta) / float(rule.tau),
        epsilon=epsilon,
        radius=rule.projection.radius,
    )
    inside = evidence._replace(comparator=jnp.asarray(solved.comparator))
    bound = Bound(
        name="Banditron",
        value=solved.value,
        stderr=0.0,
        terms={
            "hinge loss of U": solved.hinge,
            "start": solved.start,
            "variance": solved.variance,
            "exploring": solved.exploring,
        },
        assumptions=(
            *_common(inside),
            at_most("shown epsilon-greedily: off by", _off_epsilon_greedy(rule.policy), 1e-3),
            at_most("mean of the perceptron step: off by", _off_perceptron(evidence), 1e-3),
        ),
    )
    return Statement(bound, _wrong(evidence), WRONG)


def solve_banditron(
    theta_1: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, " N"],
    counts: Float[Array, " N"],
    *,
    step: float,
    epsilon: float,
    radius: float | None,
) -> Solved:
    """Compute Banditron's bound for a stream, before any of its rounds.

    Args:
      theta_1: initial rows [I, d].
      queries: the different queries [N, d].
      labels: right tool of each query [N].
      counts: number of exposures of each query [N].
      step: eta / tau, > 0.
      epsilon: probability of a uniformly drawn tool, > 0.
      radius: radius of the ball that holds the rows; None: rows are unconstrained.

    Returns:
      The terms of the bound at the best scale, and its comparator.
    """
    items, rounds = len(theta_1), float(counts.sum())
    longest2 = float((queries**2).sum(axis=1).max())
    best = 1.0 - epsilon + epsilon / items
    solved = []
    for x in SHARES:
        e = 2.0 * x / (longest2 * (1.0 + items / epsilon))
        scale = e / step
        limit = np.inf if radius is None else scale * radius
        u, hinge, start = _near(scale * theta_1, queries, labels, counts, e, limit)
        variance = e / 2.0 * longest2 * rounds * (1.0 / best - 1.0)
        terms = (float(term) / (1.0 - x) for term in (hinge, start, variance))
        exploring = epsilon * rounds * (1.0 - 1.0 / items)
        solved.append(Solved(*terms, exploring, scale, np.asarray(u) / scale))
    return min(solved, key=lambda one: one.value)


def hinges(
    u: Float[Array, "I d"], queries: Float[Array, "N d"], labels: Int[Array, " N"]
) -> Float[Array, " N"]:
    """Compute the multiclass hinge loss of every query, 1 minus the label's lead, at least 0.

    Args:
      u: rows [I, d].
      queries: [N, d].
      labels: the right tool of each query [N].

    Returns:
      losses [N].
    """
    z = queries @ u.T
    rows = jnp.arange(len(z))
    right = z[rows, labels]
    return jnp.maximum(1.0 - right + z.at[rows, labels].set(-jnp.inf).max(axis=1), 0.0)


def gaptron(evidence: Evidence) -> Statement:
    """Compute Gaptron's bound on the wrong tools of a run.

    U is the best of Theta_1, the run's comparator and the proximal comparator, projected to the
    ball.
    """
    rule, stream = evidence.rule, evidence.stream
    items, rounds = len(evidence.theta_1), np.shape(stream.order)[1]
    tau, eta, gamma = float(rule.tau), float(rule.eta), _explores(rule.policy)
    counts = np.bincount(np.asarray(stream.order)[0], minlength=len(stream.queries))

    def stated(u):
        """Return the terms for one U, and the evidence with that U."""
        against = evidence._replace(comparator=project(rule.projection, u))
        its_losses = losses(against.comparator, stream.queries, stream.labels, tau=tau)
        terms = {
            "loss of U, base 2": float(counts @ np.asarray(its_losses, np.float64)) / np.log(2),
            "exploring": gamma * rounds,
            "start": distance2(against) / (2.0 * eta * np.log(2)),
        }
        return terms, against

    near, _ = proximal_losses(
        np.asarray(evidence.theta_1),
        np.asarray(stream.queries),
        np.asarray(stream.labels),
        tau=tau,
        eta=eta,
        counts=counts,
    )
    candidates = (evidence.theta_1, evidence.comparator, near.theta)
    terms, inside = min(map(stated, candidates), key=lambda one: sum(one[0].values()))
    longest = float(jnp.linalg.norm(stream.queries, axis=1).max())
    own = tau**2 * gamma / (2.0 * items**2)
    bound = Bound(
        name="Gaptron",
        value=float(sum(terms.values())),
        stderr=0.0,
        terms=terms,
        assumptions=(
            *_common(inside),
            at_most("step over Gaptron's own", eta / own, 1.0),
            at_most("||q||", longest, 1.0 + 1e-4),
            at_most("shown by the gap map: off by", _off_gap_map(rule.policy, gamma), 1e-3),
            assumptions.estimator_mean(evidence, noise_rate=0.0, bias=0.0),
        ),
    )
    return Statement(bound, _wrong(evidence), WRONG)


@jax.jit
def _near(first, queries, labels, counts, e, limit):
    """Return the best U found near ``first``, its summed hinge loss and ||first - U||^2 / (2 e).

    Take subgradient steps of size e / k, since the objective is strongly convex, modulus 1 / e.
    """
    kept = ball()  # of radius 1, for rows divided by the limit

    def hinge(u):
        return (counts * hinges(u, queries, labels)).sum()

    def cost(u):
        return hinge(u) + ((u - first) ** 2).sum() / (2.0 * e)

    def within(u):
        free = jnp.isinf(limit)
        size = jnp.where(free, 1.0, limit)
        return jnp.where(free, u, project(kept, u / size) * size)

    def step(k, carry):
        u, best, lowest = carry
        u = within(u - e / (k + 1.0) * jax.grad(cost)(u))
        value = cost(u)
        better = value < lowest
        return u, jnp.where(better, u, best), jnp.where(better, value, lowest)

    u = within(first)
    _, best, _ = jax.lax.fori_loop(0, _STEPS, step, (u, u, cost(u)))
    return best, hinge(best), ((best - first) ** 2).sum() / (2.0 * e)


def _common(evidence: Evidence) -> tuple[Assumption, ...]:
    return (
        assumptions.same_start(evidence),
        assumptions.every_item_available(evidence),
        assumptions.constant_step(evidence),
        assumptions.comparator_inside(evidence),
        assumptions.one_label(evidence),
        assumptions.label_noise(evidence, 0.0),
    )


def _wrong(evidence: Evidence) -> Estimate:
    return Estimate.of((1.0 - np.asarray(evidence.trace.success, np.float64)).sum(axis=1))


def _probabilities(policy: Policy, sharpness: float = 1.0) -> Float[Array, " I"]:
    if policy.probabilities is None:
        raise ValueError(f"policy {policy.name!r} does not give the probability of each item")
    return policy.probabilities(jnp.asarray(sharpness * _PROBE))


def _explores(policy: Policy) -> float:
    """Return the share of uniform draws of a policy, from logits with a nearly certain best."""
    return float(_probabilities(policy, 1e3).min()) * len(_PROBE)


def _off_epsilon_greedy(policy: Policy) -> float:
    epsilon = _explores(policy)
    wanted = jnp.full(len(_PROBE), epsilon / len(_PROBE)).at[-1].add(1.0 - epsilon)
    return float(jnp.abs(_probabilities(policy) - wanted).max())


def _off_gap_map(policy: Policy, gamma: float) -> float:
    off = 0.0
    for sharpness in (0.1, 1.0, 3.0, 30.0):
        top = float(jax.nn.softmax(sharpness * _PROBE).max())
        share = max(1.0 - top, gamma) if top >= 0.5 else 1.0
        wanted = jnp.full(len(_PROBE), share / len(_PROBE)).at[-1].add(1.0 - share)
        off = max(off, float(jnp.abs(_probabilities(policy, sharpness) - wanted).max()))
    return off


def _off_perceptron(evidence: Evidence) -> float:
    p, probabilities = jax.nn.softmax(_PROBE), _probabilities(evidence.rule.policy)
    best, off = jnp.arange(len(p)) == len(p) - 1, 0.0
    for target in (0, 4, 7):
        mean = expected_coefficients(
            evidence.rule.estimator, p, jnp.asarray(target), propensity=probabilities
        )
        wanted = best.astype(p.dtype).at[target].add(-1.0)
        off = max(off, float(jnp.abs(mean - wanted).max()))
    return off
