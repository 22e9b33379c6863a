"""Multi-hop tasks on a small world, with hops from the labels and from a language model."""

import json
import os
import re
import shutil
import signal

import numpy as np
import pytest

from experiments.common.loading import task_of
from experiments.multihop import __main__ as multihop
from experiments.multihop import tasks
from jaxret import data
from jaxret.data.dataset import Query, build
from jaxret.data.hops import as_hops
from jaxret.runtime.checkpoint import Interrupted
from jaxret.runtime.files import write_json_lines
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import TOOLS, rows_of, step_of
from tests.fake_llm import Reply, serving

SMALL = ["seeds=2", "chunk=256"]
GREEDY = [f"learners.reranked_greedy.{x}" for x in ("tau=[0.01]", "eta_over_tau=[0.03,0.1]")]
BOTH = ["learner=[frozen,reranked_greedy]", *GREEDY, "exposures=8"]
ASKED = ["planner=llm", "judge=llm", "chunk=8", "llm.format=schema"]


def configure(world, directory, *more, folder="data"):
    where = [*in_world(world, directory), f"dataset.path={world / folder}"]
    return config_of("multihop", *SMALL, *where, *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "multihop"
    return directory, multihop.main(configure(world, directory, *BOTH))


def test_static_retrieval_finds_what_the_documents_rank_first(world, finished):
    """Recomputed with NumPy as the share of a task's labels among its five best documents."""
    directory, results = finished
    task = task_of(configure(world, directory))
    scores = task.queries @ task.theta.T
    right = np.take_along_axis(scores, np.maximum(task.labels, 0), axis=1)
    rank = (scores[:, None] > right[:, :, None]).sum(axis=2)
    hit = (rank < 5) & (task.labels >= 0)
    number = (task.labels >= 0).sum(axis=1)
    first = np.cumsum(number) - number  # row of each task's first hop
    streamed = np.isin(first, step_of(directory, "frozen")["order"])
    share = (hit.sum(axis=1) / number)[streamed]
    assert number[streamed].max() > 2
    for protocol in ("online/found", "final/found@5"):
        assert results[f"frozen/{protocol}"] == pytest.approx(share.mean())
    for protocol in ("online/complete", "final/complete@5"):
        assert results[f"frozen/{protocol}"] == pytest.approx((share == 1).mean())
    hops = hit[streamed].sum() / number[streamed].sum()
    assert results["frozen/online/accuracy"] == pytest.approx(hops)
    assert results["frozen/final/recall@5"] == pytest.approx(hops)
    assert results["hops"] == pytest.approx(number.mean())


def test_learning_from_hops_finds_more_documents_per_task(finished):
    directory, results = finished
    for name in ("online/last", "final/found@5", "final/ndcg@5"):
        assert results[f"reranked_greedy/{name}"] > results[f"frozen/{name}"] + 0.04, name
    assert results["reranked_greedy/online/last"] > results["reranked_greedy/online/first"] + 0.04
    with np.load(directory / "curves.npz") as curves:
        assert curves["frozen/found"].shape == curves["reranked_greedy/found"].shape
        mean = curves["reranked_greedy/found"].mean()
    assert mean == pytest.approx(results["reranked_greedy/online/found"])
    for name in ("found", "more"):
        assert (directory / f"{name}.png").stat().st_size > 10_000


def test_a_task_finds_what_its_hops_wanted_once_each_time_it_comes():
    """Two tasks of two and three hops, both with two tools; the second comes twice in a row."""
    steps = [(("w", "a"), ("x", "b")), (("x", "c"), ("y", "b"), ("z", "c"))]
    queries = [
        Query(str(i), f"task {i}", tuple(dict.fromkeys(label for _, label in some)), steps=some)
        for i, some in enumerate(steps)
    ]
    hops = as_hops(build("x", [(name, name) for name in "abc"], queries))
    a, b, c = range(3)
    online = {
        "order": np.array([[0, 1, 2, 3, 4, 2, 3, 4, 0, 1]]),
        "item": np.array([[a, a, c, b, c, c, c, c, b, b]]),
        "success": np.array([[1, 0, 1, 1, 1, 1, 0, 1, 0, 1]]),
    }
    assert tasks.by_visit(online, hops).tolist() == [[0.5, 1.0, 0.5, 0.5]]
    online["reward"] = np.array([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1]])  # one miss, two false alarms
    means = tasks.measured(online, np.zeros((1, 4)), hops)
    assert means["online/bits_right"].item() == 0.7
    assert means["online/misses"].item() == pytest.approx(1 / 7)
    assert means["online/false_alarms"].item() == pytest.approx(2 / 3)
    assert [means[f"online/hop{i}"].item() for i in (1, 2, 3)] == [0.75, 0.5, 1.0]
    items = np.array([[b, c], [b, -1], [a, -1], [b, b], [c, a]])
    assert tasks.found(items, hops.labels, hops.groups).tolist() == [0.5, 1.0]


# With a language model


