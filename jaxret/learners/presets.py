"""Presets: rank-one learners by name, with default settings.

    learner = greedy()                       every setting has a default
    learner = orag(tau=0.05, eta=1e-3)

The defaults are for rows and queries of length 1 and some hundreds of items. The paper's settings
(tau = 1, eta from 1e-8 to 1e-5) are `paper_adamw`, which needs thousands of updates, and
`paper_sgd`, which needs more. Equal settings return the same object; learners that differ only in
float settings share a compiled program.
"""

from typing import Any

from jaxret.learners.learner import Learner
from jaxret.learners.minibatch import adamw
from jaxret.learners.offsets import informed
from jaxret.learners.rank_one import rank_one
from jaxret.learners.registry import preset
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_preconditioner, with_query_map
from jaxret.rules import estimators, policies, preconditioners, projections, query_maps, schedules
from jaxret.rules.estimators import Estimator
from jaxret.rules.offsets import WIDTH
from jaxret.rules.policies import Policy
from jaxret.rules.projections import Projection
from jaxret.rules.query_maps import QueryMap
from jaxret.rules.schedules import Schedule

SPHERE = projections.sphere()


@preset
def frozen(*, tau: float = 0.02, k: int = 1) -> Learner:
    """Retrieve statically: show the best item by Theta_1 and learn nothing.

    Args:
      tau: temperature of the reported softmax, > 0.
      k: items shown to the environment's reranker, >= 1.
    """
    none, policy = estimators.none(), policies.greedy(k=k)
    return rank_one("frozen", estimator=none, policy=policy, tau=tau, eta=0)


@preset
def hybrid(
    *,
    tau: float = 0.02,
    lexical: float = 0.35,
    balance: float | None = None,
    k: int = 1,
    width: int = WIDTH,
) -> Learner:
    """Retrieve statically by vectors and words: show the best item and learn nothing.

    Args:
      tau: temperature of the softmax that determines usage, > 0.
      lexical: weight of the match of words against the inner product, in [0, 1).
      balance: strength of the division by usage, >= 0; None: usage is not counted.
      k: items shown to the environment's reranker, >= 1.
      width: largest number of prior scores per query, >= 1; I for a task whose `prior` has a score
        for every tool.

    Raises:
      ValueError: if a number is out of its range.
    """
    made = informed(of=frozen, lexical=lexical, balance=balance, width=width, tau=tau, k=k)
    return made._replace(name="hybrid")


