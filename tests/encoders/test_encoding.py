"""Encoding: vectors do not depend on the batch, and invalid texts are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from jaxret.encoders import encoding as module
from jaxret.encoders import load_encoder
from tests.encoders.conftest import vectors
from tests.tiny_folders import TEXTS, WORDS, write_deberta


def one_by_one(encoder, texts):
    """Encode each text separately, without padding, from tokens computed by hand."""
    rows = []
    for text in texts:
        words = text.split()[: encoder.spec.max_tokens - 2]
        ids = np.array([[2, *(WORDS.index(word) for word in words), 3]])
        rows.append(encoder.compiled(encoder.params, ids, np.ones(ids.shape, bool))[0])
    return np.stack(rows)


@pytest.fixture
def deberta(tmp_path):
    write_deberta(tmp_path / "deberta")
    return tmp_path / "deberta"


@pytest.mark.parametrize(
    ("name", "folder"), [("minilm", "checkpoint"), ("deberta_v3_xsmall", "deberta")]
)
def test_batches_of_mixed_lengths_equal_texts_encoded_one_by_one(name, folder, request):
    encoder = load_encoder(name, request.getfixturevalue(folder))
    assert encoder.width == 8
    got = vectors(encoder)
    assert got.dtype == np.float32
    some = slice(2, 4)  # the shortest, and one that is cut
    np.testing.assert_allclose(got[some], one_by_one(encoder, TEXTS[some]), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-6)
    assert np.abs(got[0] - got[1]).max() > 1e-3  # the vectors are not all equal
    assert vectors(encoder, []).shape == (0, 8)


def test_many_texts_get_more_lengths_and_the_same_vectors(checkpoint, monkeypatch):
    encoder = load_encoder("minilm", checkpoint)
    text = "a b c"  # 5 tokens
    lengths = []

    def seen(params, ids, mask):
        lengths.append(ids.shape[1])
        return compiled(params, ids, mask)

    compiled = encoder.compiled
    vars(encoder)["compiled"] = seen
    few = vectors(encoder, [text, "a"])
    monkeypatch.setattr(module, "MANY", 2)
    many = vectors(encoder, [text, "a"])
    assert lengths == [16, 8]
    np.testing.assert_allclose(many, few, atol=1e-6)


def test_each_kind_of_text_gets_its_prefix(checkpoint):
    encoder = load_encoder("e5_small", checkpoint)
    for kind, prefix in {"query": "query : ", "document": "passage : "}.items():
        got = vectors(encoder, ["a b"], kind=kind)
        np.testing.assert_allclose(got, one_by_one(encoder, [prefix + "a b"]), atol=1e-5)


def test_tokens_are_cut_and_keep_the_closing_token(checkpoint):
    encoder = load_encoder("e5_small", checkpoint)
    whole = encoder.tokens(["a b c d", "a"], kind="query")
    assert whole == [[2, 4, 6, 7, 8, 9, 10, 3], [2, 4, 6, 7, 3]]  # [CLS] query : a b c d [SEP]
    cut = encoder.tokens(["a b c d", "a"], kind="query", limit=6)
    assert cut == [[2, 4, 6, 7, 8, 3], [2, 4, 6, 7, 3]]
    (longest,) = encoder.tokens(["a " * 600], kind="document", limit=1000)
    assert (len(longest), longest[-1]) == (512, 3)


def test_other_weights_give_other_vectors_by_the_same_program(checkpoint, tmp_path):
    encoder = load_encoder("minilm", checkpoint)
    before = vectors(encoder, cache=tmp_path)
    compiled = encoder.compiled._cache_size()
    negative = jax.jit(lambda params: jax.tree.map(jnp.negative, params))
    trained = encoder.with_weights(negative(encoder.params))
    after = vectors(trained, cache=tmp_path)
    assert encoder.compiled._cache_size() == trained.compiled._cache_size() == compiled
    assert len({encoder.fingerprint, trained.fingerprint}) == 2  # so their cache entries differ
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(after, one_by_one(trained, TEXTS), atol=1e-5)
    np.testing.assert_array_equal(vectors(encoder.with_weights(encoder.params)), before)


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        (["a", " \n"], "query", r"text 1 of 2 is empty: ' \\n'"),
        (["a", "b", None], "query", "text 2 must be a string, got NoneType"),
        ([np.ones(3)], "query", r"text 0 must be a string, got a vector, .*give Task.from_arrays"),
        ("a b", "query", "texts must be a list of strings, got the single string 'a b'"),
        (["a"], "tool", r"\['query', 'document'\], got 'tool'"),
    ],
)
def test_an_item_that_is_no_text_and_an_unknown_kind_are_refused(checkpoint, texts, kind, message):
    with pytest.raises((TypeError, ValueError), match=message):
        vectors(load_encoder("minilm", checkpoint), texts, kind=kind)


def test_unknown_encoders_and_checkpoints_that_do_not_fit_are_refused(checkpoint):
    with pytest.raises(ValueError, match=r"one of \[.*'minilm'.*\], got 'bm25'"):
        load_encoder("bm25")
    path = checkpoint / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens(["surplus"])
    tokenizer.save(str(path))
    with pytest.raises(ValueError, match="has 16 tokens and the weights 15"):
        vectors(load_encoder("minilm", checkpoint), ["a"])
    path = checkpoint / "config.json"
    path.write_text(path.read_text().replace("512", "256"))
    load_encoder("minilm", checkpoint)
    with pytest.raises(ValueError, match=r"e5_small reads 512 tokens a text, .* only 256"):
        load_encoder("e5_small", checkpoint)


def test_minilm_gives_the_vectors_that_pytorch_gave():
    try:
        encoder = load_encoder("minilm")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    texts = ["Book a table for two.", "weather tomorrow"]
    got = vectors(encoder, texts)
    want = [  # from HuggingFace BertModel: mean over the mask, unit norm
        [0.0932105, -0.0066528, -0.0430455, 0.0281348, -0.1148559],
        [-0.0605877, 0.0615028, 0.1043028, 0.0388736, -0.0052547],
    ]
    np.testing.assert_allclose(got[:, :5], want, atol=1e-6)
    np.testing.assert_allclose(got[0] @ got[1], 0.0319206, atol=1e-6)


def test_fewer_layers_are_the_first_ones(deberta):
    whole, same, half = (
        load_encoder("deberta_v3_xsmall", deberta, layers=layers) for layers in (None, 2, 1)
    )
    assert same.backbone == whole.backbone
    jax.tree.map(np.testing.assert_array_equal, same.params, whole.params)
    assert list(half.params["blocks"]) == ["0"]
    assert len({whole.fingerprint, half.fingerprint}) == 2
    want, less = map(vectors, (whole, half))
    assert np.abs(less - want).max() > 1e-3
    np.testing.assert_allclose(less[2:3], one_by_one(half, TEXTS[2:3]), atol=1e-5)
    with pytest.raises(ValueError, match=r"layers must be in 1 .. 2, got 3"):
        load_encoder("deberta_v3_xsmall", deberta, layers=3)