@pytest.fixture(scope="module")
def few(world):
    """Write twelve tasks that need several tools; every second one has a reference answer."""
    bank = data.load("deskbank", part="multi")
    rows = [i for i, right in enumerate(bank.labels) if (right < TOOLS).all()][:12]
    lines = []
    for place, row in enumerate(rows):
        labels = [bank.tool_ids[item] for item in bank.labels[row] if item >= 0]
        line = {"id": bank.query_ids[row], "query": bank.queries[row], "labels": labels}
        lines.append(line | ({"answer": "The reply"} if place % 2 else {}))
    write_json_lines(world / "few" / "queries.jsonl", lines)
    shutil.copy(world / "data" / "tools.jsonl", world / "few")
    return world


class Model:
    """A fake model: plans two questions at the second attempt, and judges by length of the text."""

    def __init__(self, judge=lambda text: len(text) % 6 - 1):
        self.asked = {"plan": [], "judge": [], "answer": []}
        self.judge = judge

    def __call__(self, messages, i):
        [message] = messages
        text = message["content"]
        if "sub_questions" in text:
            self.asked["plan"].append(text)
            if self.asked["plan"].count(text) == 1:
                return Reply("1. what?")
            return Reply('{"sub_questions": ["what first?", "what then?"]}')
        if "index" in text:
            self.asked["judge"].append(text)
            return Reply(json.dumps({"index": self.judge(text)}))
        self.asked["answer"].append(text)
        return Reply('{"answer": "the reply, I think"}')


@pytest.fixture(scope="module")
def talked(few):
    """Run custom prompts and end answers with a judge that rejects everything and sets the bit."""
    directory, model = few / "talked", Model(judge=lambda text: -1)
    more = [*ASKED, "learner=[frozen]", "bit=judge", "answers=true"]
    for name, text in {"plan": "sub_questions: $query", "answer": "$query $documents"}.items():
        (few / name).write_text(f"Mine, {text}")
        more.append(f"prompts.{name}={few / name}")
    with serving(model) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "any")
        cfg = configure(few, directory, *more, f"llm.base_url={server.url}", folder="few")
        return directory, multihop.main(cfg), model, server.requests


@pytest.mark.slow
def test_hops_are_the_planners_sub_questions(talked):
    directory, results, model, requests = talked
    assert all(text.startswith("Mine, ") for text in model.asked["plan"] + model.asked["answer"])
    assert len(model.asked["plan"]) == 24  # two requests per task: the first answer is not JSON
    assert step_of(directory, "plans")["length"].tolist() == [2] * 12
    assert results["hops"] == 2
    focus = {re.search(r"Context: .* \| Focus: (.*)", text)[1] for text in model.asked["judge"]}
    assert focus == {"what first?", "what then?"}
    forms = [x["response_format"]["json_schema"]["schema"]["properties"] for x in requests]
    assert {form for [form] in forms} == {"sub_questions", "index", "answer"}


@pytest.mark.slow
def test_rewards_are_the_judges_verdicts_and_success_is_by_labels(talked):
    directory, results, *_ = talked
    online = step_of(directory, "frozen")
    assert not online["reward"].any()
    accuracy = results["frozen/online/accuracy"]
    assert 0 < accuracy < 1
    assert results["frozen/online/bits_right"] == pytest.approx(1 - accuracy)


@pytest.mark.slow
def test_end_answers_come_from_the_documents_of_all_hops_and_are_scored_where_one_is_known(talked):
    directory, results, *_ = talked
    lines = rows_of(directory / "answers.jsonl")
    online = step_of(directory, "frozen")
    assert len(lines) == 2 * online["order"].shape[1] / 2  # two seeds; two hops per task
    assert {line["answer"] for line in lines} == {"the reply, I think"}
    documents = [set(line["documents"]) for line in lines]
    assert max(map(len, documents)) > 5
    ids = data.load("jsonl", directory.parent / "few").tool_ids
    shown = [{ids[i] for i in row} for row in online["items"][0].reshape(-1, 2 * 5)]
    assert documents[: len(shown)] == shown
    assert results["frozen/answer/exact"] == 0
    assert results["frozen/answer/contains"] == 1


@pytest.mark.slow
def test_a_run_that_is_stopped_resumes_asks_nothing_twice_and_ends_with_the_same_bits(few, key):
    cut, whole = few / "cut", few / "whole"

    def judge(text):
        if len(model.asked["judge"]) == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return len(text) % 6 - 1

    model = Model(judge)
    with serving(model) as server:
        more = [*ASKED, "learner=[reranked_greedy]", *GREEDY, f"llm.base_url={server.url}"]
        with pytest.raises(Interrupted):
            multihop.main(configure(few, cut, *more, folder="few"))
        before = len(model.asked["judge"])
        assert not (cut / "steps" / "reranked_greedy.npz").exists()
        results = multihop.main(configure(few, cut, *more, folder="few"))
        asked = model.asked["judge"]
        assert set(asked[before:]).isdisjoint(asked[:before])
        after = len(asked)
        assert multihop.main(configure(few, whole, *more, folder="few")) == results
        assert (len(model.asked["plan"]), len(asked)) == (24, after)
    ours, theirs = (step_of(folder, "reranked_greedy") for folder in (cut, whole))
    for field in set(ours) - {"microseconds"}:
        np.testing.assert_array_equal(ours[field], theirs[field], err_msg=field)
    assert len(set(ours["item"].ravel())) > 5
