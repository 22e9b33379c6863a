"""Random catalogues whose queries lie nearer to their tool than to most others.

Letters: I items, d width, N queries, T rounds.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.benchmarks.gpu.settings import Size
from jaxret.learners.learner import Learner
from jaxret.learners.presets import orag
from jaxret.rules import projections
from jaxret.types import State, Stream

TAU, ETA = 0.02, 1e-4
QUERIES = 4096  # at most
PRECISIONS = {  # of products, as JAX names them: the inputs twice, and what is summed in
    "float32": "F32_F32_F32",
    "tf32": "TF32_TF32_F32",  # a GPU's alone
    "bfloat16": "BF16_BF16_F32",
}


class Problem(NamedTuple):
    """A catalogue and the queries that are streamed."""

    theta: Float[Array, "I d"]
    stream: Stream


def algorithm_1(tau: Any = TAU, eta: Any = ETA) -> Learner:
    """ORAG's Algorithm 1 without its optional projection: what PyTorch is asked to do too."""
    return orag(tau=tau, eta=eta, projection=projections.none())


def on_gpu() -> bool:
    """Whether JAX computes on one."""
    return jax.default_backend() == "gpu"


def precisions() -> dict[str, str]:
    """Those of `PRECISIONS` that this machine has."""
    return {name: said for name, said in PRECISIONS.items() if on_gpu() or name != "tf32"}


def usual_name() -> str:
    """The precision of what is measured in one alone, and of the goals."""
    return "tf32" if on_gpu() else "float32"


def usual() -> str:
    """The same as JAX names it."""
    return PRECISIONS[usual_name()]


def problem(size: Size, rounds: int, seed: int = 0) -> Problem:
    """T rounds over at most `QUERIES` queries, each with one right tool.

    The cosine of a query with its tool is 1.2 times the largest that is expected of the others, so
    that a rule is right in a good part of the rounds and learns in all of them.
    """
    n = min(rounds, QUERIES)
    theta, queries, labels = _drawn(size.items, size.width, n, jax.random.key(seed))
    order = jnp.arange(rounds, dtype=jnp.int32) % n
    return Problem(theta, Stream(queries=queries, labels=labels, order=order))


def start(learner: Learner, found: Problem) -> State:
    """The state before the first round."""
    return learner.init(found.theta, jnp.ones(len(found.theta), bool))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _drawn(items, width, n, key):
    of_tools, of_queries, of_labels = jax.random.split(key, 3)
    theta = _unit(jax.random.normal(of_tools, (items, width)))
    labels = jax.random.randint(of_labels, (n,), 0, items)
    cosine = jnp.minimum(1.2 * jnp.sqrt(2 * jnp.log(items) / width), 0.9)
    noise = _unit(jax.random.normal(of_queries, (n, width)))
    queries = _unit(cosine * theta[labels] + jnp.sqrt(1 - cosine**2) * noise)
    return theta, queries, labels[:, None].astype(jnp.int32)


def _unit(rows):
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
