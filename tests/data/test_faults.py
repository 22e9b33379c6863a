"""Small faults of real files: what is read, what is dropped, and what is refused by its line."""

import ir_measures
import numpy as np
import pytest

import jaxret as jr
from jaxret.data import load
from jaxret.data.dataset import Query, build
from tests.data.folders import label_ids, write_lines

TOOL = {"id": "a", "documentation": "sends mail"}


def general(folder, tools, queries):
    """Write a folder of the general layout."""
    write_lines(folder / "tools.jsonl", *tools)
    write_lines(folder / "queries.jsonl", *queries)
    return folder


def beir(folder, *, documents, judgements, texts=("interest rates", "rain in spring")):
    """Write a folder of the BEIR layout, with the queries q1, q2, ..."""
    write_lines(folder / "corpus.jsonl", *documents)
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(texts, start=1)]
    write_lines(folder / "queries.jsonl", *queries)
    write_lines(folder / "qrels/test.tsv", *judgements)
    return folder


RATES, RAIN = ({"_id": n, "title": "", "text": x} for n, x in (("1", "Rates."), ("2", "Rain.")))
HEADER, JUDGED = "query-id\tcorpus-id\tscore", ("q1\t1\t1", "q2\t2\t1")


@pytest.mark.parametrize("text", ["", None])
def test_an_empty_document_is_kept_with_a_warning_dropped_or_refused(tmp_path, text):
    empty = {"_id": "3", "title": text, "text": text}
    beir(tmp_path, documents=(RATES, RAIN, empty), judgements=(HEADER, *JUDGED))
    with pytest.warns(UserWarning, match=r"1 of 3 documents are empty, such as \['3'\].*'drop'"):
        kept = load("beir", tmp_path)
    assert kept.documents == ("Rates.", "Rain.", "3")
    assert load("beir", tmp_path, empty="drop").tool_ids == ("1", "2")
    with pytest.raises(ValueError, match=r"1 of 3 documents are empty, .*empty='keep' takes"):
        load("beir", tmp_path, empty="refuse")
    with pytest.raises(ValueError, match="empty must be one of refuse, drop, keep, got 'leave'"):
        load("beir", tmp_path, empty="leave")


def test_an_empty_documentation_of_the_general_layout_is_kept_too(tmp_path):
    tools = (TOOL, {"id": "b", "documentation": None}, {"id": "c", "documentation": {"x": " "}})
    general(tmp_path, tools, [{"id": "q", "query": "mail", "labels": ["a"]}])
    with pytest.warns(UserWarning, match=r"2 of 3 documents are empty, such as \['b', 'c'\]"):
        task = jr.load_task("jsonl", tmp_path, encoder=None)
    assert task.documents == ("sends mail", "b", "c")


def test_judgements_of_missing_documents_and_queries_are_refused_or_dropped(tmp_path):
    judgements = (HEADER, *JUDGED, "q2\t9\t1", "q3\t9\t1")
    texts = ("interest rates", "rain in spring", "only of the missing one")
    beir(tmp_path, documents=(RATES, RAIN), judgements=judgements, texts=texts)
    with pytest.raises(ValueError, match=r"'q2' name unknown tools \['9'\].*unknown='drop'"):
        load("beir", tmp_path)
    dataset = load("beir", tmp_path, unknown="drop")
    assert (dataset.query_ids, label_ids(dataset)) == (("q1", "q2"), [["1"], ["2"]])
    with (tmp_path / "qrels/test.tsv").open("a") as file:
        file.write("q7\t1\t1\n")
    with pytest.raises(ValueError, match=r"judges queries \['q7'\] not in .*unknown='drop'"):
        load("beir", tmp_path)
    assert load("beir", tmp_path, unknown="drop").query_ids == ("q1", "q2")


def test_unknown_labels_and_steps_of_the_general_layout_are_dropped(tmp_path):
    steps = [{"query": "s", "label": "a"}, {"query": "t", "label": "z"}]
    queries = (
        {"id": "q", "query": "mail", "labels": ["z", "a"], "steps": steps},
        {"id": "r", "query": "fax", "labels": ["z"]},
    )
    general(tmp_path, [TOOL], queries)
    dataset = load("jsonl", tmp_path, unknown="drop")
    assert (dataset.query_ids, label_ids(dataset)) == (("q",), [["a"]])
    assert dataset.steps == ((("s", 0),),)


@pytest.mark.parametrize("header", [(), ("query_id\tdoc_id\trelevance",), (HEADER,)])
def test_judgements_are_read_under_any_header_and_in_the_form_of_trec(tmp_path, header):
    three = ("q1\t1\t2", "q2\t1\t0", "q2\t2\t1")
    beir(tmp_path / "beir", documents=(RATES, RAIN), judgements=(*header, *three))
    trec = ("q1 0 1 2", "q2 0 1 0", "q2 Q0 2 1")
    beir(tmp_path / "trec", documents=(RATES, RAIN), judgements=trec)
    file = str(tmp_path / "trec/qrels/test.tsv")
    truth = [(x.query_id, x.doc_id) for x in ir_measures.read_trec_qrels(file) if x.relevance > 0]
    for folder in ("beir", "trec"):
        dataset = load("beir", tmp_path / folder)
        pairs = zip(dataset.query_ids, label_ids(dataset), strict=True)
        assert [(query, label) for query, labels in pairs for label in labels] == truth


