"""Qwen3 against HuggingFace's PyTorch on the same random weights, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.backbone import read_backbone
from jaxret.nn.checkpoints import convert
from jaxret.nn.qwen3 import KEYS
from jaxret.nn.token_classifier import load_token_classifier, token_classifier

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,  # 6 heads of width 8 differ from 24
    "intermediate_size": 36,
    "initializer_range": 0.3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}
IDS = np.random.default_rng(1).integers(0, 60, (4, 11)).astype(np.int32)
LENGTHS = np.array([[11], [6], [1], [8]])
MASKS = {"right": np.arange(11) < LENGTHS, "left": np.arange(11) >= 11 - LENGTHS}


def random_model(kind, **changes):
    torch.manual_seed(0)
    model = kind(transformers.Qwen3Config(**SIZES | changes)).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:  # PyTorch's scales of 1 hide errors
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return model


def torch_out(model, mask, **more):
    """Return hidden states of a Qwen3Model and logits of a Qwen3ForCausalLM."""
    inputs = {"input_ids": torch.tensor(IDS).long(), "attention_mask": torch.tensor(mask).long()}
    return model(**inputs, **more)[0]


def read(directory):
    """Load network and parameters from the output of `save_pretrained`."""
    backbone = read_backbone(directory / "config.json")
    return backbone.network(), backbone.load(directory)


@pytest.fixture(scope="module")
def model():
    return random_model(transformers.Qwen3Model)


@pytest.fixture(scope="module")
def ours(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("qwen3")
    model.save_pretrained(directory)
    network, params = read(directory)
    return network, jax.jit(network.apply), params


@pytest.mark.parametrize("side", MASKS)
def test_hidden_states_equal_those_of_pytorch(model, ours, side):
    _, apply, params = ours
    mask = MASKS[side]
    got = apply(params, IDS, mask)
    counted = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    with torch.no_grad():  # default positions, then positions counted by us
        for positions in ({}, {"position_ids": torch.tensor(counted)}):
            want = torch_out(model, mask, **positions).numpy()
            np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)


@pytest.mark.parametrize("side", MASKS)
def test_gradients_equal_those_of_pytorch(model, ours, side):
    network, _, params = ours
    mask = MASKS[side]
    weights = np.random.default_rng(2).standard_normal((*IDS.shape, 24)).astype(np.float32)
    weights *= mask[..., None]

    def loss(params):
        return (network.apply(params, jnp.asarray(IDS), jnp.asarray(mask)) * weights).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    model.zero_grad()
    want = (torch_out(model, mask) * torch.tensor(weights)).sum()
    want.backward()
    np.testing.assert_allclose(value, want.item(), rtol=1e-5)
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters()}
    expected = convert(theirs, KEYS, network.shapes())
    for (path, got), wanted in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        assert error < 1e-4, path


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard", ["1GB", "8KB"])
def test_logits_of_two_words_equal_those_of_pytorch(tmp_path, tied, shard):
    model = random_model(transformers.Qwen3ForCausalLM, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 9) == (shard == "8KB")
    backbone = read_backbone(tmp_path / "config.json")
    params = load_token_classifier(backbone, tmp_path, [7, 52])
    apply = jax.jit(token_classifier(backbone, [7, 52]).apply)
    with torch.no_grad():
        left = torch_out(model, MASKS["left"], logits_to_keep=1)[:, 0, [7, 52]].numpy()
        right = torch_out(model, MASKS["right"])[np.arange(4), LENGTHS[:, 0] - 1][:, [7, 52]]
    np.testing.assert_allclose(apply(params, IDS, MASKS["left"]), left, atol=1e-5)
    np.testing.assert_allclose(apply(params, IDS, MASKS["right"]), right.numpy(), atol=1e-5)


def test_weights_in_bfloat16_are_read_to_the_bit(tmp_path):
    model = random_model(transformers.Qwen3Model).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    network, params = read(tmp_path)
    got = jax.jit(network.apply)(params, IDS, MASKS["right"])
    # Reloads the model, since `to` also rounds its wavelengths, which no checkpoint stores.
    model = transformers.Qwen3Model.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        want = torch_out(model, MASKS["right"]).numpy()
    np.testing.assert_allclose(got[MASKS["right"]], want[MASKS["right"]], atol=1e-5)
    short = read_backbone(tmp_path / "config.json").load(tmp_path, dtype="bfloat16")
    jax.tree.map(np.testing.assert_array_equal, short, params)