@preset
def orag(
    *,
    tau: float = 0.02,
    eta: float = 3e-4,
    k: int = 1,
    divide_by: str = "propensity",
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Draw items from p and step by Eq. (4): ORAG Algorithm 1, and with k > 1 Algorithm 2.

    Args:
      tau: temperature, > 0; the paper's is 1.
      eta: step size, >= 0.
      k: items shown to the environment's reranker, >= 1.
      divide_by: 'propensity', or 'model' for Algorithm 2 as the paper writes it.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    estimator = estimators.importance_weighted(divide_by=divide_by)
    return _softmax("orag", estimator, tau, eta, projection, schedule, k)


@preset
def chosen_only(
    *,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Learn as `orag`, but move only the row of the item shown (ORAG App. B.2).

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    return _softmax("chosen_only", estimators.chosen_only(), tau, eta, projection, schedule)


@preset
def clipped(
    *,
    tau: float = 0.02,
    eta: float = 3e-4,
    floor: float = 0.1,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Learn as `orag` with max(pi, floor) in the denominator: some bias, much less variance.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      floor: smallest denominator, in (0, 1].
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    return _softmax("clipped", estimators.clipped(floor=floor), tau, eta, projection, schedule)


@preset
def debiased(
    *,
    noise_rate: float = 0.1,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Learn as `orag`, unbiased for rewards that are flipped with a known probability.

    Args:
      noise_rate: probability that a reward is flipped, in [0, 0.5).
      tau: temperature, > 0.
      eta: step size, >= 0.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    estimator = estimators.debiased(noise_rate=noise_rate)
    return _softmax("debiased", estimator, tau, eta, projection, schedule)


@preset
def implicit_exploration(
    *,
    gamma: float = 0.1,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Learn as `orag` with pi + gamma in the denominator (Neu 2015).

    Args:
      gamma: added to the propensity, > 0.
      tau: temperature, > 0.
      eta: step size, >= 0.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    estimator = estimators.implicit_exploration(gamma=gamma)
    return _softmax("implicit_exploration", estimator, tau, eta, projection, schedule)


@preset
def greedy(
    *,
    tau: float = 0.03,
    eta: float = 3e-3,
    k: int = 1,
    estimator: Estimator | None = None,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Show the best item and learn by the likelihood of the reward, without exploration.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      k: items shown to the environment's reranker, >= 1.
      estimator: None: `estimators.bandit_likelihood`.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    return rank_one(
        "greedy",
        estimator=estimator or estimators.bandit_likelihood(),
        policy=policies.greedy(k=k),
        tau=tau,
        eta=eta,
        projection=projection,
        schedule=schedule,
    )


@preset
def full_information(
    *,
    tau: float = 0.02,
    eta: float = 2e-3,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """Show the best item and follow the exact gradient of the labels (an oracle).

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      projection: projection of the rows, after each step.
      schedule: factor of eta by round; None: constant.
    """
    return rank_one(
        "full_information",
        estimator=estimators.full_information(),
        policy=policies.greedy(),
        tau=tau,
        eta=eta,
        projection=projection,
        schedule=schedule,
    )


@preset
def mapped_full_information(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """Learn as `full_information`, with a linear map of the queries.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      rate: step size of the map relative to that of the rows, > 0.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    query_map, oracle = query_maps.linear(rate=rate), full_information(tau=tau, eta=eta)
    learner = with_query_map(oracle, query_map, map_every=map_every)
    return learner._replace(name="mapped_full_information")


@preset
def mapped(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """Learn as `greedy`, with a linear query map that all items share.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      rate: step size of the map relative to that of the rows, > 0.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    return _mapped("mapped", query_maps.linear(rate=rate), tau, eta, map_every)


@preset
def centred(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """Learn as `mapped`, with most of the queries' running mean subtracted first.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      rate: step size of the map relative to that of the rows, > 0.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    return _mapped("centred", query_maps.mean_centred(rate=rate), tau, eta, map_every)


@preset
def low_rank(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, rank: int = 32, map_every: int = 1
) -> Learner:
    """Learn as `mapped`, with a map of low rank.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      rate: step size of the map relative to that of the rows, > 0.
      rank: rank of the map, >= 1.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    return _mapped("low_rank", query_maps.low_rank(rate=rate, rank=rank), tau, eta, map_every)


@preset
def whitened(*, tau: float = 0.02, eta: float = 2e-3, ridge: float = 1000.0) -> Learner:
    """Learn as `greedy`, along A q, where A is the inverse second moment of past queries.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      ridge: weight of the identity, in rounds, > 0.
    """
    preconditioner = preconditioners.second_moment(ridge=ridge)
    return with_preconditioner(greedy(tau=tau, eta=eta), preconditioner)._replace(name="whitened")


@preset
def row_steps(*, tau: float = 0.02, eta: float = 2e-3) -> Learner:
    """Learn as `greedy`, with a step size per item: Adagrad with one number per row.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
    """
    learner = with_preconditioner(greedy(tau=tau, eta=eta), preconditioners.by_row())
    return learner._replace(name="row_steps")


@preset
def greedy_replayed(*, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8) -> Learner:
    """Learn as `greedy`, with experience replay.

    Args:
      tau: temperature, > 0.
      eta: step size, >= 0.
      per_round: past rounds replayed after each round, >= 1.
    """
    return _replayed("greedy_replayed", greedy(tau=tau, eta=eta), per_round)


@preset
def mapped_replayed(
    *, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8, map_every: int = 1
) -> Learner:
    """Learn as `mapped`, with experience replay.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      per_round: past rounds replayed after each round, >= 1.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    inner = mapped(tau=tau, eta=eta, map_every=map_every)
    return _replayed("mapped_replayed", inner, per_round)


@preset
def centred_replayed(
    *, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8, map_every: int = 1
) -> Learner:
    """Learn as `centred`, with experience replay.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      per_round: past rounds replayed after each round, >= 1.
      map_every: rounds between two moves of the map; multiples of 8 have a blocked form.
    """
    inner = centred(tau=tau, eta=eta, map_every=map_every)
    return _replayed("centred_replayed", inner, per_round)


@preset
def paper_sgd(*, tau: float = 1.0, eta: float = 1e-5) -> Learner:
    """Follow the paper's text: `orag` without temperature or projection, step 1/sqrt(t).

    Args:
      tau: temperature; the paper has none, which means 1.
      eta: step size, >= 0.
    """
    none, schedule = projections.none(), schedules.inverse_sqrt()
    return _softmax("paper_sgd", estimators.importance_weighted(), tau, eta, none, schedule)


@preset
def paper_adamw(*, tau: float = 1.0, eta: float = 1e-5, batch: int = 40) -> Learner:
    """Train as ORAG's experiments do (C.2): AdamW over batches, 1/sqrt(t).

    Args:
      tau: temperature; the paper has none, which means 1.
      eta: initial learning rate per coordinate, >= 0.
      batch: rounds between two updates, >= 1.
    """
    return adamw(tau=tau, eta=eta, batch=batch)._replace(name="paper_adamw")


def _softmax(
    name: str,
    estimator: Estimator,
    tau: float,
    eta: float,
    projection: Projection,
    schedule: Schedule | None,
    k: int = 1,
) -> Learner:
    """Build a learner that draws items from its softmax."""
    parts: dict[str, Any] = {"projection": projection, "schedule": schedule}
    policy: Policy = policies.softmax(k=k)
    return rank_one(name, estimator=estimator, policy=policy, tau=tau, eta=eta, **parts)


def _mapped(name: str, query_map: QueryMap, tau: float, eta: float, map_every: int) -> Learner:
    """Build `greedy` with a query map."""
    learner = with_query_map(greedy(tau=tau, eta=eta), query_map, map_every=map_every)
    return learner._replace(name=name)


def _replayed(name: str, inner: Learner, per_round: int) -> Learner:
    return with_experience_replay(inner, per_round=per_round)._replace(name=name)
