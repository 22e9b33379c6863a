"""The latency and quality benchmark of methods, end to end on a small world."""

import time

import numpy as np
import pytest

from experiments import latency
from experiments.common.run_directory import open_run
from experiments.retrieval.bench import Bench
from tests.experiments.configs import SMALL_CROSS_ENCODER, config_of, in_world
from tests.experiments.conftest import step_of
from tests.experiments.processes import stopped_at

METHODS = ("bm25", "documents", "cross_encoder", "refit", "greedy", "mapped")
SMALL = [
    "document=full",
    f"methods=[{','.join(METHODS)}]",
    "queries=8",
    "learner=[greedy,mapped]",
    "online={exposures:1,seeds:1,k:10,chunk:128}",
    *(f"learners.{name}.tau=[0.04]" for name in ("greedy", "mapped")),
    *(f"learners.{name}.eta_over_tau=[0.04]" for name in ("greedy", "mapped")),
    *SMALL_CROSS_ENCODER,
]


def configure(world, directory, *more):
    models = f"models={world / 'models_of_latency'}"
    return config_of("latency", *SMALL, *in_world(world, directory), models, *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "latency"
    return directory, latency.main(configure(world, directory))


def test_every_method_has_quality_and_time(finished):
    directory, results = finished
    for name in METHODS:
        low, middle, high = (results[f"{name}/{column}"] for column in latency.COLUMNS)
        assert 0 < low <= middle <= high
        assert 0 <= results[f"{name}/recall@10"] <= 1
    times = step_of(directory, "latency")
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys(METHODS, 8)
    assert results["refit/milliseconds/median"] == pytest.approx(np.median(times["refit"]))
    for file in latency.FIGURES:
        assert (directory / f"{file}.png").stat().st_size > 10_000


def test_timed_methods_rank_as_tested_ones_and_load_the_trained_models(world, finished):
    directory, _ = finished
    folder = world / "models_of_latency"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("_CHECKPOINT*")}
    assert before
    cfg = configure(world, world / "latency_again")
    with open_run(cfg) as run:
        bench = Bench(cfg, run)
        for name in METHODS:
            answer = latency.answer(bench, name, seed=0, most=10)
            found = answer(bench.texts(bench.parts.test[:5])).scores[:, :10]
            tested = step_of(directory, f"{name}-0-test")["scores"][:5, :10]
            np.testing.assert_allclose(found, tested, atol=1e-5)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("_CHECKPOINT*")}


def test_a_run_that_is_stopped_resumes_and_ranks_the_same(world, finished, tmp_path):
    """SIGTERM arrives while the learner streams, before anything is timed."""
    cfg = configure(world, tmp_path, "methods=[documents,greedy]")
    with stopped_at(2):
        latency.main(cfg)
    steps = tmp_path / "steps"
    assert not (steps / "greedy-0-test.npz").exists()
    assert not (steps / "latency.npz").exists()
    results = latency.main(cfg)
    for metric in ("recall@10", "ndcg@10"):
        assert results[f"greedy/{metric}"] == finished[1][f"greedy/{metric}"]
    assert results["greedy/milliseconds/median"] > 0


def test_times_are_kept_when_a_run_is_resumed(world, finished):
    directory, results = finished
    (directory / "results.json").unlink()
    assert latency.main(configure(world, directory)) == results


def test_each_query_is_timed_alone_in_an_order_of_its_own_after_all_were_seen():
    calls = []

    def form(name, seconds):
        def answer(texts):
            calls.append((name, *texts))
            time.sleep(seconds)

        return answer

    texts = [str(i) for i in range(12)]
    forms = {"slow": form("slow", 0.01), "fast": form("fast", 0.0)}
    times = latency.in_turn(forms, texts, seed=0)
    assert calls[:24] == [(name, text) for name in forms for text in texts]
    rounds = [calls[24 + 2 * i : 26 + 2 * i] for i in range(12)]
    assert [{text for _, text in pair} for pair in rounds] == [{text} for text in texts]
    assert len({pair[0][0] for pair in rounds}) == 2
    assert (times["slow"] >= 10).all()
    assert np.median(times["fast"]) < 10
