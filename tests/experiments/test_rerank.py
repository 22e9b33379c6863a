"""ORAG with rerankers, end to end on a small world, and selectors against plain rerankers."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from experiments import rerank
from jaxret.llm import Chat, Endpoint, replace_prompts
from jaxret.methods.cross_encoder import reranker as cross_encoder
from jaxret.nn.classifier import classifier
from jaxret.retrieval import rankgpt
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import step_of
from tests.experiments.processes import stopped_at
from tests.fake_llm import Reply, serving
from tests.tiny import encoder, weights

SMALL = ["seeds=2", "learner=[reranked]", "~learners.frozen"]
SMALL += ["learners.reranked.tau=[0.04]", "learners.reranked.eta_over_tau=[0.1]"]
SMALL += [f"recipes.refiner_tool2vec.{x}" for x in ("layers=1", "epochs=2", "limit=16")]
SMALL += [f"recipes.cross_encoder.{x}" for x in ("layers=1", "epochs=0.5", "limit=16")]
SMALL += ["recipes.cross_encoder.document_limit=16"]


def configure(world, directory, *more):
    where = [f"models={world / 'models_of_rerank'}", *in_world(world, directory)]
    return config_of("rerank", *SMALL, *where, *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "rerank"
    return directory, rerank.main(configure(world, directory))


def test_every_learner_runs_with_every_reranker_and_an_accurate_one_helps(finished):
    _, results = finished
    for reranker in ("none", "simulated", "refiner_tool2vec", "cross_encoder"):
        for column in ("online/accuracy", "online/last", "final/recall@10", "final/ndcg@10"):
            assert 0 <= results[f"reranked/{reranker}/{column}"] <= 1
    none, simulated = (results[f"reranked/{x}/online/accuracy"] for x in ("none", "simulated"))
    assert simulated > none + 0.1


def test_success_is_that_of_the_item_that_was_picked(finished):
    directory, results = finished
    step = step_of(directory, "reranked-refiner_tool2vec")
    assert set(step["success"].ravel()) <= {0.0, 1.0}
    mean = step["success"].mean(axis=1).mean()
    assert ((step["propensity"] > 0) & (step["propensity"] <= 1)).all()
    assert results["reranked/refiner_tool2vec/online/accuracy"] == pytest.approx(mean)
    lines = json.loads((directory / "results.json").read_text())
    assert lines["reranked/none/online/accuracy"]["n"] == 2
    assert (directory / "accuracy.png").stat().st_size > 5_000


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(world, finished, tmp_path):
    _, results = finished
    cfg = configure(world, tmp_path, "rerankers=[none,simulated]", "chunk=32")
    with stopped_at(5):
        rerank.main(cfg)
    resumed = rerank.main(cfg)
    assert resumed == {name: results[name] for name in resumed}
    assert len(resumed) == 12


@pytest.mark.slow
def test_a_language_model_may_be_the_reranker(world, key):
    """The fake model always names the third passage; the next run reuses its answers."""
    directory = world / "rankgpt"
    with serving(lambda messages, i: Reply("[3] > [1]")) as server:
        more = ["rerankers=[rankgpt]", f"llm.base_url={server.url}"]
        rerank.main(configure(world, directory, *more))
        asked = len(server.requests)
        assert asked > 50
        rerank.main(configure(world, directory, *more, "again=true"))
        assert len(server.requests) == asked
    assert len(np.unique(step_of(directory, "reranked-rankgpt")["item"])) > 3


TEXTS = ["a b c", "d", "e f g h i j k l m n"]
DOCUMENTS = ["b c", "d e f g h", "a", "o p q r s t", "k"]


def test_pairs_are_read_once_and_the_best_of_each_slate_is_picked(tmp_path):
    tiny = encoder(tmp_path)
    network = classifier(tiny.backbone, 1)
    reranker = cross_encoder(network, weights(network.shapes(), seed=1), tiny, DOCUMENTS)
    everything = np.tile(np.arange(5), (3, 1))
    score = jax.jit(reranker.score)
    scores = np.asarray(score(reranker.params, reranker.read(TEXTS), everything))
    read = []

    def counted(params, features, candidates):
        jax.debug.callback(lambda x: read.append(x.size), candidates)
        return reranker.score(params, features, candidates)

    choose = rerank.pairwise(reranker._replace(score=counted), TEXTS, 5)
    queries, items = np.array([2, 0]), np.array([[4, 0, 2], [1, 3, 0]])
    expected = np.take_along_axis(scores[queries], items, axis=1).argmax(axis=1)
    for _ in range(2):
        np.testing.assert_array_equal(choose(queries, items), expected)
    jax.effects_barrier()
    assert read == [rerank.PAIRS]  # one batch, scored only at the first call
    together = rerank.listwise(reranker, TEXTS)
    np.testing.assert_array_equal(together(queries, items), expected)


def test_without_an_answer_of_the_model_the_first_of_the_slate_is_used(key, tmp_path):
    def answer(messages, i):
        return Reply("[2]" if "a b c" in messages[1]["content"] else "no")

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, attempts=1))
        choose = rerank.by_language_model(chat, TEXTS, DOCUMENTS)
        picked = partial(choose, np.array([0, 1]), np.array([[4, 0, 2], [1, 3, 0]]))
        assert picked().tolist() == [1, 0]
        file = tmp_path / "mine.txt"
        file.write_text("a b c $query\n---\nwhich?\n---\n$passage\n---\n$i\n---\nsort them")
        [mine] = replace_prompts({"": rankgpt.PROMPT}, {"": file}).values()
        choose = rerank.by_language_model(chat, TEXTS, DOCUMENTS, prompt=mine)
        assert choose(np.array([1]), np.array([[1, 3, 0]])).tolist() == [0]
        assert server.requests[-1]["messages"][0]["content"] == "a b c d"
    assert chat.counts["unanswered"] == 2
