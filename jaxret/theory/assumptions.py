"""Evidence of runs of one learner, and the assumptions of theorems measured on it.

Assumptions are measured, not inferred from names. The policy and the estimator are called on a
probe (8 items, p from 0.008 to 0.44) and compared with the assumptions of the proof; the schedule
is evaluated in every round; everything else is read from the trace. A probe can refute an
assumption but not prove it, so an estimator must also be declared unbiased.

Numbers are float64 on the host, and q stands for q / tau as everywhere in the theory.

Letters: I items, d width, N queries, L labels, T rounds, S seeds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from jaxret.learners.rank_one import Rule
from jaxret.rules.estimators import Observation
from jaxret.theory.checks import moments
from jaxret.theory.comparators import losses
from jaxret.theory.offsets import RoundOffsets
from jaxret.theory.regret import cumulative_regret
from jaxret.types import Stream, Trace

_CLOSE = 1e-3  # relative error of float32 traces and probes
FALSE_ALARM = 1e-3  # probability that `label_noise_by_tool` fails on noise as assumed
_FEW = 20  # rounds from which a tool is tested separately
_PROBE = np.linspace(-2.0, 2.0, 8)  # logits


class Evidence(NamedTuple):
    """Runs of one learner with several seeds, and the comparator of their regret.

    The bounds assume that every item is available in every round: leave out rows of items that are
    never available, and give ``always_available`` to detect items that come or go.
    """

    rule: Rule
    theta_1: Float[Array, "I d"]
    stream: Stream  # order [S, T]
    trace: Trace  # fields [S, T]
    comparator: Float[Array, "I d"]  # U: any Theta that does not depend on the draws
    #: from `jaxret.environments.environment.always_available`; None: not measured
    always_available: Bool[Array, " I"] | None = None
    offsets: RoundOffsets | None = None  # of a rule with offsets; None: the rule has none


class Assumption(NamedTuple):
    """One condition of a theorem, and its measured value on the run."""

    name: str
    holds: bool  # whether the run does not refute it
    measured: float
    required: str
    is_measured: bool = True  # False if the run does not contain the number


def require_seeds(run: Evidence) -> None:
    """Raise ValueError unless trace and order are both [S, T]."""
    order, loss = np.shape(run.stream.order), np.shape(run.trace.loss)
    if len(order) != 2 or order != loss:
        raise ValueError(
            f"stream.order {order} and the trace's fields {loss} must both be [S, T]:"
            " give a single run a seed axis with x[None]"
        )


def final_regrets(run: Evidence) -> Float[np.ndarray, " S"]:
    """Compute the regret of each seed after the last round: the left side of every bound.

    Returns:
      Regrets [S].

    Raises:
      ValueError: if the trace or the order has no axis of seeds.
    """
    require_seeds(run)
    compared: Any
    if run.offsets is not None:
        compared = run.offsets.comparator_loss
    else:
        stream, tau = run.stream, run.rule.tau
        compared = losses(run.comparator, stream.queries, stream.labels, tau=tau)
    return cumulative_regret(run.trace.loss, compared, run.stream.order)[:, -1]


def distance2(run: Evidence) -> float:
    """Compute ``||Theta_1 - U||_F^2``."""
    apart = np.asarray(run.theta_1, np.float64) - np.asarray(run.comparator, np.float64)
    return float((apart**2).sum())


def norm2(run: Evidence) -> Float[np.ndarray, "S T"]:
    """Compute ``||q_t||^2`` of every round.

    Returns:
      squared lengths [S, T].
    """
    each = (np.asarray(run.stream.queries, np.float64) ** 2).sum(axis=1)
    return each[np.asarray(run.stream.order)] / float(run.rule.tau) ** 2


def p_label(run: Evidence) -> Float[np.ndarray, "S T"]:
    """Compute the probability of the right item from the loss, since ``p_success`` underflows.

    Returns:
      probabilities [S, T].
    """
    return np.exp(-np.asarray(run.trace.loss, np.float64))


def inverse_p(run: Evidence) -> Float[np.ndarray, "S T"]:
    """Return ``sum_i 1 / p_i`` of every round.

    Returns:
      sums [S, T].
    """
    return np.asarray(run.trace.inverse_p, np.float64)


def bias_product(run: Evidence) -> Float[np.ndarray, "S T"]:
    """Compute ``<B_t, Theta_t - U> / rho``: ``2 z_{i*} - sum_i z_i`` at Theta_t minus at U.

    Returns:
      products [S, T], with z = Theta q.
    """
    u = np.asarray(run.comparator, np.float64)
    q = np.asarray(run.stream.queries, np.float64) / float(run.rule.tau)
    label = (u[np.asarray(run.stream.labels)[:, 0]] * q).sum(axis=1)
    of_u = 2.0 * label - q @ u.sum(axis=0)
    z_label = np.asarray(run.trace.logit_label, np.float64)
    z_sum = np.asarray(run.trace.logit_sum, np.float64)
    own = 0.0 if run.offsets is None else run.offsets.bias
    return 2.0 * z_label - z_sum - (of_u[np.asarray(run.stream.order)] + own)


def at_most(name: str, measured: float, limit: float) -> Assumption:
    """Assume ``measured <= limit`` up to rounding.

    Args:
      name: name of the measured quantity, for tables.
      measured: value on the run; NaN fails.
      limit: largest allowed value, with a relative tolerance of 1e-6.

    Returns:
      The assumption, which holds if the value is small enough.
    """
    holds = bool(measured <= limit + 1e-6 * abs(limit))
    return Assumption(name, holds, float(measured), f"<= {limit:.4g}")


def at_least(name: str, measured: float, limit: float) -> Assumption:
    """Assume ``measured >= limit`` up to rounding.

    Args:
      name: name of the measured quantity, for tables.
      measured: value on the run; NaN fails.
      limit: smallest allowed value, with a relative tolerance of 1e-6.

    Returns:
      The assumption, which holds if the value is large enough.
    """
    holds = bool(measured >= limit - 1e-6 * abs(limit))
    return Assumption(name, holds, float(measured), f">= {limit:.4g}")


def constant_step(run: Evidence) -> Assumption:
    """Assume that the factor of the schedule is 1 in every round."""
    rounds = jnp.arange(run.trace.loss.shape[-1], dtype=jnp.int32)
    off = np.abs(np.asarray(jax.vmap(run.rule.schedule)(rounds)) - 1.0).max()
    return at_most("constant step size: |factor - 1|", off, 0.0)


def comparator_inside(run: Evidence) -> Assumption:
    """Assume no projection, or one onto a convex set that contains the comparator's rows."""
    name = "comparator in a convex set: longest row"
    longest = float(np.linalg.norm(np.asarray(run.comparator, np.float64), axis=1).max())
    projection = run.rule.projection
    if not projection.convex:
        return Assumption(name, False, longest, f"convex, and {projection.name!r} is not")
    if projection.factor is None:
        return at_most(name, longest, np.inf)
    if projection.radius is None:
        return Assumption(name, False, longest, f"{projection.name!r} states no radius")
    return at_most(name, longest, projection.radius)


