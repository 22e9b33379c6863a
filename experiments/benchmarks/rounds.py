"""Builds the forms of a round of ORAG's Algorithm 1 that the benchmarks time, on random vectors.

    problem = random_problem(43215, 1536, rounds=2048)
    forms = {"scan": scan(problem), "blocked": blocked(problem), "floor": products(problem)}

Every form is an `experiments.benchmarks.timing.Form`: a call that returns when its result is ready,
and the work of one round. The learner is `jaxret.orag` without its optional projection, so that the
PyTorch forms do the same. Imports neither hydra nor PyTorch.

Letters: I items, d width, N queries, T rounds.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.benchmarks.timing import Form, simulation
from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.learners.presets import orag
from jaxret.rules import projections
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import BLOCK, simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.types import PRNGKey, State, Stream, Trace

TAU, ETA = 0.02, 1e-4
QUERIES = 4096  # at most
CAPTURED = 32  # rounds in one CUDA graph
ROWS = 4096  # rows sampled at a time by `unit_rows`
Simulate = Callable[..., tuple[State, Trace]]


class Problem(NamedTuple):
    """A catalogue and the queries that are streamed to it."""

    theta: Float[Array, "I d"]
    stream: Stream

    def first(self, rounds: int) -> "Problem":
        """Return the problem with a shorter stream."""
        return self._replace(stream=self.stream._replace(order=self.stream.order[:rounds]))


def random_problem(items: int, width: int, rounds: int, seed: int = 0) -> Problem:
    """Draw unit vectors and a stream of T rounds; every query has one right tool.

    The cosine of a query with its tool is 1.2 times the largest cosine expected among the other
    tools, so the learner succeeds in a good part of the rounds.

    The stream repeats its first `QUERIES` queries.
    """
    n = min(rounds, QUERIES)
    theta, queries, labels = _draw(items, width, n, jax.random.key(seed))
    order = jnp.arange(rounds, dtype=jnp.int32) % n
    return Problem(theta, Stream(queries=queries, labels=labels, order=order))


def unit_rows(rows: int, width: int, seed: int = 0) -> Float[np.ndarray, "rows d"]:
    """Draw unit vectors on the host, a few thousand at a time to keep the peak memory low."""
    rng, drawn = np.random.default_rng(seed), np.empty((rows, width), np.float32)
    for first in range(0, rows, ROWS):
        part = drawn[first : first + ROWS]
        rng.standard_normal(dtype=np.float32, out=part)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return drawn


def algorithm_1(eta: Any = ETA) -> Learner:
    """Return ORAG's Algorithm 1 without its projection, at a learning rate that may be traced."""
    return orag(tau=TAU, eta=eta, projection=projections.none())


def simulated(
    simulate: Simulate, learner: Learner, problem: Problem
) -> Callable[[], tuple[State, Trace]]:
    """Compile a simulation of a problem."""

    @jax.jit
    def run(state, stream):
        return simulate(learner, state, Environment(), stream, jax.random.key(0))

    state = learner.init(problem.theta, jnp.ones(len(problem.theta), bool))
    return lambda: jax.block_until_ready(run(state, problem.stream))


def scan(problem: Problem) -> Form:
    """Return the round-by-round simulation."""
    return _form("scan", problem, simulated(scan_rounds, algorithm_1(), problem))


def blocked(problem: Problem) -> Form:
    """Return the blocked simulation."""
    return _form("blocked", problem, simulated(simulate_blocked, algorithm_1(), problem))


def products(problem: Problem) -> Form:
    """Return the two matrix products of each block alone, which no blocked form can save.

    They are S = Q Theta^T and Theta - E^T Q, for blocks of `BLOCK` rounds.
    """

    @jax.jit
    def run(theta, stream):
        def both(theta, queries):
            scores = queries @ theta.T
            return theta - (ETA * scores).T @ queries, None

        block = min(BLOCK, len(stream.order))
        blocks = stream.queries[stream.order].reshape(-1, block, theta.shape[1])
        return jax.lax.scan(both, theta, blocks)[0]

    return _form("floor", problem, lambda: jax.block_until_ready(run(*problem)))


