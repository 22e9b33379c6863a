"""Run files: an exact round trip, agreement with trec_eval, and errors that name the line."""

import re

import ir_measures
import numpy as np
import pytest
from ir_measures import R, nDCG

from jaxret.evaluation.metrics import evaluate_ranking
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import search
from jaxret.retrieval.runs import load_run, save_run, word

QUERY_IDS = ["q1", "frage ü", "q3"]
TOOL_IDS = ["a", "GET /tv/popular", "b", "GET /tv", "查询天气", "c%20d"]
ITEMS = np.array([[4, 0, 2], [1, -1, -1], [3, 5, -1]], np.int32)
SCORES = np.array(
    [[0.1, np.nextafter(np.float32(0.1), 0), 1e-20], [-3e7, -np.inf, -np.inf], [0.5, 0.5, -np.inf]],
    np.float32,
)
RANKING = Ranking(items=ITEMS, scores=SCORES)


def test_a_ranking_comes_back_as_it_was(tmp_path):
    path = tmp_path / "new" / "run.txt"
    save_run(path, RANKING, QUERY_IDS, TOOL_IDS, tag="mine")
    found = load_run(path, QUERY_IDS, TOOL_IDS)
    for got, expected in zip(found, RANKING, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    assert [entry.name for entry in path.parent.iterdir()] == ["run.txt"]  # no partial files
    first, *_, last = path.read_text(encoding="utf-8").splitlines()
    assert first == "q1 Q0 查询天气 1 0.1 mine"
    assert last == "q3 Q0 c%20d 2 0.5 mine"
    assert (word("GET /tv\tx"), word("c%20d")) == ("GET%20/tv%09x", "c%20d")


def test_random_scores_come_back_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.normal(size=(20, 50)).astype(np.float32), axis=1)
    items = np.stack([rng.permutation(50) for _ in range(20)]).astype(np.int32)
    ids = [f"q{n}" for n in range(20)], [f"t{i}" for i in range(50)]
    save_run(tmp_path / "run", Ranking(items=items, scores=scores), *ids, tag="random")
    found = load_run(tmp_path / "run", *ids)
    np.testing.assert_array_equal(found.scores.view(np.int32), scores.view(np.int32))
    np.testing.assert_array_equal(found.items, items)


def test_a_search_scores_the_same_here_and_in_trec_eval(tmp_path):
    rng = np.random.default_rng(1)
    theta = rng.integers(-1, 2, (60, 4)).astype(np.float32)  # many ties
    queries = rng.integers(-1, 2, (40, 4)).astype(np.float32)
    labels = np.full((40, 5), -1, np.int32)
    for row in labels:
        count = rng.integers(1, 6)
        row[:count] = rng.choice(60, count, replace=False)
    tool_ids = [f"bank{i}.list postings {i % 7}" for i in range(60)]
    query_ids = [f"q{n}" for n in range(40)]
    tool_ids.sort(key=str.encode, reverse=True)  # so that rows are in trec_eval's order of ties
    ranking = search(inner_product("d", theta), queries, 20, progress=False)
    save_run(tmp_path / "run.trec", ranking, query_ids, tool_ids, tag="dense")
    qrels = {
        name: {word(tool_ids[i]): 1 for i in row if i >= 0}
        for name, row in zip(query_ids, labels, strict=True)
    }
    run = ir_measures.read_trec_run(str(tmp_path / "run.trec"))
    measures = {nDCG @ 10: "ndcg@10", R @ 10: "recall@10", nDCG @ 20: "ndcg@20", R @ 5: "recall@5"}
    got = evaluate_ranking(ranking.items, labels, (5, 10, 20))
    found = list(ir_measures.iter_calc(list(measures), qrels, run))
    assert len(found) == 40 * len(measures)
    for metric in found:
        mine = got[measures[metric.measure]][query_ids.index(metric.query_id)]
        assert float(mine) == pytest.approx(metric.value, abs=1e-6)


def written(tmp_path, *lines):
    path = tmp_path / "run"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_run_files_are_read_by_rank_for_any_order_of_lines(tmp_path):
    path = written(tmp_path, "q2 Q0 b 1 3 x", "q1 Q0 a 1 0.5 x", "q1\t0\tb\t0\t7e-1\tx")
    found = load_run(path, ["q1", "q2"], ["a", "b"])
    assert found.items.tolist() == [[1, 0], [1, -1]]
    np.testing.assert_array_equal(found.scores, np.float32([[0.7, 0.5], [3, -np.inf]]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 a 2 0.5", "expected 6 columns, query Q0 tool rank score tag, got 5"),
        ("", "expected 6 columns"),
        ("q9 Q0 a 2 0.5 x", "unknown query 'q9'"),
        ("q1 Q0 z 2 0.5 x", "unknown tool 'z'"),
        ("q1 Q0 a 1.5 0.5 x", "rank must be a whole number, got '1.5'"),
        ("q1 Q0 a 2 half x", "could not convert string to float: 'half'"),
        ("q1 Q0 a 2 nan x", "score must be finite, got 'nan'"),
        ("q1 Q0 b 2 0.5 x", "its query has had this tool or this rank before"),
        ("q1 Q0 a 1 0.5 x", "its query has had this tool or this rank before"),
    ],
)
def test_a_bad_line_is_refused_by_file_and_line(tmp_path, line, message):
    path = written(tmp_path, "q1 Q0 b 1 0.9 x", line)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: {message}")):
        load_run(path, ["q1"], ["a", "b"])


