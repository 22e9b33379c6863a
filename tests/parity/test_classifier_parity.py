"""The context head against HuggingFace's sequence classifiers on equal random weights."""

import jax
import numpy as np
import pytest

from jaxret.nn.backbone import read_backbone
from jaxret.nn.checkpoints import convert
from jaxret.nn.classifier import classifier, classifier_keys
from jaxret.nn.tensor_files import load_safetensors
from jaxret.training.losses import multi_label_bce

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

CLASSES = 7
SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 36,
    "initializer_range": 0.3,
    "num_labels": CLASSES,
}
DEBERTA = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "pooler_hidden_act": "gelu",
    "pooler_hidden_size": 24,
}
IDS = np.random.default_rng(1).integers(2, 60, (4, 11)).astype(np.int32)
MASK = np.arange(11) < np.array([[11], [6], [2], [1]])


def torch_logits(model):
    return model(
        input_ids=torch.tensor(IDS).long(), attention_mask=torch.tensor(MASK).long()
    ).logits


@pytest.fixture(scope="module", params=["bert", "mpnet", "deberta"])
def theirs(request):
    torch.manual_seed(0)
    if request.param == "bert":
        config = transformers.BertConfig(**SIZES, max_position_embeddings=16)
        model = transformers.BertForSequenceClassification(config)
    elif request.param == "mpnet":
        config = transformers.MPNetConfig(**SIZES, max_position_embeddings=16)
        model = transformers.MPNetForSequenceClassification(config)
    else:
        config = transformers.DebertaV2Config(**SIZES, **DEBERTA)
        model = transformers.DebertaV2ForSequenceClassification(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # PyTorch's biases of 0 and scales of 1 hide errors
            torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def ours(theirs, tmp_path_factory):
    """Load network, parameters and key table from the output of `save_pretrained`."""
    directory = tmp_path_factory.mktemp("classifier")
    theirs.save_pretrained(directory)
    backbone = read_backbone(directory / "config.json")
    network, keys = classifier(backbone, CLASSES, pool="context"), classifier_keys(backbone)
    tensors = load_safetensors(directory / "model.safetensors")
    return network, convert(tensors, keys, network.shapes()), keys


def test_logits_equal_those_of_pytorch(theirs, ours):
    network, params, _ = ours
    got = jax.jit(network.apply)(params, IDS, MASK)
    with torch.no_grad():
        want = torch_logits(theirs).numpy()
    assert got.shape == (4, CLASSES)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_gradients_of_the_multi_label_loss_equal_those_of_pytorch(theirs, ours):
    network, params, keys = ours
    labels = np.array([[0, 3], [5, -1], [6, 1], [2, -1]])
    right = (labels[:, :, None] == np.arange(CLASSES)).any(axis=1).astype(np.float32)

    def loss(params):
        return multi_label_bce(network.apply(params, IDS, MASK), labels)

    gradient = jax.jit(jax.grad(loss))(params)
    theirs.zero_grad()
    torch.nn.functional.binary_cross_entropy_with_logits(
        torch_logits(theirs), torch.tensor(right)
    ).backward()
    found = {n: p.grad.numpy() for n, p in theirs.named_parameters() if p.grad is not None}
    expected = convert(found, keys, network.shapes())
    for (path, got), want in zip(
        jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-4, err_msg=str(path))