def grid(problem: Problem, steps: int, seeds: int) -> dict[str, Form]:
    """Return a grid of blocked runs, steps x seeds, as one program and one after another.

    Returns:
      ``one_program``, ``runs`` (each through the same compiled single run), and ``one_run``.
    """
    points = list(product(TAU * np.geomspace(1e-3, 1e-1, steps), range(seeds)))
    etas, keys = (jnp.asarray(column) for column in zip(*points, strict=True))
    columns = etas.astype(jnp.float32), keys

    def run(eta, seed):
        learner, key = algorithm_1(eta), jax.random.key(seed)
        state = learner.init(problem.theta, jnp.ones(len(problem.theta), bool))
        _, trace = simulate_blocked(learner, state, Environment(), problem.stream, key)
        return trace.success.mean()

    one, program = jax.jit(run), jax.jit(lambda *columns: sharding.sweep(run, *columns))
    each, wait = list(zip(*columns, strict=True)), jax.block_until_ready
    return {
        "one_program": _form("blocked", problem, lambda: wait(program(*columns)), len(each)),
        "runs": _form("blocked", problem, lambda: [wait(one(*run)) for run in each], len(each)),
        "one_run": _form("blocked", problem, lambda: wait(one(*each[0]))),
    }


def torch_forms(problem: Problem) -> dict[str, Callable[[], Form]]:
    """Return functions that build the PyTorch forms: in place, without autograd.

    Args:
      problem: copied to the GPU where PyTorch has one; then T is a multiple of `CAPTURED`.

    Returns:
      ``torch_eager``, and on a GPU ``torch_graphs``: `CAPTURED` rounds as a CUDA graph, replayed.
    """
    import torch

    if torch.cuda.is_available():
        builds = {"torch_eager": _torch_eager, "torch_graphs": _torch_graphs}
        return {name: partial(build, problem, "cuda") for name, build in builds.items()}
    return {"torch_eager": partial(_torch_eager, problem, "cpu")}


def torch_round(rows, query, labels) -> None:
    """Play one round of Algorithm 1 in PyTorch; nothing is copied back to the host."""
    import torch

    p = torch.softmax(torch.mv(rows, query) / TAU, dim=0)
    item = torch_draw(p)
    reward = (labels == item).any().to(p.dtype)
    p.scatter_add_(0, item, -reward / p.gather(0, item))  # Eq. (4)
    rows.addr_(p, query, alpha=-ETA / TAU)


def torch_draw(p):
    """Draw one item [1] with probabilities p [I], by the method of `torch.multinomial`."""
    import torch

    return torch.argmax(p / torch.empty_like(p).exponential_(1)).reshape(1)


def _form(name: str, problem: Problem, call: Callable[[], object], runs: int = 1) -> Form:
    return Form(call, simulation(name, *problem.theta.shape), runs * len(problem.stream.order))


def _torch_eager(problem: Problem, device: str) -> Form:
    """Return the rounds in PyTorch as one would write them."""
    rows, queries, labels, order = _tensors(problem, device)
    numbers = order.tolist()

    def run():
        with _inference(device):
            for query in numbers:
                torch_round(rows, queries[query], labels[query])
        return rows

    return _form("torch", problem, run)


def _torch_graphs(problem: Problem, device: str) -> Form:
    """Return the same rounds as replays of a CUDA graph, whose input names the queries."""
    import torch

    rows, queries, labels, order = _tensors(problem, device)
    current = order[:CAPTURED].clone()

    def several():
        for query in current.split(1):
            torch_round(rows, queries.index_select(0, query)[0], labels.index_select(0, query)[0])

    with _inference(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # a capture must follow warm-up runs on another stream
            several()
            several()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            several()

    def run():
        with _inference(device):
            for numbers in order.split(CAPTURED):
                current.copy_(numbers)
                graph.replay()
        return rows

    return _form("torch", problem, run)


@contextmanager
def _inference(device: str) -> Generator[None]:
    """Run PyTorch without autograd, and wait for the device at the end."""
    import torch

    with torch.inference_mode():
        yield
    if device == "cuda":
        torch.cuda.synchronize()


def _tensors(problem: Problem, device: str):
    import torch

    stream = problem.stream
    arrays = problem.theta, stream.queries, stream.labels, stream.order
    rows, queries, labels, order = (torch.tensor(np.asarray(x), device=device) for x in arrays)
    return rows, queries, labels.long(), order.long()


@partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(items: int, width: int, n: int, key: PRNGKey):
    of_tools, of_queries, of_labels = jax.random.split(key, 3)
    theta = _unit(jax.random.normal(of_tools, (items, width)))
    labels = jax.random.randint(of_labels, (n,), 0, items)
    cosine = jnp.minimum(1.2 * jnp.sqrt(2 * jnp.log(items) / width), 0.9)
    noise = _unit(jax.random.normal(of_queries, (n, width)))
    queries = _unit(cosine * theta[labels] + jnp.sqrt(1 - cosine**2) * noise)
    return theta, queries, labels[:, None].astype(jnp.int32)


def _unit(rows):
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
