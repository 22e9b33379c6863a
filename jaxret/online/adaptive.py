"""Learners that learn more than rows: a lens shared by all tools, and the shape of their steps.

    u     = see(q)                                        jaxret.online.lenses
    p     = softmax(Theta u / tau);  slate, a, y          as every learner
    c, v  = precondition(c of the estimator, u)           jaxret.online.preconditioners
    Theta <- project(Theta - eta_t / tau c v^T);  the lens moves by eta_t / tau (Theta^T c) q^T

With neither it is `jaxret.online.learner.rank_one`, round for round. A lens changes what all
queries look like, so there is no blocked form: these take the plain scan.

Letters: I items, d width, N queries.
"""

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from jaxret.online import lenses, preconditioners, projections
from jaxret.online.estimators import Estimator
from jaxret.online.learner import Learner, coefficients, logits, measure, rank_one, step_length
from jaxret.online.lenses import Lens
from jaxret.online.policy import Policy
from jaxret.online.preconditioners import Preconditioner
from jaxret.online.projections import Projection
from jaxret.online.schedules import Schedule


class AdaptiveState(NamedTuple):
    """As `jaxret.online.learner.State`, with the lens and what the preconditioner remembers."""

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]
    glass: Any
    memory: Any


def adaptive(
    name: str,
    *,
    estimator: Estimator,
    policy: Policy,
    projection: Projection | None = None,
    schedule: Schedule | None = None,
    tau: float,
    eta: float,
    lens: Lens | None = None,
    preconditioner: Preconditioner | None = None,
) -> Learner:
    """Builds a learner from its parts: those of `rank_one`, and two more.

    Args:
      name: shown in tables.
      estimator: what one bit says.
      policy: who is shown.
      projection: where rows may lie; None is free.
      schedule: factor of eta by round; None is constant.
      tau: temperature, > 0; may be traced.
      eta: step size, >= 0; may be traced.
      lens: how queries are seen; None is as they are.
      preconditioner: of the rows' steps; None leaves them.
    """
    plain = rank_one(
        name,
        estimator=estimator,
        policy=policy,
        projection=projection,
        schedule=schedule,
        tau=tau,
        eta=eta,
    )
    rule = plain.rule
    assert rule is not None
    lens, preconditioner = lens or lenses.plain(), preconditioner or preconditioners.none()

    def init(theta, available):
        return AdaptiveState(
            **plain.init(theta, available)._asdict(),
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

    def see(state, queries):
        return lens.see(state.glass, queries)

    return Learner(name, init, act, update, None, see)
