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


def numbers():
    return json.loads((RESULTS / "papers.json").read_text())


def test_the_page_is_what_the_rows_and_the_stored_numbers_give():
    assert (RESULTS / "papers.md").read_text() == papers.page(PAPERS, numbers())


def test_no_number_is_stored_that_no_row_uses():
    assert set(numbers()) == {name for row in ROWS for name in papers.results_of(row)}


@pytest.mark.parametrize("paper", ITEMS)
def test_every_numbered_item_of_a_paper_has_a_row(paper):
    names = " ".join(row["item"] for row in PAPERS["papers"][paper]["rows"])
    names = re.sub(r"(\w+)s (\d+) to (\d+)", spelt_out, names)
    found = set(re.findall(r"[A-Z]?\.?\d+(?:\.\d+)?[abc]?", names))
    expected = {one for numbers in ITEMS[paper].values() for one in numbers.split()}
    assert expected <= found


def spelt_out(match):
    """Write "Figures 9 to 11" as "9 10 11"."""
    return " ".join(str(n) for n in range(int(match[2]), int(match[3]) + 1))


@pytest.mark.parametrize("row", [row for row in ROWS if "page" in row], ids=lambda row: row["item"])
def test_the_numbers_of_a_row_stand_on_its_page(row):
    text = (RESULTS / row["page"].partition("#")[0]).read_text()
    standing = set(papers.QUOTED.findall(text.replace(",", "")))
    assert set(papers.quoted(row)) <= standing


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
    for sources in ({}, {"run": "a", "page": "b.md"}):
        paper = {"papers": {"orag": {"rows": [{"item": "Table 9", **sources}]}}}
        with pytest.raises(
            ValueError, match="Table 9: needs one of run, page, tests, absent, drawing"
        ):
            papers.rows_of(paper)


def test_finished_runs_replace_stored_numbers_and_others_stay(tmp_path):
    rows = [{"item": "1", "run": "noise/desk", "ours": "{x}", "holds": ["other/desk/k=1:y > 0"]}]
    stored = tmp_path / "papers.json"
    stored.write_text(json.dumps({"noise/desk:x": [1.0], "other/desk/k=1:y": [2.0], "old": [3.0]}))
    results = {"x": {"values": [5.0, 6.0]}}
    (tmp_path / "results.json").write_text(json.dumps(results))

    class Job:
        dataset, change, directory, done = "desk", "", tmp_path, True

    paper = {"papers": {"orag": {"rows": rows}}}
    found = papers.read_numbers(paper, {"noise": [Job]}, stored)
    assert found == {"noise/desk:x": [5.0, 6.0], "other/desk/k=1:y": [2.0]}
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="noise/desk has no result 'x'"):
        papers.read_numbers(paper, {"noise": [Job]}, stored)
