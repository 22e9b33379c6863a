"""The same texts in another encoder, and rows learnt with the first aligned to it."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import jaxret as jr
from experiments.transfer.align import procrustes
from experiments.transfer.protocols import Protocol
from jaxret.learners.grid import LearnerGrid
from jaxret.rules.projections import Projection, project
from jaxret.task import Task

# Ways to use learnt rows with the other encoder, and the corresponding result without learning.
WAYS = {
    "as_they_are": "as_they_are_static",
    "rotated": "rotated_static",
    "change": "static",
    "relearnt": "static",
}


class Other(NamedTuple):
    """The task and the alignment of the other encoder."""

    protocol: Protocol
    rotation: Float[np.ndarray, "S a b"]  # rotation of each seed, from its streamed queries
    scale: Float[np.ndarray, " S"]
    projection: Projection

    def aligned(
        self, theta: Float[np.ndarray, "S I a"], theta_1: Float[np.ndarray, "I a"]
    ) -> dict[str, Float[np.ndarray, "S I b"]]:
        """Convert learnt rows and their documents to rows for this encoder's queries.

        Returns:
          ``rotated``, the rotated rows; ``change``, this encoder's documents plus the rotated
          change; and ``as_they_are`` if the widths agree. All are projected.
        """
        start = self.protocol.task.theta
        change = self.scale[:, None, None] * (theta - theta_1) @ self.rotation
        ways = {"rotated": theta @ self.rotation, "change": start + change}
        if theta_1.shape[1] == start.shape[1]:
            ways["as_they_are"] = theta
        put = jax.jit(jax.vmap(partial(project, self.projection)))
        return {way: np.asarray(put(jnp.asarray(rows))) for way, rows in ways.items()}

    def serve(
        self, theta: Float[np.ndarray, "S I a"], theta_1: Float[np.ndarray, "I a"]
    ) -> dict[str, np.ndarray]:
        """Compute nDCG of this encoder's held-out queries by aligned rows, per seed."""
        rows, heldout = self.aligned(theta, theta_1), self.protocol.parts.heldout
        return {way: self.protocol.ndcg(rows[way], heldout) for way in rows}

    def static(self, theta_1: Float[np.ndarray, "I a"]) -> dict[str, np.ndarray]:
        """Compute nDCG without learning, by this encoder's documents and by the first's."""
        found = self.serve(np.stack([theta_1] * len(self.scale)), theta_1)
        return {WAYS[way]: values for way, values in found.items()}

    def relearnt(self, name: str, grid: LearnerGrid) -> Float[np.ndarray, " S"]:
        """Compute nDCG by rows learnt with this encoder on the same stream, tuned for it."""
        protocol, parts = self.protocol, self.protocol.parts
        step = f"{name}-relearnt"

        def compute():
            swept = jr.sweep(
                grid,
                protocol.task,
                part=parts.training,
                resume=protocol.run.resume(step),
                **protocol.stream,
            )
            ran = swept.best(on=parts.validation, metric=protocol.metric)
            return {"heldout": protocol.ndcg(ran, parts.heldout)}

        return protocol.run.result(step, compute)["heldout"]


def bridge(protocol: Protocol, second: Task, projection: Projection) -> tuple[Other, np.ndarray]:
    """Fit the rotation to the other encoder on documents and streamed queries.

    Documents and queries are centred separately: the mean of a kind does not distinguish tools, and
    the means of two encoders can be far apart.

    Returns:
      The other encoder, and the mean cosine [S] between rotated held-out queries and those of the
      second encoder, both minus the mean of streamed queries: 1 for a lossless rotation.
    """
    tasks, parts = (protocol.task, second), protocol.parts

    def centred(task, some, streamed):
        return task.queries[some] - task.queries[streamed].mean(axis=0)

    def fit():
        found = []
        for streamed in parts.training:
            queries = [centred(task, streamed, streamed) for task in tasks]
            tools = [task.theta - task.theta.mean(axis=0) for task in tasks]
            found.append(align(*map(np.concatenate, zip(tools, queries, strict=True))))
        rotations, scales = zip(*found, strict=True)
        return {"rotation": np.stack(rotations), "scale": np.stack(scales)}

    align = jax.jit(procrustes)
    fitted = protocol.run.result("rotation", fit)
    cosines = []
    for i, rotation in enumerate(fitted["rotation"]):
        one, two = (centred(task, parts.heldout[i], parts.training[i]) for task in tasks)
        sides = one @ rotation, two
        one, two = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
        cosines.append((one * two).sum(axis=1).mean())
    own = replace(protocol, task=second)
    return Other(own, fitted["rotation"], fitted["scale"], projection), np.array(cosines)
