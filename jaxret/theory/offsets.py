"""Statements about runs whose logits have offsets (`jaxret.rules.offsets`).

The loss of a round with offsets o_t [I] is ``l_t(Theta) = -log softmax(Theta q_t + o_t)_{i*}``, and
the comparator's loss is measured with the same offsets. (q stands for q / tau.)

**Theorem 5.1 and its relatives hold unchanged.** o_t depends on the query and, through the usage,
on earlier rounds alone, so it is known before the draw of round t. Given the past, l_t is a
fixed function, convex in Theta as a softmax of affine logits, with the gradient
``(p_t - 1[i*]) q_t^T`` at Theta_t, p_t with offsets; and the estimators are unbiased for it. This
is all that the proof uses: it sums ``<grad_t, Theta_t - U> >= l_t(Theta_t) - l_t(U)`` over rounds
whose functions may be chosen by an adversary who sees the past.

**U must not depend on the draws.** The offsets of usage do, so the comparator is optimised with
the offsets of the prior alone; its loss is then measured with all offsets of each round.

**Duality gains a term.** With z = U q_t + o_t the proof of `jaxret.theory.duality` gives

    l_t(U) >= H(p_t) + <p_t - 1[i*], U q_t> + <p_t - 1[i*], o_t>.

**The bias of Theorem B.2** is a difference of logits at Theta_t and at U, from which o_t cancels;
the logits of a trace contain o_t, so it is added to the logits of U as well.

Letters: I items, S seeds, T rounds, N queries.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxret.learners.rank_one import Rule, offsets_of, rule_of
from jaxret.rules.offsets import of_prior
from jaxret.simulation.run import Run
from jaxret.simulation.trace import measure
from jaxret.theory.rerun import available_rows, rerun
from jaxret.types import State


class RoundOffsets(NamedTuple):
    """Numbers of each round that depend on its offsets, in nats; fields [S, T]."""

    comparator_loss: Float[np.ndarray, "S T"]  # l_t(U)
    start_loss: Float[np.ndarray, "S T"]  # l_t(Theta_1)
    bias: Float[np.ndarray, "S T"]  # 2 o_{i*} - sum_i o_i


def offsets_at(rule: Rule | None, state: State, query: Any) -> Float[Array, " I"]:
    """Return the offsets of a round, zeros for a learner that has none.

    Args:
      rule: rule of a rank-one learner; None: another learner.
      state: state before the round.
      query: query in the form that the learner reads.

    Returns:
      [I].
    """
    if rule is None or rule.offsets is None:
        return jnp.zeros_like(state.theta[:, 0])
    return offsets_of(rule, state, query)


def of_queries(run: Run) -> Float[np.ndarray, "N I"] | None:
    """Return the offsets that depend on the query alone, for the tools that are available.

    Returns:
      [N, I]; None if the learner reads no prior.
    """
    rule = rule_of(run.learner)
    if rule is None or rule.offsets is None or not rule.reads_prior:
        return None
    scores = run.task.prior_scores()[:, available_rows(run.task)]
    return np.asarray(of_prior(rule.offsets, jnp.asarray(scores), rule.tau))


def measured(
    run: Run, comparator: Float[Array, "I d"], theta_1: Float[Array, "I d"]
) -> RoundOffsets:
    """Measure the numbers of every round by a rerun.

    Args:
      run: run of a rank-one learner with offsets.
      comparator: U, of the available tools [I, d].
      theta_1: projected rows at the start, of the available tools [I, d].

    Raises:
      ValueError: if the rounds cannot be computed again.
    """
    rule = rule_of(run.learner)
    assert rule is not None
    rows = available_rows(run.task)
    positions = np.full(len(run.task.ids) + 1, -1, np.int32)  # the last entry is for padding
    positions[rows] = np.arange(len(rows))
    positions, u, start = jnp.asarray(positions), jnp.asarray(comparator), jnp.asarray(theta_1)

    def look(nothing, state, line):
        own = offsets_of(rule, state, line.learner_query)[rows]
        labels, q = positions[line.labels], line.query / rule.tau
        losses = [measure(theta @ q + own, labels).loss for theta in (u, start)]
        bias = 2 * measure(own, labels).logit_label - own.sum()
        return nothing, RoundOffsets._make((*losses, bias))

    return rerun(run, (), look)[1]
