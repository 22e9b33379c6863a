"""Learners that learn more than rows: a lens shared by all tools, and the shape of their steps.

    u     = see(q)                                        jaxret.online.lenses
    p     = softmax(Theta u / tau);  slate, a, y          as every learner
    c, v  = precondition(c of the estimator, u)           jaxret.online.preconditioners
    Theta <- project(Theta - eta_t / tau c v^T);  the lens moves by eta_t / tau (Theta^T c) q^T

    adaptive(greedy(tau=0.02, eta=6e-4, projection=sphere()), lens=linear(rate=3.0))

With neither it is the learner that it was built on, round for round. A lens changes what all
queries look like, so there is no blocked form: these take the plain scan.

Letters: I items, d width, N queries.
"""

from typing import Any, NamedTuple

from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.online import lenses, preconditioners, projections
from jaxret.online.learner import (
    Learner,
    coefficients,
    logits,
    measure,
    past_coefficients,
    step_length,
)
from jaxret.online.lenses import Lens
from jaxret.online.preconditioners import Preconditioner


class AdaptiveState(NamedTuple):
    """As `jaxret.online.learner.State`, with the lens and what the preconditioner remembers."""

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]
    glass: Any
    memory: Any


def adaptive(
    learner: Learner, *, lens: Lens | None = None, preconditioner: Preconditioner | None = None
) -> Learner:
    """A rank-one learner that also learns how queries are seen, or how far its rows move.

    Args:
      learner: from `jaxret.online.learner.rank_one` or one of its presets.
      lens: how queries are seen; None is as they are.
      preconditioner: of the rows' steps; None leaves them.

    Raises:
      ValueError: if the learner is not rank one.
    """
    rule = learner.rule
    if rule is None:
        raise ValueError(f"learner {learner.name!r} is not rank one: it has no parts to build on")
    lens, preconditioner = lens or lenses.plain(), preconditioner or preconditioners.none()

    def init(theta, available):
        return AdaptiveState(
            **learner.init(theta, available)._asdict(),
            glass=lens.init(theta.shape[1], theta.dtype),
            memory=preconditioner.init(*theta.shape, theta.dtype),
        )

    def act(state, query, key):
        return rule.policy.show(key, logits(state, lens.see(state.glass, query), rule.tau), None)

    def update(state, query, choice, reward, labels):
        u = lens.see(state.glass, query)
        z = logits(state, u, rule.tau)
        step = step_length(rule, state.t)
        c = coefficients(rule.estimator, z, choice, reward, labels, None)
        glass = lens.grind(state.glass, query, step * (state.theta.T @ c))
        memory, c, v = preconditioner.apply(state.memory, c, u)
        theta = state.theta - (step * c)[:, None] * v[None, :]
        theta = projections.project(rule.projection, theta)
        state = AdaptiveState(
            theta=theta, available=state.available, t=state.t + 1, glass=glass, memory=memory
        )
        return state, measure(z, labels, None)

    def rehearse(state, queries, choices, rewards, counts):
        u = lens.see(state.glass, queries)
        step = step_length(rule, state.t)
        c = past_coefficients(rule, state, u, choices, rewards, counts)
        glass = lens.grind(state.glass, queries, step * c @ state.theta)

        def condition(memory, line):
            memory, *line = preconditioner.apply(memory, *line)
            return memory, line

        memory, (c, v) = lax.scan(condition, state.memory, (c, u))
        theta = projections.project(rule.projection, state.theta - step * c.T @ v)
        return state._replace(theta=theta, glass=glass, memory=memory)

    def see(state, queries):
        return lens.see(state.glass, queries)

    name = "+".join([learner.name, lens.name, preconditioner.name])
    return Learner(name, init, act, update, None, see, rehearse)
