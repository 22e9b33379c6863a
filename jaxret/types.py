"""The vocabulary of jaxret: what flows between its files, and the letters for its shapes.

    I  items in the catalogue      d  embedding width         k  items shown in a round
    T  rounds, t a round           N  different queries       L  labels a query, padded with -1
    S  seeds                       B  rounds in a block       n  devices

Everything here is a NamedTuple of arrays: it passes through jit, vmap, scan, shard_map and
orbax as it is. Build them by keyword.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

Params: TypeAlias = Any  # nested dict[str, ... | Array]
PRNGKey: TypeAlias = Key[Array, ""]


class Catalogue(NamedTuple):
    """The item embeddings and which of the rows are there."""

    theta: Float[Array, "I d"]  # Theta_1: rows of absent or padding items are ignored
    available: Bool[Array, "I"]


class State(NamedTuple):
    """What a learner carries from round to round."""

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]  # rounds so far
    extra: Any = ()  # of a wrapper: a query map, moments, a memory of bits


class Stream(NamedTuple):
    """The queries of a run, in the order in which they arrive.

    ``order`` points into the queries, so a query that is seen E times, or a run with many
    seeds, costs no copies: seeds differ in ``order [T]`` alone.
    """

    queries: Float[Array, "N d"]
    labels: Int[Array, "N L"]  # -1 pads
    order: Int[Array, " T"]


class Slate(NamedTuple):
    """What a policy shows: k different items, best first where it ranks them."""

    items: Int[Array, " k"]
    propensity: Float[Array, " k"]  # probability with which each was shown


class Choice(NamedTuple):
    """The one item of the slate that was used, and the probability that it was chosen."""

    item: Int[Array, ""]
    propensity: Float[Array, ""]  # pi, which need not be the model's p


class Feedback(NamedTuple):
    """What came back for a choice: all that a learner is given to learn from.

    A reward lies in [0, 1]: a bit, or how well it worked. No answer is not a failure: where
    ``observed`` is False nothing is learnt. For a slate of which every item was tried, the fields
    of the `Choice` and ``reward`` are [k].
    """

    reward: Float[Array, ""]  # y, as the learner sees it: a noisy environment may have turned it
    observed: Bool[Array, ""] | bool = True
    labels: Int[Array, " L"] | None = None  # the right items, -1 pads; for oracles alone


class Trace(NamedTuple):
    """What is recorded of each round; every field is [T] (or [S, T] over seeds).

    Probabilities are the model's, before the round's update, and NaN for a learner that has none.
    Sums over rounds belong on the host, in float64.
    """

    item: Int[Array, " T"]
    propensity: Float[Array, " T"]
    reward: Float[Array, " T"]  # as the learner sees it, sooner or later; NaN: no answer came
    success: Float[Array, " T"]
    p_success: Float[Array, " T"]  # sum of p over the labels
    loss: Float[Array, " T"]  # cross-entropy, averaged over the labels that are available
    inverse_p: Float[Array, " T"]  # sum_i 1 / p_i, which Theorem B.2 needs
    logit_label: Float[Array, " T"]  # theta_label . q / tau, averaged over the labels
    logit_sum: Float[Array, " T"]  # sum_i theta_i . q / tau, over the available items


class Selector(Protocol):
    """Something outside the program that picks one of the k items shown: a reranker, a judge.

    Args:
      queries: positions of the queries of S runs.
      items: their slates.

    Returns:
      positions in the slates; of a judge whose word is the reward too, (positions, rewards).
    """

    def __call__(
        self, queries: Int[np.ndarray, " S"], items: Int[np.ndarray, "S k"]
    ) -> Int[np.ndarray, " S"] | tuple[Int[np.ndarray, " S"], Float[np.ndarray, " S"]]: ...
