"""Small networks with random weights over `WORDS`, as folders in HuggingFace's layout."""

import json

import numpy as np
from safetensors.numpy import save_file

from tests.tiny import tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", *"abcdefgh"]
_RNG = np.random.default_rng(0)
TEXTS = [" ".join(_RNG.choice(list("abcdefgh"), n)) for n in (3, 40, 1, 300, 3)]


def write_bert(folder):
    """Write a one-layer BERT."""
    width, vocabulary = 8, len(WORDS)
    config = {
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    sizes = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    layer = "encoder.layer.0."
    linear = {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "intermediate.dense": (12, width),
        "output.dense": (width, 12),
    }
    for name, (outputs, inputs) in linear.items():
        sizes |= {layer + name + ".weight": (outputs, inputs), layer + name + ".bias": (outputs,)}
    for name in ("embeddings.", layer + "attention.output.", layer + "output."):
        sizes |= {name + "LayerNorm.weight": (width,), name + "LayerNorm.bias": (width,)}
    rng = np.random.default_rng(1)
    _write(folder, config, {name: rng.standard_normal(size) for name, size in sizes.items()})


def write_deberta(folder):
    """Write a two-layer DeBERTa-V3."""
    width, vocabulary = 8, len(WORDS) + 3  # spare rows, as in the published ones
    config = {
        "model_type": "deberta-v2",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 64,
        "position_buckets": 16,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "position_biased_input": False,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "p2c|c2p",
    }
    sizes = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "encoder.rel_embeddings.weight": (32, width),
    }
    norms = ["embeddings.", "encoder."]
    for i in range(2):
        layer = f"encoder.layer.{i}."
        linear = {
            "attention.self.query_proj": (width, width),
            "attention.self.key_proj": (width, width),
            "attention.self.value_proj": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (12, width),
            "output.dense": (width, 12),
        }
        for name, (rows, columns) in linear.items():
            sizes |= {layer + name + ".weight": (rows, columns), layer + name + ".bias": (rows,)}
        norms += [layer + "attention.output.", layer + "output."]
    for name in norms:
        sizes |= {name + "LayerNorm.weight": (width,), name + "LayerNorm.bias": (width,)}
    rng = np.random.default_rng(1)
    tensors = {"deberta." + name: rng.standard_normal(size) for name, size in sizes.items()}
    tensors["mask_predictions.dense.weight"] = np.zeros((3, 3))  # a pre-training head
    _write(folder, config, tensors)


def _write(folder, config, tensors):
    folder.mkdir()
    save_file(
        {name: tensor.astype(np.float32) for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(WORDS).save(str(folder / "tokenizer.json"))
