"""Baselines and online learners on one split, end to end on a small world."""

import json

import numpy as np
import pytest

from experiments import evaluate_retrieval
from experiments.common.config import plain, table
from experiments.retrieval import methods
from jaxret import data
from jaxret.data.split import own_split
from tests.experiments.configs import SMALL_CROSS_ENCODER, config_of, in_world, refused
from tests.experiments.conftest import step_of
from tests.experiments.processes import stopped_at

LEARNERS = ("greedy", "mapped", "full_information")
SEES = {
    "bm25": "nothing",
    "documents": "nothing",
    "cross_encoder": "labels",
    "refit": "labels",
    "nudge_n": "labels",
    "greedy+once": "bits",
    "greedy": "bits",
    "mapped": "bits",
    "full_information": "labels",
}
SMALL = [
    "document=full",
    f"methods=[{','.join(SEES)}]",
    "cuts=[1,10]",
    f"learner=[{','.join(LEARNERS)}]",
    "online={exposures:3,seeds:2,k:10,chunk:128}",
    *(f"learners.{name}.tau=[0.04]" for name in LEARNERS),
    "learners.greedy.eta_over_tau=[0.05,0.3]",
    "learners.mapped.eta_over_tau=[0.03]",
    "learners.full_information.eta_over_tau=[0.1]",
    *SMALL_CROSS_ENCODER,
]


def configure(world, directory, *more):
    models = f"models={world / 'models_of_baselines'}"
    return config_of("baselines", *SMALL, *in_world(world, directory), models, *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "baselines"
    return directory, evaluate_retrieval.main(configure(world, directory))


def test_every_method_ranks_the_test_part_and_the_table_says_what_it_saw(world, finished, capsys):
    directory, results = finished
    metrics = ("recall@1", "recall@10", "ndcg@1", "ndcg@10")
    assert set(results) == {f"{name}/{metric}" for name in SEES for metric in metrics}
    assert all(0 <= value <= 1 for value in results.values())
    evaluate_retrieval.main(configure(world, directory))
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert {words[0]: words[1] for words in lines if words and words[0] in SEES} == SEES


def test_learners_see_bits_except_oracles_and_static_retrieval(world):
    names = list(table("learners"))
    names.remove("debiased")  # needs an environment's noise rate
    cfg = configure(world, "unused", f"learner=[{','.join(names)}]")
    for name in names:
        spec = plain(cfg.learners)[name]
        oracle = "full_information" in spec.get("preset", "")
        static = name in ("frozen", "hybrid", "hybrid_balanced")
        expected = "labels" if oracle else "nothing" if static else "bits"
        assert methods.sees(cfg, name) == expected, name


def test_a_learner_ranks_as_the_held_out_protocol_says(finished):
    """Use the benchmark's search, also with query maps, at the setting that validates best."""
    directory, results = finished
    for name in ("greedy", "greedy+once", "mapped", "full_information"):
        held = step_of(directory, f"{name}-stream")
        for metric in ("recall@10", "ndcg@10"):
            expected = held[f"heldout/{metric}"].mean()
            assert results[f"{name}/{metric}"] == pytest.approx(expected, abs=1e-6)
    assert results["mapped/ndcg@10"] != pytest.approx(results["documents/ndcg@10"], abs=1e-3)


def test_the_stream_is_the_training_part_and_nothing_else(world, finished):
    directory, _ = finished
    train = own_split(data.load("jsonl", world / "data")).train
    for name, exposures in {"greedy+once": 1, "greedy": 3}.items():
        order = step_of(directory, f"{name}-stream")["order"]
        for seed in order:
            np.testing.assert_array_equal(np.sort(seed), np.sort(np.tile(train, exposures)))
        assert (order[0] != order[1]).any()
    lines = json.loads((directory / "results.json").read_text())
    assert (lines["greedy/recall@10"]["n"], lines["documents/recall@10"]["n"]) == (2, 1)


def test_a_reranker_sorts_ten_documents_and_refit_searches_all_again(finished):
    directory, results = finished
    first, judged, second = (
        step_of(directory, f"{name}-0-test")["items"]
        for name in ("documents", "cross_encoder", "refit")
    )
    assert judged.shape[1] == 10
    np.testing.assert_array_equal(np.sort(first[:, :10]), np.sort(judged))
    assert results["cross_encoder/recall@10"] == results["documents/recall@10"]
    assert (first[:, :10] != judged).any()
    np.testing.assert_array_equal(np.sort(first), np.sort(second))
    assert (first != second).any()


@pytest.mark.slow
def test_bits_make_retrieval_better_and_labels_more_so(world, tmp_path):
    """Use an encoder that knows words; the random one of the small world cannot generalise."""
    names = "methods=[documents,greedy,full_information]"
    real = ["encoder.path=null", "cache=null"]
    results = evaluate_retrieval.main(configure(world, tmp_path, names, *real))
    documents, bits, labels = (
        results[f"{name}/ndcg@10"] for name in ("documents", "greedy", "full_information")
    )
    assert documents + 0.02 < bits < labels


def test_wrong_settings_are_refused_before_any_work(world, tmp_path):
    for override, message in {
        "methods=[greddy]": "unknown method 'greddy'; known: bm25, documents, .*refit, .*greedy",
        "methods=[documents+once]": r"method 'documents\+once': '\+first' is for refiners",
        "methods=[greedy+first]": r"'\+once' for learners",
        "online.exposures=0": "online.exposures must be >= 1, got 0",
        "recipes.refit.first=dpr": "recipes.refit.first must be a recipe of a reranker on one",
        "recipes.cross_encoder.first=bm25": "recipes.refit.first must be a recipe of a reranker",
        "cuts=[3,11]": "recipes.cross_encoder.candidates must be >= 11, the largest of cuts",
        "cuts=[0]": r"cuts must be one or more numbers in 1 .. 128, got \[0\]",
    }.items():
        refused(evaluate_retrieval.main, configure(world, tmp_path / "run", override), message)


def test_a_stream_that_is_stopped_resumes_and_ends_with_the_same_ranking(world, finished, tmp_path):
    whole, _ = finished
    cfg = configure(world, tmp_path, "methods=[greedy]")
    with stopped_at(9):  # of the 12 chunks of two settings
        evaluate_retrieval.main(cfg)
    assert not (tmp_path / "results.json").exists()
    evaluate_retrieval.main(cfg)
    for name in ("greedy-0-test", "greedy-1-test"):
        resumed, expected = (step_of(folder, name)["items"] for folder in (tmp_path, whole))
        np.testing.assert_array_equal(resumed, expected)
