"""What a mixture makes of its experts' words, however these come about: believed, mixed, weighed.

    believe   P_g(a) = sigmoid(u_g logit p_g(a) + v_g)
    mix       sum_g w_g P_g(a)
    weigh     w_g <- w_g P_g(y | q, a)^beta, to sum 1;  w <- (1 - alpha) w + alpha prior

`jaxret.learners.mixture` says why. Experts are asked and taught there round by round, and in blocks
in `jaxret.simulation.blocked.mixture`; both go through here, so that they agree.

Letters: I items, G experts, g of one form, k items shown.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners import calibration
from jaxret.learners.calibration import Calibration
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Blend
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.types import State

SMALLEST = 1e-30  # a probability whose logarithm is finite in every precision


class Rows(NamedTuple):
    """What the experts of one form have learnt; every leaf begins with them, [g, ..]."""

    theta: Any  # [g, I, d]; () for experts that stay at the documents
    extra: Any


class Mixed(NamedTuple):
    """`State.extra` of a mixture."""

    log_weights: Float[Array, " G"]  # of weights that sum to 1
    losses: Float[Array, "1+G"]  # of the mixture, then of each expert: sums of -ln P(y | q, a)
    rounding: Float[Array, "1+G"]  # what the sums have lost so far (Kahan)
    calibration: Calibration
    sure: Int[Array, " 2"]  # rounds in which the tool shown was believed to work; where it did not
    rows: tuple[Rows, ...]  # of each form


def words(logits: Float[Array, "G I"], axis: Axis) -> Float[Array, "G I"]:
    """What each expert says of each tool: ``logit p_g(a)``, p_g the softmax of its logits.

    Returns:
      [G, I].
    """
    return calibration.logit(jax.vmap(partial(over_items.softmax, axis=axis))(logits))


def mixed(
    extra: Mixed, said: Float[Array, "G I"], available: Bool[Array, " I"]
) -> Float[Array, " I"]:
    """``ln sum_g w_g P_g(a)`` of each tool, from what the experts say.

    Returns:
      logits [I].
    """
    beliefs = jax.vmap(calibration.believed)(extra.calibration.line, said)
    return log(jnp.exp(extra.log_weights) @ beliefs, available)


def weighed(blend: Blend, extra: Mixed, said: Float[Array, "G *k"], y: Float[Array, "*k"]) -> Mixed:
    """The mixture after a round, but for its experts' rows.

    Args:
      blend: alpha, beta, floor and the prior.
      extra: before the round.
      said: what each expert said of the tool that was shown, or of each of the k.
      y: what came back.
    """
    floor = blend.floor
    p = jnp.clip(jax.vmap(calibration.believed)(extra.calibration.line, said), floor, 1 - floor)
    log_p = jax.vmap(lambda p: (y * jnp.log(p) + (1 - y) * jnp.log1p(-p)).sum())(p)
    joint = extra.log_weights + log_p
    new_losses = -jnp.concatenate([jax.nn.logsumexp(joint)[None], log_p])
    losses, rounding = _add(extra.losses, extra.rounding, new_losses)
    weights = jax.nn.log_softmax(extra.log_weights + blend.beta * log_p)
    back = jnp.asarray(blend.log_prior, weights.dtype)
    weights = jnp.logaddexp(jnp.log1p(-blend.alpha) + weights, jnp.log(blend.alpha) + back)
    believed = jnp.exp(extra.log_weights) @ p >= 0.5
    sure = jnp.stack([believed, believed & (y < 0.5)])
    return extra._replace(
        log_weights=weights,
        losses=losses,
        rounding=rounding,
        calibration=jax.vmap(calibration.recalibrated, (0, 0, None))(extra.calibration, said, y),
        sure=extra.sure + sure.reshape(2, -1).sum(axis=1).astype(extra.sure.dtype),
    )


def expert_state(state: State, rows: Rows) -> State:
    """An expert's own state: the rows that it has learnt, the tools and the round of the whole."""
    theta = state.theta if isinstance(rows.theta, tuple) else rows.theta
    return State(theta=theta, available=state.available, t=state.t, extra=rows.extra)


def stays(form: LearnerGrid) -> bool:
    """Whether no expert of a form ever moves from the documents as they are."""
    rules = [form.learner(g).rule for g in range(len(form.settings))]
    return all(
        rule is not None
        and rule.rows_alone
        and rule.projection.name == "none"
        and rule.estimator.name == "none"
        for rule in rules
    )


def log(p: Float[Array, "*n I"], available: Bool[Array, " I"]) -> Float[Array, "*n I"]:
    """Logarithms of probabilities that may have become 0; minus infinity where a tool is absent.

    Returns:
      logits [..., I].
    """
    return jnp.where(available, jnp.log(jnp.maximum(p, SMALLEST)), -jnp.inf)


def _add(
    sums: Float[Array, "*n"], lost: Float[Array, "*n"], more: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """A sum of many numbers that keeps what rounding takes from it (Kahan 1965)."""
    more = more - lost
    new = sums + more
    return new, (new - sums) - more
