"""One interface for the networks that read text: BERT, MPNet, DeBERTa and Qwen3.

MLC, ToolRefiner, the cross-encoder and the encoder take any (`jaxret.nn.network.Network`).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from jaxret.nn import bert, checkpoints, deberta, mpnet, placement, qwen3, tensor_files
from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute
from jaxret.nn.network import Network
from jaxret.runtime.sharding import Rules
from jaxret.types import Params

Config = bert.BertConfig | mpnet.MPNetConfig | deberta.DebertaConfig | qwen3.Qwen3Config


class Backbone(NamedTuple):
    """A network for text: its sizes, how to build it, and how its weights are published."""

    config: Config
    module: type[Network]
    keys: checkpoints.KeyTable
    prefix: str  # of its names in a checkpoint that holds more than the backbone

    def build(self, compute: Compute, rngs: nnx.Rngs) -> Network:
        return self.module(self.config, compute, rngs=rngs)

    def network(self, compute: Compute = Compute()) -> Module:
        """``apply(params, ids, mask, key=None) -> hidden states [B, L, H]``."""
        return functionalize(lambda rngs: self.build(compute, rngs))

    def shapes(
        self,
        *,
        dtype: Literal["float32", "bfloat16"] = "float32",
        mesh: Mesh | AbstractMesh | None = None,
        rules: Rules = (),
    ) -> Params:
        """Computes the shapes of the parameters, their dtype and their places, without any numbers.

        Args:
          dtype: of all parameters.
          mesh: the devices that they go to; None is the default device.
          rules: where on the mesh, by path, such as `qwen3.tensor_parallel`; copied if not said.

        Returns:
          a tree of ``jax.ShapeDtypeStruct``, as `jaxret.nn.placement.memory_report` takes it.

        Raises:
          ValueError: where there are rules but no mesh, or a rule splits more axes than a parameter
            has.
        """
        return placement.placed(self.network().shapes(), dtype=dtype, mesh=mesh, rules=rules)

    def load(
        self,
        path: Path,
        *,
        dtype: Literal["float32", "bfloat16"] = "float32",
        mesh: Mesh | None = None,
        rules: Rules = (),
    ) -> Params:
        """Reads the weights of a checkpoint, a tensor at a time.

        Args:
          path: the checkpoint's directory, or its file: see `tensor_files.load_safetensors`.
          dtype: of the parameters, whatever the file has. bfloat16 halves the memory, for use
            and for LoRA; training all of a network wants float32.
          mesh: where each parameter goes as soon as it is read; None is the default device.
          rules: where on the mesh, by path, such as `qwen3.tensor_parallel`; copied if not said.

        Raises:
          ValueError: naming every tensor that does not fit, or the file that is damaged.
          FileNotFoundError: naming the files that are missing.
        """
        tensors = tensor_files.load_safetensors(path)
        shapes = self.shapes(dtype=dtype, mesh=mesh, rules=rules)
        return checkpoints.convert(tensors, self.keys, shapes, prefix=self.prefix)


_KINDS = {  # model_type of config.json -> config, module, keys, prefix
    "bert": (bert.BertConfig, bert.Bert, bert.KEYS, "bert."),
    "mpnet": (mpnet.MPNetConfig, mpnet.MPNet, mpnet.KEYS, "mpnet."),
    "deberta-v2": (deberta.DebertaConfig, deberta.Deberta, deberta.KEYS, "deberta."),  # V3 too
    "qwen3": (qwen3.Qwen3Config, qwen3.Qwen3, qwen3.KEYS, "model."),
}


def read_backbone(path: Path) -> Backbone:
    """Reads a ``config.json``.

    Raises:
      ValueError: if it describes a network that is none of BERT, MPNet, DeBERTa-V3 and Qwen3.
    """
    kind = json.loads(path.read_text()).get("model_type", "bert")
    if kind not in _KINDS:
        raise ValueError(f"{path}: model_type must be one of {list(_KINDS)}, got {kind!r}")
    config, module, keys, prefix = _KINDS[kind]
    return Backbone(config.from_json(path), module, keys, prefix)


def shallow(backbone: Backbone, params: Params, layers: int) -> tuple[Backbone, Params]:
    """Cuts a backbone to its first few blocks: a smaller network that starts from the same weights.

    Args:
      backbone: the whole network.
      params: its parameters.
      layers: how many blocks stay.

    Returns:
      the smaller network and its parameters; those that stay are not copied.

    Raises:
      ValueError: where ``layers`` is not in 1 .. the blocks of the backbone.
    """
    smaller = shallower(backbone, layers)
    blocks = {str(i): params["blocks"][str(i)] for i in range(layers)}
    return smaller, {**params, "blocks": blocks}


def shallower(backbone: Backbone, layers: int | None) -> Backbone:
    """The network of `shallow` without weights; None leaves it whole.

    Raises:
      ValueError: if the backbone has fewer blocks.
    """
    if layers is None:
        return backbone
    if not 1 <= layers <= backbone.config.layers:
        raise ValueError(f"layers must be in 1 .. {backbone.config.layers}, got {layers}")
    return backbone._replace(config=replace(backbone.config, layers=layers))
