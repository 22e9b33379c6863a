"""The interface of the kernels: all that a block of rounds asks of its learner.

    constants, carry <- begin       before the first round of a block
    lines, carry     <- open        before the first round of a tile
    z, computed      <- logits      then the policy shows items, and the environment responds
    carry            <- learn       from the feedback of the round
    carry            <- close       after the last round of a tile
    state            <- end         after the last round of the block

The types of ``constants``, ``lines`` and ``carry`` are the kernel's own. Tiles of a few rounds keep
the work of a round in cache.

Letters: I items, d width, L labels, B rounds per block, b rounds per tile.
"""

from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int

from jaxret.rules.policies import Policy
from jaxret.runtime.over_items import Axis
from jaxret.types import Choice, Feedback, State


class Rounds(NamedTuple):
    """The inputs of a block's rounds, known before the block is simulated; fields [B]."""

    t: Int[Array, " B"]  # the number of each round
    query: Int[Array, " B"]  # position in the stream's queries
    vectors: Float[Array, "B d"]  # the queries
    labels: Int[Array, "B L"]  # the right items, -1 pads
    keys: tuple  # random keys of `act` and of the environment
    real: Bool[Array, " B"]  # False for padding, where nothing happens


class Turn(NamedTuple):
    """A round that is being simulated."""

    position: Int[Array, ""]  # position of the round in its tile
    t: Int[Array, ""]  # number of the round
    real: Bool[Array, ""]  # False for padding
    available: Bool[Array, " I"]  # mask of the available items


class Kernel(Protocol):
    """The blocked form of one learner."""

    @property
    def policy(self) -> Policy:
        """Return the policy of the learner."""
        ...

    def begin(self, state: State, rounds: Rounds) -> tuple[Any, Any]:
        """Compute the matrix products of a block.

        Args:
          state: state before the block.
          rounds: rounds of the block, fields [B].

        Returns:
          The constants of the block, and the carry before its first round.
        """
        ...

    def open(self, constants: Any, carry: Any, first: Int[Array, ""], tile: int) -> tuple[Any, Any]:
        """Read the lines of a tile.

        Args:
          constants: constants of the block.
          carry: carry of the block before the tile.
          first: position of the tile's first round in the block [].
          tile: b, rounds of the tile.

        Returns:
          The lines of the tile, and its carry, with no pending updates.
        """
        ...

    def logits(
        self, carry: Any, lines: Any, turn: Turn, axis: Axis
    ) -> tuple[Float[Array, " I"], Any]:
        """Compute the logits of a round, minus infinity where an item is absent.

        Args:
          carry: carry of the tile before the round.
          lines: lines of the tile.
          turn: the round.
          axis: the mesh axis of the items, inside shard_map; else None.

        Returns:
          Logits [I], and intermediate values for `learn`.
        """
        ...

    def learn(
        self,
        carry: Any,
        lines: Any,
        turn: Turn,
        computed: Any,
        choice: Choice,
        feedback: Feedback,
        axis: Axis,
    ) -> Any:
        """Learn from the feedback of a round; change nothing without feedback.

        Args:
          carry: carry of the tile before the round.
          lines: lines of the tile.
          turn: the round.
          computed: second value that `logits` returned for the round.
          choice: the item that was used, and its propensity.
          feedback: the reward and whether it was observed; labels only for an oracle.
          axis: the mesh axis of the items, inside shard_map; else None.

        Returns:
          The carry of the tile after the round.
        """
        ...

    def close(self, carry: Any, fresh: Any, first: Int[Array, ""]) -> Any:
        """Add the pending updates of a tile to those of the block.

        Args:
          carry: carry of the block before the tile.
          fresh: carry of the tile after its last round.
          first: position of the tile's first round in the block [].

        Returns:
          The carry of the block after the tile.
        """
        ...

    def end(self, state: State, constants: Any, carry: Any, rounds: Rounds, axis: Axis) -> State:
        """Return the state after a block.

        Args:
          state: state before the block.
          constants: constants of the block.
          carry: carry of the block after its last tile.
          rounds: rounds of the block, fields [B].
          axis: the mesh axis of the items, inside shard_map; else None.

        Returns:
          The state, with all pending updates applied to the rows [I, d], and ``t`` after the block.
        """
        ...