def test_missing_queries_and_rising_scores_are_refused_by_id(tmp_path):
    path = written(tmp_path, "q1 Q0 b 1 0.5 x", "q1 Q0 a 2 0.9 x")
    options = "missing='zero' counts them as 0, missing='drop' leaves them out"
    with pytest.raises(
        ValueError, match=rf"run lacks 2 of 3 queries, as \['q2', 'q3'\]: {options}"
    ):
        load_run(path, ["q1", "q2", "q3"], ["a", "b"])
    with pytest.raises(ValueError, match="query 'q1' has a score above that of a better rank"):
        load_run(path, ["q1"], ["a", "b"])
    with pytest.raises(FileNotFoundError, match="a run file"):
        load_run(tmp_path / "none", ["q1"], ["a"])


def test_queries_that_a_run_lacks_count_as_zero_or_are_left_out(tmp_path):
    path = written(tmp_path, "q3 Q0 b 1 0.5 x", "q1 Q0 a 1 0.9 x", "q1 Q0 b 2 0.8 x")
    ids, labels = ["q0", "q1", "q2", "q3"], np.array([[0], [0], [1], [0]])
    lacks = r"run lacks 2 of 4 queries, as \['q0', 'q2'\]: "
    with pytest.warns(UserWarning, match=f"{lacks}they have empty lists"):
        zero = load_run(path, ids, ["a", "b"], missing="zero")
    assert zero.items.tolist() == [[-1, -1], [0, 1], [-1, -1], [1, -1]]
    np.testing.assert_array_equal(
        evaluate_ranking(zero.items, labels, (1,))["recall@1"], [0, 1, 0, 0]
    )
    with pytest.warns(UserWarning, match=f"{lacks}their rows are left out"):
        drop = load_run(path, ids, ["a", "b"], missing="drop")
    rows = zero.items[:, 0] >= 0
    np.testing.assert_array_equal(drop.items, zero.items[rows])
    np.testing.assert_array_equal(drop.scores, zero.scores[rows])
    whole = [load_run(path, ["q1", "q3"], ["a", "b"], missing=x) for x in ("zero", "drop")]
    np.testing.assert_array_equal(whole[0].items, whole[1].items)  # no warning
    with pytest.raises(ValueError, match="missing must be one of refuse, zero, drop, got 'skip'"):
        load_run(path, ids, ["a", "b"], missing="skip")
    path.write_text("")
    for missing in ("refuse", "zero", "drop"):
        with pytest.raises(ValueError, match="run ranks no query: a run file has a line per query"):
            load_run(path, ids, ["a", "b"], missing=missing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_ids": [1, 2, 3]}, "ids in a run file must be strings that are not empty, got 1"),
        ({"query_ids": ["q1", "", "q3"]}, "ids in a run file must be strings .* got ''"),
        ({"tool_ids": "abcdef"}, "ids must be a list of strings, got the single string 'abcdef'"),
        ({"tag": 3}, "tag must be one word, got 3"),
        ({"ranking": RANKING._replace(items=ITEMS - 1)}, "-1 pads, got -2"),
        ({"ranking": RANKING._replace(items=ITEMS + 0.5)}, "be whole numbers, got 4.5"),
        (
            {"ranking": RANKING._replace(items=ITEMS[0])},
            r"\[N, k\] must have 2 axes, got the shape",
        ),
        (
            {"ranking": RANKING._replace(scores=SCORES[:, :2])},
            r"of the scores must be \(3, 3\), got",
        ),
        ({"ranking": RANKING._replace(items=np.minimum(ITEMS, 2))}, "'q1' has an item twice, or a"),
        ({"ranking": RANKING._replace(scores=-SCORES[:, ::-1])}, "q"),
        ({"query_ids": QUERY_IDS[:2]}, "there are 2 query ids and 3 rankings"),
        ({"tool_ids": TOOL_IDS[:4]}, "item 5 is none of the 4 tool ids"),
        ({"tool_ids": ["c d", *TOOL_IDS[1:]]}, r"\['c%20d'\] occur more than once"),
        ({"tag": "two words"}, "tag must be one word, got 'two words'"),
        ({"ranking": RANKING._replace(items=ITEMS * [[1], [0], [1]] - [[0], [1], [0]])}, "'frage%"),
        ({"ranking": RANKING._replace(scores=SCORES * np.float32(np.nan))}, "query 'q1' has no it"),
    ],
)
def test_rankings_that_could_not_be_read_again_are_not_written(tmp_path, change, message):
    arguments = {"ranking": RANKING, "query_ids": QUERY_IDS, "tool_ids": TOOL_IDS, "tag": "mine"}
    with pytest.raises(ValueError, match=message):
        save_run(tmp_path / "run", **arguments | change)
    assert not list(tmp_path.iterdir())
