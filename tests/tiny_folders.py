"""Small networks with random weights over `WORDS`, as folders in HuggingFace's layout."""

import json

import numpy as np
from safetensors.numpy import save_file

from tests.tiny import tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", *"abcdefgh"]
_RNG = np.random.default_rng(0)
TEXTS = [" ".join(_RNG.choice(list("abcdefgh"), n)) for n in (3, 40, 1, 300, 3)]
WIDTH = 8
COMMON = {"hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 12}


def write_bert(folder):
    """Write a one-layer BERT."""
    config = COMMON | {
        "model_type": "bert",
        "vocab_size": len(WORDS),
        "num_hidden_layers": 1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    sizes = {
        "embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": (512, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    sizes |= _layer("encoder.layer.0.", "attention.self.{}") | _norm("embeddings.")
    _write(folder, config, _random(sizes))


def write_deberta(folder):
    """Write a two-layer DeBERTa-V3."""
    vocabulary = len(WORDS) + 3  # spare rows, as in the published ones
    config = COMMON | {
        "model_type": "deberta-v2",
        "vocab_size": vocabulary,
        "num_hidden_layers": 2,
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
        "embeddings.word_embeddings.weight": (vocabulary, WIDTH),
        "encoder.rel_embeddings.weight": (32, WIDTH),
    }
    for i in range(2):
        sizes |= _layer(f"encoder.layer.{i}.", "attention.self.{}_proj")
    sizes |= _norm("embeddings.") | _norm("encoder.")
    tensors = {"deberta." + name: tensor for name, tensor in _random(sizes).items()}
    tensors["mask_predictions.dense.weight"] = np.zeros((3, 3))  # a pre-training head
    _write(folder, config, tensors)


def _layer(prefix, attention):
    """Return the sizes of a layer's tensors; ``attention`` names its query, key and value."""
    linear = {attention.format(name): (WIDTH, WIDTH) for name in ("query", "key", "value")}
    linear |= {
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (12, WIDTH),
        "output.dense": (WIDTH, 12),
    }
    sizes = _norm(prefix + "attention.output.") | _norm(prefix + "output.")
    for name, (outputs, inputs) in linear.items():
        sizes |= {prefix + name + ".weight": (outputs, inputs), prefix + name + ".bias": (outputs,)}
    return sizes


def _norm(prefix):
    return {f"{prefix}LayerNorm.{name}": (WIDTH,) for name in ("weight", "bias")}


def _random(sizes):
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal(size) for name, size in sizes.items()}


def _write(folder, config, tensors):
    folder.mkdir()
    save_file(
        {name: tensor.astype(np.float32) for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(WORDS).save(str(folder / "tokenizer.json"))
