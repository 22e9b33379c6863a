"""Tensor files, single or sharded, and every way in which they may be invalid."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxret.nn.tensor_files import load_safetensors, weight_files

RNG = np.random.default_rng(0)
TENSORS = {
    "a": RNG.standard_normal((3, 2)).astype(np.float32),
    "b": np.arange(5),
    "c": RNG.standard_normal((4, 2)).astype(jnp.bfloat16),
    "d": np.array(2.5, np.float16),
}
SHARDS = {name: f"model-0000{2 if name in 'cd' else 1}-of-00002.safetensors" for name in TENSORS}


@pytest.fixture
def shards(tmp_path):
    """Return a directory with TENSORS in two shards and an index."""
    for file in set(SHARDS.values()):
        save_file({n: t for n, t in TENSORS.items() if SHARDS[n] == file}, tmp_path / file)
    index = {"metadata": {"total_size": 82}, "weight_map": SHARDS}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_shards_hold_what_one_file_does_and_cannot_be_written_to(shards, tmp_path_factory):
    whole = tmp_path_factory.mktemp("whole")
    save_file(TENSORS, whole / "model.safetensors", metadata={"format": "pt"})
    for path in (whole, whole / "model.safetensors", shards):
        got = load_safetensors(path)
        assert set(got) == set(TENSORS)
        for name, tensor in TENSORS.items():
            assert got[name].dtype == tensor.dtype
            np.testing.assert_array_equal(got[name], tensor)
    assert [file.name for file in weight_files(shards)] == sorted(set(SHARDS.values()))
    with pytest.raises(ValueError, match="read-only"):
        load_safetensors(shards)["a"][0] = 1


def test_rows_of_a_tensor_larger_than_memory_are_read_alone(tmp_path):
    path, rows = tmp_path / "model.safetensors", 2**26
    size = rows * 256 * 2  # 34 GB, sparse except for the last row
    tensor = {"dtype": "BF16", "shape": [rows, 256], "data_offsets": [0, size]}
    header = json.dumps({"lm_head.weight": tensor}).encode()
    last = np.arange(256).astype(jnp.bfloat16)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.seek(size - last.nbytes, 1)
        file.write(last.tobytes())
    head = load_safetensors(path)["lm_head.weight"]
    assert head.shape == (rows, 256)
    np.testing.assert_array_equal(head[[7, rows - 1]], np.stack([0 * last, last]))


def test_missing_files_are_named(shards, tmp_path_factory):
    for file in set(SHARDS.values()):
        (shards / file).unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_safetensors(shards)
    assert all(file in str(error.value) for file in SHARDS.values())
    with pytest.raises(FileNotFoundError, match=r"has no model.safetensors: fetch it again"):
        load_safetensors(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 3}}'], ids=repr
)
def test_a_damaged_index_is_named(shards, content):
    (shards / "model.safetensors.index.json").write_text(content)
    with pytest.raises(
        ValueError, match=r"index.json is not an index of shards \(.*: fetch it again"
    ):
        load_safetensors(shards)


def test_an_index_and_shards_that_disagree_are_refused(shards):
    save_file({"a": TENSORS["a"], "surplus": TENSORS["a"]}, shards / SHARDS["a"])
    with pytest.raises(ValueError, match="do not belong together") as error:
        load_safetensors(shards)
    file = SHARDS["a"]
    assert str(error.value).endswith(f"only one of them has b in {file}, surplus in {file}")


def test_truncated_files_and_unusual_types_are_named(shards):
    path = shards / SHARDS["c"]
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match=rf"{path.name} .* is not a whole safetensors file"):
        load_safetensors(shards)
    (shards / "model.safetensors").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load_safetensors(shards)
    save_file({"a": np.ones(2, np.uint16)}, shards / "model.safetensors")
    with pytest.raises(ValueError, match=r"tensors must be one of F64, .*, got {'a': 'U16'}"):
        load_safetensors(shards)
