"""Off-policy evaluation: the value of a policy from the log of another policy.

    log = load_log("logs/seed_0.jsonl", task)
    print(off_policy(log, frozen()))
    print(off_policy(log, Snapshot(run.learner, run.state(0)), logging=with_exploration(greedy())))

The value is the mean reward per round that the frozen policy would earn on the queries of the log.
`jaxret.offline.estimators` has the formulas and `jaxret.offline.intervals` the conditions under
which each interval holds. Importance weights are

    w = pi(a | q) / p(a | q)                          for one tool shown and used, a
    w = prod_j pi(a_j | above) / p(a_j | above)       for slates of k tools, by position

For slates the policy is assumed to draw like the log's policy: position by position from its
probabilities, without replacement, ``pi(a_j | above) = pi_{a_j} / (1 - sum of pi above)``. The
product over all positions is valid for any reranker that picks the used item. With ``cascade`` the
product ends at the used position (McInerney et al. 2020): it has fewer factors, and is valid if the
outcome at a position depends only on the items up to that position. Lists of a live index, of which
the first tool alone is drawn, are weighted as `jaxret.offline.lists` says.

A round contains no information about a tool that could not be shown in it: if the log shows its
tool with probability 1 and the policy does not, the log has no support for the policy, and its
value cannot be estimated.

Rounds are processed in blocks, each with the model of the rewards before it
(`jaxret.offline.reward_model`), so that memory holds arrays [n, I] and never [T, I].

Letters: I items, T rounds, n rounds of a block, k items shown, h truncation of the model, d width.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int
from scipy.cluster.vq import kmeans2

from jaxret.learners.learner import Learner
from jaxret.logs import Log, take
from jaxret.offline import estimators, intervals, reward_model
from jaxret.offline.checked import SCALE, checked, range_of
from jaxret.offline.intervals import ConfidenceSequence
from jaxret.offline.lists import CERTAIN, list_weights, without_rest
from jaxret.offline.snapshots import (
    PolicyLike,
    Snapshot,
    Target,
    policy_of,
    target,
    with_probabilities,
)
from jaxret.runtime.validate import as_number, real_numbers, require, whole_numbers

CLIP = 10.0  # M: the largest weight of clipped IPS
TRUNCATION = 3.0  # h: the model's largest contribution to a term of DR's interval
FEW = 200.0  # effective rounds below which a bootstrap is unreliable
MISSED = 0.1  # distance of the mean weight from 1 above which the log lacks heavy weights


class Value(NamedTuple):
    """The value by one estimator, with its interval."""

    estimate: float
    low: float = float("nan")  # at the end of the log; NaN: no valid bound
    high: float = float("nan")
    interval: str = "none"  # none, anytime, lower bound or bootstrap
    sequence: ConfidenceSequence | None = None  # of an anytime-valid interval, at checked times


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OffPolicy:
    """Values of one policy by several estimators, which print as a table.

    Attributes:
      name: name of the policy.
      rounds: number of answered rounds.
      logged: mean reward per round of the log's policy.
      effective: effective sample size; expected if it is known, else observed.
      mean_weight: mean importance weight; if it is far from 1, the propensities are wrong.
      values: name of an estimator -> its `Value`.
    """

    name: str
    rounds: int
    logged: float
    effective: float
    mean_weight: float
    values: dict[str, Value]

    def __getitem__(self, estimator: str) -> Value:
        return self.values[estimator]

    @property
    def few(self) -> bool:
        """True if the effective rounds are too few for a bootstrap."""
        return self.effective < FEW or abs(self.mean_weight - 1) > MISSED

    def __repr__(self) -> str:
        doubt = " (too few for a bootstrap)" if self.few else ""
        lines = [
            f"{self.name} on {self.rounds:,} rounds, which earned {self.logged:.3f}: "
            f"{self.effective:,.0f} effective{doubt}, mean weight {self.mean_weight:.3f}"
        ]
        width = max(map(len, self.values))
        for name, value in self.values.items():
            interval = {"none": "", "lower bound": f"at least {value.low:.3f}, anytime"}.get(
                value.interval, f"{value.low:.3f} to {value.high:.3f}, {value.interval}"
            )
            lines.append(f"{name:{width}}  {value.estimate:.3f}  {interval}".rstrip())
        return "\n".join(lines)


def off_policy(
    log: Log,
    policy: PolicyLike,
    *,
    logging: Learner | Snapshot | None = None,
    groups: int | ArrayLike | Sequence[int] | None = None,
    cascade: bool = False,
    alpha: float = 0.05,
    scale: tuple[float, float] = SCALE,
) -> OffPolicy:
    """Estimate the mean reward of a policy on the queries of a log.

    The estimators are IPS, SNIPS and clipped IPS; for logs of one tool per round DR, Switch-DR and
    DRos; with ``logging`` also MIPS, and the interval of DR. IPS and DR have intervals that hold at
    all times at once, clipped IPS a lower bound that does, and SNIPS and Switch-DR a bootstrap;
    DRos and MIPS have an unknown bias and no interval. DR's interval uses a truncated model and
    need not be centred on the estimate. Bounds lie on the scale; estimates are not clipped, since
    clipping would bias them. Unanswered rounds are left out with a warning: whether a round is
    answered must not depend on its reward.

    Args:
      log: log, whose policy may have learned during the log.
      policy: a snapshot, a learner in its first state, or probabilities [T, I]; it is frozen, and
        must not have learned from these rounds. Probabilities may be an array of NumPy or JAX or
        lists, as may every field of the log.
      logging: learner that wrote the log, in its state before these rounds, from which the
        probabilities of tools that were not shown are computed (`with_probabilities`); ignored if
        the log has these probabilities.
      groups: for MIPS, the number of groups of tools (by k-means of the policy's rows) or the group
        of each tool [I]; None: the square root of I groups. Probabilities have no rows: for them
        only the group of each tool can be given.
      cascade: for slates, whether positions below the used tool have no effect.
      alpha: probability that an interval fails, in (0, 1).
      scale: lowest and highest possible reward, as (1, 5) for stars or (-1, 0) for costs; the
        estimators see rewards of 0 to 1, and estimates and bounds are mapped back.

    Raises:
      ValueError: if the log has no support for the policy or no propensities, the policy has no
        probabilities, or a field of the log is out of its range, as a reward that is not on the
        scale.
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    log, groups = without_rest(checked(log, scale)), as_number(groups)
    if logging is not None and log.probabilities is None:
        log = with_probabilities(log, logging)
    name, found_policy, of_tool = "the policy", policy_of(log, policy), None
    by_number = groups is None or isinstance(groups, int)
    if not isinstance(found_policy, Snapshot):
        if isinstance(groups, int):
            raise ValueError(
                f"groups={groups} needs the rows of a learner: for probabilities give the group of "
                "each tool [I]"
            )
        items = found_policy.shape[1]
        found_policy = found_policy[~np.isnan(log.reward)]
    else:
        name, items = found_policy.learner.name, len(found_policy.state.theta)
        if by_number and log.probabilities is not None:
            of_tool = groups_of_rows(np.asarray(found_policy.state.theta), groups)
    if not by_number:
        of_tool = _groups(groups, items)
    log = answered_rounds(log)
    aim = target(log, found_policy)
    found = evaluate(log, aim, name=name, groups=of_tool, cascade=cascade, alpha=alpha)
    found = on_scale(found, range_of(scale))
    if found.few:
        warnings.warn(
            f"{name}: {found.effective:.0f} effective rounds of {found.rounds:,} are too few for a "
            "bootstrap interval: let what serves explore more, or log longer",
            stacklevel=2,
        )
    return found


def _groups(groups: Any, items: int) -> Int[np.ndarray, " I"]:
    """Check the group of each tool."""
    found = whole_numbers("groups [I]", groups, 1)
    if len(found) != items or found.min() < 0:
        raise ValueError(
            f"groups must be the group of each of {items} tools, from 0, got {len(found)} groups "
            f"from {found.min(initial=0)}"
        )
    return found


def on_scale(found: OffPolicy, scale: tuple[float, float]) -> OffPolicy:
    """Map values of rewards in [0, 1] back to the scale of the log.

    Args:
      found: values of mapped rewards.
      scale: lowest and highest possible reward.
    """
    low, high = scale

    def back(x):
        return low + (high - low) * x

    def of(value: Value) -> Value:
        line = value.sequence
        line = None if line is None else line._replace(low=back(line.low), high=back(line.high))
        return Value(back(value.estimate), back(value.low), back(value.high), value.interval, line)

    values = {name: of(value) for name, value in found.values.items()}
    return replace(found, logged=back(found.logged), values=values)


def answered_rounds(log: Log) -> Log:
    """Return the answered rounds of a log, with a warning if some are unanswered.

    Raises:
      ValueError: if fewer than two rounds are answered.
    """
    some = ~np.isnan(log.reward)
    require("the rounds that were answered", int(some.sum()), ">= 2", lambda n: n >= 2)
    if some.all():
        return log
    warnings.warn(
        f"{(~some).sum()} of {log.rounds} rounds were not answered and are left out: right only "
        "where that does not hang on whether the tool worked",
        stacklevel=3,
    )
    return take(log, some)


def evaluate(
    log: Log,
    policy: Target,
    *,
    name: str,
    groups: Int[np.ndarray, " I"] | None = None,
    cascade: bool = False,
    alpha: float = 0.05,
) -> OffPolicy:
    """Estimate the value of a policy from a log of answered rounds, without warnings.

    Args:
      log: log in which every round is answered.
      policy: probabilities and scores of the policy.
      name: name of the policy.
      groups: group of each tool [I], for MIPS; None: no MIPS.
      cascade: for slates, whether positions below the used tool have no effect.
      alpha: probability that an interval fails.

    Raises:
      ValueError: if the log has no support for the policy or no propensities.
    """
    rounds = go_through(log, policy, groups=groups, cascade=cascade, truncation=TRUNCATION)
    w, y, m, e = rounds.weight, rounds.reward, rounds.model, rounds.expected
    times = np.geomspace(min(10, log.rounds), log.rounds, 100)  # from 10 rounds on, evenly in log T
    times = np.unique(times.round().astype(int))

    def anytime(terms, low, high, least=0.0):
        found = intervals.confidence_sequence(low, high, times, alpha=alpha, least=least)
        ends = float(found.low[-1]), float(found.high[-1])
        return Value(float(terms.mean()), *ends, "anytime", found)

    def resampled(terms, *of):
        return Value(float(terms.mean()), *intervals.bootstrap(*of, alpha=alpha), "bootstrap")

    def at_least(terms):
        low = np.maximum(intervals.lower_bounds(terms, times, alpha=alpha), 0)
        found = ConfidenceSequence(times, low, np.ones_like(low))
        return Value(float(terms.mean()), float(low[-1]), interval="lower bound", sequence=found)

    ips = estimators.inverse_propensity(w, y)
    values = {
        "IPS": anytime(ips, ips, estimators.inverse_propensity(w, 1 - y)),
        "SNIPS": resampled(estimators.self_normalised(w, y), ips, w),
        "clipped IPS": at_least(estimators.clipped(w, y, CLIP)),
    }
    if log.slate.shape[1] == 1:
        dr = estimators.doubly_robust(w, y, m, e)
        switch = estimators.tuned(estimators.switched, w, y, m, e)
        shrunk = estimators.tuned(estimators.shrunk, w, y, m, e)
        bounded = log.probabilities is not None
        ends = (rounds.low, rounds.high, TRUNCATION)
        values["DR"] = anytime(dr, *ends) if bounded else Value(float(dr.mean()))
        values["Switch-DR"] = resampled(switch, switch)
        values["DRos"] = Value(float(shrunk.mean()))
        if bounded and groups is not None:
            marginalised = estimators.inverse_propensity(rounds.group_weight, y)
            values[f"MIPS, {groups.max() + 1} groups"] = Value(float(marginalised.mean()))
    expected = log.rounds / rounds.second.mean()  # NaN where it is not known
    return OffPolicy(
        name=name,
        rounds=log.rounds,
        logged=float(y.mean()),
        effective=effective_sample_size(w) if np.isnan(expected) else float(expected),
        mean_weight=float(w.mean()),
        values=values,
    )


class Rounds(NamedTuple):
    """Inputs of the estimators for every round, in float64; arrays of NaN if unknown."""

    weight: Float[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]
    model: Float[np.ndarray, " T"]  # modelled reward of the used tool; one tool per round
    expected: Float[np.ndarray, " T"]  # modelled reward, averaged over the policy
    second: Float[np.ndarray, " T"]  # E[w^2 | query] = sum_a pi^2 / p
    group_weight: Float[np.ndarray, " T"]  # this and all below: if the log has all probabilities
    low: Float[np.ndarray, " T"]  # DR terms of y with min(model, h / w)
    high: Float[np.ndarray, " T"]  # DR terms of 1 - y with min(1 - model, h / w)


def go_through(
    log: Log,
    target: Target,
    *,
    groups: Int[np.ndarray, " I"] | None = None,
    cascade: bool = False,
    truncation: float,
) -> Rounds:
    """Compute the inputs of the estimators for all rounds, block by block.

    Args:
      log: log in which every round is answered.
      target: probabilities and scores of the policy.
      groups: group of each tool [I]; None: no group weights.
      cascade: for slates, whether positions below the used tool have no effect.
      truncation: h, > 0; no term of ``low`` and ``high`` is below -h.

    Raises:
      ValueError: if the log has no support for the policy.
    """
    found = Rounds(*np.full((len(Rounds._fields), log.rounds), np.nan))
    found = found._replace(reward=np.asarray(log.reward, np.float64))
    one, bare, seen = log.slate.shape[1] == 1, 0, []
    lists = log.listed is not None
    for part in reward_model.blocks(log.rounds):
        some, pi = take(log, part), target.probabilities(part)
        scores = target.scores(part) if target.scores and (one or lists) else None
        if lists:
            weight, without = list_weights(some, pi, scores)
        else:
            weight, without = importance_weights(some, pi, cascade=cascade)
        found.weight[part], bare = weight, bare + int(without.sum())
        if not one:
            continue
        rows, past = np.arange(len(pi)), slice(0, part.start)
        sight = reward_model.features(scores, pi.shape)
        used = np.concatenate(seen) if seen else sight[:0, 0]
        fitted = reward_model.fit(used, log.item[past], found.reward[past], pi.shape[1])
        model = reward_model.predict(fitted, sight)
        seen.append(sight[rows, some.item])
        found.model[part], found.expected[part] = model[rows, some.item], (pi * model).sum(axis=1)
        if some.probabilities is None:
            continue
        p, y = np.asarray(some.probabilities, np.float64), found.reward[part]
        with np.errstate(divide="ignore"):  # infinite weights are refused below
            second = np.divide(pi**2, p, out=np.zeros_like(p), where=pi > 0)
        found.second[part] = second.sum(axis=1)
        most = np.divide(truncation * p, pi, out=np.full_like(pi, np.inf), where=pi > 0)  # h / w
        for side, reward, guess in ((found.low, y, model), (found.high, 1 - y, 1 - model)):
            guess = np.minimum(guess, most)
            mean = (pi * guess).sum(axis=1)
            side[part] = estimators.doubly_robust(weight, reward, guess[rows, some.item], mean)
        if groups is not None:
            same_group = groups[None, :] == groups[some.item][:, None]
            found.group_weight[part] = (pi * same_group).sum(axis=1) / (p * same_group).sum(axis=1)
    if bare:
        raise ValueError(
            f"the log has no support for the policy: in {bare:,} of {log.rounds:,} rounds it shows "
            "for certain what the policy might not, so let what serves explore, as "
            "jr.with_exploration(learner, epsilon=0.05) does (in a live index jr.Index("
            "jr.with_exploration(learner), ..)), before its log evaluates others"
        )
    return found


def importance_weights(
    log: Log, probabilities: Float[np.ndarray, "n I"], *, cascade: bool = False
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Compute the importance weight of each round, and find the rounds without support.

    Args:
      log: log of n rounds.
      probabilities: policy's probability of showing each tool (first) [n, I].
      cascade: whether the product ends at the used position.

    Returns:
      Weights [n], and whether the log has no support for the policy in each round [n].

    Raises:
      ValueError: if the log lacks the probability of a position, or the policy has no probability
        left for a lower position.
    """
    n, k = log.slate.shape
    rows, left = np.arange(n), np.array(probabilities, np.float64)
    weight, bare, reached = np.ones(n), np.zeros(n, bool), np.ones(n, bool)
    for position in range(k):
        item, p = log.slate[:, position], log.by_position[:, position]
        counts = reached & (item >= 0)
        if not (p[counts] > 0).all():  # NaN too
            t = log.round[counts][(~(p[counts] > 0)).argmax()]
            raise ValueError(
                f"the log lacks the probability of position {position + 1} in round {t}, by which "
                "the weight is divided"
            )
        rest = left.sum(axis=1)
        if (counts & (rest < 1e-12)).any():
            raise ValueError(
                "the policy shows one tool with certainty, without probabilities for the positions "
                f"below it: for slates of {k} use one that draws all of them, with policies.softmax"
            )
        pi = np.divide(left[rows, item], rest, out=np.zeros(n), where=counts)
        bare |= counts & (p >= CERTAIN) & (pi < CERTAIN)
        weight = np.where(counts, weight * pi / np.where(counts, p, 1), weight)
        left[rows[counts], item[counts]] = 0
        reached = counts & (weight > 0)  # positions below a tool that the policy never shows
        if cascade:
            reached &= item != log.item
    if log.probabilities is not None:
        bare |= (probabilities * (log.probabilities == 0)).sum(axis=1) > 1 - CERTAIN
    return weight, bare


def effective_sample_size(weight: Float[np.ndarray, " n"]) -> float:
    """Compute ``(sum w)^2 / sum w^2``, the number of equally informative on-policy rounds.

    Kish 1965.
    """
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square else 0.0


def groups_of_rows(theta: Float[np.ndarray, "I d"], k: int | None = None) -> Int[np.ndarray, " I"]:
    """Cluster tools by k-means of their rows (Lloyd's algorithm, started by k-means++).

    Args:
      theta: rows [I, d].
      k: number of groups, in 1 .. I; the result has fewer if fewer rows differ or a group becomes
        empty. None: the square root of I.

    Returns:
      Group of each tool [I], numbered from 0.

    Raises:
      ValueError: if k is out of its range, or a row is not finite.
    """
    theta = real_numbers("theta [I, d]", theta, 2)
    require("theta", theta, "finite", lambda x: np.isfinite(x).all())
    items = len(theta)
    count = round(items**0.5) if k is None else k
    require("groups", count, f"in 1 .. {items}", lambda n: 1 <= n <= items)
    rows, groups = np.unique(np.asarray(theta, np.float64), axis=0, return_inverse=True)
    if count >= len(rows):
        return groups.reshape(-1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        _, nearest = kmeans2(np.asarray(theta, np.float64), count, iter=50, minit="++", seed=0)
    return np.unique(nearest, return_inverse=True)[1]