def in_a_ball(run: Evidence) -> Assumption:
    """Assume that rows are projected onto a ball; ``measured`` is its radius, or infinity."""
    projection = run.rule.projection
    is_ball = projection.convex and projection.radius is not None
    radius = float(projection.radius) if is_ball else np.inf
    return Assumption("rows in a ball: radius", is_ball, radius, "< inf")


def drawn_from_model(run: Evidence) -> Assumption:
    """Assume one item per round, drawn from the model's p.

    It is measured on the probe, and on every round whose item was right.
    """
    name = "items drawn from p: |pi / p - 1|"
    if run.rule.policy.k != 1:
        return Assumption(name, False, np.inf, f"one item per round, not {run.rule.policy.k}")
    logits = jnp.asarray(_PROBE)
    keys = jax.random.split(jax.random.key(0), 64)
    shown = jax.vmap(lambda key: run.rule.policy.show(key, logits, None))(keys)
    p = np.asarray(jax.nn.softmax(logits))[np.asarray(shown.items)]
    probed = np.abs(np.asarray(shown.propensity) / p - 1.0).max()
    right = np.asarray(run.trace.success) > 0
    pi, p = np.asarray(run.trace.propensity)[right], np.asarray(run.trace.p_success)[right]
    return at_most(name, max(probed, np.abs(pi / p - 1.0).max(initial=0.0)), _CLOSE)


