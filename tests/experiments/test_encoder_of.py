"""Encoders made from the config group ``encoder``, on one device and on several."""

import jax
import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.common.loading import encoder_of
from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret import encoders

TEXTS = ["send money to a friend", "what is the weather in Basel", "book a table for two"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qwen3")
    write_tiny_qwen3(path, TEXTS, vocabulary=300, width=16, layers=1, tied=True, seed=0)
    return path


def config(folder, **more):
    return OmegaConf.create({"name": "qwen3_0_6b", "path": str(folder), **more})


def test_the_memory_is_printed_before_weights_are_read(folder, capsys):
    found = encoder_of(config(folder))
    said = capsys.readouterr().out
    assert "params" not in vars(found)  # the weights have not been read
    count = sum(leaf.size for leaf in jax.tree.leaves(found.params))
    assert f"qwen3_0_6b: {count:,} parameters in float32" in said


def test_devices_share_the_weights_and_give_the_same_vectors(folder, capsys):
    one, two = (encoder_of(config(folder, devices=devices)) for devices in (1, 2))
    assert "on each of 2 devices" in capsys.readouterr().out
    ours, theirs = (
        encoders.encode(encoder, TEXTS, kind="query", cache=None, progress=False)
        for encoder in (two, one)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(ValueError, match="a mesh of run=1 x item=1 x model=64 needs 64 devices"):
        encoder_of(config(folder, devices=64))
