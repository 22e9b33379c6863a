"""The perceptron of one bit (Kakade, Shalev-Shwartz and Tewari 2008, Algorithm 1).

    show     argmax_i <theta_i, q>;  with probability epsilon any of the K tools
    learn    Theta <- Theta - (eta / tau) c q^T,   c = 1[best] - 1[a] y / pi

with pi the chance of the tool shown. c is unbiased for the perceptron's step 1[best] - 1[i*], which
one bit does not tell. The paper begins at zero, where the step scales Theta and changes no choice,
so that epsilon alone is left to set; from the documents a step says how much a mistake weighs
against the text. Its bound on the expected mistakes is `jaxret.theory.mistakes.banditron`: of free
rows, with one right tool.

43,215 tools of width 1,536: nothing beside Theta; rank one, so it has the blocked form.
"""

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner
from jaxret.learners.presets import SPHERE
from jaxret.learners.rank_one import rank_one
from jaxret.learners.registry import preset
from jaxret.rules import estimators, policies, projections
from jaxret.rules.projections import Projection
from jaxret.rules.schedules import Schedule


@preset
def banditron(
    *,
    tau: float = 0.02,
    eta: float = 2e-4,
    epsilon: float = 0.05,
    projection: Projection | None = None,
    schedule: Schedule | None = None,
    start: Start = "document",
) -> Learner:
    """Kakade et al. (2008): epsilon-greedy with the perceptron step.

    Args:
      tau: divides the step, and nothing else here.
      eta: step size, >= 0.
      epsilon: share of the rounds with any tool, in [0, 1].
      projection: of the rows; None: the unit sphere from the documents, none from zero, since a
        row of length 0 has no direction that a sphere could keep.
      schedule: of the step; None: constant.
      start: 'document' or 'zero', of the rows.
    """
    rows.require_start(start)
    if projection is None:
        projection = SPHERE if start == "document" else projections.none()
    learner = rank_one(
        "banditron",
        estimator=estimators.banditron(),
        policy=policies.epsilon_greedy(epsilon=epsilon),
        tau=tau,
        eta=eta,
        projection=projection,
        schedule=schedule,
    )
    if start == "document":
        return learner

    def init(theta, available=None):
        return learner.init(rows.first_rows(start, theta), available)

    return learner._replace(init=init)
