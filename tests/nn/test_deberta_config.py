"""Configurations of DeBERTa-V3: supported and refused config.json files, and published sizes."""

import json
import math
from dataclasses import replace

import jax
import pytest

from jaxret.nn.deberta import Deberta, DebertaConfig
from tests.nn.published import DEBERTA

JSON = {
    "model_type": "deberta-v2",
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "gelu",
    "max_position_embeddings": 12,
    "max_relative_positions": -1,
    "position_buckets": 6,  # distances from 4 on share rows
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("model_type", "deberta", "'deberta-v2'"),
        ("hidden_act", "gelu_new", "'gelu'"),
        ("type_vocab_size", 2, "0"),
        ("conv_kernel_size", 3, "0"),
        ("relative_attention", False, "True"),
        ("position_biased_input", True, "False"),
        ("share_att_key", False, "True"),
        ("norm_rel_ebd", "none", "'layer_norm'"),
        ("pos_att_type", ["c2p"], r"'p2c\|c2p'"),
        ("embedding_size", 8, "12"),
        ("attention_head_size", 8, "4"),
        ("position_buckets", -1, "even, above 0 and below 22"),
        ("position_buckets", 7, "even, above 0 and below 22"),
        ("position_buckets", 22, "even, above 0 and below 22"),
    ],
)
def test_a_network_that_is_computed_otherwise_is_refused(tmp_path, setting, value, allowed):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(JSON | {setting: value}))
    with pytest.raises(ValueError, match=rf"config.json: {setting} must be {allowed}.* got "):
        DebertaConfig.from_json(path)


def test_a_setting_that_means_another_network_when_it_is_left_out_is_refused():
    without = {name: value for name, value in JSON.items() if name != "share_att_key"}
    with pytest.raises(ValueError, match="share_att_key must be True, got None"):
        DebertaConfig.from_json(without)


def test_missing_sizes_are_all_named():
    sizes = {name: size for name, size in JSON.items() if name not in ("hidden_size", "vocab_size")}
    with pytest.raises(ValueError, match=r"no value for \['hidden_size', 'vocab_size'\]"):
        DebertaConfig.from_json(sizes)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=r"must divide hidden_size, got 5 heads and 12"):
        DebertaConfig.from_json(JSON | {"num_attention_heads": 5})


@pytest.mark.parametrize(
    ("size", "backbone", "words"),
    [("xsmall", 22, 49), ("small", 44, 98), ("base", 86, 98), ("large", 304, 131)],
)
def test_presets_have_the_published_numbers_of_parameters(size, backbone, words):
    config = DEBERTA[size]
    shapes = Deberta.functions(replace(config, layers=1)).shapes()

    def count(tree):
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))

    embedded = count(shapes["word"])
    total = count(shapes) + (config.layers - 1) * count(shapes["blocks"]["0"])
    head = config.hidden**2  # pre-training head, counted in published sizes
    assert (round((total - embedded + head) / 1e6), round(embedded / 1e6)) == (backbone, words)