def test_whole_numbers_become_ids_everywhere(tmp_path):
    tools = [{"id": n, "documentation": f"tool number {n}"} for n in (0, 1)]
    queries = [{"id": n, "query": f"use {n}", "labels": [n]} for n in (0, 1)]
    folder = general(tmp_path, tools, queries)
    task = jr.load_task("jsonl", folder, encoder=lambda texts: np.eye(2)[: len(texts)])
    assert (task.ids, task.query_ids, task.labels.tolist()) == (("0", "1"), ("0", "1"), [[0], [1]])
    assert jr.evaluate(task.theta, task, ["accuracy"])["accuracy"].mean == 1


@pytest.mark.parametrize("bad", [None, True, 1.5, "", " ", ["a"]])
def test_other_ids_are_refused_with_file_and_line(tmp_path, bad):
    query = {"id": "q", "query": "mail", "labels": ["a"]}
    message = r"line 2: an id must be a string that is not blank, or a whole number, got"
    general(tmp_path, [TOOL, TOOL | {"id": bad}], [query])
    with pytest.raises(ValueError, match=rf"tools\.jsonl, {message}"):
        load("jsonl", tmp_path)
    general(tmp_path, [TOOL], [query, query | {"id": bad}])
    with pytest.raises(ValueError, match=rf"queries\.jsonl, {message}"):
        load("jsonl", tmp_path)
    documents = (RATES, RAIN | {"_id": bad})
    folder = beir(tmp_path / "beir", documents=documents, judgements=(HEADER, *JUDGED))
    with pytest.raises(ValueError, match=rf"corpus\.jsonl, {message}"):
        load("beir", folder)


def test_a_data_set_is_not_built_from_numbers():
    query = Query(id="q", text="mail", labels=("a",))
    with pytest.raises(ValueError, match="x: ids must be strings that are not blank, got 7"):
        build("x", [(7, "sends mail")], [query])
    with pytest.raises(ValueError, match="the id of a query must be a string, got 7"):
        build("x", [("a", "sends mail")], [query._replace(id=7)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"labels": "12"},
            r"line 2: the labels of query 'q' must be .* such as \['12'\], got '12'",
        ),
        ({"labels": None}, r"line 2: the labels of query 'q' must be a list of tool ids, .*None"),
        ({"labels": []}, r"line 2: the labels of query 'q' must be a list of tool ids, .*\[\]"),
        ({"labels": ["a", None]}, r"line 2, labels of query 'q': an id must be .*None"),
        ({"query": None}, r"line 2: the text of query 'q' must be a string .*None; leave"),
        ({"query": " "}, r"line 2: the text of query 'q' must be a string that is not blank"),
        ({"query": ["mail"]}, r"line 2: the text of query 'q' must be a string .*\['mail'\]"),
    ],
)
def test_a_query_without_text_or_labels_is_refused_with_file_line_and_id(tmp_path, change, message):
    tools = [{"id": one, "documentation": f"tool {one}"} for one in ("1", "2", "12", "a")]
    first = {"id": "p", "query": "mail", "labels": ["a"]}
    general(tmp_path, tools, [first, first | {"id": "q"} | change])
    with pytest.raises(ValueError, match=rf"queries\.jsonl, {message}") as caught:
        load("jsonl", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_judged_query_of_beir_needs_a_text_and_others_do_not(tmp_path):
    folder = beir(
        tmp_path,
        documents=(RATES, RAIN),
        judgements=(HEADER, *JUDGED),
        texts=("interest rates", "rain in spring", None),
    )
    assert load("beir", folder).query_ids == ("q1", "q2")
    with (folder / "qrels/test.tsv").open("a") as file:
        file.write("q3\t2\t1\n")
    with pytest.raises(ValueError, match=r"queries\.jsonl, line 3: the text of query 'q3' must be"):
        load("beir", folder)


def test_a_byte_order_mark_is_skipped_and_other_encodings_are_refused(tmp_path):
    query = {"id": "q", "query": "mail", "labels": ["a"]}
    one = general(tmp_path / "one", [TOOL], [query])
    two = beir(tmp_path / "two", documents=(RATES, RAIN), judgements=JUDGED)
    for file in (*one.iterdir(), *two.glob("*.jsonl"), two / "qrels/test.tsv"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load("jsonl", one).tool_ids == ("a",)
    assert load("beir", two).query_ids == ("q1", "q2")
    text = (one / "tools.jsonl").read_text(encoding="utf-8-sig")
    (one / "tools.jsonl").write_text(text.replace("mail", "Grüße"), encoding="latin-1")
    with pytest.raises(ValueError, match=r"tools\.jsonl is not UTF-8 \(.*\): save it as UTF-8"):
        load("jsonl", one)
