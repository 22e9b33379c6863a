"""What a learner can do, as the shapes of its functions; `jaxret.online.learner` makes them.

Letters: I items, d width, L labels, N queries, n past rounds.
"""

from typing import Protocol

from jaxtyping import Array, Bool, Float, Int

from jaxret.types import Choice, PRNGKey, Slate


class Act(Protocol):
    """Chooses what to show. ``key`` is consumed."""

    def __call__(self, state, query: Float[Array, " d"], key: PRNGKey) -> Slate: ...


class Update(Protocol):
    """Learns from one bit.

    Args:
      state: as it was when the slate was shown.
      query: [d].
      choice: the item that was used, with its propensity.
      reward: the bit y.
      labels: [L], -1 pads. For `Info` and the full-information oracle; all -1 where unknown.

    Returns:
      the next state, and `Info`.
    """

    def __call__(
        self,
        state,
        query: Float[Array, " d"],
        choice: Choice,
        reward: Float[Array, ""],
        labels: Int[Array, " L"],
    ) -> tuple: ...


class Rehearse(Protocol):
    """Learns once more from n past rounds, all of them at today's state.

    Args:
      state: today's.
      queries: [n, d].
      choices: what was used then, fields [n].
      rewards: [n].
      counts: [n], 0 for a round that is to be left out, otherwise 1.

    Returns:
      the state, no round later.
    """

    def __call__(
        self,
        state,
        queries: Float[Array, "n d"],
        choices: Choice,
        rewards: Float[Array, " n"],
        counts: Float[Array, " n"],
    ): ...


class Init(Protocol):
    """Starts from item embeddings [I, d] and the mask of those that are there."""

    def __call__(self, theta: Float[Array, "I d"], available: Bool[Array, " I"]): ...


class See(Protocol):
    """Queries as a state's rows are compared with them, for rankings: [N, d] -> [N, d]."""

    def __call__(self, state, queries: Float[Array, "N d"]) -> Float[Array, "N d"]: ...
