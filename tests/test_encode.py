import dataclasses
import itertools
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jaxret import encode as module
from jaxret.encode import cache_directory, encode, load_encoder
from jaxret.nn import checkpoints
from jaxret.nn.tensor_files import load_safetensors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", *"abcdefgh"]
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(list("abcdefgh"), n)) for n in (3, 40, 1, 300, 3)]


@pytest.fixture
def checkpoint(tmp_path):
    """A one-layer BERT with random weights, laid out as HuggingFace does."""
    width, vocabulary = 8, len(WORDS)
    config = {
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    sizes = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    layer = "encoder.layer.0."
    linear = {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "intermediate.dense": (12, width),
        "output.dense": (width, 12),
    }
    for name, (outputs, inputs) in linear.items():
        sizes |= {layer + name + ".weight": (outputs, inputs), layer + name + ".bias": (outputs,)}
    for name in ("embeddings.", layer + "attention.output.", layer + "output."):
        sizes |= {name + "LayerNorm.weight": (width,), name + "LayerNorm.bias": (width,)}
    rng = np.random.default_rng(1)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file(
        {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config))
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def deberta(checkpoint):
    """The same, with a two-layer DeBERTa-V3."""
    width, vocabulary = 8, len(WORDS) + 3  # rows to spare, as the published ones have
    config = {
        "model_type": "deberta-v2",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 64,
        "position_buckets": 16,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "position_biased_input": False,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "p2c|c2p",
    }
    sizes = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "encoder.rel_embeddings.weight": (32, width),
    }
    norms = ["embeddings.", "encoder."]
    for i in range(2):
        layer = f"encoder.layer.{i}."
        linear = {
            "attention.self.query_proj": (width, width),
            "attention.self.key_proj": (width, width),
            "attention.self.value_proj": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (12, width),
            "output.dense": (width, 12),
        }
        for name, (rows, columns) in linear.items():
            sizes |= {layer + name + ".weight": (rows, columns), layer + name + ".bias": (rows,)}
        norms += [layer + "attention.output.", layer + "output."]
    for name in norms:
        sizes |= {name + "LayerNorm.weight": (width,), name + "LayerNorm.bias": (width,)}
    rng = np.random.default_rng(1)
    tensors = {"deberta." + name: rng.standard_normal(size) for name, size in sizes.items()}
    tensors["mask_predictions.dense.weight"] = np.zeros((3, 3))  # a head of pre-training
    save_file(
        {name: tensor.astype(np.float32) for name, tensor in tensors.items()},
        checkpoint / "model.safetensors",
    )
    (checkpoint / "config.json").write_text(json.dumps(config))
    return checkpoint


def one_by_one(encoder, texts):
    """Each text alone and without padding, tokenised by hand."""
    rows = []
    for text in texts:
        words = text.split()[: encoder.spec.max_tokens - 2]
        ids = jnp.array([[2, *(WORDS.index(word) for word in words), 3]])
        rows.append(jax.jit(encoder.embed)(encoder.params, ids, jnp.ones(ids.shape, bool))[0])
    return np.stack(rows)


def test_batches_of_mixed_lengths_equal_texts_encoded_one_by_one(checkpoint):
    encoder = load_encoder("minilm", checkpoint)
    got = encode(encoder, TEXTS, kind="query", cache=None, progress=False)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, one_by_one(encoder, TEXTS), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-6)


def test_a_deberta_is_loaded_and_encodes_like_any_other(deberta):
    encoder = load_encoder("deberta_v3_xsmall", deberta)
    assert encoder.width == 8
    got = encode(encoder, TEXTS, kind="query", cache=None, progress=False)
    np.testing.assert_allclose(got, one_by_one(encoder, TEXTS), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-6)
    assert np.abs(got[0] - got[1]).max() > 1e-3  # not one vector for everything


def test_each_kind_of_text_gets_its_prefix(checkpoint):
    encoder = load_encoder("e5_small", checkpoint)
    for kind, prefix in {"query": "query : ", "document": "passage : "}.items():
        got = encode(encoder, ["a b"], kind=kind, cache=None, progress=False)
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
    before = encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)
    compiled = encoder.compiled._cache_size()
    trained = encoder.with_weights(jax.tree.map(jnp.negative, encoder.params))
    after = encode(trained, TEXTS, kind="query", cache=tmp_path, progress=False)
    assert encoder.compiled._cache_size() == trained.compiled._cache_size() == compiled
    assert len({encoder.fingerprint, trained.fingerprint}) == 2  # so the cache keeps them apart
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(after, one_by_one(trained, TEXTS), atol=1e-5)
    same = encoder.with_weights(encoder.params)
    again = encode(same, TEXTS, kind="query", cache=None, progress=False)
    np.testing.assert_array_equal(again, before)


def test_a_second_run_reads_no_weights(checkpoint, tmp_path):
    weights = checkpoint / "model.safetensors"
    known = checkpoints.sha256(weights)
    first, second = (
        dataclasses.replace(load_encoder("minilm", checkpoint), sha256=known) for _ in range(2)
    )
    want = encode(first, TEXTS, kind="query", cache=tmp_path, progress=False)
    weights.write_bytes(b"gone")
    got = encode(second, TEXTS[::-1], kind="query", cache=tmp_path, progress=False)
    np.testing.assert_array_equal(got, want[::-1])
    with pytest.raises(ValueError, match=f"expected {known}"):
        encode(second, ["a new text"], kind="query", cache=tmp_path, progress=False)


