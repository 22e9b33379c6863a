"""ToolRefiner: query tokens and candidate tools in one sequence, with a logit for each tool.

    x = [embed(tokens), inject(P v_1), .., inject(P v_N)];   logit_j = w . run(x)_{L + j} + b

One pass scores all N candidates, which attend to the query and to each other (Tool2Vec, Section
4.3). The ``positions`` of the tools in the sequence are a setting, ``places``:

    shared      all tools have the position after the query's last token, so the network is
                equivariant to permutations of the candidates.
    rank        the j-th candidate is j positions further on, so the network depends on the order of
                the candidates, which must be the first stage's also in use.
    reference   as in the paper's code: the closing token and the tools are after the padding, so
                the distance between query and tools, and every score, depends on the longest text
                of the batch.

The initial projection P:

    identity    0.2 sqrt(H) I (ours): keeps the directions of the vectors, with the same mean length
                as "normal". A tool that is a mean of queries keeps directions that the encoder may
                know.
    normal      N(0, 0.2^2), the reference's, which maps every vector to a random direction.

Letters: B queries, L tokens, N candidates, d width of the tools' vectors, H hidden width.
"""

from typing import Literal

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.backbone import Backbone
from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute, fold, linear
from jaxret.types import PRNGKey

Places = Literal["shared", "rank", "reference"]
Projection = Literal["identity", "normal"]
DEVIATION = 0.2  # deviation of the projection's initial weights


def refiner(
    backbone: Backbone,
    width: int,
    *,
    places: Places = "shared",
    projection: Projection = "identity",
    compute: Compute = Compute(),
) -> Module:
    """Build a network that computes a logit for each candidate tool of a query.

    ``apply(params, ids, mask, tools, candidates, key=None)`` returns float32 logits [B, N].
    ``ids [B, L]`` are tokens with their closing token, padded at the end, ``mask [B, L]`` is False
    for padding, ``tools [B, N, d]`` are the candidates' vectors and ``candidates [B, N]`` is False
    for missing candidates, which have no influence and undefined logits.

    Args:
      backbone: network that reads the sequence; L + N may not exceed BERT's positions.
      width: d, the width of the tools' vectors.
      places: positions of the tools: "shared" after the last token, "rank" consecutively from
        there, "reference" after the padding.
      projection: initial projection of the tools' vectors: "identity" or random ("normal").
      compute: dtypes, checkpointing, dropout. The reference trains without dropout.
    """
    return functionalize(
        lambda rngs: Refiner(backbone, width, places, projection, compute, rngs=rngs)
    )


def _identity(key: PRNGKey, shape: tuple[int, int], dtype: jnp.dtype) -> Float[Array, "d H"]:
    return DEVIATION * shape[1] ** 0.5 * jnp.eye(*shape, dtype=dtype)


STARTS = {"identity": _identity, "normal": nnx.initializers.normal(DEVIATION)}


class Refiner(nnx.Module):
    def __init__(
        self,
        backbone: Backbone,
        width: int,
        places: Places,
        projection: Projection,
        compute: Compute,
        *,
        rngs: nnx.Rngs,
    ):
        hidden = backbone.config.hidden
        self.backbone = backbone.build(compute, rngs)
        start, dtype = STARTS[projection], jnp.dtype(compute.dtype)
        self.projection = nnx.Linear(width, hidden, kernel_init=start, dtype=dtype, rngs=rngs)
        self.score = linear(hidden, 1, compute, rngs)
        self.places = places

    def __call__(
        self,
        ids: Int[Array, "B L"],
        mask: Bool[Array, "B L"],
        tools: Float[Array, "B N d"],
        candidates: Bool[Array, "B N"],
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B N"]:
        length = ids.shape[1]
        token_positions, tool_positions = positions(mask, candidates.shape[1], self.places)
        tokens = self.backbone.embed(ids, token_positions)
        vectors = self.backbone.inject(self.projection(tools), tool_positions)
        x = jnp.concatenate([tokens, vectors.astype(jnp.float32)], axis=1)
        present = jnp.concatenate([mask, candidates], axis=1)
        everywhere = jnp.concatenate([token_positions, tool_positions], axis=1)
        hidden = self.backbone.run(x, present, everywhere, key=fold(key, 0))
        return self.score(hidden[:, length:])[..., 0].astype(jnp.float32)


def positions(
    mask: Bool[Array, "B L"], candidates: int, places: Places
) -> tuple[Int[Array, "B L"], Int[Array, "B N"]]:
    """Compute the positions of tokens and candidates.

    Args:
      mask: [B, L], False for padding, at the end.
      candidates: N, the number of candidates.
      places: positions of the candidates: "shared" after the last token, "rank" consecutively from
        there, "reference" after the padding.

    Returns:
      Positions of the tokens [B, L] and of the candidates [B, N].
    """
    batch, length = mask.shape
    tokens = jnp.broadcast_to(jnp.arange(length)[None], mask.shape)
    ends = mask.sum(axis=1, keepdims=True)  # [B, 1]: the position after the last token
    ranks = jnp.broadcast_to(jnp.arange(candidates)[None], (batch, candidates))
    if places == "shared":
        return tokens, jnp.broadcast_to(ends, ranks.shape)
    if places == "rank":
        return tokens, ends + ranks
    # Only the closing token moves, to after the padding.
    return jnp.where(tokens == ends - 1, length - 1, tokens), length + ranks
