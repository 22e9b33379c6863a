"""A language model says of each candidate whether it fits: published weights, and as a reranker.

    score = log softmax(logit of true, logit of false) of true

    model = load_language_model("tool_rank_4b")
    asked = verdict(model.tokenizer)
    trusted = reranker(model.network(asked), model.params(asked), asked, documents)
    final = refine(trusted, texts, first)

The paper ranks by the probability; its logarithm gives the same order and tells apart what
rounding would make equal. Nothing is computed of the other 151,000 words
(`jaxret.nn.token_classifier`).

Pairs are laid out on the device from tokens that were made once. They are sorted by length and run
through the model in groups; a group is cut to one of three lengths, so that short pairs cost less.

Letters: B queries, k candidates, I tools, L tokens up to the document, M from it on.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float
from tokenizers import Tokenizer

from jaxret.encoders import DType
from jaxret.encoders.padding import COARSE, pad
from jaxret.methods.tool_rank_prompt import Verdict
from jaxret.nn import checkpoints, qwen3
from jaxret.nn.backbone import Backbone, read_backbone
from jaxret.nn.functional import Module
from jaxret.nn.layers import Compute
from jaxret.nn.placement import memory_report
from jaxret.nn.token_classifier import load_token_classifier, token_classifier
from jaxret.retrieval.retriever import Reranker
from jaxret.retrieval.tokens import pair
from jaxret.types import Params

#: Published weights, and where they are. Those of Qwen were trained to answer yes or no.
RERANKERS = {
    "qwen3_reranker_0_6b": "Qwen/Qwen3-Reranker-0.6B",
    "qwen3_reranker_4b": "Qwen/Qwen3-Reranker-4B",
    "qwen3_reranker_8b": "Qwen/Qwen3-Reranker-8B",
    "tool_rank_4b": "Lux1997/Tool-Rank-4B",
    "tool_rank_8b": "Lux1997/Tool-Rank-8B",
}


class LanguageModel(NamedTuple):
    """A decoder's checkpoint. Its weights are read when `params` is called."""

    backbone: Backbone
    directory: Path
    tokenizer: Tokenizer
    dtype: DType
    mesh: Mesh | None

    def network(self, asked: Verdict, compute: Compute | None = None) -> Module:
        """``apply(params, ids, mask, key=None) -> logits [B, 2]`` of the two answers."""
        compute = Compute(dtype=self.dtype) if compute is None else compute
        return token_classifier(self.backbone, asked.words, compute)

    def params(self, asked: Verdict) -> Params:
        """The parameters of the network, read from the checkpoint."""
        return load_token_classifier(self.backbone, self.directory, asked.words, **self._where())

    def memory(self) -> str:
        """What the parameters will take, but for the two answers' rows, in words; reads none."""
        return memory_report(self.backbone.shapes(**self._where()))

    def _where(self) -> dict[str, Any]:
        config, rules = self.backbone.config, ()
        if self.mesh is not None and isinstance(config, qwen3.Qwen3Config):
            rules = qwen3.tensor_parallel(config, self.mesh)
        return {"dtype": self.dtype, "mesh": self.mesh, "rules": rules}


def load_language_model(
    name: str, path: Path | None = None, *, dtype: DType = "float32", mesh: Mesh | None = None
) -> LanguageModel:
    """Finds one of `RERANKERS`.

    Args:
      name: which.
      path: a checkpoint of one's own in place of the published weights.
      dtype: as of `jaxret.encoders.load_encoder`.
      mesh: likewise.

    Raises:
      ValueError: for an unknown name, or a checkpoint of another kind.
      FileNotFoundError: if the weights are nowhere.
    """
    if name not in RERANKERS:
        raise ValueError(f"reranker must be one of {list(RERANKERS)}, got {name!r}")
    directory = checkpoints.locate(path, hub_id=RERANKERS[name])
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    backbone = read_backbone(directory / "config.json")
    return LanguageModel(
        backbone=backbone, directory=directory, tokenizer=tokenizer, dtype=dtype, mesh=mesh
    )


def reranker(
    network: Module,
    params: Params,
    asked: Verdict,
    documents: Sequence[str],
    *,
    pairs: int = 16,
    name: str = "tool_rank",
) -> Reranker:
    """The reranker.

    Args:
      network: from `LanguageModel.network`.
      params: its parameters.
      asked: the question.
      documents: of the I tools.
      pairs: that run through the model together.
      name: shown in the progress bar and in errors.
    """
    ids, mask = pad(asked.tails(documents), COARSE)
    table = (jnp.asarray(ids), jnp.asarray(mask))
    return Reranker(
        name=name, read=reader(asked), params=(params, table), score=scorer(network, pairs)
    )


def reader(asked: Verdict) -> Callable[[Sequence[str]], dict[str, np.ndarray]]:
    """Queries -> ``ids [B, L]`` and ``mask [B, L]`` of their tokens up to the document."""

    def read(texts):
        ids, mask = pad(asked.heads(texts), COARSE)
        return {"ids": ids, "mask": mask}

    return read


def scorer(network: Module, pairs: int) -> Callable[..., Float[Array, "B k"]]:
    """``score(params, features, candidates [B, k]) -> log probabilities [B, k]``.

    ``params`` are the network's and the documents' tokens and mask, [I, M] each; ``features`` hold
    ``ids`` and ``mask`` of the queries, [B, L].
    """

    def score(params, features, candidates):
        network_params, table = params
        tools, k = jnp.maximum(candidates, 0).ravel(), candidates.shape[1]
        queries = jnp.repeat(jnp.arange(len(candidates)), k)
        lengths = features["mask"].sum(axis=1)[queries] + table[1].sum(axis=1)[tools]
        longest = features["ids"].shape[1] + table[0].shape[1]
        cuts = [-(-longest * part // 4) for part in (2, 3, 4)]

        def group(rows):
            head = (features[name][queries[rows]] for name in ("ids", "mask"))
            tail = (x[tools[rows]] for x in table)
            ids, mask, _ = jax.vmap(pair)(*head, *tail)
            wide = jnp.searchsorted(jnp.array(cuts), lengths[rows].max())

            def run(cut):
                return lambda: network.apply(network_params, ids[:, :cut], mask[:, :cut])

            logits = jax.lax.switch(wide, [run(cut) for cut in cuts])
            return jax.nn.log_softmax(logits, axis=1)[:, 0]

        order = jnp.argsort(lengths)
        groups = jnp.pad(order, (0, -len(order) % pairs), mode="edge").reshape(-1, pairs)
        found = jax.lax.map(group, groups).ravel()[: len(order)]
        return jnp.zeros_like(found).at[order].set(found).reshape(candidates.shape)

    return score
