"""Embeddings and answer probabilities against PyTorch code of Qwen3 and sentence-transformers."""

import jax
import numpy as np
import pytest

from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret.encoders import encode, load_encoder
from jaxret.methods import tool_rank
from jaxret.methods.tool_rank import verdict
from jaxret.nn import lora
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity
TEXTS = ["Book a table.", "pay the rent by Friday, please; it is late", "weather " * 20, "x"]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_qwen3(path, TEXTS, vocabulary=320, width=32, layers=2, tied=request.param)
    return path


def tokenizer(folder, side):
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        pad_token="<|endoftext|>",
        padding_side=side,
    )


def last_token(hidden, mask):
    """Pool as Qwen3-Embedding's model card: the last position if all rows end at that position."""
    if mask[:, -1].all():
        return hidden[:, -1]
    return hidden[torch.arange(len(hidden)), mask.sum(dim=1) - 1]


@pytest.mark.parametrize("side", ["left", "right"])
def test_vectors_equal_those_of_huggingface(folder, side):
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(folder, side)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(batch["input_ids"], attention_mask=batch["attention_mask"])[0]
        want = torch.nn.functional.normalize(last_token(hidden, batch["attention_mask"]), dim=1)
    encoder = load_encoder("qwen3_0_6b", folder)
    got = encode(encoder, TEXTS, kind="document", cache=None, progress=False)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-5)
    wrong = batch["input_ids"] != batch["input_ids"][0, -1 if side == "right" else 0]  # ids != pad
    assert (wrong.sum(dim=1) == batch["attention_mask"].sum(dim=1) - 1).all()  # drops the closing


def test_vectors_equal_those_of_sentence_transformers_last_token_pooling(folder):
    pooling = pytest.importorskip("sentence_transformers").models.Pooling
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(folder, "left")(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch)[0]
        features = {"token_embeddings": hidden, "attention_mask": batch["attention_mask"]}
        pooled = pooling(hidden.shape[2], pooling_mode="lasttoken")(features)["sentence_embedding"]
        want = torch.nn.functional.normalize(pooled, dim=1)
    encoder = load_encoder("qwen3_0_6b", folder)
    got = encode(encoder, TEXTS, kind="document", cache=None, progress=False)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def test_scores_equal_the_probabilities_from_all_of_huggingfaces_logits(folder):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    model = tool_rank.load_language_model("tool_rank_4b", folder)
    asked = verdict(model.tokenizer, instruction="Find a tool.")
    reranker = tool_rank.reranker(model.network(asked), model.params(asked), asked, TEXTS, pairs=4)
    items = np.tile(np.arange(len(TEXTS)), (2, 1)).astype(np.int32)
    first = Ranking(items=items, scores=np.zeros(items.shape, np.float32))
    found = refine(reranker, ["pay", "eat out"], first, progress=False)
    for row, query in enumerate(("pay", "eat out")):
        for item, score in zip(found.items[row], found.scores[row], strict=True):
            text = asked.text(query, TEXTS[item])
            ids = model.tokenizer.encode(text, add_special_tokens=False).ids
            with torch.no_grad():
                logits = theirs(torch.tensor([ids])).logits[0, -1, list(asked.words)]
            np.testing.assert_allclose(score, torch.log_softmax(logits, 0)[0].item(), atol=1e-5)


def test_a_lora_beside_the_matrices_equals_peft_by_hand(folder):
    """Compare with W x + (alpha / r) B A x in PyTorch, on the query projection."""
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    encoder = load_encoder("qwen3_0_6b", folder)
    adapter = lora.init(jax.random.key(0), encoder.params, "blocks/1/query/kernel", rank=4)
    (pair,) = adapter.values()
    pair["b"] = jax.random.normal(jax.random.key(1), pair["b"].shape)
    a, b = (torch.tensor(np.array(pair[side])) for side in "ab")
    layer = theirs.layers[1].self_attn.q_proj
    layer.register_forward_hook(lambda module, given, out: out + 8 / 4 * (given[0] @ a @ b))
    ids = np.array([[5, 6, 7, 8, 9, 0]])
    with torch.no_grad():
        want = theirs(torch.tensor(ids)).last_hidden_state.numpy()
    apply = jax.jit(lora.branched(encoder.network, alpha=8, rate=0.1))
    got = apply((adapter, encoder.params), ids, np.ones(ids.shape, bool))
    np.testing.assert_allclose(got, want, atol=1e-5)
    plain = encoder.network.apply(encoder.params, ids, np.ones(ids.shape, bool))
    assert np.abs(plain - want).max() > 1e-3
