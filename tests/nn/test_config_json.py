"""``config.json`` files: supported and refused ones, and published numbers of parameters."""

import json
import math
from dataclasses import replace

import jax
import pytest

from jaxret.nn.bert import BertConfig
from jaxret.nn.deberta import Deberta, DebertaConfig
from jaxret.nn.mpnet import MPNetConfig
from jaxret.nn.qwen3 import Qwen3, Qwen3Config
from tests.nn import config_files, published

READ = {
    "bert": (BertConfig.from_json, config_files.BERT),
    "mpnet": (MPNetConfig.from_json, config_files.MPNET),
    "deberta": (DebertaConfig.from_json, config_files.DEBERTA),
    "qwen3": (Qwen3Config.from_json, config_files.QWEN3),
}


@pytest.mark.parametrize(
    ("name", "setting", "value", "message"),
    [
        ("bert", "hidden_act", "relu", "hidden_act must be .* got 'relu'"),
        ("bert", "position_embedding_type", "rel", "position_embedding_type must be .* got 'rel'"),
        ("bert", "model_type", "xlm-roberta", "model_type must be .* got 'xlm-roberta'"),
        ("bert", "num_attention_heads", 5, "must divide hidden_size, got 5 heads and 12"),
        ("mpnet", "model_type", "bert", "model_type must be 'mpnet'.* got "),
        ("mpnet", "hidden_act", "relu", "hidden_act must be 'gelu'.* got "),
        ("mpnet", "relative_attention_num_buckets", 64, "num_buckets must be 32.* got "),
        ("mpnet", "num_attention_heads", 5, "num_attention_heads must divide hidden_size.* got "),
        ("mpnet", "max_position_embeddings", 2, "max_position_embeddings must be > 2.* got "),
        ("deberta", "model_type", "deberta", "model_type must be 'deberta-v2'.* got "),
        ("deberta", "hidden_act", "gelu_new", "hidden_act must be 'gelu'.* got "),
        ("deberta", "type_vocab_size", 2, "type_vocab_size must be 0.* got "),
        ("deberta", "conv_kernel_size", 3, "conv_kernel_size must be 0.* got "),
        ("deberta", "relative_attention", False, "relative_attention must be True.* got "),
        ("deberta", "position_biased_input", True, "position_biased_input must be False.* got "),
        ("deberta", "share_att_key", False, "share_att_key must be True.* got "),
        ("deberta", "norm_rel_ebd", "none", "norm_rel_ebd must be 'layer_norm'.* got "),
        ("deberta", "pos_att_type", ["c2p"], r"pos_att_type must be 'p2c\|c2p'.* got "),
        ("deberta", "embedding_size", 8, "embedding_size must be 12.* got "),
        ("deberta", "attention_head_size", 8, "attention_head_size must be 4.* got "),
        ("deberta", "position_buckets", -1, "buckets must be even, above 0 and below 22.* got "),
        ("deberta", "position_buckets", 7, "buckets must be even, above 0 and below 22.* got "),
        ("deberta", "position_buckets", 22, "buckets must be even, above 0 and below 22.* got "),
        ("deberta", "num_attention_heads", 5, "must divide hidden_size, got 5 heads and 12"),
        ("qwen3", "attention_bias", True, "attention_bias must be False, got True"),
        ("qwen3", "use_sliding_window", True, "use_sliding_window must be False, got True"),
        ("qwen3", "layer_types", ["sliding_attention"], "must be only 'full_attention'"),
        ("qwen3", "rope_scaling", {"rope_type": "yarn"}, "rope_type must be 'default', got 'yarn'"),
        ("qwen3", "rope_scaling", {"type": "linear"}, "rope_type must be 'default', got 'linear'"),
        ("qwen3", "num_key_value_heads", 3, "must divide num_attention_heads, got 3 and 16"),
        ("qwen3", "head_dim", 5, "head_dim must be even, got 5"),
    ],
)
def test_a_network_that_is_computed_otherwise_is_refused(tmp_path, name, setting, value, message):
    read, settings = READ[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings | {setting: value}))
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        read(path)


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("bert", {"hidden_size", "vocab_size"}, r"no value for \['hidden_size', 'vocab_size'\]"),
        ("mpnet", {"vocab_size"}, r"no value for \['vocab_size'\]"),
        ("deberta", {"hidden_size", "vocab_size"}, r"no value for \['hidden_size', 'vocab_size'\]"),
        ("deberta", {"share_att_key"}, "share_att_key must be True, got None"),
        ("qwen3", {"rope_theta"}, r"no value for \['rope_theta'\]"),
    ],
)
def test_missing_settings_are_all_named(name, missing, message):
    read, settings = READ[name]
    with pytest.raises(ValueError, match=message):
        read({setting: value for setting, value in settings.items() if setting not in missing})


def test_the_wavelength_is_read_where_either_version_of_transformers_writes_it():
    read, settings = READ["qwen3"]
    new = {name: value for name, value in settings.items() if name != "rope_theta"}
    new["rope_parameters"] = {"rope_theta": 100.0, "rope_type": "default"}
    assert read(new) == read(settings | {"rope_scaling": None}) == read(settings)


def count(tree):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("size", "backbone", "words"),
    [("xsmall", 22, 49), ("small", 44, 98), ("base", 86, 98), ("large", 304, 131)],
)
def test_deberta_has_the_published_numbers_of_parameters(size, backbone, words):
    config = published.DEBERTA[size]
    shapes = Deberta.functions(replace(config, layers=1)).shapes()
    embedded = count(shapes["word"])
    total = count(shapes) + (config.layers - 1) * count(shapes["blocks"]["0"])
    head = config.hidden**2  # pre-training head, counted in published sizes
    assert (round((total - embedded + head) / 1e6), round(embedded / 1e6)) == (backbone, words)


@pytest.mark.parametrize(
    ("size", "published_count"),  # Qwen3-0.6B, 4B, 8B, with 151936 tokens
    [("0.6B", 596_049_920), ("4B", 4_022_468_096), ("8B", 8_190_735_360)],
)
def test_qwen3_has_the_published_numbers_of_parameters(size, published_count):
    config = replace(published.QWEN3[size], vocab_size=151936)
    shapes = Qwen3.functions(replace(config, layers=1)).shapes()
    heads = 1 if config.tied else 2
    embedded = heads * count(shapes["word"])
    total = embedded + config.layers * count(shapes["blocks"]) + count(shapes["norm"])
    assert total == published_count
