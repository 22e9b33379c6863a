"""What a theorem takes for granted, measured on a run.

Nothing here trusts a name. The policy and the estimator are called on a probe (8 items,
p from 0.008 to 0.44) and held against what the proof uses; the schedule is evaluated in every
round; the rest is read off the trace. A probe can refute and not prove: an estimator must
also claim to be unbiased.

Letters as in `jaxret.theory.evidence`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxret.rules.estimators import Estimator, Observation
from jaxret.theory.checks import moments
from jaxret.theory.evidence import Evidence

_CLOSE = 1e-3  # relative: float32 traces and probes
FALSE_ALARM = 1e-3  # chance that honest noise fails `label_noise_by_tool`
_FEW = 20  # rounds from which on a tool is tested by itself
_PROBE = np.linspace(-2.0, 2.0, 8)  # logits


class Assumption(NamedTuple):
    """One condition of a theorem, and what the run says of it."""

    name: str
    holds: bool  # is not refuted
    measured: float
    required: str
    is_measured: bool = True  # False where the run says nothing of it


def at_most(name: str, measured: float, limit: float) -> Assumption:
    """``measured <= limit``, but for rounding."""
    holds = bool(measured <= limit + 1e-6 * abs(limit))
    return Assumption(name, holds, float(measured), f"<= {limit:.4g}")


def at_least(name: str, measured: float, limit: float) -> Assumption:
    """``measured >= limit``, but for rounding."""
    holds = bool(measured >= limit - 1e-6 * abs(limit))
    return Assumption(name, holds, float(measured), f">= {limit:.4g}")


def constant_step(run: Evidence) -> Assumption:
    """The schedule's factor is 1 in every round."""
    rounds = jnp.arange(run.trace.loss.shape[-1], dtype=jnp.int32)
    off = np.abs(np.asarray(jax.vmap(run.rule.schedule)(rounds)) - 1.0).max()
    return at_most("constant step size: |factor - 1|", off, 0.0)


def comparator_inside(run: Evidence) -> Assumption:
    """Rows are projected onto a convex set, if at all, and those of the comparator lie in it."""
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
    """Rows are projected onto a ball, whose radius is ``measured`` (infinite without one)."""
    projection = run.rule.projection
    is_ball = projection.convex and projection.radius is not None
    radius = float(projection.radius) if is_ball else np.inf
    return Assumption("rows in a ball: radius", is_ball, radius, "< inf")


def drawn_from_model(run: Evidence) -> Assumption:
    """One item a round, chosen with the model's p: on the probe, and wherever it was right."""
    name = "items drawn from p: |pi / p - 1|"
    if run.rule.policy.k != 1:
        return Assumption(name, False, np.inf, f"one item a round, not {run.rule.policy.k}")
    logits = jnp.asarray(_PROBE)
    keys = jax.random.split(jax.random.key(0), 64)
    shown = jax.vmap(lambda key: run.rule.policy.show(key, logits, None))(keys)
    p = np.asarray(jax.nn.softmax(logits))[np.asarray(shown.items)]
    probed = np.abs(np.asarray(shown.propensity) / p - 1.0).max()
    right = np.asarray(run.trace.success) > 0
    pi, p = np.asarray(run.trace.propensity)[right], np.asarray(run.trace.p_success)[right]
    return at_most(name, max(probed, np.abs(pi / p - 1.0).max(initial=0.0)), _CLOSE)


def estimator_mean(run: Evidence, *, noise_rate: float, bias: float) -> Assumption:
    """``E[c] = p - 1[i*] + bias (2 1[i*] - 1)`` under label noise, on the probe."""
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
    """``E ||c||^2 <= allowed(p_{i*}, sum_i 1 / p_i)`` under label noise, on the probe."""
    ratio = max(
        second / allowed(p[target], (1.0 / p).sum())
        for p, target, _, second in _probed(run, noise_rate)
    )
    return at_most("second moment of the estimator, over the bound's", ratio, 1.0 + _CLOSE)


def estimator_variance(run: Evidence) -> Assumption:
    """``E ||c - E[c]||^2 <= 1 / p_{i*} - 1`` for right bits, on the probe."""
    ratio = max(
        (second - (mean**2).sum()) / (1.0 / p[target] - 1.0)
        for p, target, mean, second in _probed(run, 0.0)
    )
    return at_most("variance of the estimator, over 1/p* - 1", ratio, 1.0 + _CLOSE)


def one_label(run: Evidence) -> Assumption:
    """Every query that was streamed has exactly one label."""
    counts = (np.asarray(run.stream.labels) >= 0).sum(axis=1)[np.asarray(run.stream.order)]
    odd = float(np.mean(counts != 1))
    return at_most("one label a query: share of rounds with more or none", odd, 0.0)


