"""The cache of encoded texts: vectors are reused, and never returned for a different input."""

import dataclasses
import itertools
import threading

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret.encoders import cache_directory, encode, load_encoder
from jaxret.encoders import encoding as module
from jaxret.nn import checkpoints
from jaxret.nn.tensor_files import load_safetensors
from tests.tiny_folders import TEXTS, write_bert


@pytest.fixture
def checkpoint(tmp_path):
    write_bert(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


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


@pytest.mark.parametrize("kind", ["query", "document"])
def test_the_prefix_alone_makes_another_entry(checkpoint, tmp_path, kind):
    """Weights, text and kind agree, so a key without the prefix would return the wrong vector."""
    plain = load_encoder("minilm", checkpoint)
    vectors = []
    for prefix in ("", "query: ", "passage: "):
        spec = plain.spec._replace(**{f"{kind}_prefix": prefix})
        encoder = dataclasses.replace(plain, spec=spec)
        kept, fresh = (
            encode(encoder, ["a b c"], kind=kind, cache=cache, progress=False)
            for cache in (tmp_path / "cache", None)
        )
        np.testing.assert_array_equal(kept, fresh)
        vectors.append(kept)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.combinations(vectors, 2))


def test_another_instruction_makes_another_entry(tmp_path):
    write_tiny_qwen3(tmp_path / "qwen3", TEXTS, vocabulary=320, width=16, layers=1)

    def run(instruction, cache):
        encoder = load_encoder("qwen3_0_6b", tmp_path / "qwen3", instruction=instruction)
        return encode(encoder, ["a b c"], kind="query", cache=cache, progress=False)

    for instruction in ("Find a tool.", "Find a book.", ""):
        np.testing.assert_array_equal(run(instruction, tmp_path / "cache"), run(instruction, None))


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


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("JAXRET_CACHE")
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(cache_directory()) == "/home/ada/.cache/jaxret"
