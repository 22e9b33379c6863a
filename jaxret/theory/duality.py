"""A bound on regret without assumptions on the set, the step size or the bits (ours).

    regret(U) <= sum_t (l_t - H(p_t)) - <S, U>                      for every U [I, d]
    regret(U) <= sum_t (l_t - H(p_t)) + R sum_i ||S_i||             for every U with rows in a ball

with ``S = sum_t (p_t - 1[i_t*]) q_t^T``, H(p) = -sum_i p_i ln p_i the entropy of the learner's
p_t, l_t = -ln p_{t,i*} its loss, R the radius, and q for q / tau: the loss of the comparator is
``l_t(U) = -log softmax(U q_t)_{i*}``. With several right tools, 1[i*] and l_t are means over them.

Proof. For any p in the simplex and any z, ``ln sum_i e^{z_i} >= <p, z> + H(p)`` (Gibbs). With
z = U q_t and p = p_t,

    l_t(U) = ln sum_i e^{z_i} - z_{i*}  >=  H(p_t) + <p_t - 1[i*], U q_t>.

Summing over t gives sum_t l_t(U) >= sum_t H(p_t) + <S, U>; subtracting this from sum_t l_t gives
the first statement, and -<S_i, u_i> <= R ||S_i|| the second. This is weak duality: the p_t are a
feasible point of the dual, entropy minus the norm of the residuals, and the bound is the duality
gap of the run. Equality holds where every p_t is that of U.

The proof uses only p_t of the learner. So rows may be on a sphere, which is not convex, or be
learned together with a query map, in which the loss is not convex; steps may have any size, bits
may be noisy or biased, and any policy may show the tools. The bound holds for every sequence, seed
and draw, not only on average (the proof has no martingale), and U may be chosen after the run. For
a linear rule the first statement is just convexity, ``sum_t <grad_t, Theta_t - U>``, since
<p - 1[i*], z> = l - H if p is the softmax of z.

The bound is not known before the run: it needs the labels, like the measured terms of Theorem 5.1.
It gives no rate either: a proof for the sphere would have to show that ||S_i|| grows like sqrt(T).
At a small temperature p is concentrated, H is small and q / tau is long, and the bound may be
weaker than the trivial ``regret <= sum_t l_t``.

Offsets of the logits, which the comparator is given too, add <p_t - 1[i*], o_t> to the right side
of the inequality (`jaxret.theory.offsets`).

Letters: I items, d width, S seeds, T rounds.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.learners.rank_one import rule_of
from jaxret.runtime import over_items
from jaxret.simulation.run import Run
from jaxret.theory.assumptions import Assumption, at_most
from jaxret.theory.offsets import offsets_at
from jaxret.theory.rerun import Watch, available_rows, one_hot_labels, rerun
from jaxret.theory.theorems import Bound, from_terms

_CLOSE = 1e-2  # relative rounding error between a blocked run and its rerun


class Dual(NamedTuple):
    """Residuals, entropies and losses of a run, which bound the regret against every comparator."""

    residual: Float[np.ndarray, "S I d"]  # S_i, with q / tau
    entropy: Float[np.ndarray, " S"]  # sum_t H(p_t)
    loss: Float[np.ndarray, " S"]  # sum_t l_t
    offsets: Float[np.ndarray, " S"]  # sum_t <p_t - 1[i*], o_t>, 0 without offsets
    off: float  # largest relative difference of the rerun's losses from the trace's


def dual(run: Run, tau: float, seen: tuple[Any, Any] | None = None) -> Dual:
    """Sum residuals and entropies over the rounds of every seed, in a rerun of the run.

    Args:
      run: run of a learner with a softmax.
      tau: temperature of the comparator's logits ``U q / tau``, > 0.
      seen: result of a rerun with `watch`; None: the run is computed again.

    Raises:
      ValueError: if the rounds cannot be computed again.
    """
    residual, (entropy, loss, offsets) = seen or rerun(run, *watch(run))
    recorded = np.asarray(run.trace.loss, np.float64)
    return Dual(
        residual=residual[:, available_rows(run.task)] / tau,
        entropy=entropy.sum(axis=1),
        loss=recorded.sum(axis=1),
        offsets=offsets.sum(axis=1),
        off=float((np.abs(loss - recorded) / (1.0 + recorded)).max()),
    )


def watch(run: Run) -> Watch:
    """Make the quantity that a rerun sums for `dual`, with queries not divided by tau.

    Returns:
      The quantity, which accumulates residuals [I, d] and has an entropy and a loss per round.
    """
    logits: Any = run.learner.logits  # `temperature` refuses a learner without a softmax
    rule = rule_of(run.learner)

    def look(residual, state, line):
        z = logits(state, line.learner_query)
        p, right = over_items.softmax(z, None), one_hot_labels(line.labels, z)
        finite = jnp.where(jnp.isfinite(z), z, 0.0)
        top = z.max()
        log_total = top + jnp.log(jnp.exp(z - top).sum())
        residual = residual + (p - right)[:, None] * line.query[None, :]
        own = ((p - right) * offsets_at(rule, state, line.learner_query)).sum()
        return residual, (log_total - p @ finite, log_total - right @ finite, own)

    return Watch(np.zeros(run.task.theta.shape, np.float32), look)


def against_one(found: Dual, comparator: Float[np.ndarray, "I d"]) -> Bound:
    """Bound the regret against one comparator: the first statement."""
    product = (found.residual * np.asarray(comparator, np.float64)).sum(axis=(1, 2))
    return _bound("duality", found, {"residuals times U": -product})


def against_ball(found: Dual, radius: float, longest: float) -> Bound:
    """Bound the regret against all comparators in a ball: the second statement.

    Args:
      found: sums of the run.
      radius: R.
      longest: length of the longest row of the comparator of the regret, at most ``radius``.
    """
    norms = np.linalg.norm(found.residual, axis=2).sum(axis=1)
    inside = at_most("comparator in the ball: longest row", longest, radius)
    return _bound("duality, whole ball", found, {"residuals": radius * norms}, inside)


def _bound(
    name: str, found: Dual, more: dict[str, Float[np.ndarray, " S"]], *assumed: Assumption
) -> Bound:
    terms = {"loss less entropy": found.loss - found.entropy, **more}
    if found.offsets.any():
        terms["residuals times offsets"] = -found.offsets
    same = at_most("replay: losses off by", found.off, _CLOSE)
    return from_terms(name, terms, same, *assumed)
