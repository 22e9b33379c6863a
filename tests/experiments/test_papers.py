"""The page about the papers' claims: it is complete, up to date, and follows from its numbers."""

import json
import re
from pathlib import Path

import pytest

from experiments.common.config import table
from experiments.report import papers
from experiments.report.__main__ import RESULTS

ROOT = Path(__file__).parents[2]
PAPERS = table("papers")
ROWS = papers.rows_of(PAPERS)
#: Every numbered table, figure, statement and algorithm of the three papers.
ITEMS = {
    "orag": {
        "Table": "1 2 3",
        "Figure": "1a 1b 2 3 4 5 6 7 8 9a 9b 9c 10 11a 11b 12",
        "Lemma": "3.1",
        "Theorem": "5.1 B.2",
        "Corollary": "5.2 B.3",
        "Proposition": "B.1",
        "Algorithm": "1 2 3 4",
    },
    "tool2vec": {"Table": "1 2 A.1 A.2 A.3 A.4 B.1", "Figure": "1 2 3 4 5 B.1 C.1 C.2"},
    "tool_rex": {"Table": "1 2 3 4 5", "Figure": "1 2 3 4 5 6 7 8 9 10 11"},
}


def paper_of(rows):
    return {"papers": {"orag": {"rows": rows}}}


def numbers():
    return json.loads((RESULTS / "papers.json").read_text())


def test_the_page_is_what_the_rows_and_the_stored_numbers_give():
    assert (RESULTS / "papers.md").read_text() == papers.page(PAPERS, numbers())


def test_no_number_is_stored_that_no_row_uses():
    assert set(numbers()) == {name for row in ROWS for name in papers.results_of(row)}


@pytest.mark.parametrize("paper", ITEMS)
def test_every_numbered_item_of_a_paper_has_a_row(paper):
    found = {name for row in PAPERS["papers"][paper]["rows"] for name in named(row["item"])}
    expected = {(kind, one) for kind, some in ITEMS[paper].items() for one in some.split()}
    assert not expected - found


def named(item):
    """Yield the kind and number of everything that an item names, such as Figures 9 to 11."""
    number = r"(?:[A-D]\.)?\d+(?:\.\d+)?[abc]?"
    for kind, some in re.findall(rf"([A-Z]\w+?)s? ({number}(?:(?:, | and | to ){number})*)", item):
        first, _, last = some.partition(" to ")
        between = range(int(first), int(last) + 1) if last else re.findall(number, some)
        yield from ((kind, str(one)) for one in between)


def test_the_numbers_of_every_row_stand_on_its_page():
    papers.check_pages(ROWS, RESULTS)


def test_a_number_that_does_not_stand_on_its_page_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("1,788 functions, 0.25 ± 0.01")
    row = {"item": "Table 1", "page": "a.md#b", "ours": "1,788 and 0.25 ± 0.01, more than 0"}
    papers.check_pages([row], tmp_path)
    for wrong in ({"ours": "0.26"}, {"holds": ["0.25 > 0.2"]}):
        with pytest.raises(ValueError, match=r"Table 1: \['0.2\d?'\] do not stand on a.md#b"):
            papers.check_pages([row | wrong], tmp_path)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "tests" in row], ids=lambda row: row["item"]
)
def test_the_test_of_a_row_exists(row):
    file, _, name = row["tests"].partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


RUN = {"a:x": [0.5, 0.6, 0.7], "a:y": [0.4, 0.5, 0.6], "a:z": [0.1, 0.9, 0.8], "b:x": [0.2]}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (["x > y"], "holds"),  # the difference is 0.1 with every seed
        (["y > x"], "does not hold"),
        (["z > y"], "within two errors"),  # 0.1 ± 0.208
        (["x > y", "y > x"], "holds in part"),
        (["x > y", "z > y"], "holds in part"),
        (["y > x", "z > y"], "does not hold"),
        (["x > b:x"], "holds"),  # another run, without an error of its own
        (["x > 0.45"], "holds"),  # 0.6 ± 0.058 is 2.6 errors above
        (["x > 0.5"], "within two errors"),
        (["x > 0.45 ± 0.06"], "within two errors"),
        (["x - y > 0.05"], "holds"),
        (["0.3 > x - y"], "holds"),
        (["0.3 ± 0.1 - 0.1 ± 0.1 > 0"], "within two errors"),
        (["x = y within 0.15"], "holds"),
        (["y = x within 0.15"], "holds"),
        (["x = y within 0.05"], "does not hold"),
        (["z = y within 0.2"], "within two errors"),  # 0.1 ± 0.208
        (["x = 0.3 within 0.1"], "does not hold"),
    ],
)
def test_a_verdict_follows_from_differences_and_their_errors(claims, expected):
    row = {"item": "Table 1", "run": "a", "holds": claims}
    assert papers.verdict(row, RUN) == expected


def test_a_row_shows_results_with_their_errors():
    row = {"item": "", "run": "a", "ours": "x {x}, {x - y}, other run {b:x}", "holds": []}
    assert papers.ours(row, RUN) == "x 0.600 ± 0.058, 0.100, other run 0.200"


def test_missing_results_and_rows_without_one_source_are_refused():
    row = {"item": "Table 1", "run": "a", "holds": ["w > x"]}
    with pytest.raises(ValueError, match="Table 1: no result 'a:w'; run its section"):
        papers.verdict(row, RUN)
    source = "needs one of run, page, tests, absent, drawing"
    claim = "a claim must be A > B or A = B"
    for row, message in (
        ({}, source),
        ({"run": "a", "page": "b.md"}, source),
        ({"run": "a", "holds": ["x"]}, claim),
        ({"run": "a", "holds": ["x > y > z"]}, claim),
        ({"run": "a", "holds": ["x = y"]}, claim),
        ({"page": "b.md", "holds": ["x > 1"]}, claim),
    ):
        with pytest.raises(ValueError, match=f"Table 9: {message}"):
            papers.rows_of(paper_of([{"item": "Table 9", **row}]))


def test_finished_runs_replace_stored_numbers_and_others_stay(tmp_path):
    rows = [{"item": "1", "run": "noise/desk", "ours": "{x}", "holds": ["other/desk/k=1:y > 0"]}]
    stored = tmp_path / "papers.json"
    stored.write_text(json.dumps({"noise/desk:x": [1.0], "other/desk/k=1:y": [2.0], "old": [3.0]}))
    (tmp_path / "results.json").write_text(json.dumps({"x": {"values": [5.0, 6.0]}}))

    class Job:
        dataset, change, directory, done = "desk", "", tmp_path, True

    found = papers.read_numbers(paper_of(rows), {"noise": [Job]}, stored)
    assert found == {"noise/desk:x": [5.0, 6.0], "other/desk/k=1:y": [2.0]}
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="noise/desk has no result 'x'"):
        papers.read_numbers(paper_of(rows), {"noise": [Job]}, stored)
