"""MPNet computed by hand: relative distances, padding, positions; supported config.json files."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.backbone import Backbone
from jaxret.nn.mpnet import KEYS, MPNet, MPNetConfig, buckets
from tests.tiny import method, weights

JSON = {
    "model_type": "mpnet",
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "gelu",
    "max_position_embeddings": 34,
    "relative_attention_num_buckets": 32,
    "layer_norm_eps": 1e-5,
}
CONFIG = MPNetConfig.from_json(JSON)
NETWORK = MPNet.functions(CONFIG)
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (4, 25)).astype(np.int32)
MASK = np.arange(25) < np.array([[25], [3], [1], [18]])


def bucket(distance):
    """Compute T5's bucket: 16 per direction, 8 of which are exact and 8 logarithmic."""
    size = abs(distance)
    if size >= 8:
        size = min(8 + math.floor(math.log(size / 8) / math.log(16) * 8), 15)
    return size + 16 * (distance > 0)


def forward_by_hand(params, ids, places):
    """Compute MPNet for one text without padding, in float64, one pair of tokens at a time."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    erf = np.vectorize(math.erf)

    def linear(x, weights):
        return x @ weights["kernel"] + weights["bias"]

    def norm(x, weights):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred / deviation * weights["scale"] + weights["bias"]

    x = norm(p["word"]["embedding"][ids] + p["position"]["embedding"][2 + places], p["norm"])
    bias = p["relative"]["embedding"]
    for layer in range(2):
        block = p["blocks"][str(layer)]
        q, k, v = (linear(x, block[name]) for name in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(3):
            c = slice(4 * head, 4 * head + 4)
            for i in range(len(ids)):
                scores = [
                    q[i, c] @ k[j, c] / 2 + bias[bucket(places[j] - places[i]), head]
                    for j in range(len(ids))
                ]
                weights = np.exp(np.array(scores) - max(scores))
                mixed[i, c] = weights / weights.sum() @ v[:, c]
        x = norm(x + linear(mixed, block["out"]), block["attention_norm"])
        up = linear(x, block["up"])
        up = up * 0.5 * (1 + erf(up / math.sqrt(2)))
        x = norm(x + linear(up, block["down"]), block["mlp_norm"])
    return x


@pytest.fixture(scope="module")
def params():
    """Make random weights of every kind, so that omitting a bias or a scale is noticed."""
    return weights(NETWORK.shapes())


def test_hidden_states_equal_a_forward_pass_by_hand_and_ignore_padding(params):
    got = jax.jit(NETWORK.apply)(params, IDS, MASK)
    for text, length in enumerate(MASK.sum(1)):
        want = forward_by_hand(params, IDS[text, :length], np.arange(length))
        np.testing.assert_allclose(got[text, :length], want, atol=1e-5)


def test_explicit_positions_place_the_tokens(params):
    backbone = Backbone(CONFIG, MPNet, KEYS, "mpnet.")
    run = method(backbone, lambda net, ids, mask, at: net.run(net.embed(ids, at), mask, at))
    places = RNG.permuted(np.tile(np.arange(32), (4, 1)), axis=1)[:, :25]
    got = run(params, IDS, MASK, places)
    for text, length in enumerate(MASK.sum(1)):
        want = forward_by_hand(params, IDS[text, :length], places[text, :length])
        np.testing.assert_allclose(got[text, :length], want, atol=1e-5)


def test_distances_fall_into_their_published_buckets():
    rows = buckets(200)
    assert rows.shape == (401,)
    assert rows.dtype == np.int32
    sizes = {0: 0, 7: 7, 8: 8, 11: 8, 12: 9, 16: 10, 23: 11, 32: 12, 64: 14, 91: 15, 200: 15}
    for size, number in sizes.items():
        assert rows[200 - size] == number
        assert rows[200 + size] == number + 16 * (size > 0)


def test_a_text_beyond_the_last_position_is_refused():
    ids = jnp.zeros((1, 33), jnp.int32)
    with pytest.raises(ValueError, match=r"may have 32 positions .*, got 33"):
        jax.eval_shape(NETWORK.apply, NETWORK.shapes(), ids, ids > -1)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("model_type", "bert", "'mpnet'"),
        ("hidden_act", "relu", "'gelu'"),
        ("relative_attention_num_buckets", 64, "32"),
        ("num_attention_heads", 5, "divide hidden_size"),
        ("max_position_embeddings", 2, "> 2"),
    ],
)
def test_a_network_that_is_computed_otherwise_is_refused(tmp_path, setting, value, allowed):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(JSON | {setting: value}))
    with pytest.raises(ValueError, match=rf"config.json: {setting} must (be )?{allowed}.* got "):
        MPNetConfig.from_json(path)


def test_missing_sizes_are_named():
    without = {name: value for name, value in JSON.items() if name != "vocab_size"}
    with pytest.raises(ValueError, match=r"no value for \['vocab_size'\]"):
        MPNetConfig.from_json(without)