def estimator_mean(run: Evidence, *, noise_rate: float, bias: float) -> Assumption:
    """Assume ``E[c] = p - 1[i*] + bias (2 1[i*] - 1)`` with label noise; measured on the probe.

    Args:
      run: runs with the estimator of the rule.
      noise_rate: rho, the probability that a bit is wrong, in [0, 0.5].
      bias: bias of each coefficient, away from the right item; 0 for an unbiased estimator.

    Returns:
      The assumption, whose measured value is the largest error of a coefficient.
    """
    name = "mean of the estimator: off by"
    estimator = run.rule.estimator
    if not estimator.unbiased:
        return Assumption(name, False, np.nan, f"unbiased, and {estimator.name!r} is not")
    off = 0.0
    for p, target, mean, _ in _probed(run, noise_rate):
        right = np.arange(p.size) == target
        off = max(off, np.abs(mean - (p - right + bias * (2.0 * right - 1.0))).max())
    return at_most(name, off, _CLOSE)


def estimator_second_moment(run: Evidence, *, noise_rate: float, allowed: Callable) -> Assumption:
    """Assume ``E ||c||^2 <= allowed(p_{i*}, sum_i 1 / p_i)``; measured on the probe.

    Args:
      run: runs with the estimator of the rule.
      noise_rate: rho, the probability that a bit is wrong, in [0, 0.5].
      allowed: function (p of the right item, sum of 1 / p over the items) -> largest second moment
        that the proof allows.

    Returns:
      The assumption, whose measured value is the largest ratio of second moment and allowed one.
    """
    ratio = max(
        second / allowed(p[target], (1.0 / p).sum())
        for p, target, _, second in _probed(run, noise_rate)
    )
    return at_most("second moment of the estimator, over the bound's", ratio, 1.0 + _CLOSE)


def estimator_variance(run: Evidence) -> Assumption:
    """Assume ``E ||c - E[c]||^2 <= 1 / p_{i*} - 1`` for clean bits; measured on the probe."""
    ratio = max(
        (second - (mean**2).sum()) / (1.0 / p[target] - 1.0)
        for p, target, mean, second in _probed(run, 0.0)
    )
    return at_most("variance of the estimator, over 1/p* - 1", ratio, 1.0 + _CLOSE)


def one_label(run: Evidence) -> Assumption:
    """Assume exactly one label for each query of the stream."""
    counts = (np.asarray(run.stream.labels) >= 0).sum(axis=1)[np.asarray(run.stream.order)]
    odd = float(np.mean(counts != 1))
    return at_most("one label a query: share of rounds with more or none", odd, 0.0)


def label_noise(run: Evidence, noise_rate: float) -> Assumption:
    """Assume that rewards contradict labels at ``noise_rate``, within 5 standard errors."""
    wrong = np.asarray(run.trace.reward) != np.asarray(run.trace.success)
    slack = 5.0 * np.sqrt(noise_rate * (1.0 - noise_rate) / wrong.size)
    holds = bool(abs(wrong.mean() - noise_rate) <= slack)
    required = f"{noise_rate:.4g} +- {slack:.2g}"
    return Assumption("label noise: share of wrong rewards", holds, float(wrong.mean()), required)


def label_noise_by_tool(run: Evidence, noise_rate: float) -> Assumption:
    """Assume the same rate of wrong rewards for every tool.

    Run an exact binomial test for every tool that was chosen in at least 20 rounds, and one for
    the first 20 rounds of all tools together, with Holm's correction: the assumption fails if n
    times the smallest p of n tests is below `FALSE_ALARM`. If the noise is as assumed, it fails
    in about one run of a thousand (not exactly, since a wrong reward may change how often its tool
    is chosen later). Rare tools cannot be pooled, since wrong rewards make tools frequent.
    """
    items = np.asarray(run.trace.item).ravel()
    wrong = (np.asarray(run.trace.reward) != np.asarray(run.trace.success)).ravel()
    first = _earlier(items) < _FEW  # known before the reward
    rounds = np.bincount(items)
    tools = np.append(np.flatnonzero(rounds >= _FEW), -1)
    n = np.append(rounds, first.sum())[tools]
    k = np.append(np.bincount(items, weights=wrong), wrong[first].sum())[tools]
    at_most, at_least = special.bdtr(k, n, noise_rate), special.bdtrc(k - 1, n, noise_rate)
    p = np.minimum(1.0, 2.0 * np.minimum(at_most, at_least))
    least = p.argmin()
    which = "of the tools' first rounds" if tools[least] < 0 else f"of tool {tools[least]}"
    adjusted = min(1.0, len(p) * float(p[least]))
    required = f">= {FALSE_ALARM:g} ({k[least]:.0f} of {n[least]} rewards {which} are wrong)"
    name = "wrong rewards as frequent for every tool: least p"
    return Assumption(name, adjusted >= FALSE_ALARM, adjusted, required)


