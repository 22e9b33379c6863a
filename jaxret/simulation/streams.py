"""Orders of a stream: exposures, and the hops of questions that need several tools.

An order is an array of positions of queries, made once on the host; it is data to a program.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.runtime.validate import require
from jaxret.task import Task


def seed_numbers(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the seeds.

    Raises:
      ValueError: if there is no seed, a repeated one, or one outside 0 .. 2^31 - 1.
    """
    numbers = tuple(range(seeds)) if isinstance(seeds, int | np.integer) else tuple(seeds)
    require(
        "seeds",
        seeds,
        "how many, 1 or more, or different numbers from 0 to 2^31 - 1",
        lambda _: (
            numbers
            and len({*numbers}) == len(numbers)
            and 0 <= min(numbers) <= max(numbers) < 2**31
        ),
    )
    return numbers


def stream_orders(
    task: Task,
    exposures: int,
    seeds: Sequence[int],
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    rounds: int | None = None,
    hops: bool = False,
    order: Int[np.ndarray, "*S T"] | None = None,
) -> Int[np.ndarray, "S T"]:
    """Return the order in which each seed streams the queries of a task.

    Args:
      task: task of N queries.
      exposures: number of times that each query is streamed, >= 1.
      seeds: S seeds.
      part: mask of the queries to stream, [N] or [S, N]; None: all queries.
      rounds: length at which streams are cut; None: streams are not cut.
      hops: whether the queries of a group are streamed consecutively.
      order: positions [T] or [S, T], padded with -1; replaces all of these but ``rounds``.

    Returns:
      Positions [S, T], padded with -1.

    Raises:
      ValueError: if the task has no queries, ``part`` has another shape or no query for a seed,
        ``rounds`` is below 1, or ``order`` does not fit.
    """
    task.require_queries()
    require("rounds", rounds, "None or >= 1", lambda n: n is None or n >= 1)
    if order is not None:
        if part is not None or exposures != 1 or hops:
            raise ValueError("order goes with neither part nor exposures nor hops: leave them out")
        given = np.asarray(order)
        rows = np.broadcast_to(given, (len(seeds), given.shape[-1]))
        allowed = f"positions in -1 .. {len(task) - 1}, [T] or [{len(seeds)}, T]"
        require("order", given, allowed, lambda x: x.size and -1 <= x.min() <= x.max() < len(task))
        return rows[:, :rounds].astype(np.int32)
    require("exposures", exposures, "a whole number >= 1", lambda n: n == int(n) and n >= 1)
    mask = np.ones(len(task), bool) if part is None else np.asarray(part, bool)
    shapes = ((len(task),), (len(seeds), len(task)))
    require("the shape of part", mask.shape, f"{shapes[0]} or {shapes[1]}", shapes.__contains__)
    require("part", part, "True for a query or more of each seed", lambda _: mask.any(-1).all())
    groups = task.groups if hops else None
    return _orders(mask, int(exposures), seeds, groups)[:, :rounds]


def exposures(n: int, times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Order n queries ``times`` times, reshuffled each time   (ORAG C.3).

    One exposure is a deployment that sees each query once; several are the paper's
    'multiple exposure', which is closer to training in epochs.

    Args:
      n: number of queries, >= 1.
      times: E, number of times that each query is streamed, >= 1.
      seed: seed of the shuffles.

    Returns:
      Positions [E n].

    Raises:
      ValueError: if ``n`` or ``times`` is below 1.
    """
    require("n", n, ">= 1", lambda x: x >= 1)
    require("times", times, ">= 1", lambda x: x >= 1)
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(n) for _ in range(times)]).astype(np.int32)


def hops(question: Int[np.ndarray, " N"], times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Order questions at random, with the hops of each question consecutive   (Algorithm 4).

    Algorithm 4 is Algorithm 1 on this stream, with an update after every hop; only successes are
    counted by question (`Run.complete`).

    Args:
      question: question of each hop [N]; the hops of a question are consecutive, in their order.
      times: E, number of times that each question is streamed, >= 1; reshuffled each time.
      seed: seed of the shuffles.

    Returns:
      Positions [E N].

    Raises:
      ValueError: if the hops of a question are not consecutive, or ``times`` is below 1.
    """
    require("times", times, ">= 1", lambda x: x >= 1)
    question = np.asarray(question)
    starts = np.flatnonzero(np.r_[True, question[1:] != question[:-1]])
    if len(np.unique(question)) != len(starts):
        raise ValueError("the hops of a question must be consecutive: sort them by question")
    runs = np.split(np.arange(len(question), dtype=np.int32), starts[1:])
    rng = np.random.default_rng(seed)
    return np.concatenate([runs[i] for _ in range(times) for i in rng.permutation(len(runs))])


def _orders(
    streamed: Bool[np.ndarray, "*S N"],
    times: int,
    seeds: Sequence[int],
    question: Int[np.ndarray, " N"] | None,
) -> Int[np.ndarray, "S T"]:
    """Order the streamed queries for each seed; with questions, their hops stay together."""

    def order(mask, seed):
        rows = np.flatnonzero(mask)
        if question is None:
            return rows[exposures(len(rows), times, seed)]
        return rows[hops(question[rows], times, seed)]

    masks = np.broadcast_to(streamed, (len(seeds), streamed.shape[-1]))
    found = [order(*one) for one in zip(masks, seeds, strict=True)]
    longest = max(map(len, found))
    return np.stack([np.pad(x, (0, longest - len(x)), constant_values=-1) for x in found])


def by_question(
    values: np.ndarray, question: np.ndarray, *, exposures: int = 1
) -> Float[np.ndarray, "E Q"]:
    """Compute whether all hops of each question succeeded, separately for each exposure.

    Args:
      values: success of each round [T], 0 or 1.
      question: number of each round's question [T].
      exposures: number E of times that the stream has every hop, all once before any again.

    Returns:
      1 where all hops succeeded, else 0 [E, Q], with questions in the order of their numbers.

    Raises:
      ValueError: if T is not a multiple of ``exposures``.
    """
    rounds = len(values)
    allowed = f">= 1 and a divisor of the {rounds} rounds"
    require("exposures", exposures, allowed, lambda n: n >= 1 and rounds % n == 0)
    questions, position = np.unique(question, return_inverse=True)
    failed = np.zeros((exposures, len(questions)))
    exposure = np.repeat(np.arange(exposures), rounds // exposures)
    np.add.at(failed, (exposure, position), 1.0 - np.asarray(values, np.float64))
    return (failed == 0).astype(np.float64)
