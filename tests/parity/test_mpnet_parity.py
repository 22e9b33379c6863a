"""MPNet against HuggingFace's PyTorch on real and random weights: values and gradients."""

import json
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.encoders import encode, load_encoder
from jaxret.encoders.fetch import fetched_folder
from jaxret.nn.checkpoints import convert
from jaxret.nn.mpnet import KEYS, MPNet, MPNetConfig, buckets
from jaxret.nn.tensor_files import load_safetensors

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity


def torch_hidden(model, ids, mask):
    """Compute hidden states with PyTorch's own attention kernels."""
    return model(input_ids=torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long())[0]


def test_values_and_gradients_of_a_random_network_equal_those_of_pytorch(tmp_path):
    torch.manual_seed(0)
    config = transformers.MPNetConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=36,
        max_position_embeddings=160,
        initializer_range=0.3,
        layer_norm_eps=1e-5,
    )
    model = transformers.MPNetModel(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # PyTorch's biases of 0 and scales of 1 hide errors
            torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.3)
    model.save_pretrained(tmp_path)
    network = MPNet.functions(MPNetConfig.from_json(tmp_path / "config.json"))
    params = convert(load_safetensors(tmp_path / "model.safetensors"), KEYS, network.shapes())

    rng = np.random.default_rng(1)
    mask = np.arange(150) < np.array([[150], [80], [9], [1]])
    ids = np.where(mask, rng.integers(2, 60, mask.shape), 1).astype(np.int32)  # 1 is the padding id
    weights = rng.standard_normal((*mask.shape, 24)).astype(np.float32) * mask[..., None]

    def loss(params):
        return (network.apply(params, jnp.asarray(ids), jnp.asarray(mask)) * weights).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    hidden = torch_hidden(model, ids, mask)
    got = jax.jit(network.apply)(params, ids, mask)
    np.testing.assert_allclose(got[mask], hidden.detach().numpy()[mask], atol=1e-5)
    want = (hidden * torch.tensor(weights)).sum()
    want.backward()
    np.testing.assert_allclose(value, want.item(), rtol=1e-4)
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    expected = convert(theirs, KEYS, network.shapes())
    for (path, ours), wanted in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, wanted, atol=5e-4, rtol=5e-4, err_msg=str(path))


def test_each_distance_has_the_bucket_of_pytorch():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = torch.arange(-520, 521)
    want = MPNetEncoder.relative_position_bucket(distances, num_buckets=32)
    np.testing.assert_array_equal(buckets(520), want.numpy())


def test_unit_vectors_of_real_texts_equal_those_of_pytorch():
    if not (folder := fetched_folder("mpnet")).is_dir():
        pytest.skip(f"no {folder}: `python -m jaxret.encoders.fetch mpnet` downloads it")
    encoder = load_encoder("mpnet")
    model = transformers.MPNetModel.from_pretrained(encoder.directory).eval()
    queries = files("jaxret") / "data" / "deskbank" / "queries.jsonl"
    rows = [json.loads(line)["query"] for line in queries.read_text().splitlines()]
    texts = [*rows[:: len(rows) // 12][:12], " ".join(rows[:80])]  # last: far beyond 384 tokens
    got = encode(encoder, texts, kind="query", cache=None, progress=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder.directory)
    with torch.no_grad():
        for vector, text in zip(got, texts, strict=True):  # one text, so no padding
            tokens = tokenizer([text], truncation=True, max_length=384, return_tensors="np")
            mask = tokens["attention_mask"]
            pooled = torch_hidden(model, tokens["input_ids"], mask)[0].mean(0)
            np.testing.assert_allclose(vector, pooled / pooled.norm(), atol=1e-5)