def _earlier(items: Int[np.ndarray, " T"]) -> Int[np.ndarray, " T"]:
    """Count the earlier rounds with the same item."""
    order = np.argsort(items, kind="stable")
    among = items[order]
    counts = np.empty_like(order)
    counts[order] = np.arange(len(items)) - np.searchsorted(among, among)
    return counts


def every_item_available(run: Evidence) -> Assumption:
    """Assume that every item was available in every round."""
    name = "every item in every round: absent ones"
    if run.always_available is None:
        return Assumption(name, True, np.nan, "<= 0", is_measured=False)
    return at_most(name, float((~np.asarray(run.always_available)).sum()), 0.0)


def same_start(run: Evidence) -> Assumption:
    """Assume that round 1 has the loss of Theta_1, as a check of trace, stream and temperature."""
    if run.offsets is not None:
        return _starts_with(run, run.offsets.start_loss[:, 0])
    first = np.asarray(run.stream.order)[:, 0]
    queries, labels = np.asarray(run.stream.queries)[first], np.asarray(run.stream.labels)[first]
    z = queries @ np.asarray(run.theta_1).T / float(run.rule.tau)
    top = z.max(axis=1)
    log_total = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    return _starts_with(run, log_total - np.take_along_axis(z, labels[:, :1], axis=1)[:, 0])


def _starts_with(run: Evidence, start: Float[np.ndarray, " S"]) -> Assumption:
    """Compare the first loss of each seed with the loss of Theta_1."""
    off = np.abs(np.asarray(run.trace.loss)[:, 0] - start) / (1.0 + start)
    return at_most("the run starts at Theta_1: first loss off by", off.max(), _CLOSE)


def same_failure(run: Evidence) -> Assumption:
    """Assume ``c = p`` after the failure of any tool; measured on the probe, for two tools."""
    estimator, off = run.rule.estimator, [np.nan]
    if estimator.bandit:
        p = jax.nn.softmax(jnp.asarray(_PROBE))
        ids = jnp.arange(len(p))
        failures = [
            Observation(
                probs=p,
                chosen=(ids == item).astype(p.dtype),
                best=(ids == p.argmax()).astype(p.dtype),
                target=None,
                p_chosen=p[item],
                propensity=p[item],
                reward=jnp.zeros_like(p[item]),
            )
            for item in (0, 7)
        ]
        coefficients = np.asarray([estimator.coefficients(x) for x in failures], np.float64)
        off = np.abs(coefficients - np.asarray(p, np.float64))
    return at_most("a failure teaches c = p: off by", np.max(off), _CLOSE)


def _probed(run, noise_rate):
    """Return (p, i*, E[c], E||c||^2) for an unlikely, a middling and a likely right item."""
    targets = np.array([0, 4, 7])
    found = _moments(run.rule.estimator, jnp.asarray(_PROBE), targets, noise_rate)
    p, mean, second = map(np.asarray, found)
    p = p.astype(np.float64)
    return [(p, *one) for one in zip(targets, mean, second, strict=True)]


@partial(jax.jit, static_argnames="estimator")
def _moments(estimator, logits, targets, noise_rate):
    """Return p, and E[c] and E||c||^2 for each right item."""
    p = jax.nn.softmax(logits)
    of = jax.vmap(lambda target: moments(estimator, p, target, noise_rate=noise_rate))
    found = of(targets)
    return p, found.mean, found.second
