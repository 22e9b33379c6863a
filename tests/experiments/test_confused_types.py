"""Functions of one name on several types: by hand, and for NumPy with a tiny encoder."""

from collections import Counter

import numpy as np
import pytest

from experiments import confused_types
from experiments.build_catalogue.libraries import build_catalogue
from jaxret import encoders
from jaxret.data.templates import template
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, with_encoder

IDS = ["lib.Frame.sum", "lib.Frame.mean", "lib.Series.sum", "lib.read", "lib.Series.dt.sum"]
DEGREES = [0, 10, 25, 90, 92]  # the nearest are 1, 0, 1, 4 and 3


def configure(world, directory, *more):
    where = with_encoder(world, directory)
    return config_of("confused_types", *where, "libraries=[numpy]", *more)


def directions(degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_twins_and_neighbours_of_five_functions_are_those_found_by_hand():
    found = confused_types.confusion(IDS, directions(DEGREES), others=10, seed=0)
    np.testing.assert_array_equal(found["twins"], [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(found["nearest/twin"], [0, 0, 0, 0, 0])
    near = np.cos(np.radians([10, 10, 15, 2, 2]))
    np.testing.assert_allclose(found["nearest/cosine"], near)
    np.testing.assert_allclose(found["alone/cosine"], near[[1, 3]])
    moved = confused_types.confusion(IDS, directions([0, 40, 25, 90, 120]), others=10, seed=0)
    np.testing.assert_array_equal(moved["nearest/twin"], [1, 0, 0, 0, 0])
    # Functions that all have a twin are not compared with those without.
    found = confused_types.confusion(["a.f", "b.f"], directions([0, 90]), others=1, seed=0)
    assert "alone/cosine" not in found
    np.testing.assert_array_equal(found["nearest/twin"], [1, 1])


def test_random_others_are_all_functions_but_the_function_itself_equally_often():
    found = confused_types.confusion(IDS, directions(DEGREES), others=20_000, seed=0)
    np.testing.assert_allclose(found["random/twin"], [0.5, 0, 0.5, 0, 0.5], atol=0.02)
    cosine = np.cos(np.radians(np.subtract.outer(DEGREES, DEGREES)))
    others = (cosine.sum(axis=1) - 1) / 4
    np.testing.assert_allclose(found["random/cosine"], others, atol=0.02)


def test_numpys_functions_are_counted_once_each_without_those_left_out(
    world, tmp_path, monkeypatch
):
    """Those from c to e, for speed."""
    whole = build_catalogue("numpy")
    few = tuple(tool for tool in whole.tools if tool.id.split(".")[-1][0] in "cde")
    given = whole._replace(tools=few)
    monkeypatch.setattr(confused_types, "build_catalogue", lambda name, words: given)
    confused_types.main(configure(world, tmp_path, "without=[numpy.strings.]"))
    tools = [tool for tool in few if "numpy.strings." not in tool.id]
    assert 1 < len(tools) < len(few)
    names = Counter(tool.id.split(".")[-1] for tool in tools)
    found = read_results(tmp_path)
    assert found["numpy/twins"]["n"] == len(tools)
    shared = sum(count for count in names.values() if count > 1)
    assert shared
    assert found["numpy/twins"]["mean"] == pytest.approx(shared / len(tools))
    encoder = encoders.load_encoder("minilm", world / "encoder")
    texts = [template("full")({"name": x.id, **x.row()["documentation"]}) for x in tools]
    vectors = encoders.encode(encoder, texts, kind="document", cache=None, progress=False)
    nearest = np.sort(vectors @ vectors.T, axis=1)[:, -2]  # the last is the document itself
    assert found["numpy/nearest/cosine"]["mean"] == pytest.approx(nearest.mean(), abs=1e-5)
