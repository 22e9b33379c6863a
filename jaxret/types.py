"""The data types of jaxret, and the letters of array shapes.

    I  items in the catalogue      d  embedding width         k  items shown in a round
    T  rounds, t a round           N  different queries       L  labels per query, padded with -1
    S  seeds                       B  rounds in a block       n  devices
    K  tools with a prior score

All types are NamedTuples of arrays, which pass through jit, vmap, scan, shard_map and orbax
unchanged. Build them by keyword.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

Params: TypeAlias = Any  # nested dict[str, ... | Array]
PRNGKey: TypeAlias = Key[Array, ""]
EMPTY = -1  # item of an empty answer (`jaxret.learners.confidence.abstaining`)


class Catalogue(NamedTuple):
    """Item embeddings, and the mask of available rows.

    Attributes:
      theta: initial rows Theta_1 [I, d]; rows of absent or padding items are ignored.
      available: mask of the rows that can be shown [I].
    """

    theta: Float[Array, "I d"]
    available: Bool[Array, "I"]


class State(NamedTuple):
    """The state of a learner between rounds.

    Attributes:
      theta: item embeddings [I, d].
      available: mask of the items that can be shown [I].
      t: number of rounds so far [].
      extra: further state, such as a query map, moments or a replay buffer; () if there is none.
    """

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]
    extra: Any = ()


class Prior(NamedTuple):
    """Scores of some tools for a query, known before its feedback; all other tools have 0.

    Lexical scores are priors (`jaxret.encoders.lexical`), and so are those of a second retriever.

    Attributes:
      items: positions of the tools in the catalogue [..., K], padded with -1.
      scores: score of each of these tools [..., K], 0 for padding.
    """

    items: Int[Array, "*n K"]
    scores: Float[Array, "*n K"]


class Query(NamedTuple):
    """A query for a learner that reads priors; all other learners are given the vector alone.

    Attributes:
      vector: embedding [..., d].
      prior: scores known before the feedback.
    """

    vector: Float[Array, "*n d"]
    prior: Prior


class Stream(NamedTuple):
    """The queries of a run, in the order in which they arrive.

    Repeated queries and several seeds need no copies: seeds differ only in ``order``.
    """

    queries: Float[Array, "N d"]  # embeddings of the different queries [N, d]
    labels: Int[Array, "N L"]  # positions of the right items of each query, -1 pads; none: all -1
    order: Int[Array, " T"]  # position of the query of each round [T]
    prior: Prior | None = None  # fields [N, K]; None: the queries have no prior


class Slate(NamedTuple):
    """The k distinct items that a policy shows.

    Attributes:
      items: positions of the items in the catalogue [k], best first if they are ranked.
      propensity: probability with which each item was shown [k].
    """

    items: Int[Array, " k"]
    propensity: Float[Array, " k"]


class Choice(NamedTuple):
    """The item of the slate that was used.

    Attributes:
      item: position of the item in the catalogue [].
      propensity: probability pi of showing the item [], which may differ from the model's p.
    """

    item: Int[Array, ""]
    propensity: Float[Array, ""]


class Feedback(NamedTuple):
    """The feedback for a choice, from which a learner learns.

    If every item of a slate was tried, ``reward`` and the fields of the `Choice` are [k].

    Attributes:
      reward: reward y in [0, 1], a bit or a degree of success [], after any label noise.
      observed: whether the feedback arrived []. Missing feedback is not a failure: if False, only
        the learner's ``t`` changes.
      labels: positions of the right items [L], padded with -1 (all -1: none); only for oracles.
    """

    reward: Float[Array, ""]
    observed: Bool[Array, ""] | bool = True
    labels: Int[Array, " L"] | None = None


class Trace(NamedTuple):
    """The record of each round; every field is [T] (or [S, T] over seeds).

    Probabilities are the model's, before the round's update, and NaN for a learner without softmax.
    Sum over rounds on the host, in float64.

    Attributes:
      item: position of the item that was used; -1 for an empty answer.
      propensity: probability with which the item was shown.
      reward: reward given to the learner, in this round or later; NaN if it was never observed.
      success: 1 if the item is one of the labels, or the answer is empty and there are none.
      p_success: sum of p over the labels.
      loss: cross-entropy in nats, averaged over the labels that are available.
      inverse_p: sum_i 1 / p_i, which Theorem B.2 needs.
      logit_label: logit of the label, offsets included, averaged over the labels.
      logit_sum: sum of the logits, offsets included, over the available items.
      confidence: calibrated probability that the item works (`jaxret.learners.confidence`); NaN for
        a learner without one, and for an empty answer.
    """

    item: Int[Array, " T"]
    propensity: Float[Array, " T"]
    reward: Float[Array, " T"]
    success: Float[Array, " T"]
    p_success: Float[Array, " T"]
    loss: Float[Array, " T"]
    inverse_p: Float[Array, " T"]
    logit_label: Float[Array, " T"]
    logit_sum: Float[Array, " T"]
    confidence: Float[Array, " T"]


class Selector(Protocol):
    """Picks one of the k items shown, outside the compiled program: a reranker or a judge.

    Args:
      queries: positions of the queries of S runs.
      items: slates of the queries.

    Returns:
      Positions in the slates; from a judge that also gives the rewards, (positions, rewards).
    """

    def __call__(
        self, queries: Int[np.ndarray, " S"], items: Int[np.ndarray, "S k"]
    ) -> Int[np.ndarray, " S"] | tuple[Int[np.ndarray, " S"], Float[np.ndarray, " S"]]: ...
