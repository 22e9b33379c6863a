"""The ToolBench loader, on files laid out as the authors' script writes them.

A CSV writer quotes fields where necessary, and every pair of a query and an API has a row.
"""

import csv
import json

import numpy as np
import pytest

from jaxret.data import load
from jaxret.data.dataset import select
from jaxret.data.split import overlap, own_split
from tests.data.folders import label_ids

TIDE = {"category_name": "Weather", "tool_name": "Tides", "api_name": 'High "spring" tide\tnext'}
FERRY = {"category_name": "Travel", "tool_name": "Ferries", "api_description": "Setzt über.\nOft."}
STORED = {"1": json.dumps(TIDE), "2": json.dumps(FERRY), "3": '["no", "object"]', "4": "{cut short"}
TEXTS = {
    "11": 'Is "low water" before noon?\nI walk to the island.',
    "12": "Back by boat,\tand dry.",
    "13": "Which harbour is open?",
    "14": "Tide or boat?",
}
TRAIN = [("12", "2"), ("11", "1"), ("12", "3"), ("11", "1")]
TEST = [("13", "4"), ("14", "2"), ("14", "1")]


def write(file, rows):
    with file.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, delimiter="\t", lineterminator="\n").writerows(rows)


def append(file, text):
    with file.open("a", encoding="utf-8") as lines:
        lines.write(text)


@pytest.fixture
def folder(tmp_path):
    listed = ("2", "1", "2", "3", "4", "1", "1")
    corpus = [(tool, STORED[tool]) for tool in listed]
    write(tmp_path / "corpus.tsv", [("docid", "document_content"), *corpus])
    for part, pairs in (("train", TRAIN), ("test", TEST)):
        write(tmp_path / f"{part}.query.txt", [(query, TEXTS[query]) for query, _ in pairs])
        write(tmp_path / f"qrels.{part}.tsv", [(query, 0, tool, 1) for query, tool in pairs])
    return tmp_path


def test_repeated_rows_are_merged_and_counted(folder):
    dataset = load("toolbench", folder)
    assert dataset.tool_ids == ("2", "1", "3", "4")
    assert dataset.query_ids == ("train_12", "train_11", "test_13", "test_14")
    assert label_ids(dataset) == [["2", "3"], ["1"], ["4"], ["2", "1"]]
    assert dataset.split == ("train", "train", "test", "test")
    assert dataset.summary() == (
        "toolbench: 4 tools, 4 queries (1.50 labels a query, 4 questions), "
        "merged 3 duplicate tools, 3 duplicate queries"
    )


def test_texts_survive_and_documents_are_objects_where_the_text_holds_one(folder):
    dataset = load("toolbench", folder)
    assert dataset.queries == tuple(TEXTS[i] for i in ("12", "11", "13", "14"))
    assert dataset.documents == (FERRY, TIDE, STORED["3"], "{cut short")


def test_documents_longer_than_the_csv_modules_limit_are_read(folder):
    append(folder / "corpus.tsv", f"5\t{'long ' * 40_000}\n")
    before = csv.field_size_limit(131_072)  # the csv module's default, on which other readers rely
    try:
        assert len(load("toolbench", folder).documents[-1]) == 200_000
        assert csv.field_size_limit() == 131_072
    finally:
        csv.field_size_limit(before)


def test_a_text_of_train_and_test_stays_in_both_and_is_refused_by_parts(folder):
    append(folder / "train.query.txt", f"14\t{TEXTS['14']}\n")
    append(folder / "qrels.train.tsv", "14\t0\t1\t1\n")
    dataset = load("toolbench", folder)
    assert dataset.query_ids == ("train_12", "train_11", "train_14", "test_13", "test_14")
    assert label_ids(dataset)[2] == ["1"]
    assert label_ids(dataset)[4] == ["2", "1"]
    message = (
        r"1 queries are also in a later part .* 'train_14' of train \('Tide or boat\?'\), "
        r"the same text as 'test_14' of test\. Leave them out"
    )
    with pytest.raises(ValueError, match=message):
        own_split(dataset)
    clean = own_split(select(dataset, ~overlap(dataset)), validation=0.5)
    assert [len(part) for part in clean] == [1, 1, 2]


def test_equal_texts_with_two_numbers_in_a_part_are_one_query(folder):
    append(folder / "test.query.txt", f"15\t{TEXTS['14']}\n")
    append(folder / "qrels.test.tsv", "15\t0\t3\t1\n")
    dataset = load("toolbench", folder)
    assert dataset.merged_queries == 4
    assert label_ids(dataset)[-1] == ["2", "1", "3"]
    np.testing.assert_array_equal(dataset.labels[-1], [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("corpus.tsv", "9\n", r"corpus\.tsv, line 9: expected \('docid', .*got \['9'\]"),
        ("corpus.tsv", "9\t\n", r"corpus\.tsv, line 9: expected .*got \['9', ''\]"),
        ("corpus.tsv", '9\t"{""cut', r"corpus\.tsv, line 9: unexpected end of data"),
        ("corpus.tsv", "3\tanother\n", r"corpus\.tsv, line 9: tool '3' has another document"),
        ("train.query.txt", "16\n", r"train\.query\.txt, line 7: expected .*got \['16'\]"),
        ("train.query.txt", "16\t \n", r"train\.query\.txt, line 7: expected .*'16', ' '"),
        ("train.query.txt", "12\tOther\n", r"line 7: query '12' has another text above"),
        ("train.query.txt", "16\tAlone\n", "query 'train_16' has no labels"),
        ("qrels.test.tsv", "13\t0\t4\n", r"qrels\.test\.tsv, line 4: expected .*'docid'"),
        ("qrels.test.tsv", "13\t0\t4\t0\n", r"qrels\.test\.tsv, line 4: expected .*'4', '0'"),
        ("qrels.test.tsv", "12\t0\t4\t1\n", r"line 4: query '12' is not in .*test\.query\.txt"),
        ("qrels.test.tsv", "13\t0\t77\t1\n", r"query 'test_13' name unknown tools \['77'\]"),
    ],
)
def test_broken_rows_are_refused_with_their_place(folder, name, row, message):
    append(folder / name, row)
    with pytest.raises(ValueError, match=message):
        load("toolbench", folder)


def test_a_corpus_without_its_header_is_refused(folder):
    write(folder / "corpus.tsv", [("1", STORED["1"])])
    with pytest.raises(ValueError, match=r"corpus\.tsv, line 1: expected the header \('docid'"):
        load("toolbench", folder)


@pytest.mark.parametrize(
    "name", ["corpus.tsv", "train.query.txt", "test.query.txt", "qrels.train.tsv", "qrels.test.tsv"]
)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} does not exist; expected there: rows of"):
        load("toolbench", folder)


def test_the_instruction_files_of_toolbench_are_not_its_retrieval_files(shared_data):
    with pytest.raises(FileNotFoundError, match=r"does not exist; expected there"):
        load("toolbench", shared_data / "raw/toolbench_example")
