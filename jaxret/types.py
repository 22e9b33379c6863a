"""The vocabulary of jaxret: what flows between its files, and the letters for its shapes.

    I  items in the catalogue      d  embedding width         k  items shown in a round
    T  rounds, t a round           N  different queries       L  labels a query, padded with -1
    S  seeds                       B  rounds in a block       n  devices

Everything here is a NamedTuple of arrays: it passes through jit, vmap, scan, shard_map and
orbax as it is. Build them by keyword.
"""

from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Array, Bool, Float, Int, Key

Params: TypeAlias = Any  # nested dict[str, ... | Array]
PRNGKey: TypeAlias = Key[Array, ""]


class Catalogue(NamedTuple):
    """The item embeddings and which of the rows are there."""

    theta: Float[Array, "I d"]  # Theta_1: rows of absent or padding items are ignored
    available: Bool[Array, "I"]


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
    """What came back for a choice."""

    reward: Float[Array, ""]  # y, the bit that the learner sees (possibly flipped)
    success: Float[Array, ""]  # the truth, for the records


class Trace(NamedTuple):
    """What is recorded of each round; every field is [T] (or [S, T] over seeds).

    Probabilities are the model's, before the round's update. Sums over rounds belong on the
    host, in float64.
    """

    item: Int[Array, " T"]
    propensity: Float[Array, " T"]
    reward: Float[Array, " T"]
    success: Float[Array, " T"]
    p_success: Float[Array, " T"]  # sum of p over the labels
    loss: Float[Array, " T"]  # cross-entropy, averaged over the labels that are available
    inverse_p: Float[Array, " T"]  # sum_i 1 / p_i, which Theorem B.2 needs
    logit_label: Float[Array, " T"]  # theta_label . q / tau, averaged over the labels
    logit_sum: Float[Array, " T"]  # sum_i theta_i . q / tau, over the available items
