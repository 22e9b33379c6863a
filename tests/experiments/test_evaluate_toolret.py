"""ToolRet's protocol on a small copy, against trec_eval, and other data arranged as a copy."""

import json
import signal
from dataclasses import replace
from itertools import product

import ir_measures
import numpy as np
import pytest
from ir_measures import R, nDCG

from experiments import arrange_toolret, evaluate_toolret
from experiments.evaluate_toolret import averages, measured
from jaxret import data
from jaxret.data.toolret import benchmark
from jaxret.encoders import encode, load_encoder
from jaxret.evaluation import metrics
from jaxret.retrieval.ranking import trec_order
from jaxret.retrieval.runs import load_run
from jaxret.runtime.checkpoint import Interrupted
from tests.experiments.configs import config_of, refused
from tests.experiments.conftest import rows_of
from tests.experiments.toolret_copy import QUERIES, TASKS, TOOLS, configure


@pytest.fixture(scope="module")
def finished(world, copy, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    return directory, evaluate_toolret.main(configure(world, copy, directory))


def qrels_of(copy, task):
    rows = rows_of(copy / "queries" / task / "queries.jsonl")
    return {r["id"]: {x["id"]: x["relevance"] for x in json.loads(r["labels"])} for r in rows}


def judged(path, qrels):
    """Compute nDCG@10, recall@10 and completeness@10 of every query with trec_eval."""
    values = {"ndcg@10": {}, "recall@10": {}}
    names = {nDCG @ 10: "ndcg@10", R @ 10: "recall@10"}
    scored = list(ir_measures.read_trec_run(str(path)))
    for metric in ir_measures.iter_calc(list(names), qrels, scored):
        values[names[metric.measure]][metric.query_id] = metric.value
    complete = {query: float(value == 1) for query, value in values["recall@10"].items()}
    return values | {"completeness@10": complete}


def test_a_run_file_full_of_ties_is_measured_as_trec_eval_measures_it(copy, tmp_path):
    """The file lists equal scores by index, whereas trec_eval orders them by id."""
    found = benchmark(copy, tasks=["mnms"])
    random, names = np.random.default_rng(1), found.dataset.tool_ids
    path = tmp_path / "ties.run"
    lines = []
    for query in found.ids:
        scores = random.integers(0, 4, TOOLS)
        best = np.argsort(-scores, kind="stable")[:30]
        lines += [f"{query} Q0 {names[i]} {r} {scores[i]} t\n" for r, i in enumerate(best, 1)]
    path.write_text("".join(lines))
    expected = judged(path, qrels_of(copy, "mnms"))
    ranking = load_run(path, found.ids, names)
    got = measured(ranking, found.dataset.labels, trec_order(names), 10)
    assert set(got) == set(expected)
    for name, values in got.items():
        wanted = [expected[name][query] for query in found.ids]
        np.testing.assert_allclose(values, wanted, atol=1e-6)
    as_it_stands = metrics.evaluate_ranking(ranking.items, found.dataset.labels, [10])
    assert np.abs(np.asarray(as_it_stands["ndcg@10"]) - got["ndcg@10"]).max() > 0.05


def test_the_results_are_what_trec_eval_makes_of_the_run_files(copy, finished):
    directory, results = finished
    ties = 0
    for name, setting, task in product(("bm25", "minilm"), ("with", "without"), TASKS):
        path = directory / "rankings" / name / f"{task}-{setting}.run"
        scores = [line.split()[4] for line in path.read_text().splitlines()]
        ties += len(scores) - len(set(scores))
        for metric, values in judged(path, qrels_of(copy, task)).items():
            mean = np.mean(list(values.values()))
            got = results[f"{name}/{setting}/task/{task}/{metric}"]
            assert got == pytest.approx(mean, abs=1e-6)
    assert ties > 50


def test_means_by_hand():
    of_tasks = {
        "a": {"m": np.array([1.0, 0.0])},
        "b": {"m": np.array([1.0])},
        "c": {"m": np.array([0.25])},
        "d": {"m": np.array([0.0, 0.0, 0.5, 0.5])},
    }
    categories = {"a": "web", "b": "web", "c": "code", "d": "customized"}
    assert averages(of_tasks, categories) == pytest.approx(
        {
            **{"task/a/m": 0.5, "task/b/m": 1.0, "task/c/m": 0.25, "task/d/m": 0.25},
            **{"web/m": 0.75, "code/m": 0.25, "customized/m": 0.25},
            **{"web/queries/m": 2 / 3, "code/queries/m": 0.25, "customized/queries/m": 0.25},
            **{"average/m": 1.25 / 3, "tasks/m": 0.5},
        }
    )
    assert "average/m" not in averages({"a": of_tasks["a"]}, categories)


def test_queries_are_joined_with_instructions_as_each_model_reads_them(world, copy, tmp_path):
    asked = evaluate_toolret.World(configure(world, copy, tmp_path), None, benchmark(copy))
    rows = asked.rows["mnms"][:2]  # the first query has no instruction of its own
    first, second = (asked.benchmark.queries[row] for row in rows)
    own = "Find what serves: mnms."
    for model, instructed, bare in [
        ("bm25", f"{own} {second}", f" {first}"),
        ("minilm", f"Instruct: {own}\nQuery: {second}", f"Instruct: \nQuery: {first}"),
        ("e5_small", f"Instruct: {own}\nquery: {second}", f"Instruct: \nquery: {first}"),
        ("qwen3_0_6b", f"Instruct: {own}\nQuery:{second}", "Instruct: Given what"),
    ]:
        with_own, without = (asked.texts(model, setting, rows) for setting in ("with", "without"))
        assert with_own[1] == instructed
        assert with_own[0].startswith(bare)
        assert without[0].startswith(bare)
        assert without[0].endswith(first)


@pytest.mark.slow
def test_documents_are_encoded_as_they_are_and_without_a_prefix(world, copy, tmp_path):
    """The experiment adds no ``passage:`` prefix of E5 and keeps line breaks."""
    evaluate_toolret.main(configure(world, copy, tmp_path, "methods=[e5_small]"))
    found = benchmark(copy, tasks=["mnms"])
    minilm = load_encoder("minilm", world / "encoder")  # the same weights without prefixes
    encoder = replace(minilm, spec=minilm.spec._replace(max_tokens=512))
    texts = [f"Instruct: \nquery: {query}" for query in found.queries]
    queries, documents = (
        encode(encoder, some, kind="query", cache=None, progress=False)
        for some in (texts, found.dataset.documents)
    )
    scores = queries @ documents.T
    path = tmp_path / "rankings" / "e5_small" / "mnms-without.run"
    got = load_run(path, found.ids, found.dataset.tool_ids)
    best = -np.sort(-scores, axis=1)[:, :20]
    np.testing.assert_allclose(np.take_along_axis(scores, got.items, axis=1), best, atol=1e-6)
    np.testing.assert_allclose(got.scores, best, atol=1e-6)


def test_a_pool_of_the_tasks_category_is_smaller(world, copy, finished, tmp_path):
    _, results = finished
    chosen = ["pool=category", "methods=[bm25]"]
    narrow = evaluate_toolret.main(configure(world, copy, tmp_path, *chosen))
    for task, category in TASKS.items():
        lines = (tmp_path / "rankings" / "bm25" / f"{task}-with.run").read_text().splitlines()
        assert {line.split()[2].split("_")[0] for line in lines} == {category}
        assert len(lines) == QUERIES * 16  # fewer candidates than the depth
    name = "bm25/with/average/recall@10"
    assert narrow[name] != results[name]


def test_more_devices_find_the_same(world, copy, finished, tmp_path):
    assert evaluate_toolret.main(configure(world, copy, tmp_path, "devices=8")) == finished[1]


def test_run_files_are_read_again(world, copy, finished, tmp_path):
    directory, results = finished
    files = directory / "rankings" / "bm25"
    chosen = ["methods=[run]", f"models.run.path={files}", "depth=15"]
    again = evaluate_toolret.main(configure(world, copy, tmp_path, *chosen))
    for name, value in again.items():
        assert value == results[name.replace("run/", "bm25/")]
    for task in TASKS:
        lines = (tmp_path / "rankings" / "run" / f"{task}-with.run").read_text().splitlines()
        assert len(lines) == 15 * QUERIES


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(
    world, copy, finished, tmp_path, monkeypatch
):
    searched, search = [], evaluate_toolret.World.search

    def stopped(*args):
        searched.append(args)
        if len(searched) == 6:
            signal.raise_signal(signal.SIGTERM)
        return search(*args)

    monkeypatch.setattr(evaluate_toolret.World, "search", stopped)
    cfg = configure(world, copy, tmp_path)
    with pytest.raises(Interrupted):
        evaluate_toolret.main(cfg)
    assert evaluate_toolret.main(cfg) == finished[1]
    assert len(searched) == 2 * 2 * len(TASKS)  # no search is repeated


@pytest.mark.slow
def test_a_limit_draws_some_queries_of_every_task_and_says_how_many(world, copy, tmp_path, capsys):
    chosen = ["limit=5", "methods=[bm25]"]
    results = evaluate_toolret.main(configure(world, copy, tmp_path / "0", *chosen))
    other = evaluate_toolret.main(configure(world, copy, tmp_path / "1", *chosen, "seed=1"))
    assert {results[f"drawn/{task}"] for task in TASKS} == {5.0}
    assert "20 queries of 4 tasks (at most 5 a task, seed 0)" in capsys.readouterr().out
    name = "bm25/with/tasks/ndcg@10"
    assert results[name] != other[name]


def test_wrong_settings_are_refused_before_any_work(world, copy, tmp_path):
    for override, message in {
        "methods=[bm26]": "unknown method 'bm26'; known: bm25, minilm",
        "methods=[]": "methods is empty",
        "models.bm25.model=bm26": r"models.bm25.model must be one of bm25, dense.*'bm26'",
        "models.tool_rank.weights=x methods=[tool_rank]": (
            "models.tool_rank.weights must be one of qwen3_reranker_0_6b"
        ),
        "models.minilm.encoder=mini": "models.minilm.encoder must be one of minilm",
        "models.bm25.template=x": r"models.bm25.template must hold \{query\}",
        "methods=[run]": "models.run.path must name a folder, got None",
        "methods=[cross_encoder]": "models.cross_encoder.path must name a folder",
        "methods=[tool_rank] models.tool_rank.prompt=LICENSE": r"lack .*\['document', 'query'\]",
        "pool=some": "pool must be one of all, category, got some",
        "k=21": "k must be at most depth, 20, got 21",
        "limit=0": "limit must be null or >= 1, got 0",
    }.items():
        cfg = configure(world, copy, tmp_path / "run", *override.split())
        refused(evaluate_toolret.main, cfg, message)


def arranged_deskbank(path, *more):
    desk = "tasks={desk:{source:{name:deskbank},category:customized,instruction:Find it.}}"
    cfg = config_of("arrange_toolret", f"path={path}", "~tasks", f"+{desk}", *more)
    arrange_toolret.main(cfg)
    return benchmark(path)


def test_a_data_set_is_arranged_as_a_copy_with_and_without_profiles(tmp_path):
    bank = data.load("deskbank")
    plain = arranged_deskbank(tmp_path / "plain")
    expanded = arranged_deskbank(tmp_path / "expanded", "expanded=true")
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
        arranged_deskbank(tmp_path / "plain")
