"""What the estimators read: weights, rewards and what a model says, round by round of a log.

Blocks of rounds are gone through in their order, each with the model of the rewards before it
(`jaxret.offline.reward_model`), so that [n, I] numbers are held at once and never [T, I].

Letters: I items, T rounds, n a block of them, h the truncation of a model.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.logs import Log, take
from jaxret.offline import estimators, reward_model
from jaxret.offline.target import Target
from jaxret.offline.weights import importance_weights


class Rounds(NamedTuple):
    """Every round of a log for one policy, in float64; NaN throughout where it cannot be known."""

    weight: Float[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]
    model: Float[np.ndarray, " T"]  # of the tool that was used; one tool a round
    expected: Float[np.ndarray, " T"]  # of the model, over what the policy would show
    second: Float[np.ndarray, " T"]  # E[w^2 | query] = sum_a pi^2 / p: as `group_weight`
    group_weight: Float[np.ndarray, " T"]  # where the log has the chances of all tools
    low: Float[np.ndarray, " T"]  # DR terms of y with min(model, h / w): as `group_weight`
    high: Float[np.ndarray, " T"]  # of 1 - y, with min(1 - model, h / w)


def go_through(
    log: Log,
    target: Target,
    *,
    groups: Int[np.ndarray, " I"] | None = None,
    cascade: bool = False,
    truncation: float,
) -> Rounds:
    """Works out the numbers of all rounds.

    Args:
      log: every round was answered.
      target: the policy.
      groups: of each tool; None: no group weights.
      cascade: as in `importance_weights`.
      truncation: h, > 0; no term of ``low`` and ``high`` is below -h.

    Raises:
      ValueError: for a log without support for the policy.
    """
    found = Rounds(*np.full((len(Rounds._fields), log.rounds), np.nan))
    found = found._replace(reward=np.asarray(log.reward, np.float64))
    one, bare, seen = log.slate.shape[1] == 1, 0, []
    for part in reward_model.blocks(log.rounds):
        some, pi = take(log, part), target.chances(part)
        weight, without = importance_weights(some, pi, cascade=cascade)
        found.weight[part], bare = weight, bare + int(without.sum())
        if not one:
            continue
        rows, past = np.arange(len(pi)), slice(0, part.start)
        scores = None if target.scores is None else target.scores(part)
        sight = reward_model.features(scores, pi.shape)
        used = np.concatenate(seen) if seen else sight[:0, 0]
        fitted = reward_model.fit(used, log.item[past], found.reward[past], pi.shape[1])
        model = reward_model.predict(fitted, sight)
        seen.append(sight[rows, some.item])
        found.model[part], found.expected[part] = model[rows, some.item], (pi * model).sum(axis=1)
        if some.chances is None:
            continue
        p, y = np.asarray(some.chances, np.float64), found.reward[part]
        with np.errstate(divide="ignore"):  # what the log never shows: infinite, and refused below
            second = np.divide(pi**2, p, out=np.zeros_like(p), where=pi > 0)
        found.second[part] = second.sum(axis=1)
        most = np.divide(truncation * p, pi, out=np.full_like(pi, np.inf), where=pi > 0)  # h / w
        for side, reward, guess in ((found.low, y, model), (found.high, 1 - y, 1 - model)):
            guess = np.minimum(guess, most)
            mean = (pi * guess).sum(axis=1)
            side[part] = estimators.doubly_robust(weight, reward, guess[rows, some.item], mean)
        if groups is not None:
            mine = groups[None, :] == groups[some.item][:, None]
            found.group_weight[part] = (pi * mine).sum(axis=1) / (p * mine).sum(axis=1)
    if bare:
        raise ValueError(
            f"the log has no support for the policy: in {bare:,} of {log.rounds:,} rounds it shows "
            "for certain what the policy might not, so let what serves explore, as "
            "jr.with_exploration(learner, epsilon=0.05) does, before its log evaluates others"
        )
    return found