def test_other_weights_or_another_prefix_never_meet_the_same_cache_entry(checkpoint, tmp_path):
    def run(name, kind):
        encoder = load_encoder(name, checkpoint)
        got = encode(encoder, ["a b c"], kind=kind, cache=tmp_path, progress=False)
        fresh = encode(encoder, ["a b c"], kind=kind, cache=None, progress=False)
        np.testing.assert_array_equal(got, fresh)
        return got

    vectors = [run("e5_small", "query"), run("e5_small", "document"), run("minilm", "query")]
    tensors = load_safetensors(checkpoint / "model.safetensors")
    save_file({name: -tensor for name, tensor in tensors.items()}, checkpoint / "model.safetensors")
    vectors.append(run("minilm", "query"))
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(vectors))


def test_an_interrupted_run_keeps_its_finished_shards(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 2)
    encoder, cut = load_encoder("minilm", checkpoint), load_encoder("minilm", checkpoint)
    calls = iter(range(100))

    def interrupted(*args):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return encoder.compiled(*args)

    vars(cut)["compiled"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        encode(cut, TEXTS, kind="query", cache=tmp_path, progress=False)

    def kept():
        return sum(len(np.load(path)) for path in (tmp_path / encoder.fingerprint).iterdir())

    assert kept() == 2
    got = encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)
    want = encode(encoder, TEXTS, kind="query", cache=None, progress=False)
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert kept() == len(TEXTS)


def test_two_writers_at_once_leave_a_sound_cache(checkpoint, tmp_path):
    encoder = load_encoder("minilm", checkpoint)
    want = encode(encoder, TEXTS, kind="query", cache=None, progress=False)

    def work():
        encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_damaged_cache_file_is_named(checkpoint, tmp_path, size):
    encoder = load_encoder("minilm", checkpoint)
    encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)
    (shard,) = (tmp_path / encoder.fingerprint).iterdir()
    shard.write_bytes(shard.read_bytes()[:size])
    with pytest.raises(ValueError, match=f"{shard.name} is damaged .* delete it"):
        encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)
    shard.unlink()
    assert len(encode(encoder, TEXTS, kind="query", cache=tmp_path, progress=False)) == len(TEXTS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", " \n"], r"text 1 of 2 is empty: ' \\n'"),
        (["a", "b", None], "text 2 must be a string, got NoneType"),
        ("a b", "texts must be a list of strings, got the single string 'a b'"),
    ],
)
def test_what_is_no_text_is_refused_by_its_position(checkpoint, texts, message):
    with pytest.raises((TypeError, ValueError), match=message):
        encode(load_encoder("minilm", checkpoint), texts, kind="query", cache=None)


def test_no_texts_are_an_empty_matrix(checkpoint):
    got = encode(load_encoder("minilm", checkpoint), [], kind="query", cache=None)
    assert got.shape == (0, 8)


def test_unknown_kinds_and_encoders_are_refused(checkpoint):
    with pytest.raises(ValueError, match=r"\['query', 'document'\], got 'tool'"):
        encode(load_encoder("minilm", checkpoint), ["a"], kind="tool", cache=None)
    with pytest.raises(ValueError, match=r"one of \[.*'minilm'.*\], got 'bm25'"):
        load_encoder("bm25")


def test_a_tokenizer_of_another_model_is_refused(checkpoint):
    path = checkpoint / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens(["surplus"])
    tokenizer.save(str(path))
    with pytest.raises(ValueError, match="has 16 tokens and the weights 15"):
        encode(load_encoder("minilm", checkpoint), ["a"], kind="query", cache=None)


def test_weights_with_too_few_positions_are_refused(checkpoint):
    path = checkpoint / "config.json"
    path.write_text(path.read_text().replace("512", "256"))
    load_encoder("minilm", checkpoint)
    with pytest.raises(ValueError, match=r"e5_small reads 512 tokens a text, .* only 256"):
        load_encoder("e5_small", checkpoint)


def test_embed_is_differentiable_in_its_parameters(checkpoint):
    encoder = load_encoder("minilm", checkpoint)
    ids, mask = jnp.array([[2, 7, 8, 3, 0]]), jnp.array([[True, True, True, True, False]])
    target = jnp.arange(8.0)

    def loss(params):
        return encoder.embed(params, ids, mask)[0] @ target

    loss = jax.jit(loss)
    gradient = jax.jit(jax.grad(loss))(encoder.params)
    step = jax.tree.map(lambda p, g: p - 1e-3 * g, encoder.params, gradient)
    drop = 1e-3 * sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))
    np.testing.assert_allclose(loss(encoder.params) - loss(step), drop, rtol=0.05)


def test_minilm_gives_the_vectors_that_pytorch_gave():
    try:
        encoder = load_encoder("minilm")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    texts = ["Book a table for two.", "weather tomorrow"]
    got = encode(encoder, texts, kind="query", cache=None, progress=False)
    want = [  # HuggingFace BertModel, mean over the mask, unit norm
        [0.0932105, -0.0066528, -0.0430455, 0.0281348, -0.1148559],
        [-0.0605877, 0.0615028, 0.1043028, 0.0388736, -0.0052547],
    ]
    np.testing.assert_allclose(got[:, :5], want, atol=1e-6)
    np.testing.assert_allclose(got[0] @ got[1], 0.0319206, atol=1e-6)


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("JAXRET_CACHE")
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(cache_directory()) == "/home/ada/.cache/jaxret"
