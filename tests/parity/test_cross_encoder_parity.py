"""A cross-encoder's checkpoint against HuggingFace's, on pairs of texts with token types."""

import jax
import numpy as np
import pytest

from jaxret.methods import cross_encoder as ce

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("kind", ["bert", "deberta"])
def test_logits_of_pairs_equal_those_of_pytorch(kind, tmp_path):
    sizes = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 36, "initializer_range": 0.3, "num_labels": 1}
    torch.manual_seed(0)
    if kind == "bert":
        config = transformers.BertConfig(**sizes, max_position_embeddings=16)
        theirs = transformers.BertForSequenceClassification(config).eval()
    else:
        config = transformers.DebertaV2Config(
            **sizes,
            relative_attention=True,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type="p2c|c2p",
            position_biased_input=False,
            type_vocab_size=0,
            pooler_hidden_act="gelu",
            pooler_hidden_size=24,
        )
        theirs = transformers.DebertaV2ForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    network, params = ce.read_published(tmp_path)
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 60, (3, 12)).astype(np.int32)
    mask = np.arange(12) < np.array([[12], [9], [5]])
    types = (mask & (np.arange(12) >= 4)).astype(np.int32)
    got = jax.jit(network.apply)(params, ids, mask, types=types)
    with torch.no_grad():
        want = theirs(
            input_ids=torch.tensor(ids).long(),
            attention_mask=torch.tensor(mask).long(),
            token_type_ids=torch.tensor(types).long(),
        ).logits.numpy()
    np.testing.assert_allclose(got, want, atol=1e-5)
    plain = jax.jit(network.apply)(params, ids, mask)
    assert (np.abs(plain - got).max() > 1e-3) == (kind == "bert")
