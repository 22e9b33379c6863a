import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxret.nn.bert import Bert, BertConfig
from jaxret.nn.functional import functionalize

JSON = {
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 11,  # from eleven on, alphabetical order of layers is wrong
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
CONFIG = BertConfig.from_json(JSON)
SHALLOW = BertConfig.from_json(JSON | {"num_hidden_layers": 1})
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (4, 7)).astype(np.int32)
MASK = np.arange(7) < np.array([[7], [3], [1], [5]])


@pytest.fixture(scope="module")
def params():
    """Make random weights, so that every bias and scale matters."""

    def draw(leaf):
        return (0.4 * RNG.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.tree.map(draw, Bert.functions(CONFIG).shapes())


@pytest.fixture(scope="module")
def apply():
    return jax.jit(Bert.functions(CONFIG).apply)


def forward_by_hand(params, ids):
    """Compute BERT for one text without padding, in float64, one head at a time."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    erf = np.vectorize(math.erf)

    def linear(x, weights):
        return x @ weights["kernel"] + weights["bias"]

    def norm(x, weights):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + JSON["layer_norm_eps"])
        return centred / deviation * weights["scale"] + weights["bias"]

    x = p["word"]["embedding"][ids] + p["position"]["embedding"][: len(ids)]
    x = norm(x + p["token_type"]["embedding"][0], p["norm"])
    for layer in range(JSON["num_hidden_layers"]):
        block = p["blocks"][str(layer)]
        q, k, v = (linear(x, block[name]) for name in ("query", "key", "value"))
        heads = []
        for head in range(3):
            columns = slice(4 * head, 4 * head + 4)
            weights = np.exp(q[:, columns] @ k[:, columns].T / math.sqrt(4))
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, columns])
        x = norm(x + linear(np.concatenate(heads, 1), block["out"]), block["attention_norm"])
        up = linear(x, block["up"])
        x = norm(
            x + linear(up * 0.5 * (1 + erf(up / math.sqrt(2))), block["down"]), block["mlp_norm"]
        )
    return x


def test_hidden_states_equal_a_forward_pass_by_hand_and_ignore_padding(params, apply):
    got = apply(params, IDS, MASK)
    for row, length in enumerate(MASK.sum(1)):
        want = forward_by_hand(params, IDS[row, :length])
        np.testing.assert_allclose(got[row, :length], want, atol=1e-5)


def test_tokens_of_the_padding_change_nothing(params, apply):
    other = np.where(MASK, IDS, (IDS + 7) % 50)
    np.testing.assert_array_equal(apply(params, IDS, MASK)[MASK], apply(params, other, MASK)[MASK])


def test_a_text_beyond_the_last_position_is_refused():
    with pytest.raises(ValueError, match=r"may have 9 positions \(max_positions\), got 10"):
        jax.eval_shape(
            Bert.functions(SHALLOW).apply,
            Bert.functions(SHALLOW).shapes(),
            jnp.ones((1, 10), int),
            jnp.ones((1, 10)),
        )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("model_type", "xlm-roberta"),
    ],
)
def test_an_unsupported_architecture_is_refused(tmp_path, setting, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(JSON | {setting: value}))
    with pytest.raises(ValueError, match=rf"config.json: {setting} must be .* got '{value}'"):
        BertConfig.from_json(path)


def test_missing_sizes_are_all_named():
    sizes = {name: size for name, size in JSON.items() if name not in ("hidden_size", "vocab_size")}
    with pytest.raises(ValueError, match=r"no value for \['hidden_size', 'vocab_size'\]"):
        BertConfig.from_json(sizes)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=r"must divide hidden_size, got 5 heads and 12"):
        BertConfig.from_json(JSON | {"num_attention_heads": 5})


def test_parameters_are_plain_dicts_and_the_shapes_are_those_of_init():
    network = Bert.functions(SHALLOW)
    fresh = jax.jit(network.init)(jax.random.key(0))
    described = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), fresh)
    assert described == network.shapes()
    paths, _ = jax.tree.flatten_with_path(fresh)
    assert all(isinstance(step.key, str) for path, _ in paths for step in path)


def test_weights_differ_between_keys():
    init = jax.jit(Bert.functions(SHALLOW).init)
    first, second = init(jax.random.key(0)), init(jax.random.key(1))
    assert np.abs(first["word"]["embedding"] - second["word"]["embedding"]).max() > 0.01
    block = first["blocks"]["0"]
    assert np.abs(block["query"]["kernel"] - block["key"]["kernel"]).max() > 0.01
    np.testing.assert_allclose(np.std(first["word"]["embedding"]), 0.02, rtol=0.1)


def test_a_network_with_state_besides_parameters_is_refused():
    with pytest.raises(ValueError, match="BatchStat"):
        functionalize(lambda rngs: nnx.BatchNorm(3, rngs=rngs))
