"""Plays one learner on the streams of several seeds at once, in chunks that can be interrupted.

All streams of a learner (every setting of its grid, every protocol) share one compiled program:
settings are data, and the orders are cut into chunks of one shape. Where a model outside of it
picks from what is shown (``choose``), a round is two compiled halves with the host between them.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from experiments.common.run_directory import RunDirectory
from jaxret import sharding
from jaxret.online import rounds
from jaxret.online.blocked import simulate_blocked
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner
from jaxret.types import Stream, Trace
from jaxret.validate import require_task

Orders = list[Int[np.ndarray, "S c"]]


class Choose(Protocol):
    """Picks one of the k items shown, for each seed: queries, slates -> positions in the slates.

    A judge whose word is the bit gives (positions, bits).
    """

    def __call__(
        self, queries: Int[np.ndarray, " S"], items: Int[np.ndarray, "S k"]
    ) -> Int[np.ndarray, " S"] | tuple[Int[np.ndarray, " S"], Float[np.ndarray, " S"]]: ...


class Player:
    """One learner on S seeds.

    Args:
      run: where units go.
      make: (tau, eta) -> learner; more numbers of a setting, with defaults, come after these.
      theta_1: the item embeddings to start from.
      queries: [N, d].
      labels: [N, L].
      environment: what answers; a function of the setting where that is data too.
      seeds: S numbers, which give the draws.
      chunk: rounds a chunk.
      choose: who picks from the slate; None: the environment does.
    """

    def __init__(
        self,
        run: RunDirectory,
        make: Callable[..., Learner],
        theta_1: Float[np.ndarray, "I d"],
        queries: Float[np.ndarray, "N d"],
        labels: Int[np.ndarray, "N L"],
        environment: Environment | Callable[..., Environment],
        *,
        seeds: range,
        chunk: int,
        choose: Choose | None = None,
    ):
        require_task(theta_1, queries, labels)
        self.run, self.seeds, self.chunk = run, seeds, chunk
        rule = make(1.0, 0.0)
        self.scores, self.map_queries = rule.scores, rule.map_queries
        self._compiled = choose is None
        blocked = rule.rule is not None and rule.rule.blocked
        play = simulate_blocked if blocked else rounds.scan_rounds
        arrays = jax.tree.map(jnp.asarray, (theta_1, queries, labels))

        def answers(setting) -> Environment:
            fixed = isinstance(environment, Environment)
            return environment if fixed else environment(*setting)

        def start(arrays, setting):
            return make(*setting).init(arrays[0])

        def step(arrays, state, setting, order, seed):
            stream = Stream(queries=arrays[1], labels=arrays[2], order=order)
            key = jax.random.key(seed)
            return play(make(*setting), state, answers(setting), stream, key)

        def half(part, arrays, state, setting, seed, query, *answer):
            stream = Stream(queries=arrays[1], labels=arrays[2], order=query)
            world = (answers(setting), stream, query, jax.random.key(seed))
            return part(make(*setting), state, *world, *answer)

        mesh = sharding.run_mesh(len(seeds))

        def compiled(part):  # the data are arguments: as constants they would be compiled
            sweep = jax.jit(
                lambda data, *args: sharding.sweep(partial(part, data), *args, mesh=mesh)
            )
            return partial(sweep, arrays)

        self._start = compiled(start)
        if choose is None:
            self._step = compiled(step)
        else:
            show, learn = (
                compiled(partial(half, part)) for part in (rounds.show_slate, rounds.learn)
            )
            self._step = partial(_by_hand, show, learn, choose)
        self._seeds = jnp.asarray(seeds)

    def setting(self, *numbers: float) -> Float[jax.Array, "S n"]:
        """The same numbers (tau, eta, more where ``make`` takes more) for every seed."""
        return jnp.tile(jnp.array(numbers, jnp.float32), (len(self.seeds), 1))

    def cut(self, orders: Int[np.ndarray, "S T"]) -> Orders:
        """Chunks, all of one shape: -1 fills the last one, unless the host picks round by round."""
        fill = -orders.shape[1] % self.chunk if self._compiled else 0
        orders = np.pad(orders.astype(np.int32), ((0, 0), (0, fill)), constant_values=-1)
        return [orders[:, i : i + self.chunk] for i in range(0, orders.shape[1], self.chunk)]

    def start(self, setting: Float[jax.Array, "S n"]) -> Any:
        """The states of all seeds."""
        return self._start(setting)

    def step(self, states: Any, setting: Float[jax.Array, "S n"], order: np.ndarray) -> tuple:
        """One chunk: the new states and its trace."""
        self.run.rounds += int((order >= 0).sum())
        return self._step(states, setting, order, self._seeds)

    def record(
        self,
        name: str,
        setting: Float[jax.Array, "S n"],
        orders: Int[np.ndarray, "S T"],
        finish: Callable[[Any], Mapping[str, np.ndarray]],
    ) -> dict[str, np.ndarray]:
        """Plays a stream as a unit that records every round and keeps the last state.

        Args:
          name: of the unit.
          setting: the numbers of each seed.
          orders: the stream of each seed.
          finish: the last states -> more to keep.

        Returns:
          the fields of `Trace` and ``order``, [S, T]; ``microseconds [S]``, the time of a round
          (NaN where someone else picks); and what ``finish`` gave.
        """
        chunks, rounds = self.cut(orders), orders.shape[1]

        def start():
            states = self.start(setting)
            length = sum(chunk.shape[1] for chunk in chunks)
            kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
            trace = Trace._make(np.zeros((len(orders), length), kind) for kind in kinds.values())
            return {"learner": states, "trace": trace}

        def step(state, number):
            states, trace = self.step(state["learner"], setting, chunks[number])
            first = sum(chunk.shape[1] for chunk in chunks[:number])
            for whole, part in zip(state["trace"], trace, strict=True):
                whole[:, first : first + part.shape[1]] = part
            return {"learner": states, "trace": state["trace"]}

        def done(state):
            seconds = math.nan
            if self._compiled:
                begin = time.perf_counter()  # the first chunk once more: compiled, on the clock
                jax.block_until_ready(self.step(self.start(setting), setting, chunks[0]))
                seconds = time.perf_counter() - begin
            trace = {key: x[:, :rounds] for key, x in state["trace"]._asdict().items()}
            return {
                **trace,
                **finish(state["learner"]),
                "order": orders,
                "microseconds": np.full(len(orders), 1e6 * seconds / (chunks[0] >= 0).sum()),
            }

        return self.run.unit(
            name, chunks=len(chunks), start=start, step=step, finish=done, keep_state=True
        )


def _by_hand(show, learn, choose: Choose, states, setting, order, seeds) -> tuple:
    """A chunk, the host picking in every round."""
    lines = []
    for queries in order.T:
        slate = show(states, setting, seeds, queries)
        picked = choose(queries, np.asarray(slate.items))
        position, bit = picked if isinstance(picked, tuple) else (picked, None)
        states, line = learn(states, setting, seeds, queries, slate, position, bit)
        lines.append(jax.tree.map(np.asarray, line))
    return states, jax.tree.map(lambda *x: np.stack(x, axis=1), *lines)
