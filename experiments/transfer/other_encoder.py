"""The same texts in another encoder, and rows learnt with the first aligned to it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxret.simulation.choosing import tune
from jaxret.simulation.ranker import Ranker, catalogues
from jaxtyping import Float

from experiments.common.loading import TextTask
from experiments.transfer.align import procrustes
from experiments.transfer.protocols import NDCG, Stage
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.rules.projections import Projection, project

# How rows come to serve the other encoder, and the result in which nothing was learnt.
WAYS = {
    "as_they_are": "as_they_are_static",
    "rotated": "rotated_static",
    "change": "static",
    "relearnt": "static",
}


class Other(NamedTuple):
    """The other encoder's side."""

    stage: Stage
    rotation: Float[np.ndarray, "S a b"]  # a seed's, by the queries that it streams
    scale: Float[np.ndarray, " S"]
    projection: Projection

    def aligned(
        self, theta: Float[np.ndarray, "S I a"], theta_1: Float[np.ndarray, "I a"]
    ) -> dict[str, Float[np.ndarray, "S I b"]]:
        """Learnt rows, and the documents that they come from, as rows for this encoder's queries.

        Returns:
          ``rotated``, the rows; ``change``, this encoder's documents with the rotated change; and
          ``as_they_are`` where the widths agree. All are put where the projection wants them.
        """
        start = self.stage.task.theta
        change = self.scale[:, None, None] * (theta - theta_1) @ self.rotation
        ways = {"rotated": theta @ self.rotation, "change": start + change}
        if theta_1.shape[1] == start.shape[1]:
            ways["as_they_are"] = theta
        put = jax.jit(jax.vmap(partial(project, self.projection)))
        return {way: np.asarray(put(jnp.asarray(rows))) for way, rows in ways.items()}

    def serve(
        self, theta: Float[np.ndarray, "S I a"], theta_1: Float[np.ndarray, "I a"]
    ) -> dict[str, np.ndarray]:
        """nDCG of this encoder's held-out queries by aligned rows, of each seed."""
        rows, heldout = self.aligned(theta, theta_1), self.stage.parts.heldout
        return {way: self.stage.ndcg(catalogues(*rows[way]), heldout) for way in rows}

    def static(self, theta_1: Float[np.ndarray, "I a"]) -> dict[str, np.ndarray]:
        """The same where nothing was learnt: by this encoder's documents, and by the first's."""
        found = self.serve(np.stack([theta_1] * len(self.scale)), theta_1)
        return {WAYS[way]: values for way, values in found.items()}

    def relearnt(self, name: str, grid: LearnerGrid) -> Float[np.ndarray, " S"]:
        """The same by rows learnt with this encoder on the same stream, tuned for it."""
        stage, parts = self.stage, self.stage.parts
        simulation, stream = stage.simulation(grid, Environment()), stage.stream(parts.training)
        found = tune(
            stage.run.unit(f"{name}-relearnt"),
            *(grid, simulation, stage.ranker, stream),
            validation=parts.validation,
            ranked={"heldout": parts.heldout},
        )
        return found["heldout"][found["best"], np.arange(len(stage.seeds)), NDCG]


def bridge(stage: Stage, second: TextTask, projection: Projection) -> tuple[Other, np.ndarray]:
    """The other side, its rotation fitted on documents and streamed queries.

    Documents and queries are centred, each kind by itself: the mean of a kind is the same for all
    tools, and of two encoders the means can be far apart.

    Returns:
      it, and ``[S]`` the mean cosine between rotated held-out queries and those of the second
      encoder, both less the mean of the streamed ones: 1 where the rotation loses nothing.
    """
    tasks, parts = (stage.task, second), stage.parts

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
    fitted = stage.run.result("rotation", fit)
    cosines = []
    for i, rotation in enumerate(fitted["rotation"]):
        one, two = (centred(task, parts.heldout[i], parts.training[i]) for task in tasks)
        sides = one @ rotation, two
        one, two = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
        cosines.append((one * two).sum(axis=1).mean())
    there = stage._replace(task=second, ranker=Ranker(second, stage.k))
    return Other(there, fitted["rotation"], fitted["scale"], projection), np.array(cosines)
