"""Logs of lists: a live index draws the first position and fills up with the best of the rest.

    index.search(query, k=5)        one drawn, four that follow from it

How a round is weighted for another policy depends on which tools are used:

    the first, always     the list below it does not count: a log of one tool per round, which every
                          estimator reads
    sometimes others      an agent chooses among k. The weight is that of the tool that was used,
                          P(on the policy's list of k) / P(on the log's list)

The second is valid if the use and the outcome of a tool depend on its being on the list, but not on
what else is (the document-based click model: Chuklin, Markov and de Rijke 2015, section 3.2; as
weights: Li, Abbasi-Yadkori, Kveton et al. 2018, section 4.2). Its value is the mean reward of a
list, with an agent that chooses as the one of the log did and uses one tool of each list: a mean
weight far from 1 says that this does not fit.

Letters: I items, T rounds, n some of the rounds, k items on a list.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.logs import Log

CERTAIN = 1 - 1e-6  # a float32 probability that counts as 1


def without_rest(log: Log) -> Log:
    """Cut lists to their drawn positions if nothing below was used.

    Args:
      log: any log; one without lists is returned unchanged.

    Returns:
      The log, without the lists if every used tool was drawn.

    Raises:
      ValueError: if a tool below several drawn positions was used.
    """
    if log.drawn is None:
        return log
    used = (log.slate == log.item[:, None]).argmax(axis=1)
    most = int(log.drawn.max(initial=1))
    if (lower := used >= log.drawn).any():
        if most > 1:
            raise ValueError(
                f"round {log.round[lower.argmax()]} used a tool below the {most} that were drawn, "
                "whose probability is not known: evaluate the rounds that used a drawn one"
            )
        return log
    below = np.arange(most) >= log.drawn[:, None]
    return log._replace(
        slate=np.where(below, -1, log.slate[:, :most]),
        by_position=np.where(below, 1.0, log.by_position[:, :most]),
        drawn=None,
        listed=None,
    )


def list_weights(
    log: Log, probabilities: Float[np.ndarray, "n I"], scores: Float[np.ndarray, "n I"] | None
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Compute the importance weight of the used tool of each list.

    Args:
      log: log of n rounds with lists.
      probabilities: policy's probability of showing each tool first [n, I].
      scores: policy's scores, by which the rest is ranked [n, I]; None: its probabilities.

    Returns:
      Weights [n], and whether the log has no support for the policy in each round [n].

    Raises:
      ValueError: if the log lacks the probability of a tool.
    """
    assert log.listed is not None
    rows, shown = np.arange(len(log.slate)), log.slate >= 0
    used = (log.slate == log.item[:, None]).argmax(axis=1)
    p = log.listed[rows, used]
    if not (p > 0).all():  # NaN too
        t = log.round[(~(p > 0)).argmax()]
        raise ValueError(
            f"the log lacks the probability that the tool of round {t} is on its list, by which "
            "the weight is divided"
        )
    ours = on_lists(probabilities, probabilities if scores is None else scores, shown.sum(axis=1))
    of_log = np.where(shown, np.take_along_axis(ours, np.maximum(log.slate, 0), 1), 1.0)
    bare = (log.by_position[:, 0] >= CERTAIN) & (of_log < CERTAIN).any(axis=1)
    return ours[rows, log.item] / p, bare


def on_lists(
    probabilities: Float[np.ndarray, "n I"],
    scores: Float[np.ndarray, "n I"],
    k: Int[np.ndarray, " n"],
) -> Float[np.ndarray, "n I"]:
    """Compute the probability that each tool is on a list: chosen, or one of the best of the rest.

    Args:
      probabilities: probability that each tool is chosen [n, I].
      scores: scores by which the rest is ranked [n, I].
      k: length of each list [n].

    Returns:
      [n, I].
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    above = rank < k[:, None] - 1  # on the list for every choice
    last = rank == k[:, None] - 1  # on the list unless a lower one is chosen
    chosen_above = (probabilities * above).sum(axis=1, keepdims=True)
    return np.where(above, 1.0, np.minimum(1.0, probabilities + last * chosen_above))
