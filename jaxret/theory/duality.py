"""A bound on regret that asks for no convex set, no step size and no unbiased bits (ours).

    regret(U) <= sum_t (l_t - H(p_t)) - <S, U>                      for every U [I, d]
    regret(U) <= sum_t (l_t - H(p_t)) + R sum_i ||S_i||             for every U with rows in a ball

with ``S = sum_t (p_t - 1[i_t*]) q_t^T``, H(p) = -sum_i p_i ln p_i the entropy of what the learner
said in round t, l_t = -ln p_{t,i*} its loss, R the radius, and q for q / tau: the comparator's loss
is ``l_t(U) = -log softmax(U q_t)_{i*}``. Several right tools: 1[i*] and l_t are means over them.

Proof. For any p in the simplex and any z, ``ln sum_i e^{z_i} >= <p, z> + H(p)`` (Gibbs). With
z = U q_t and p = p_t,

    l_t(U) = ln sum_i e^{z_i} - z_{i*}  >=  H(p_t) + <p_t - 1[i*], U q_t>.

Summed over t, sum_t l_t(U) >= sum_t H(p_t) + <S, U>; taken from sum_t l_t this is the first
statement, and -<S_i, u_i> <= R ||S_i|| gives the second. It is weak duality: the p_t are a feasible
point of the dual, entropy less the norm of the residuals, and the bound is the duality gap that a
run leaves. It is met with equality where every p_t is that of U.

What was used of the learner: that it said p_t. So rows may lie on a sphere, which is not convex, or
be moved together with a query map, in which the loss is not convex; steps may be of any size, bits
noisy or biased, tools shown by any policy. It holds for every sequence, every seed and every draw,
not on average: there is no martingale in it, and U may be chosen after the run. For a linear rule
the first is what convexity alone says, ``sum_t <grad_t, Theta_t - U>``, since <p - 1[i*], z> = l -
H where p is the softmax of z.

What it is not: known before the run. It needs the labels, as the measured terms of Theorem 5.1 do,
and no rate follows from it: that ||S_i|| grows like sqrt(T) is what a proof for the sphere would
have to show. At a small temperature p is sure, H small and q / tau long: then it may say less than
``regret <= sum_t l_t``, which is true of itself.

Letters: I items, d width, S seeds, T rounds.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.runtime import over_items
from jaxret.simulation.run import Run
from jaxret.theory.assumptions import Assumption, at_most
from jaxret.theory.bounds import Bound
from jaxret.theory.regret import over_seeds
from jaxret.theory.replay import Watch, one_hot_labels, replay, rows_there

_CLOSE = 1e-2  # rounding of a blocked run and of its replay, relative


class Dual(NamedTuple):
    """What the predictions of a run say of every comparator."""

    residual: Float[np.ndarray, "S I d"]  # S_i, with q / tau
    entropy: Float[np.ndarray, " S"]  # sum_t H(p_t)
    loss: Float[np.ndarray, " S"]  # sum_t l_t
    off: float  # of the trace's losses, largest, relative


def dual(run: Run, tau: float, seen: tuple[Any, Any] | None = None) -> Dual:
    """Gathers residuals and entropies of every seed by playing it once more.

    Args:
      run: of a learner with a softmax.
      tau: temperature of the comparator's logits ``U q / tau``.
      seen: of a `watch` of this run, where it was played already.
    """
    residual, (entropy, loss) = seen or replay(run, *watch(run))
    recorded = np.asarray(run.trace.loss, np.float64)
    return Dual(
        residual=residual[:, rows_there(run.task)] / tau,
        entropy=entropy.sum(axis=1),
        loss=recorded.sum(axis=1),
        off=float((np.abs(loss - recorded) / (1.0 + recorded)).max()),
    )


def watch(run: Run) -> Watch:
    """Sums up residuals, of queries that are not divided by tau; says entropy and loss."""
    logits = run.learner.logits
    if logits is None:
        raise ValueError(f"{run.name} has no softmax: so it has no loss, regret or bounds")

    def look(residual, state, line):
        z = logits(state, line.query)
        p, right = over_items.softmax(z, None), one_hot_labels(line.labels, z)
        finite = jnp.where(jnp.isfinite(z), z, 0.0)
        top = z.max()
        log_total = top + jnp.log(jnp.exp(z - top).sum())
        residual = residual + (p - right)[:, None] * line.query[None, :]
        return residual, (log_total - p @ finite, log_total - right @ finite)

    return Watch(jnp.zeros(run.task.theta.shape, jnp.float32), look)


def against_one(found: Dual, comparator: Float[np.ndarray, "I d"]) -> Bound:
    """The first statement.

    Args:
      found: of the run.
      comparator: U.
    """
    product = (found.residual * np.asarray(comparator, np.float64)).sum(axis=(1, 2))
    return _bound("duality", found, {"residuals times U": -product})


def against_ball(found: Dual, radius: float, longest: float) -> Bound:
    """The second statement, for all comparators in a ball at once.

    Args:
      found: of the run.
      radius: R.
      longest: row of the comparator against which regret was measured.
    """
    norms = np.linalg.norm(found.residual, axis=2).sum(axis=1)
    inside = at_most("comparator in the ball: longest row", longest, radius)
    return _bound("duality, whole ball", found, {"residuals": radius * norms}, inside)


def _bound(
    name: str, found: Dual, more: dict[str, Float[np.ndarray, " S"]], *assumed: Assumption
) -> Bound:
    terms = {"loss less entropy": found.loss - found.entropy, **more}
    total = over_seeds(np.sum(list(terms.values()), axis=0))
    return Bound(
        name=name,
        value=total.mean,
        stderr=total.stderr,
        terms={term: float(values.mean()) for term, values in terms.items()},
        assumptions=(at_most("replay: losses off by", found.off, _CLOSE), *assumed),
    )
