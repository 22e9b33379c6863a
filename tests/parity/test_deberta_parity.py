"""DeBERTa-V3 against HuggingFace's PyTorch on the same random weights, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.checkpoints import convert
from jaxret.nn.deberta import KEYS, Deberta, DebertaConfig, distance_rows
from jaxret.nn.tensor_files import load_safetensors
from tests.nn.published import DEBERTA

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 36,
    "initializer_range": 0.3,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}


def random_model(kind, **changes):
    torch.manual_seed(0)
    model = kind(transformers.DebertaV2Config(**SIZES | changes)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # PyTorch's biases of 0 and scales of 1 hide errors
            torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.3)
    return model


def read(directory):
    """Load network and parameters from the output of `save_pretrained`."""
    network = Deberta.functions(DebertaConfig.from_json(directory / "config.json"))
    tensors = load_safetensors(directory / "model.safetensors")
    return network, convert(tensors, KEYS, network.shapes(), prefix="deberta.")


def tokens(lengths):
    rng = np.random.default_rng(1)
    longest = max(lengths)
    ids = rng.integers(1, 60, (len(lengths), longest)).astype(np.int32)  # 0 is the padding id
    return ids, np.arange(longest) < np.array(lengths)[:, None]


def torch_hidden(model, ids, mask):
    return model(input_ids=torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long())[0]


@pytest.fixture(scope="module")
def model():
    return random_model(transformers.DebertaV2Model)


@pytest.fixture(scope="module")
def ours(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("deberta")
    model.save_pretrained(directory)
    return read(directory)


@pytest.mark.parametrize(
    "lengths", [(1,), (2, 1), (11, 8, 5, 2, 1), (150, 96), (600, 513)], ids=str
)
def test_hidden_states_equal_those_of_pytorch(model, ours, lengths):
    network, params = ours
    ids, mask = tokens(lengths)
    got = jax.jit(network.apply)(params, ids, mask)
    with torch.no_grad():
        want = torch_hidden(model, ids, mask).numpy()
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"position_buckets": 8, "max_relative_positions": 20}])
def test_gradients_equal_those_of_pytorch(tmp_path, changes):
    model = random_model(transformers.DebertaV2Model, **changes)
    model.save_pretrained(tmp_path)
    network, params = read(tmp_path)
    ids, mask = tokens((31, 17, 5, 1))
    weights = np.random.default_rng(2).standard_normal((*ids.shape, 24)).astype(np.float32)
    weights *= mask[..., None]

    def loss(params):
        return (network.apply(params, jnp.asarray(ids), jnp.asarray(mask)) * weights).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    want = (torch_hidden(model, ids, mask) * torch.tensor(weights)).sum()
    want.backward()
    np.testing.assert_allclose(value, want.item(), rtol=1e-5)
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    expected = convert(theirs, KEYS, network.shapes())
    for (path, got), wanted in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        assert error < 1e-4, path


def test_the_encoder_within_a_classifier_is_found(tmp_path):
    classifier = random_model(transformers.DebertaV2ForSequenceClassification)
    classifier.save_pretrained(tmp_path)
    network, params = read(tmp_path)
    ids, mask = tokens((11, 8))
    got = jax.jit(network.apply)(params, ids, mask)
    with torch.no_grad():
        want = torch_hidden(classifier.deberta, ids, mask).numpy()
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)


def test_rows_equal_the_buckets_of_pytorch():
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distance = np.arange(-1000, 1001)
    buckets = make_log_bucket_position(torch.tensor(distance), 256, 512).long().numpy()
    got = distance_rows(DEBERTA["xsmall"])[np.clip(distance, -512, 512) + 512]
    np.testing.assert_array_equal(got, np.clip(buckets + 256, 0, 511))
