"""One interface for the networks that read text: BERT, MPNet, DeBERTa and Qwen3.

MLC, ToolRefiner, the cross-encoder and the encoder work with any `jaxret.nn.network.Network`.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from jaxret.nn import bert, checkpoints, deberta, mpnet, placement, qwen3, tensor_files
from jaxret.nn.functional import Module
from jaxret.nn.layers import Compute
from jaxret.nn.network import Network
from jaxret.runtime.sharding import Rules
from jaxret.types import Params

Config = bert.BertConfig | mpnet.MPNetConfig | deberta.DebertaConfig | qwen3.Qwen3Config


class Backbone(NamedTuple):
    """A network for text: its sizes, its constructor, and the layout of its published weights."""

    config: Config
    module: type[Network]
    keys: checkpoints.KeyTable
    prefix: str  # prefix of tensor names in a checkpoint that holds more than the backbone

    def build(self, compute: Compute, rngs: nnx.Rngs) -> Network:
        return self.module(self.config, compute, rngs=rngs)

    def network(self, compute: Compute = Compute()) -> Module:
        """Build ``apply(params, ids, mask, key=None) -> hidden states [B, L, H]``."""
        return self.module.functions(self.config, compute)

    def shapes(
        self,
        *,
        dtype: Literal["float32", "bfloat16"] = "float32",
        mesh: Mesh | AbstractMesh | None = None,
    ) -> Params:
        """Compute shapes, dtypes and shardings of the parameters, without allocating them.

        Args:
          dtype: dtype of all parameters.
          mesh: devices of the parameters; None: the default device. Its axis ``model`` splits a
            Qwen3 (`qwen3.tensor_parallel`); other networks are replicated.

        Returns:
          A tree of ``jax.ShapeDtypeStruct``, for `jaxret.nn.placement.memory_report`.
        """
        rules = self.rules(mesh)
        return placement.placed(self.network().shapes(), dtype=dtype, mesh=mesh, rules=rules)

    def rules(self, mesh: Mesh | AbstractMesh | None) -> Rules:
        """Return the sharding rules of the parameters: those of a Qwen3 on a mesh, else none."""
        if mesh is None or not isinstance(self.config, qwen3.Qwen3Config):
            return ()
        return qwen3.tensor_parallel(self.config, mesh)

    def load(
        self,
        path: Path,
        *,
        dtype: Literal["float32", "bfloat16"] = "float32",
        mesh: Mesh | None = None,
    ) -> Params:
        """Read the weights of a checkpoint, one tensor at a time.

        Args:
          path: directory or file of the checkpoint (`tensor_files.load_safetensors`).
          dtype: dtype of the parameters, for any dtype of the file. bfloat16 halves the memory, for
            inference and LoRA; training all parameters needs float32.
          mesh: devices of the parameters, as for `shapes`.

        Raises:
          ValueError: if tensors do not fit, or a file is damaged.
          FileNotFoundError: if files are missing.
        """
        tensors = tensor_files.load_safetensors(path)
        shapes = self.shapes(dtype=dtype, mesh=mesh)
        return checkpoints.convert(tensors, self.keys, shapes, prefix=self.prefix)


_KINDS = {  # model_type of config.json -> config, module, keys, prefix
    "bert": (bert.BertConfig, bert.Bert, bert.KEYS, "bert."),
    "mpnet": (mpnet.MPNetConfig, mpnet.MPNet, mpnet.KEYS, "mpnet."),
    "deberta-v2": (deberta.DebertaConfig, deberta.Deberta, deberta.KEYS, "deberta."),  # V3 too
    "qwen3": (qwen3.Qwen3Config, qwen3.Qwen3, qwen3.KEYS, "model."),
}


def read_backbone(path: Path) -> Backbone:
    """Read a ``config.json``.

    Raises:
      ValueError: if the network is not a BERT, MPNet, DeBERTa-V3 or Qwen3.
    """
    kind = json.loads(path.read_text()).get("model_type", "bert")
    if kind not in _KINDS:
        raise ValueError(f"{path}: model_type must be one of {list(_KINDS)}, got {kind!r}")
    config, module, keys, prefix = _KINDS[kind]
    return Backbone(config.from_json(path), module, keys, prefix)


def shallow(backbone: Backbone, params: Params, layers: int | None) -> tuple[Backbone, Params]:
    """Cut a backbone to its first blocks, with the same weights.

    Args:
      backbone: the whole network.
      params: parameters of the network.
      layers: number of blocks to keep; None: all.

    Returns:
      The smaller network and its parameters, which are not copied.

    Raises:
      ValueError: if ``layers`` is not in 1 .. the number of blocks.
    """
    smaller = shallower(backbone, layers)
    blocks = {str(i): params["blocks"][str(i)] for i in range(smaller.config.layers)}
    return smaller, {**params, "blocks": blocks}


def shallower(backbone: Backbone, layers: int | None) -> Backbone:
    """Cut a backbone to its first blocks, without weights; None keeps all blocks.

    Raises:
      ValueError: if the backbone has fewer blocks.
    """
    if layers is None:
        return backbone
    if not 1 <= layers <= backbone.config.layers:
        raise ValueError(f"layers must be in 1 .. {backbone.config.layers}, got {layers}")
    return backbone._replace(config=replace(backbone.config, layers=layers))
