"""Learners by name, with settings that serve: one place for the names.

    learner = greedy()                       every argument has a default
    learner = orag(tau=0.05, eta=1e-3)       the settings are those of `rank_one`

Defaults are for rows and queries of length 1 and some hundreds of tools. `paper_sgd` and
`paper_adamw` have the paper's tau = 1 and eta = 1e-5, which need about as many updates as the paper
makes (3,000 of AdamW): 50 to 267 change no nDCG@10 by more than 0.001. Learners with a query map
move it once in ``map_every`` rounds; multiples of 8 have a blocked form.
"""

from jaxret.online import (
    estimators,
    policies,
    preconditioners,
    projections,
    query_maps,
    schedules,
    trainer,
)
from jaxret.online.estimators import Estimator
from jaxret.online.learner import Learner
from jaxret.online.origins import preset
from jaxret.online.policies import Policy
from jaxret.online.projections import Projection
from jaxret.online.query_maps import QueryMap
from jaxret.online.rank_one import rank_one
from jaxret.online.schedules import Schedule
from jaxret.online.wrappers import with_experience_replay, with_preconditioner, with_query_map

SPHERE = projections.sphere()


@preset
def frozen(*, tau: float = 0.02) -> Learner:
    """Static retrieval: the best item by Theta_1, for ever."""
    return rank_one("frozen", estimator=estimators.none(), policy=policies.greedy(), tau=tau, eta=0)


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
    """ORAG Algorithm 1: items drawn from p, Eq. (4); with k > 1 Algorithm 2.

    Args:
      tau: temperature; the paper's is 1.
      eta: step size.
      k: items shown to the environment's reranker.
      divide_by: 'propensity', or 'model' for Algorithm 2 as the paper writes it.
      projection: where rows may lie.
      schedule: factor of eta by round; None is constant.
    """
    estimator = estimators.importance_weighted(divide_by=divide_by)
    return _rank_one("orag", estimator, policies.softmax(k=k), tau, eta, projection, schedule)


