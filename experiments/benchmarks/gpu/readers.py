"""Networks with random weights, the same in HuggingFace PyTorch and in jaxret."""

from typing import Any

import numpy as np

from experiments.benchmarks.gpu.settings import Reader
from jaxret.encoders import ENCODERS, TextEncoder
from jaxret.nn import bert, qwen3
from jaxret.nn.backbone import Backbone
from jaxret.nn.checkpoints import convert
from jaxret.types import Params

SPECS = {"bert": "minilm", "qwen3": "qwen3_0_6b"}  # whose pooling they have


def backbone(kind: str, shape: dict[str, Any]) -> Backbone:
    """jaxret's."""
    if kind == "bert":
        config = bert.BertConfig.from_json({**shape, "layer_norm_eps": 1e-12})
        return Backbone(config, bert.Bert, bert.KEYS, "bert.")
    config = qwen3.Qwen3Config.from_json({**shape, **_QWEN3})
    return Backbone(config, qwen3.Qwen3, qwen3.KEYS, "model.")


def twin(kind: str, shape: dict[str, Any], where: str) -> Any:
    """HuggingFace's, in float32 with the attention of PyTorch, drawn at random on a device."""
    import torch
    import transformers

    torch.manual_seed(0)
    with torch.device(where):
        if kind == "bert":
            config = transformers.BertConfig(**shape, **_SDPA)
            return transformers.BertModel(config, add_pooling_layer=False).eval()
        config = transformers.Qwen3Config(**shape, **_QWEN3, **_SDPA)
        return transformers.Qwen3Model(config).eval()


def weights_of(model: Any, ours: Backbone) -> Params:
    """A HuggingFace model's weights as jaxret's."""
    tensors = {name: value.float().cpu().numpy() for name, value in model.state_dict().items()}
    return convert(tensors, ours.keys, ours.network().shapes())


def encoder(reader: Reader, params: Params, dtype: str) -> TextEncoder:
    """The encoder of these weights; its tokenizer is not looked at."""
    from pathlib import Path

    import jax

    held = jax.tree.map(lambda x: jax.numpy.asarray(x, dtype), params)
    spec = ENCODERS[SPECS[reader.kind]]
    ours = backbone(reader.kind, reader.shape)
    made: Any = {
        "spec": spec,
        "backbone": ours,
        "directory": Path(),
        "sha256": None,
        "dtype": dtype,
    }
    return TextEncoder(**made, weights=held)


def tokens(reader: Reader) -> list[list[int]]:
    """Random texts, a few tokens shorter than the lengths to which they are padded."""
    rng = np.random.default_rng(0)
    words = reader.shape["vocab_size"]
    each = rng.choice(reader.lengths, reader.texts) - rng.integers(0, 6, reader.texts)
    return [rng.integers(1, words, length).tolist() for length in each]


def operations(reader: Reader, lengths: list[int]) -> float:
    """Of all texts, padding not counted: two a weight and token, and the attention's products."""
    shape = reader.shape
    hidden, layers, inner = (
        shape[name] for name in ("hidden_size", "num_hidden_layers", "intermediate_size")
    )
    heads, wide = shape["num_attention_heads"], shape.get("head_dim")
    inside = heads * wide if wide else hidden
    keys = shape.get("num_key_value_heads", heads) * inside // heads
    perceptron = (3 if reader.kind == "qwen3" else 2) * hidden * inner
    weights = hidden * (2 * inside + 2 * keys) + perceptron
    n = np.asarray(lengths, np.float64)
    return float(layers * (2 * weights * n + 4 * inside * n**2).sum())


_SDPA: dict[str, Any] = {"attn_implementation": "sdpa"}
_QWEN3: dict[str, Any] = {"rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
