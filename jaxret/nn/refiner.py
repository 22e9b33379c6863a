"""ToolRefiner: query tokens and candidate tools in one sequence, a logit at each tool.

    x = [embed(tokens), inject(P v_1), .., inject(P v_N)];   logit_j = w . run(x)_{L + j} + b

One pass scores all N candidates, and each sees the query and the others (Tool2Vec, Section 4.3).
Where a tool stands in the sequence is ours to say, since attention knows places by ``positions``
alone:

    shared      every tool at the place after the query's last token: the order of the candidates
                cannot be seen, and permuting them permutes the logits.
    rank        the j-th candidate j places further on: the first stage's rank can be seen, so the
                order of the input matters, and candidates must come in that order when scored too.
    reference   as the paper's code has it: the closing token and the tools stand behind the
                padding, so the distance between query and tools, and with it every score,
                depends on the longest text of the batch.

Where the projection P starts:

    identity    0.2 sqrt(H) I: a vector enters as it is, as long as the other start makes it. Ours:
                a tool made of queries then keeps directions that the encoder may know.
    normal      N(0, 0.2^2), the reference's, which turns every vector at random.

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
PLACES = ("shared", "rank", "reference")
Projection = Literal["identity", "normal"]
PROJECTIONS = ("identity", "normal")
DEVIATION = 0.2  # of the projection's first weights


def refiner(
    backbone: Backbone,
    width: int,
    *,
    places: Places = "shared",
    projection: Projection = "identity",
    compute: Compute = Compute(),
) -> Module:
    """Builds a network that gives each candidate tool of a query a logit.

    It is called as ``apply(params, ids, mask, tools, candidates, key=None)`` and gives float32
    logits [B, N]. ``ids [B, L]`` are tokens with their closing token, padded at the end, ``mask``
    [B, L] says where there is one, ``tools [B, N, d]`` are the candidates' vectors and
    ``candidates [B, N]`` says which of them are there: the others influence nothing, and their own
    logits mean nothing.

    Args:
      backbone: reads the sequence; L + N may not exceed BERT's positions.
      width: d, the width of the tools' vectors.
      places: "shared" puts all tools after the last token, "rank" one after another from there on,
        "reference" behind the padding.
      projection: how the tools' vectors first enter: "identity" as they are but for their length,
        "normal" turned at random.
      compute: types, checkpointing, dropout. The reference trains without dropout.

    Returns:
      the network as pure functions.

    Raises:
      ValueError: where ``places`` or ``projection`` is unknown.
    """
    if places not in PLACES:
        raise ValueError(f"places must be one of {PLACES}, got {places!r}")
    if projection not in PROJECTIONS:
        raise ValueError(f"projection must be one of {PROJECTIONS}, got {projection!r}")
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
        self.projection = nnx.Linear(
            width,
            hidden,
            kernel_init=STARTS[projection],
            dtype=jnp.dtype(compute.dtype),
            rngs=rngs,
        )
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
        words, places = positions(mask, candidates.shape[1], self.places)
        x = jnp.concatenate(
            [
                self.backbone.embed(ids, words),
                self.backbone.inject(self.projection(tools), places).astype(jnp.float32),
            ],
            axis=1,
        )
        present = jnp.concatenate([mask, candidates], axis=1)
        everywhere = jnp.concatenate([words, places], axis=1)
        hidden = self.backbone.run(x, present, everywhere, key=fold(key, 0))
        return self.score(hidden[:, length:])[..., 0].astype(jnp.float32)


def positions(
    mask: Bool[Array, "B L"], candidates: int, places: Places
) -> tuple[Int[Array, "B L"], Int[Array, "B N"]]:
    """Says where the tokens and where the candidates stand.

    Args:
      mask: [B, L], true where there is a token; false at the end.
      candidates: N, the number of candidates.
      places: "shared" puts all candidates after the last token, "rank" one after another from there
        on, "reference" behind the padding.

    Returns:
      positions of the tokens [B, L] and of the candidates [B, N].
    """
    batch, length = mask.shape
    words = jnp.broadcast_to(jnp.arange(length)[None], mask.shape)
    ends = mask.sum(axis=1, keepdims=True)  # [B, 1]: the place after the last token
    ranks = jnp.broadcast_to(jnp.arange(candidates)[None], (batch, candidates))
    if places == "shared":
        return words, jnp.broadcast_to(ends, ranks.shape)
    if places == "rank":
        return words, ends + ranks
    # The closing token behind the padding; nothing else moves.
    return jnp.where(words == ends - 1, length - 1, words), length + ranks
