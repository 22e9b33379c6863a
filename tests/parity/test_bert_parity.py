"""BERT against HuggingFace's PyTorch on real and random weights: values and gradients."""

import json
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.encoders import encode, load_encoder
from jaxret.nn.backbone import read_backbone
from jaxret.nn.bert import KEYS, Bert, BertConfig
from jaxret.nn.checkpoints import convert
from jaxret.nn.tensor_files import load_safetensors

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity


def queries_of(path, count):
    """Return ``count`` queries from all over the file."""
    rows = [json.loads(line)["query"] for line in path.read_text().splitlines()]
    return rows[:: len(rows) // count][:count]


def torch_hidden(model, ids, mask):
    """Compute hidden states with PyTorch's own attention kernels."""
    return model(input_ids=torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long())[0]


def torch_embed(model, ids, mask):
    """Compute the mean over the mask, scaled to unit norm."""
    weights = torch.tensor(mask)[..., None].float()
    pooled = (torch_hidden(model, ids, mask) * weights).sum(1) / weights.sum(1)
    return pooled / pooled.norm(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def encoder():
    try:
        return load_encoder("minilm")
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(encoder):
    return transformers.BertModel.from_pretrained(encoder.directory).eval()


def test_unit_vectors_of_real_queries_equal_those_of_pytorch(encoder, model, shared_data):
    texts = queries_of(shared_data / "ultratool" / "queries.jsonl", 12)
    texts += queries_of(files("jaxret") / "data" / "deskbank" / "queries.jsonl", 12)
    texts.append(" ".join(texts))  # far beyond 256 tokens
    got = encode(encoder, texts, kind="query", cache=None, progress=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder.directory)
    with torch.no_grad():
        for vector, text in zip(got, texts, strict=True):  # one text, so no padding
            tokens = tokenizer([text], truncation=True, max_length=256, return_tensors="np")
            want = torch_embed(model, tokens["input_ids"], tokens["attention_mask"])[0]
            np.testing.assert_allclose(vector, want, atol=1e-6)


def test_hidden_states_of_real_weights_equal_those_of_pytorch(encoder, model):
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 30000, (4, 48)).astype(np.int32)
    mask = np.arange(48) < np.array([[48], [31], [7], [2]])
    got = jax.jit(encoder.network.apply)(encoder.params, ids, mask)
    with torch.no_grad():
        want = torch_hidden(model, ids, mask).numpy()
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)


def random_model(kind):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=36,
        max_position_embeddings=16,
        initializer_range=0.3,
    )
    model = kind(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # PyTorch's biases of 0 and scales of 1 hide errors
            torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.3)
    return model


@pytest.mark.parametrize("head", ["BertForPreTraining", "BertForSequenceClassification"])
def test_a_backbone_is_read_from_a_checkpoint_that_has_a_head_too(tmp_path, head):
    model = random_model(getattr(transformers, head))
    model.save_pretrained(tmp_path)
    backbone = read_backbone(tmp_path / "config.json")
    params = backbone.load(tmp_path / "model.safetensors")
    ids = np.random.default_rng(1).integers(0, 60, (3, 9)).astype(np.int32)
    mask = np.arange(9) < np.array([[9], [4], [1]])
    got = jax.jit(backbone.network().apply)(params, ids, mask)
    with torch.no_grad():
        want = torch_hidden(model.bert, ids, mask).numpy()
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)


def test_values_and_gradients_of_a_random_network_equal_those_of_pytorch(tmp_path):
    model = random_model(transformers.BertModel)
    model.save_pretrained(tmp_path)
    network = Bert.functions(BertConfig.from_json(tmp_path / "config.json"))
    tensors = load_safetensors(tmp_path / "model.safetensors")
    params = convert(tensors, KEYS, network.shapes())

    rng = np.random.default_rng(1)
    ids = rng.integers(0, 60, (5, 11)).astype(np.int32)
    mask = np.arange(11) < np.array([[11], [8], [5], [2], [1]])
    weights = rng.standard_normal((5, 11, 24)).astype(np.float32) * mask[..., None]

    def loss(params):
        return (network.apply(params, jnp.asarray(ids), jnp.asarray(mask)) * weights).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    want = (torch_hidden(model, ids, mask) * torch.tensor(weights)).sum()
    want.backward()
    np.testing.assert_allclose(value, want.item(), rtol=1e-5)
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    expected = convert(theirs, KEYS, network.shapes())
    for (path, ours), wanted in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, wanted, atol=1e-4, rtol=1e-4, err_msg=str(path))
