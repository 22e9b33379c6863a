"""Conversion of data sets to the layout of ToolRet."""

import json

import numpy as np
import pytest

from experiments import arrange_toolret
from jaxret import data
from jaxret.data.toolret import benchmark
from tests.experiments.configs import config_of


def arranged(path, *more):
    """Convert DeskBank."""
    desk = "tasks={desk:{source:{name:deskbank},category:customized,instruction:Find it.}}"
    cfg = config_of("arrange_toolret", f"path={path}", "~tasks", f"+{desk}", *more)
    arrange_toolret.main(cfg)
    return benchmark(path)


def test_a_data_set_is_arranged_as_a_copy_with_and_without_profiles(tmp_path):
    bank = data.load("deskbank")
    plain = arranged(tmp_path / "plain")
    expanded = arranged(tmp_path / "expanded", "expanded=true")
    assert plain.queries == bank.queries
    assert plain.tasks == {"desk": "customized"}
    np.testing.assert_array_equal(plain.dataset.labels, bank.labels)
    for copied in (plain, expanded):
        documents = zip(copied.dataset.documents, bank.documents, strict=True)
        for text, document in documents:
            left_out = {"terse", "domain"} | ({"tool_profile"} if copied is plain else set())
            wanted = {key: value for key, value in document.items() if key not in left_out}
            assert json.loads(text) == wanted
    with pytest.raises(ValueError, match="plain exists: give the name of a new folder"):
        arranged(tmp_path / "plain")
