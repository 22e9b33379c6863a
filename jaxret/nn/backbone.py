"""One interface for the networks that read text: BERT and DeBERTa.

A backbone's module is built from ``(config, compute, rngs=...)`` and has

    embed(ids [B L], positions, types)    tokens -> what enters block 0, [B, L, H]
    inject(vectors [B N H], positions)    vectors from elsewhere, such as tools -> the same
    run(x, mask, positions, key=None)     the blocks -> hidden states [B, L, H]
    module(ids, mask, types, key=None)    run(embed(ids)): a text, or a pair of texts

so that MLC, ToolRefiner, the cross-encoder and the encoder take either. ``positions [B, L]`` are
0, 1, .. by default; BERT adds an embedding for each, DeBERTa sees their differences in every block.
``types [B, L]`` are 0, and 1 in the second text of a pair; DeBERTa-V3 does not look at them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flax import nnx

from jaxret.nn import bert, checkpoints, deberta
from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute
from jaxret.types import Params

Config = bert.BertConfig | deberta.DebertaConfig


class Backbone(NamedTuple):
    """A network for text: its sizes, how to build it, and how its weights are published."""

    config: Config
    module: type[bert.Bert] | type[deberta.Deberta]
    keys: checkpoints.KeyTable
    prefix: str  # of its names in a checkpoint that holds more than the backbone

    def build(self, compute: Compute, rngs: nnx.Rngs) -> bert.Bert | deberta.Deberta:
        return self.module(self.config, compute, rngs=rngs)  # ty: ignore[invalid-argument-type]

    def network(self, compute: Compute = Compute()) -> Module:
        """``apply(params, ids, mask, key=None) -> hidden states [B, L, H]``."""
        return functionalize(lambda rngs: self.build(compute, rngs))

    def load(self, path: Path) -> Params:
        """Reads a ``model.safetensors``; ValueError names every tensor that does not fit."""
        tensors = checkpoints.load_safetensors(path)
        return checkpoints.convert(tensors, self.keys, self.network().shapes(), prefix=self.prefix)


def read_backbone(path: Path) -> Backbone:
    """Reads a ``config.json``.

    Raises:
      ValueError: if it describes a network that is neither BERT nor DeBERTa-V3.
    """
    kind = json.loads(path.read_text()).get("model_type", "bert")
    if kind == "bert":
        return Backbone(bert.BertConfig.from_json(path), bert.Bert, bert.KEYS, "bert.")
    if kind == "deberta-v2":  # as V3 calls itself too
        config = deberta.DebertaConfig.from_json(path)
        return Backbone(config, deberta.Deberta, deberta.KEYS, "deberta.")
    raise ValueError(f"{path}: model_type must be 'bert' or 'deberta-v2', got {kind!r}")


def shallow(backbone: Backbone, params: Params, layers: int) -> tuple[Backbone, Params]:
    """The first few blocks of a backbone: a smaller network that starts from the same weights."""
    if not 1 <= layers <= backbone.config.layers:
        raise ValueError(f"layers must be in 1 .. {backbone.config.layers}, got {layers}")
    blocks = {str(i): params["blocks"][str(i)] for i in range(layers)}
    smaller = backbone._replace(config=replace(backbone.config, layers=layers))
    return smaller, {**params, "blocks": blocks}
