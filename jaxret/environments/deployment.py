"""A learner as the world treats it: told late, reloaded, its documents rewritten.

    learner = deployed(learner, environment, key, labels=L)

A round of the world and a round of the learner are then two things. The world's counts queries: it
decides what is drawn, who is there and when anything happens. The learner's own ``t`` counts the
answers that it was given, as in a live index: step sizes follow that one, and so do its draws from
its memory. What the world remembers, answers under way and a snapshot, is carried around the
learner's state, which it never sees: `bare` takes it off.

Without delay, rewriting or restart there is nothing to carry, and the learner is left as it is.

Letters: I items, d width, N queries, L labels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from jaxret.environments.delay import Answer, Pending, delivered, nothing_pending, sent
from jaxret.environments.environment import Environment
from jaxret.environments.rewriting import redescribed
from jaxret.learners.learner import Learner
from jaxret.learners.wrappers import wrap
from jaxret.types import Choice, Feedback, PRNGKey, State


class Carried(NamedTuple):
    """`State.extra` of a learner that is deployed; the state's own ``t`` is the world's round."""

    extra: Any  # the learner's own
    t: Int[Array, ""]  # the learner's own
    pending: Pending | tuple  # () where answers come at once
    snapshot: State | tuple  # () where nothing is reloaded


def intervenes(environment: Environment) -> bool:
    """Whether something happens to the learner itself, which only the plain scan can follow."""
    parts = environment.delay, environment.rewriting, environment.restart
    return any(part is not None for part in parts)


def deployed(learner: Learner, environment: Environment, key: PRNGKey, *, labels: int) -> Learner:
    """The learner, with what an environment does to it around each update.

    Args:
      learner: any.
      environment: its delay, rewriting and restart.
      key: of the whole run, which draws how long answers are under way.
      labels: L, of the answers to an oracle that wait.
    """
    if not intervenes(environment):
        return learner
    delay, rewriting, restart = environment.delay, environment.rewriting, environment.restart
    certain = environment.censoring is None
    settled = environment.arrives is None and environment.leaves is None

    def init(theta, available=None):
        own = learner.init(theta, available)
        pending: Pending | tuple = ()
        if delay is not None:
            number = jnp.zeros((), theta.dtype)
            whose = jnp.zeros(labels, jnp.int32) if learner.facts.oracle else None
            choice = Choice(item=jnp.zeros((), jnp.int32), propensity=number)
            observed = None if certain else jnp.asarray(False)
            like = Answer(theta[0], choice, number, observed, whose)
            pending = nothing_pending(len(delay.chances), like)
        snapshot = () if restart is None else own
        return _around(own, own.available, own.t, pending, snapshot)

    def learnt(state, answer):
        observed = True if answer.observed is None else answer.observed
        if not settled:  # of a tool that has gone since, nothing is learnt
            observed = observed & state.available[answer.choice.item]
        feedback = Feedback(answer.reward, observed, answer.labels)
        return learner.update(state, answer.query, answer.choice, feedback)

    def update(state, query, choice, feedback):
        if not isinstance(state.extra, Carried):
            raise ValueError(
                f"this state of {learner.name!r} has no room for what the world remembers: start "
                "from the init of `jaxret.environments.deployment.deployed`"
            )
        own, t, (pending, snapshot) = bare(state), state.t, state.extra[2:]
        observed = None if certain else jnp.asarray(feedback.observed)
        answer = Answer(query, choice, feedback.reward, observed, feedback.labels)
        if delay is None:
            own = learnt(own, answer)
        else:
            way = jax.random.fold_in(jax.random.fold_in(key, 2 * t + 1), _UNDER_WAY)
            pending = sent(delay, pending, t, way, answer)
            own, pending = delivered(pending, t, own, learnt)
        if restart is not None:
            own, snapshot = _once(t + 1 == restart.saved, lambda now, _: (now, now), own, snapshot)
            own, snapshot = _once(t + 1 == restart.at, lambda _, old: (old, old), own, snapshot)
        if rewriting is not None:
            change = partial(redescribed, rewriting, learner)
            (own,) = _once(t + 1 == rewriting.at, lambda own: (change(own),), own)
        return _around(own, state.available, t + 1, pending, snapshot)

    return wrap(learner, learner.name, unwrap=bare, init=init, update=update)


_UNDER_WAY = 3  # `respond` takes 0 to 2 of what follows from a round's second key


def bare(state: State) -> State:
    """The learner's own state, of one run or of many; one that is not deployed is left as it is."""
    if not isinstance(state.extra, Carried):
        return state
    return state._replace(t=state.extra.t, extra=state.extra.extra)


def _around(own, available, t, pending, snapshot) -> State:
    carried = Carried(extra=own.extra, t=own.t, pending=pending, snapshot=snapshot)
    return State(theta=own.theta, available=available, t=t, extra=carried)


def _once(when: Bool[Array, ""], change: Callable[..., tuple], *states: Any) -> tuple:
    """The states, changed where ``when`` holds; `lax.cond` would copy them in every other round."""

    def run(carry):
        return change(*carry[0]), jnp.asarray(False)

    return lax.while_loop(lambda carry: carry[1], run, (states, when))[0]
