"""An index on disk: exact continuation after loading, and errors for unreadable files."""

import json
from dataclasses import replace

import numpy as np
import pytest

import jaxret as jr
from tests.serving.indices import LEARNERS, SETTINGS, leaves, lived, same
from tests.slow import slowly


@pytest.mark.parametrize("name", slowly(LEARNERS, {"mapped", "row_steps"}))
def test_a_saved_index_continues_bit_for_bit_and_growing_keeps_all_that_is_learnt(
    task, small, tmp_path, name
):
    """As it grows, every array with the old number of rows keeps its entries and gains rows."""
    new, grown = small(items=20, seed=7).theta, 0
    index = lived(jr.Index(LEARNERS[name], task), task)
    index.remove(["tool_2"])
    waiting = [index.search(task.queries[n], k=2) for n in (3, 4)]
    index.save(tmp_path / "index")
    other = jr.Index.load(tmp_path / "index")
    assert (other.ids, list(other.tickets)) == (index.ids, [6, 7])
    same(leaves(other), leaves(index))
    for one in (index, other):
        one.feedback(waiting[1], worked=1, item=waiting[1].ids[1])
        before = leaves(one)
        one.add([f"new_{n}" for n in range(20)], new)
        for old, larger in zip(before, leaves(one), strict=True):
            corner = larger[tuple(slice(0, n) for n in old.shape)]
            np.testing.assert_array_equal(corner, old)
            grown += old.shape != larger.shape
        np.testing.assert_allclose(np.asarray(one.state.theta)[12:32], new, atol=1e-6)
        assert (len(one), len(one.ids)) == (31, 31)
        lived(one, task)
        assert all(np.isfinite(leaf).all() for leaf in leaves(one))
    assert grown >= 4  # at least theta and available, twice
    same(leaves(other), leaves(index))
    assert index.search(task.queries[0], k=12) == other.search(task.queries[0], k=12)
    other.save(tmp_path / "index")  # replaces the first index
    assert jr.Index.load(tmp_path / "index").ids == other.ids
    kinds = {one.suffix or one.name for one in (tmp_path / "index").iterdir()}
    assert kinds == {".lock", ".json", ".npz"}
    assert len(list((tmp_path / "index").glob("arrays-*"))) == 1


def test_a_custom_learner_must_be_given_to_load(task, tmp_path):
    rule = jr.with_query_map(jr.greedy(**SETTINGS), rate=1.0)
    index = lived(jr.Index(rule, task), task)
    index.save(tmp_path)
    with pytest.raises(
        ValueError, match=r"'greedy.linear' is not a preset, and must be given: Index"
    ):
        jr.Index.load(tmp_path)
    same(leaves(jr.Index.load(tmp_path, learner=rule)), leaves(index))
    with pytest.raises(ValueError, match=r"holds a state of 'greedy.linear', not of 'orag'"):
        jr.Index.load(tmp_path, learner=jr.orag())
    other = jr.with_query_map(jr.greedy(), jr.query_maps.low_rank(rank=2))._replace(name=rule.name)
    with pytest.raises(ValueError, match=r"holds another state than .* has: other settings"):
        jr.Index.load(tmp_path, learner=other)


def test_a_given_preset_must_have_the_settings_of_the_index(task, tmp_path):
    index = jr.Index(jr.greedy(eta=0.5), task)
    index.save(tmp_path)
    index.close()
    with pytest.raises(ValueError, match=r"'greedy' with the settings .*0\.5"):
        jr.Index.load(tmp_path, jr.greedy())
    assert jr.Index.load(tmp_path, jr.greedy(eta=0.5)).learner is index.learner


def test_a_callable_encoder_must_be_given_again_and_is_held_to_the_width(task, tmp_path):
    def ones(texts):
        return np.eye(8)[[len(text) for text in texts]]

    index = jr.Index(jr.greedy(**SETTINGS), replace(task, encoder=ones))
    index.save(tmp_path)
    with pytest.raises(
        ValueError, match=r"callable 'ones' \(width 8\), which no file holds: Index\.load"
    ):
        jr.Index.load(tmp_path)
    other = jr.Index.load(tmp_path, encoder=ones)
    assert other.search("abc").ids == index.search(np.eye(8)[3]).ids
    other.encoder = lambda texts: np.ones((len(texts), 2))
    with pytest.raises(ValueError, match=r"must be 8 finite numbers, got the shape \[2\]"):
        other.search("abc")


def test_presets_are_made_again_as_they_were_and_no_others(task, tmp_path):
    """A preset whose parts were replaced and renamed counts as a custom learner."""
    ball = jr.orag(tau=0.3, eta=0.5, projection=jr.ball(radius=2.0))
    index = lived(jr.Index(ball, task), task)
    index.save(tmp_path / "ball")
    other = jr.Index.load(tmp_path / "ball")
    same(leaves(lived(other, task)), leaves(lived(index, task)))
    renamed = jr.greedy()._replace(name="mine", update=jr.orag().update)
    jr.Index(renamed, task).save(tmp_path / "mine")
    with pytest.raises(ValueError, match="'mine' is not a preset, and must be given"):
        jr.Index.load(tmp_path / "mine")
    tapered = jr.orag(schedule=jr.schedules.inverse_sqrt())
    jr.Index(tapered, task).save(tmp_path / "tapered")
    with pytest.raises(ValueError, match="'orag' is not a preset, and must be given"):
        jr.Index.load(tmp_path / "tapered")
    assert jr.Index.load(tmp_path / "tapered", learner=tapered).learner is tapered


def test_a_damaged_folder_is_named(task, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no index.json: write it with index.save"):
        jr.Index.load(tmp_path)
    jr.Index(jr.greedy(), task).save(tmp_path)
    words, arrays = tmp_path / "index.json", next(tmp_path.glob("arrays-*.npz"))
    text, data = words.read_text(), arrays.read_bytes()
    without = json.dumps({k: v for k, v in json.loads(text).items() if k != "seed"})
    for file, content in (
        (words, text[:100].encode()),
        (words, without.encode()),
        (arrays, data[:300]),
        (arrays, b""),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or of another version"):
            jr.Index.load(tmp_path)
        words.write_text(text)
        arrays.write_bytes(data)
    arrays.unlink()
    with pytest.raises(ValueError, match="is damaged or of another version"):
        jr.Index.load(tmp_path)


def test_an_interrupted_save_leaves_the_old_index(task, tmp_path, monkeypatch):
    index = jr.Index(jr.greedy(), task)
    index.save(tmp_path)
    index.search(task.queries[0])

    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        index.save(tmp_path)
    assert jr.Index.load(tmp_path).next_ticket == 0
