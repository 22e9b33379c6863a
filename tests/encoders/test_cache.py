"""The cache of encoded texts: vectors are reused, and never returned for a different input."""

import dataclasses
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxret.encoders import cache_directory, load_encoder
from jaxret.encoders import encoding as module
from jaxret.nn import checkpoints
from jaxret.nn.tensor_files import load_safetensors
from tests.encoders.conftest import vectors
from tests.tiny_folders import TEXTS


def test_a_second_run_reads_no_weights(checkpoint, tmp_path):
    weights = checkpoint / "model.safetensors"
    known = checkpoints.sha256(weights)
    first, second = (
        dataclasses.replace(load_encoder("minilm", checkpoint), sha256=known) for _ in range(2)
    )
    want = vectors(first, cache=tmp_path)
    weights.write_bytes(b"gone")
    np.testing.assert_array_equal(vectors(second, TEXTS[::-1], cache=tmp_path), want[::-1])
    with pytest.raises(ValueError, match=f"expected {known}"):
        vectors(second, ["a new text"], cache=tmp_path)


def cached(encoder, kind, cache):
    """Return the vector of a text from the cache, after a comparison with a fresh one."""
    kept = vectors(encoder, ["a b c"], kind=kind, cache=cache)
    np.testing.assert_array_equal(kept, vectors(encoder, ["a b c"], kind=kind))
    return kept


@pytest.mark.parametrize("kind", ["query", "document"])
def test_another_prefix_and_other_weights_make_other_entries(checkpoint, tmp_path, kind):
    """All else agrees, so a key without the prefix would return the wrong vector."""
    plain = load_encoder("minilm", checkpoint)
    found = []
    for prefix in ("", "query: ", "passage: "):
        spec = plain.spec._replace(**{f"{kind}_prefix": prefix})
        found.append(cached(dataclasses.replace(plain, spec=spec), kind, tmp_path / "cache"))
    tensors = load_safetensors(checkpoint / "model.safetensors")
    save_file({name: -tensor for name, tensor in tensors.items()}, checkpoint / "model.safetensors")
    found.append(cached(load_encoder("minilm", checkpoint), kind, tmp_path / "cache"))
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.combinations(found, 2))


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
        vectors(cut, cache=tmp_path)

    def kept():
        return sum(len(np.load(path)) for path in (tmp_path / encoder.fingerprint).iterdir())

    assert kept() == 2
    np.testing.assert_allclose(vectors(encoder, cache=tmp_path), vectors(encoder), atol=1e-5)
    assert kept() == len(TEXTS)


def test_two_writers_at_once_leave_a_sound_cache(checkpoint, tmp_path):
    encoder = load_encoder("minilm", checkpoint)
    want = vectors(encoder)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: vectors(encoder, cache=tmp_path), range(4)))
    np.testing.assert_array_equal(vectors(encoder, cache=tmp_path), want)


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_damaged_cache_file_is_named(checkpoint, tmp_path, size):
    encoder = load_encoder("minilm", checkpoint)
    vectors(encoder, cache=tmp_path)
    (shard,) = (tmp_path / encoder.fingerprint).iterdir()
    shard.write_bytes(shard.read_bytes()[:size])
    with pytest.raises(ValueError, match=f"{shard.name} is damaged .* delete it"):
        vectors(encoder, cache=tmp_path)
    shard.unlink()
    assert len(vectors(encoder, cache=tmp_path)) == len(TEXTS)


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("JAXRET_CACHE")
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(cache_directory()) == "/home/ada/.cache/jaxret"
