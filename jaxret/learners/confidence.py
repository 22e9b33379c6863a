"""Calibrated probabilities that a tool works, and learners that abstain below a threshold.

    confidence(mixture(), state, query)          [I], the mixture's own probabilities
    with_confidence(greedy())                    calibrates the softmax of any other learner
    abstaining(mixture(), at_least=0.5)          shows nothing where the probability is smaller

A `jaxret.learners.mixture.mixture` predicts, from bits alone, how probable it is that each tool
works: ``sum_g w_g P_g(a)``, which it recalibrates as a whole. The softmax of another learner is not
calibrated: it sums to one over the tools whether or not any of them works, and depends on the
temperature. `with_confidence` calibrates it in the same way (`jaxret.learners.recalibration`).

Only the items shown yield bits, so the probabilities are calibrated on these and not on all I
items. Source of abstention: selective classification, El-Yaniv and Wiener (2010).

Letters: I items.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.learner import Learner, query_for, where_observed
from jaxret.learners.mixture import Blend, confidence_of
from jaxret.learners.recalibration import Recalibration, first_recalibration, learn, recalibrate
from jaxret.learners.wrappers import Wrapped, wrap, wrapper
from jaxret.runtime.validate import as_number, require
from jaxret.types import EMPTY, Slate, State


class Confident(NamedTuple):
    """`State.extra` of a learner with a calibrated softmax."""

    extra: Any  # `State.extra` of the inner learner
    calibration: Recalibration


def is_calibrated(learner: Learner) -> bool:
    """Return whether `confidence` is defined for a learner: a mixture, or `with_confidence`."""
    while isinstance(structure := learner.structure, Wrapped):
        if structure.confidence is not None:
            return True
        learner = structure.inner
    return isinstance(structure, Blend)


def confidence(learner: Learner, state: State, query: Any) -> Float[Array, " I"]:
    """Compute the probability that each item works, calibrated on the items shown so far.

    Args:
      learner: a mixture or a learner `with_confidence`, also inside other wrappers.
      state: state of the learner, before the feedback of the query.
      query: embedding [d], or a `jaxret.types.Query` if the learner reads prior scores.

    Returns:
      [I], in [0, 1]; they need not sum to one. 0 where an item is absent.

    Raises:
      ValueError: if the learner has no calibrated probability.
    """
    require_calibrated(learner)
    while isinstance(structure := learner.structure, Wrapped):
        if structure.confidence is not None:
            return structure.confidence(state, query)
        learner, state = structure.inner, structure.unwrap(state)
    assert learner.logits is not None  # a mixture has logits, the logarithms of its probabilities
    return confidence_of(state.extra, learner.logits(state, query_for(learner, query)))


def require_calibrated(learner: Learner) -> None:
    """Raise ValueError if a learner has no calibrated probability."""
    if not is_calibrated(learner):
        raise ValueError(
            f"learner {learner.name!r} does not say how probable it is that a tool works: use "
            "jr.mixture() or jr.with_confidence(learner)"
        )


@wrapper
def with_confidence(learner: Learner) -> Learner:
    """Calibrate the softmax of a learner on its rewards, without changing the items it shows.

    The learner is simulated by the plain scan.

    Args:
      learner: learner with a softmax, and not a mixture, which is calibrated already.

    Raises:
      ValueError: if the learner has no softmax, or is calibrated already.
    """
    if (logits := learner.logits) is None:
        raise ValueError(f"learner {learner.name!r} has no softmax that could be calibrated")
    if is_calibrated(learner):
        raise ValueError(f"learner {learner.name!r} is calibrated already: use it as it is")

    def bare(state):
        return state._replace(extra=state.extra.extra)

    def rewrap(state, own):
        return own._replace(extra=state.extra._replace(extra=own.extra))

    def softmax(state, query):
        return jax.nn.softmax(logits(bare(state), query))

    def calibrated(state, query):
        p = recalibrate(state.extra.calibration, softmax(state, query))
        return jnp.where(state.available, p, 0)

    def init(theta, available=None):
        own = learner.init(theta, available)
        return own._replace(extra=Confident(own.extra, first_recalibration(theta.dtype)))

    def update(state, query, choice, feedback):
        shown = softmax(state, query)[choice.item]
        new = learn(state.extra.calibration, shown, feedback.reward)
        own = learner.update(bare(state), query, choice, feedback)
        learnt = own._replace(extra=Confident(own.extra, new))
        return where_observed(feedback, state, learnt)

    return wrap(
        learner,
        f"{learner.name}+confidence",
        unwrap=bare,
        rewrap=rewrap,
        confidence=calibrated,
        init=init,
        update=update,
    )


@wrapper
def abstaining(learner: Learner, *, at_least: float = 0.5) -> Learner:
    """Show nothing if the learner's item works with a probability below a threshold.

    An empty answer is recorded as item -1 in the slate and the trace. It uses no tool and teaches
    nothing, so a learner that abstains on every query never learns. The environment counts it as
    a success if no tool is right, with its ``empty_reward`` as the reward. The learner is
    simulated by the plain scan, without a log.

    Args:
      learner: a mixture or a learner `with_confidence` that shows one item per round.
      at_least: the threshold, in [0, 1]; 0 never abstains.

    Raises:
      ValueError: if the learner has no calibrated probability, the threshold is out of its range,
        or, in the first round, if the learner shows several items.
    """
    at_least = as_number(at_least)
    require("at_least", at_least, "in [0, 1]", lambda x: 0 <= x <= 1)
    require_calibrated(learner)

    def act(state, query, key):
        slate = learner.act(state, query, key)
        shows = len(slate.items)
        require("the items that an abstaining learner shows", shows, "one", lambda n: n == 1)
        sure = confidence(learner, state, query)[slate.items] >= at_least
        return Slate(jnp.where(sure, slate.items, EMPTY), slate.propensity)

    def update(state, query, choice, feedback):
        used = choice.item != EMPTY
        seen = feedback._replace(observed=feedback.observed & used)
        item = jnp.where(used, choice.item, 0)
        return learner.update(state, query, choice._replace(item=item), seen)

    name = f"{learner.name}+abstaining"
    return wrap(learner, name, act=act, update=update, probabilities=None)