@preset
def chosen_only(
    *,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """ORAG App. B.2: as ORAG, but only the chosen row moves."""
    estimator = estimators.chosen_only()
    return _rank_one("chosen_only", estimator, policies.softmax(), tau, eta, projection, schedule)


@preset
def clipped(
    *,
    tau: float = 0.02,
    eta: float = 3e-4,
    floor: float = 0.1,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """ORAG with max(pi, floor) below the line: a little bias for much less variance."""
    estimator = estimators.clipped(floor=floor)
    return _rank_one("clipped", estimator, policies.softmax(), tau, eta, projection, schedule)


@preset
def debiased(
    *,
    noise_rate: float = 0.1,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """ORAG put right on average for labels that are wrong with a known probability."""
    estimator = estimators.debiased(noise_rate=noise_rate)
    return _rank_one("debiased", estimator, policies.softmax(), tau, eta, projection, schedule)


@preset
def implicit_exploration(
    *,
    gamma: float = 0.1,
    tau: float = 0.02,
    eta: float = 3e-4,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """ORAG with pi + gamma below the line (Neu 2015)."""
    estimator = estimators.implicit_exploration(gamma=gamma)
    policy = policies.softmax()
    return _rank_one("implicit_exploration", estimator, policy, tau, eta, projection, schedule)


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
    """Shows the best item and learns by the likelihood of the bit, which needs no exploration."""
    estimator = estimator or estimators.bandit_likelihood()
    return _rank_one("greedy", estimator, policies.greedy(k=k), tau, eta, projection, schedule)


@preset
def full_information(
    *,
    tau: float = 0.02,
    eta: float = 2e-3,
    projection: Projection = SPHERE,
    schedule: Schedule | None = None,
) -> Learner:
    """The oracle: acts greedily, is given the labels, follows the gradient itself."""
    estimator, policy = estimators.full_information(), policies.greedy()
    return _rank_one("full_information", estimator, policy, tau, eta, projection, schedule)


@preset
def mapped(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """`greedy` with a linear map of the queries that all tools learn together."""
    return _mapped("mapped", query_maps.linear(rate=rate), tau, eta, map_every)


@preset
def centred(
    *, tau: float = 0.02, eta: float = 6e-4, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """`mapped`, of queries less most of their running mean."""
    return _mapped("centred", query_maps.mean_centred(rate=rate), tau, eta, map_every)


@preset
def low_rank(
    *,
    tau: float = 0.02,
    eta: float = 6e-4,
    rate: float = 3.0,
    rank: int = 32,
    map_every: int = 1,
) -> Learner:
    """`mapped`, with a map of low rank."""
    query_map = query_maps.low_rank(rate=rate, rank=rank)
    return _mapped("low_rank", query_map, tau, eta, map_every)


@preset
def whitened(*, tau: float = 0.02, eta: float = 2e-3, ridge: float = 1000.0) -> Learner:
    """`greedy`, rows moving along A q with A the inverse second moment of the queries so far."""
    preconditioner = preconditioners.second_moment(ridge=ridge)
    return with_preconditioner(greedy(tau=tau, eta=eta), preconditioner)._replace(name="whitened")


@preset
def row_steps(*, tau: float = 0.02, eta: float = 2e-3) -> Learner:
    """`greedy`, each tool with its own step size: Adagrad with one number a row."""
    learner = with_preconditioner(greedy(tau=tau, eta=eta), preconditioners.by_row())
    return learner._replace(name="row_steps")


@preset
def greedy_replayed(*, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8) -> Learner:
    """`greedy` with experience replay: each bit is learnt from again and again."""
    learner = with_experience_replay(greedy(tau=tau, eta=eta), per_round=per_round)
    return learner._replace(name="greedy_replayed")


@preset
def mapped_replayed(
    *, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8, map_every: int = 1
) -> Learner:
    """`mapped` with experience replay."""
    inner = mapped(tau=tau, eta=eta, map_every=map_every)
    learner = with_experience_replay(inner, per_round=per_round)
    return learner._replace(name="mapped_replayed")


@preset
def centred_replayed(
    *, tau: float = 0.02, eta: float = 6e-4, per_round: int = 8, map_every: int = 1
) -> Learner:
    """`centred` with experience replay."""
    inner = centred(tau=tau, eta=eta, map_every=map_every)
    learner = with_experience_replay(inner, per_round=per_round)
    return learner._replace(name="centred_replayed")


@preset
def paper_sgd(*, tau: float = 1.0, eta: float = 1e-5) -> Learner:
    """ORAG with the numbers of its text: no temperature, free rows, 1/sqrt(t)."""
    policy, projection = policies.softmax(), projections.none()
    estimator, schedule = estimators.importance_weighted(), schedules.inverse_sqrt()
    return _rank_one("paper_sgd", estimator, policy, tau, eta, projection, schedule)


@preset
def paper_adamw(*, tau: float = 1.0, eta: float = 1e-5, batch: int = 40) -> Learner:
    """The trainer of ORAG's experiments (C.2): AdamW over batches, 1/sqrt(t)."""
    return trainer.minibatch_adamw(tau=tau, eta=eta, batch=batch)._replace(name="paper_adamw")


def _rank_one(
    name: str,
    estimator: Estimator,
    policy: Policy,
    tau: float,
    eta: float,
    projection: Projection,
    schedule: Schedule | None,
) -> Learner:
    return rank_one(
        name,
        estimator=estimator,
        policy=policy,
        tau=tau,
        eta=eta,
        projection=projection,
        schedule=schedule,
    )


def _mapped(name: str, query_map: QueryMap, tau: float, eta: float, map_every: int) -> Learner:
    learner = with_query_map(greedy(tau=tau, eta=eta), query_map, map_every=map_every)
    return learner._replace(name=name)
