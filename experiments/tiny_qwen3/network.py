"""Writes a small Qwen3 with random weights and a tokenizer, in the layout of the published ones.

    write(folder, texts)
    encoder = load_encoder("qwen3_0_6b", folder)

It replaces Qwen3's encoders and rerankers in tests and on small machines. Its vectors are
meaningless before training.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from jaxret.nn.qwen3 import Qwen3, Qwen3Config
from jaxret.runtime.validate import require

CLOSING = "<|endoftext|>"
SPECIAL = (CLOSING, "<|im_start|>", "<|im_end|>", "<think>", "</think>")
ANSWERS = ("true", "false", "yes", "no")  # one token each, as in the published vocabulary
#: Expression by which Qwen's tokenizer splits texts before it merges bytes.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(
    folder: Path,
    texts: Sequence[str],
    *,
    vocabulary: int = 4096,
    width: int = 64,
    layers: int = 2,
    tied: bool = True,
    seed: int = 0,
) -> None:
    """Write config.json, tokenizer.json and model.safetensors.

    Args:
      folder: created if missing; existing files of these names are overwritten.
      texts: the corpus of the tokenizer.
      vocabulary: largest number of tokens, at least 300, of which 261 are bytes and special tokens.
      width: H, a multiple of 16: four heads of queries, two of keys and values.
      layers: number of blocks.
      tied: whether the embedding is also the head that predicts tokens.
      seed: seed of the weights.
    """
    require("vocabulary", vocabulary, ">= 300", lambda v: v >= 300)
    require("width", width, "a multiple of 16, >= 16", lambda w: w >= 16 and w % 16 == 0)
    require("layers", layers, ">= 1", lambda n: n >= 1)
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = trained_tokenizer(texts, vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": width // 4,
        "intermediate_size": 3 * width,
        "max_position_embeddings": 8192,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(_tensors(Qwen3Config.from_json(config), seed), folder / "model.safetensors")


def trained_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Train a byte-pair encoding like Qwen3's, which appends the closing token to each text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    often = ["\n".join(ANSWERS)] * (10 * sum(map(len, texts)) // 100 + 100)
    tokenizer.train_from_iterator([*texts, *often], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {CLOSING}", special_tokens=[(CLOSING, tokenizer.token_to_id(CLOSING))]
    )
    return tokenizer


def _tensors(config: Qwen3Config, seed: int) -> dict[str, np.ndarray]:
    """Draw random weights, by their published names.

    Matrices are drawn from N(0, 1 / in). With the standard deviation 0.02 of `qwen3`, which suits a
    thousand inputs, the last token of a narrow network would hardly depend on the text.
    """
    params = jax.jit(Qwen3.functions(config).init)(jax.random.key(seed))
    params = jax.tree.map_with_path(
        lambda path, x: x / (0.02 * len(x) ** 0.5) if path[-1].key == "kernel" else x, params
    )
    weights = {"embed_tokens.weight": params["word"]["embedding"]}
    weights["norm.weight"] = params["norm"]["scale"]
    for i, block in params["blocks"].items():
        layer = f"layers.{i}."
        for part, published in {"query": "q", "key": "k", "value": "v", "out": "o"}.items():
            weights[f"{layer}self_attn.{published}_proj.weight"] = block[part]["kernel"].T
        for name in ("gate", "up", "down"):
            weights[f"{layer}mlp.{name}_proj.weight"] = block[name]["kernel"].T
        for part, published in {
            "query_norm": "self_attn.q_norm",
            "key_norm": "self_attn.k_norm",
            "attention_norm": "input_layernorm",
            "mlp_norm": "post_attention_layernorm",
        }.items():
            weights[f"{layer}{published}.weight"] = block[part]["scale"]
    tensors = {f"model.{name}": np.ascontiguousarray(x) for name, x in weights.items()}
    if not config.tied:
        shape = (config.vocab_size, config.hidden)
        head = 0.02 * jax.random.normal(jax.random.key(seed + 1), shape)
        tensors["lm_head.weight"] = np.asarray(head)
    return tensors
