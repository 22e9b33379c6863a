"""The data types of jaxret, and the letters of array shapes.

    I  items in the catalogue      d  embedding width         k  items shown in a round
    T  rounds, t a round           N  different queries       L  labels per query, padded with -1
    S  seeds                       B  rounds in a block       n  devices

All types are NamedTuples of arrays, which pass through jit, vmap, scan, shard_map and orbax
unchanged. Build them by keyword.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

Params: TypeAlias = Any  # nested dict[str, ... | Array]
PRNGKey: TypeAlias = Key[Array, ""]


class Catalogue(NamedTuple):
    """Item embeddings, and the mask of available rows."""

    theta: Float[Array, "I d"]  # Theta_1: rows of absent or padding items are ignored
    available: Bool[Array, "I"]


class State(NamedTuple):
    """The state of a learner between rounds."""

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]  # rounds so far
    extra: Any = ()  # further state: a query map, moments, a replay buffer


class Stream(NamedTuple):
    """The queries of a run, in the order in which they arrive.

    ``order`` holds positions of queries, so repeated queries and several seeds need no copies:
    seeds differ only in ``order [T]``.
    """

    queries: Float[Array, "N d"]
    labels: Int[Array, "N L"]  # -1 pads
    order: Int[Array, " T"]


class Slate(NamedTuple):
    """The k distinct items that a policy shows, best first if ranked."""

    items: Int[Array, " k"]
    propensity: Float[Array, " k"]  # probability with which each was shown


class Choice(NamedTuple):
    """The item of the slate that was used, and the probability that it was chosen."""

    item: Int[Array, ""]
    propensity: Float[Array, ""]  # pi, which may differ from the model's p


class Feedback(NamedTuple):
    """The feedback for a choice, from which a learner learns.

    A reward is in [0, 1], a bit or a degree of success. Missing feedback is not a failure: if
    ``observed`` is False, only ``t`` changes. If every item of a slate was tried, the
    fields of the `Choice` and ``reward`` are [k].
    """

    reward: Float[Array, ""]  # y, after any label noise of the environment
    observed: Bool[Array, ""] | bool = True
    labels: Int[Array, " L"] | None = None  # the right items, -1 pads; only for oracles


class Trace(NamedTuple):
    """The record of each round; every field is [T] (or [S, T] over seeds).

    Probabilities are the model's, before the round's update, and NaN for a learner without softmax.
    Sum over rounds on the host, in float64.
    """

    item: Int[Array, " T"]
    propensity: Float[Array, " T"]
    reward: Float[Array, " T"]  # as given to the learner, perhaps later; NaN: unobserved
    success: Float[Array, " T"]
    p_success: Float[Array, " T"]  # sum of p over the labels
    loss: Float[Array, " T"]  # cross-entropy, averaged over the labels that are available
    inverse_p: Float[Array, " T"]  # sum_i 1 / p_i, which Theorem B.2 needs
    logit_label: Float[Array, " T"]  # theta_label . q / tau, averaged over the labels
    logit_sum: Float[Array, " T"]  # sum_i theta_i . q / tau, over the available items


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
