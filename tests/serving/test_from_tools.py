"""An index from a list of tools: started, kept in step, saved with a callable, warned of cuts."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxret as jr
from tests import tiny
from tests.serving.indices import SETTINGS, leaves, same

BILL = {"name": "send_invoice", "description": "Bills a customer."}
RENT = {"name": "rent_car", "description": "Rents a car."}
TIME = {"name": "get_time", "description": "Tells the time."}


def counted(texts):
    """Encode a text by its letters."""
    counts = [
        [text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts
    ]
    return np.array(counts, np.float32) / np.linalg.norm(counts, axis=1, keepdims=True)


def started(*tools, learner=None, **options):
    return jr.Index.from_tools(
        [*tools], jr.greedy(**SETTINGS) if learner is None else learner, counted, **options
    )


def learnt(index, tool, query="something with a car and an invoice, in time"):
    """Answer until the row of a tool has moved, and return how far it is from its start."""
    for _ in range(10):
        ticket = index.search(query, k=len(index))
        index.feedback(ticket, worked=ticket.ids[0] == tool)
    return moved(index, tool)


def moved(index, tool):
    row = index.names.index(tool)
    return float(np.linalg.norm(np.asarray(index.state.theta[row]) - index.starts[row]))


def test_an_index_starts_from_a_file_without_queries(tmp_path):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps({"tools": [BILL, RENT]}), encoding="utf-8")
    for tools in (file, str(file), [BILL, RENT], jr.tools.read(file)):
        index = jr.Index.from_tools(tools, jr.greedy(**SETTINGS), counted, seed=3)
        assert (index.ids, index.seed) == (["send_invoice", "rent_car"], 3)
        assert index.texts[1] == "Name: rent car Description: Rents a car."
        np.testing.assert_allclose(index.starts, counted(index.texts), atol=1e-6)
        assert index.search(index.texts[1]).ids == ["rent_car"]


def test_the_learner_is_the_mixture_unless_it_is_given():
    index = jr.Index.from_tools([BILL, RENT, TIME], encoder=counted)
    assert index.learner is jr.mixture()


def test_sync_adds_and_redescribes_and_removes_nothing():
    index = started(BILL, RENT)
    change, before = learnt(index, "rent_car"), leaves(index)
    assert change > 0.01
    assert index.sync([RENT]) == jr.Synced([], [], ["rent_car"])
    same(leaves(index), before)
    changed = RENT | {"description": "Rents a car by the day."}
    assert index.sync({"tools": [TIME, changed]}) == jr.Synced(["get_time"], ["rent_car"], [])
    assert index.ids == ["send_invoice", "rent_car", "get_time"]
    assert index.texts[1] == "Name: rent car Description: Rents a car by the day."
    assert moved(index, "rent_car") > 0.01  # the learnt change is carried over
    assert moved(index, "get_time") < 1e-5
    index.sync([RENT], how="reset")
    assert moved(index, "rent_car") < 1e-5
    assert index.sync([BILL, RENT, TIME]).unchanged == ["send_invoice", "rent_car", "get_time"]


def test_sync_restores_a_removed_tool_with_what_was_learnt():
    index = started(BILL, RENT)
    change = learnt(index, "rent_car")
    index.remove(["rent_car"])
    assert index.sync([RENT]).added == ["rent_car"]
    assert moved(index, "rent_car") == pytest.approx(change)


def test_sync_knows_a_tool_by_the_category_before_its_name():
    """A user who sees one server of two lists a name that does not clash for that user."""
    other = BILL | {"description": "Sends an invoice for approval."}
    index = started({"shop": [BILL], "office": [other]})
    assert index.ids == ["shop.send_invoice", "office.send_invoice"]
    assert index.sync({"office": [other]}) == jr.Synced([], [], ["office.send_invoice"])


@pytest.mark.parametrize(
    "learner",
    [jr.greedy(**SETTINGS), pytest.param(jr.mixture(), marks=pytest.mark.slow)],
    ids=lambda learner: learner.name,
)
def test_a_tool_that_comes_back_with_its_description_keeps_what_was_learnt(learner):
    index = started(BILL, RENT, learner=learner)
    learnt(index, "rent_car")
    before, text = leaves(index), index.texts[1]
    for description in (text, index.starts[1]):
        index.remove(["rent_car"])
        index.add(["rent_car"], [description])
        same(leaves(index), before)
    index.remove(["rent_car"])
    index.add(["rent_car"], [text], reset=True)
    assert moved(index, "rent_car") < 1e-5
    changed = [(a != b).any() for a, b in zip(leaves(index), before, strict=True)]
    assert any(changed)


def test_a_tool_that_comes_back_with_another_description_starts_from_it():
    index = started(BILL, RENT)
    learnt(index, "rent_car")
    index.remove(["rent_car"])
    index.add(["rent_car"], ["Rents bicycles."])
    assert moved(index, "rent_car") < 1e-5


@pytest.mark.parametrize("bad", [7, "", " ", None])
def test_ids_are_strings_that_are_not_blank(bad):
    index = started(BILL)
    with pytest.raises(ValueError, match="an id must be a string that is not blank, got"):
        index.add(["a", bad], ["one text", "another"])
    assert index.ids == ["send_invoice"]


def test_an_index_with_a_callable_names_it_and_its_width(tmp_path):
    index = started(BILL, RENT)
    index.save(tmp_path)
    with pytest.raises(ValueError, match=r"callable 'counted' \(width 26\), which no file holds"):
        jr.Index.load(tmp_path)
    again = jr.Index.load(tmp_path, encoder=counted)
    assert again.search("a car").ids == index.search("a car").ids
    assert again.sync([BILL, TIME]) == jr.Synced(["get_time"], [], ["send_invoice"])
    with pytest.raises(ValueError, match="tools has no vectors: load it with an encoder"):
        jr.Index.from_tools([BILL], encoder=None)


def test_a_warning_names_the_texts_that_the_encoder_cuts(tmp_path):
    encoder = tiny.encoder(tmp_path)
    encoder = replace(encoder, spec=encoder.spec._replace(max_tokens=8))
    vectors = np.eye(12, dtype=np.float32)
    task = replace(jr.Task.from_arrays(vectors, vectors, range(12)), encoder=encoder)
    index = jr.Index(jr.greedy(**SETTINGS), task)
    with pytest.warns(
        UserWarning, match=r"^2 of 3 document texts .* the 8 tokens .*: 'y', 'z'; put"
    ):
        index.add(["x", "y", "z"], ["a b", "a " * 7, "b " * 30])
    with pytest.warns(UserWarning, match="1 of 1 document texts .*: 'x'; put what matters first"):
        index.redescribe(["x"], ["c " * 7])
    index.redescribe(["x"], ["c " * 6])  # with the two special tokens: all 8
    index.search("a " * 30)  # a query has no id, and no warning
    many = [{"name": f"t{n}", "description": "a " * 20} for n in range(5)]
    with pytest.warns(UserWarning, match=r"5 of 6 document texts .*: 't0', 't1', 't2', \.\.; put"):
        jr.Index.from_tools([*many, {"name": "b"}], jr.greedy(), encoder, cache=tmp_path / "c")
    with pytest.warns(UserWarning, match="5 of 6"):  # vectors from the cache are of cut texts too
        jr.Index.from_tools([*many, {"name": "b"}], jr.greedy(), encoder, cache=tmp_path / "c")


def test_tools_whose_schema_comes_first_differ(tmp_path):
    """Name and description lie before what the encoder cuts."""
    encoder = tiny.encoder(tmp_path)
    schema = {"properties": {f"q {n}": {"description": "r s t"} for n in range(40)}}
    rows = [
        {"id": name, "documentation": {"inputSchema": schema, "name": name, "description": name}}
        for name in "ab"
    ]
    for file, content in (("tools", rows), ("queries", [{"id": 1, "query": "a", "labels": ["a"]}])):
        text = "\n".join(map(json.dumps, content))
        (tmp_path / f"{file}.jsonl").write_text(text, encoding="utf-8")
    with pytest.warns(UserWarning, match="2 of 2 document texts are longer than the 32 tokens"):
        task = jr.load_task("jsonl", tmp_path, encoder=encoder, cache=tmp_path / "c")
    assert not np.allclose(*task.theta, atol=1e-6)
    assert jax.numpy.isfinite(task.theta).all()