def label_noise(run: Evidence, noise_rate: float) -> Assumption:
    """The share of rewards that contradict the labels is ``noise_rate`` +- 5 standard errors."""
    wrong = np.asarray(run.trace.reward) != np.asarray(run.trace.success)
    slack = 5.0 * np.sqrt(noise_rate * (1.0 - noise_rate) / wrong.size)
    holds = bool(abs(wrong.mean() - noise_rate) <= slack)
    required = f"{noise_rate:.4g} +- {slack:.2g}"
    return Assumption("label noise: share of wrong rewards", holds, float(wrong.mean()), required)


def label_noise_by_tool(run: Evidence, noise_rate: float) -> Assumption:
    """The rewards of each tool are wrong as often as all are: no one tool's always are.

    An exact binomial test of every tool that was chosen in 20 rounds or more, and one of the first
    20 rounds of all tools together, by Holm's procedure: one of n tests fails where n times the
    least p is below the level. Honest noise then fails in about one run of a thousand (not exactly:
    a wrong reward may change how often its tool is chosen later). Tools that are chosen rarely
    cannot be pooled as such: they are those that nobody praised wrongly.
    """
    items = np.asarray(run.trace.item).ravel()
    wrong = (np.asarray(run.trace.reward) != np.asarray(run.trace.success)).ravel()
    first = _earlier(items) < _FEW  # known before the reward is
    rounds = np.bincount(items)
    tools = np.append(np.flatnonzero(rounds >= _FEW), -1)
    n = np.append(rounds, first.sum())[tools]
    k = np.append(np.bincount(items, weights=wrong), wrong[first].sum())[tools]
    up_to, from_there = special.bdtr(k, n, noise_rate), special.bdtrc(k - 1, n, noise_rate)
    p = np.minimum(1.0, 2.0 * np.minimum(up_to, from_there))
    least = p.argmin()
    which = "of the tools' first rounds" if tools[least] < 0 else f"of tool {tools[least]}"
    adjusted = min(1.0, len(p) * float(p[least]))
    required = f">= {FALSE_ALARM:g} ({k[least]:.0f} of {n[least]} rewards {which} are wrong)"
    name = "wrong rewards as frequent for every tool: least p"
    return Assumption(name, adjusted >= FALSE_ALARM, adjusted, required)


def _earlier(items: Int[np.ndarray, " T"]) -> Int[np.ndarray, " T"]:
    """How many earlier rounds had the same item."""
    order = np.argsort(items, kind="stable")
    among = items[order]
    counts = np.empty_like(order)
    counts[order] = np.arange(len(items)) - np.searchsorted(among, among)
    return counts


def every_item_available(run: Evidence) -> Assumption:
    """No item came late, left, or was away for a while."""
    name = "every item in every round: absent ones"
    if run.always_available is None:
        return Assumption(name, True, np.nan, "<= 0", is_measured=False)
    return at_most(name, float((~np.asarray(run.always_available)).sum()), 0.0)


def same_start(run: Evidence) -> Assumption:
    """The first round's loss is that of Theta_1: trace, stream and temperature belong together."""
    first = np.asarray(run.stream.order)[:, 0]
    queries, labels = np.asarray(run.stream.queries)[first], np.asarray(run.stream.labels)[first]
    z = queries @ np.asarray(run.theta_1).T / float(run.rule.tau)
    top = z.max(axis=1)
    log_total = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    start = log_total - np.take_along_axis(z, labels[:, :1], axis=1)[:, 0]
    off = np.abs(np.asarray(run.trace.loss)[:, 0] - start) / (1.0 + start)
    return at_most("the run starts at Theta_1: first loss off by", off.max(), _CLOSE)


def failure_on_probe(
    estimator: Estimator, item: int
) -> tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"]]:
    """The probe's p, and c where one of its items was drawn by it and failed.

    Returns:
      p [8] and c [8].
    """
    p = jax.nn.softmax(jnp.asarray(_PROBE))
    ids = jnp.arange(len(p))
    obs = Observation(
        probs=p,
        chosen=(ids == item).astype(p.dtype),
        best=(ids == p.argmax()).astype(p.dtype),
        target=None,
        p_chosen=p[item],
        propensity=p[item],
        reward=jnp.zeros_like(p[item]),
    )
    if not estimator.bandit:
        return np.asarray(p), np.full(len(p), np.nan)
    return np.asarray(p, np.float64), np.asarray(estimator.coefficients(obs), np.float64)


def _probed(run, noise_rate):
    """(p, i*, E[c], E||c||^2) for a likely, a middling and an unlikely right item."""
    probs, targets = jax.nn.softmax(jnp.asarray(_PROBE)), np.array([0, 4, 7])

    def of(target):
        return moments(run.rule.estimator, probs, target, noise_rate=noise_rate)

    mean, second = jax.vmap(of)(targets)
    p = np.asarray(probs, np.float64)
    return [(p, *one) for one in zip(targets, np.asarray(mean), np.asarray(second), strict=True)]
