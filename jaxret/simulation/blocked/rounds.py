"""The rounds of one block, and the kernel through which they access the learner.

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

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.environments.environment import (
    Environment,
    available_at,
    labels_at,
    queries_at,
    respond,
)
from jaxret.rules.offsets import dense
from jaxret.rules.policies import Policy
from jaxret.runtime.over_items import Axis
from jaxret.simulation.scan import round_keys
from jaxret.simulation.trace import measure, of_item, reported
from jaxret.types import Choice, Feedback, Prior, PRNGKey, State, Stream, Trace


class Rounds(NamedTuple):
    """The inputs of a block's rounds, known before the block is simulated; fields [B]."""

    t: Int[Array, " B"]  # the number of each round
    query: Int[Array, " B"]  # position in the stream's queries
    vectors: Float[Array, "B d"]  # the queries
    prior: Prior | None  # prior scores of some items, fields [B, K]; None: there are none
    scores: Float[Array, "B I"] | None  # prior score of every item of this device
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

    def begin(self, state: State, rounds: Rounds, axis: Axis) -> tuple[Any, Any]:
        """Compute the matrix products of a block.

        Args:
          state: state before the block.
          rounds: rounds of the block, fields [B].
          axis: the mesh axis of the items, inside shard_map; else None.

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

    def confidence(self, carry: Any, logits: Float[Array, " I"]) -> Float[Array, " I"] | None:
        """Compute the calibrated probability that each item works; None unless it is predicted.

        Args:
          carry: carry of the tile before the round.
          logits: logits of the round [I].

        Returns:
          [I], or None.
        """
        return None

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


def run_block(
    kernel: Kernel,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    order: Int[Array, " B"],
    tile: int,
    axis: Axis,
    *,
    oracle: bool,
) -> tuple[State, Trace]:
    """Simulate one block.

    Args:
      kernel: blocked form of the learner.
      state: state before the block; ``state.t`` is its first round.
      environment: environment of the rounds.
      stream: queries and their labels.
      key: random key of the whole run.
      order: positions of the queries [B], -1 for padding.
      tile: b, rounds between two reads of the pending updates; divides B.
      axis: the mesh axis of the items, inside shard_map; else None.
      oracle: whether the learner is given the labels.

    Returns:
      The state after the block, and its trace [B].
    """
    rounds = _rounds(state, environment, stream, key, order, axis)
    constants, carry = kernel.begin(state, rounds, axis)

    def run_tile(carry, xs):
        first, now = xs
        lines, fresh = kernel.open(constants, carry, first, tile)
        play = partial(_play, kernel, oracle, environment, state.available, axis, lines)
        fresh, (logits, choice, reward, success, sure) = lax.scan(
            play, fresh, (jnp.arange(tile), now)
        )
        info = jax.vmap(lambda z, labels: measure(z, labels, axis))(logits, now.labels)
        played = {"reward": reward, "success": success, "confidence": sure}
        trace = Trace(**choice._asdict(), **played, **info._asdict())
        return kernel.close(carry, fresh, first), trace

    played = rounds._replace(prior=None, scores=None)
    tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), played)
    starts = jnp.arange(0, len(order), tile)
    carry, trace = lax.scan(run_tile, carry, (starts, tiles))
    state = kernel.end(state, constants, carry, rounds, axis)
    return state, jax.tree.map(lambda x: x.reshape(-1), trace)


def _play(
    kernel: Kernel,
    oracle: bool,
    environment: Environment,
    available: Bool[Array, " I"],
    axis: Axis,
    lines: Any,
    carry: Any,
    xs: tuple,
) -> tuple[Any, tuple]:
    """Simulate one round with the carry of its tile."""
    position, now = xs
    act_key, respond_key = now.keys
    turn = Turn(position, now.t, now.real, available_at(environment, now.t, available))
    logits, computed = kernel.logits(carry, lines, turn, axis)
    slate = kernel.policy.show(act_key, logits, axis)
    choice, feedback, success = respond(environment, respond_key, slate, now.labels, now.query)
    sure = of_item(kernel.confidence(carry, logits), choice.item, axis)
    seen = feedback._replace(labels=now.labels) if oracle else feedback
    carry = kernel.learn(carry, lines, turn, computed, choice, seen, axis)
    return carry, (logits, choice, reported(feedback), success, sure)


def _rounds(
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
    order: Int[Array, " B"],
    axis: Axis,
) -> Rounds:
    """Gather the inputs of a block's rounds."""
    real, query = order >= 0, jnp.maximum(order, 0)
    t = state.t + jnp.cumsum(real, dtype=state.t.dtype) - real
    labels = jax.vmap(partial(labels_at, environment))(t, query, stream.labels[query])
    vectors = jax.vmap(partial(queries_at, environment))(t, query, stream.queries[query])
    prior = jax.tree.map(lambda x: x[query], stream.prior)
    scores = None if prior is None else dense(prior, state.theta[:, 0], axis)
    return Rounds(t, query, vectors, prior, scores, labels, round_keys(key, t), real)
