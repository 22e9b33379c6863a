"""Qwen3 as an encoder: last-token pooling, instructions, truncated width, shards and meshes."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, processors

from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret.encoders import ENCODERS, TASK, encode, load_encoder
from jaxret.runtime.sharding import make_mesh

TEXTS = ["Book a table.", "pay the rent by Friday, please; it is late", "weather " * 30, "x"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_qwen3(path, TEXTS, vocabulary=320, width=16, layers=1)
    return path


def vectors(folder, texts=TEXTS, kind="document", **options):
    encoder = load_encoder("qwen3_0_6b", folder, **options)
    return encode(encoder, texts, kind=kind, cache=None, progress=False)


@pytest.fixture(scope="module")
def whole(folder):
    return vectors(folder)


def test_a_text_is_the_hidden_state_of_its_closing_token(folder, whole):
    encoder = load_encoder("qwen3_0_6b", folder)
    closing = encoder.tokenizer.token_to_id("<|endoftext|>")
    apply = jax.jit(encoder.network.apply)
    for text, vector in zip(TEXTS[2:], whole[2:], strict=True):  # the longest and the shortest
        ids = encoder.tokenizer.encode(text, add_special_tokens=False).ids
        alone = np.array([[*ids, closing]])  # no padding: the closing token is last
        last = np.asarray(apply(encoder.params, alone, np.ones(alone.shape, bool)))[0, -1]
        np.testing.assert_allclose(vector, last / np.linalg.norm(last), atol=1e-5)


def test_queries_have_an_instruction_and_documents_have_none(folder, whole):
    for options, written in (
        ({"instruction": "Find a tool."}, "Instruct: Find a tool.\nQuery:pay"),
        ({}, f"Instruct: {TASK}\nQuery:pay"),
        ({"instruction": ""}, "pay"),
    ):
        got = vectors(folder, ["pay"], kind="query", **options)
        np.testing.assert_allclose(got, vectors(folder, [written]), atol=1e-5)
    np.testing.assert_allclose(vectors(folder, instruction="Find a tool."), whole, atol=1e-6)


def test_another_instruction_makes_another_entry_of_the_cache(folder, tmp_path):
    for instruction in ("Find a tool.", "Find a book.", ""):
        encoder = load_encoder("qwen3_0_6b", folder, instruction=instruction)
        kept, fresh = (
            encode(encoder, ["pay"], kind="query", cache=cache, progress=False)
            for cache in (tmp_path, None)
        )
        np.testing.assert_array_equal(kept, fresh)


def test_a_narrower_vector_is_the_first_numbers_of_the_whole_one(folder, whole, tmp_path):
    narrow = load_encoder("qwen3_0_6b", folder, width=5)
    assert narrow.width == 5
    got = encode(narrow, TEXTS, kind="document", cache=tmp_path, progress=False)
    want = whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(got, want, atol=1e-5)
    wide = load_encoder("qwen3_0_6b", folder)  # has cache entries of its own
    again = encode(wide, TEXTS, kind="document", cache=tmp_path, progress=False)
    np.testing.assert_allclose(again, whole, atol=1e-6)
    with pytest.raises(ValueError, match=r"width must be null or in 1 .. 16, got 17"):
        load_encoder("qwen3_0_6b", folder, width=17)


def test_instructions_and_tokenizers_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="e5_base takes no instruction, got 'Find'"):
        load_encoder("e5_base", instruction="Find")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"does not append <\|endoftext\|>"):
        vectors(tmp_path)


def test_weights_in_shards_give_the_same_vectors(folder, whole, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    names, where = sorted(tensors), {}
    for number in (1, 2):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({n: tensors[n] for n in names[number - 1 :: 2]}, tmp_path / shard)
        where |= dict.fromkeys(names[number - 1 :: 2], shard)
    index = {"weight_map": where}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    np.testing.assert_array_equal(vectors(tmp_path), whole)
    first = load_encoder("qwen3_0_6b", tmp_path).fingerprint
    tensors["model.norm.weight"][0] += 1
    changed = where["model.norm.weight"]
    save_file({n: tensors[n] for n in where if where[n] == changed}, tmp_path / changed)
    assert load_encoder("qwen3_0_6b", tmp_path).fingerprint != first


def test_parameters_on_a_mesh_give_the_same_vectors(folder, whole):
    mesh = make_mesh(model=2)
    encoder = load_encoder("qwen3_0_6b", folder, mesh=mesh)
    assert "on each of 2 devices" in encoder.memory()
    got = encode(encoder, TEXTS, kind="document", cache=None, progress=False)
    np.testing.assert_allclose(got, whole, atol=1e-5)
    sharding = encoder.params["blocks"]["0"]["query"]["kernel"].sharding
    assert sharding.shard_shape((16, 16)) == (16, 8)


def test_half_precision_is_near_and_keeps_a_cache_of_its_own(folder, whole):
    half = load_encoder("qwen3_0_6b", folder, dtype="bfloat16")
    assert {x.dtype for x in jax.tree.leaves(half.params)} == {jnp.dtype("bfloat16")}
    got = encode(half, TEXTS, kind="document", cache=None, progress=False)
    assert (got * whole).sum(axis=1).min() > 0.99
    assert half.fingerprint != load_encoder("qwen3_0_6b", folder).fingerprint


def test_tool_embed_is_used_as_what_it_was_made_of():
    ours = ENCODERS["tool_embed_4b"]
    assert ours == ENCODERS["qwen3_4b"]._replace(name=ours.name, hub_id=ours.hub_id)
    assert ours.pooling == "last"
