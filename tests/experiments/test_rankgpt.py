"""RankGPT against fake servers that know the right tool or give incomplete answers."""

import json
import re

import numpy as np
import pytest

from experiments import rankgpt
from jaxret import data
from jaxret.data.templates import name_description
from tests.experiments.configs import config_of, in_world, refused
from tests.fake_llm import Reply, serving

QUERIES, CANDIDATES = 9, 12
pytestmark = pytest.mark.usefixtures("key")


def configure(world, directory, url, *more):
    where = [*in_world(world, directory / "run"), f"cache={directory / 'cache'}"]
    small = [f"queries={QUERIES}", f"candidates={CANDIDATES}", "size=8", "step=4", "words=500"]
    return config_of("rankgpt", *where, *small, f"llm.base_url={url}", "llm.retries=0", *more)


def knowing(dataset):
    """Return a server's answer: passages of the right tools first, the others in given order."""
    texts = [" ".join(name_description(document).split()) for document in dataset.documents]
    right = {
        query: {texts[item] for item in labels if item >= 0}
        for query, labels in zip(dataset.queries, dataset.labels, strict=True)
    }

    def answer(messages, number):
        query = re.match(r"Query: (.*)\nOrder the", messages[-1]["content"])[1]
        passages = [m["content"][4:].strip() for m in messages if m["content"].startswith("[")]
        order = sorted(range(len(passages)), key=lambda i: passages[i] not in right[query])
        return Reply(" > ".join(f"[{i + 1}]" for i in order))

    return answer


def test_a_model_that_knows_the_labels_ranks_retrieved_right_tools_first(world, tmp_path):
    with serving(knowing(data.load("jsonl", world / "data"))) as server:
        found = rankgpt.main(configure(world, tmp_path, server.url))
        asked = len(server.requests)
        assert asked == QUERIES * 2  # two windows of 8 cover 12 candidates
        again = rankgpt.main(configure(world, tmp_path, server.url, "again=true"))
        assert len(server.requests) == asked
    assert found["answers/whole"] == 1
    assert found["answers/lost"] == found["answers/repeated"] == found["answers/invented"] == 0
    assert found["rankgpt/ndcg@10"] > found["first/ndcg@10"]
    gain = found["rankgpt/ndcg@10"] - found["first/ndcg@10"]
    assert found["gain/ndcg@10"] == pytest.approx(gain, abs=1e-6)
    kept = json.loads((tmp_path / "run" / "results.json").read_text())
    assert kept["gain/ndcg@10"]["n"] == QUERIES
    # Moving right tools up among the same twelve candidates cannot reduce recall@10.
    assert found["rankgpt/recall@10"] >= found["first/recall@10"]
    assert "seconds" in found  # but not again: all answers came from the cache
    assert again == {name: x for name, x in found.items() if name != "seconds"}


def test_errors_in_answers_are_counted_and_leave_the_order_unchanged(world, tmp_path):
    says = ["[1] > [1] > [99]", "no idea"]
    with serving(lambda messages, number: Reply(says[number % 2])) as server:
        cfg = configure(world, tmp_path, server.url, "llm.attempts=1", "llm.concurrency=1")
        found = rankgpt.main(cfg)
    assert found["answers/whole"] == 0
    for name in ("lacking", "repeated", "invented", "same"):
        assert found[f"answers/{name}"] == 1
    assert found["answers/lost"] == pytest.approx(0.5)
    for name in ("ndcg@10", "recall@10", "recall@1"):
        assert found[f"gain/{name}"] == 0


@pytest.mark.slow
def test_a_server_that_is_gone_costs_nothing_that_was_answered(world, tmp_path):
    """A wrong key stops the run; the next call sends only the unanswered requests."""
    knows = knowing(data.load("jsonl", world / "data"))

    def fails_later(messages, number):
        return knows(messages, number) if number < 5 else Reply(status=401)

    with serving(fails_later) as server:
        url = server.url
        with pytest.raises(RuntimeError, match="401"):
            rankgpt.main(configure(world, tmp_path, url, "llm.concurrency=1"))
        server._answer = knows
        before = len(server.requests)
        found = rankgpt.main(configure(world, tmp_path, url, "llm.concurrency=1"))
        assert len(server.requests) - before == QUERIES * 2 - 5
    assert np.isfinite(found["rankgpt/ndcg@10"])


def test_wrong_settings_are_refused_before_anything_is_written(world, tmp_path):
    for override, message in {
        "candidates=1": "candidates must be >= 2",
        "k=20": "k must be at most 12, the candidates",
        "step=9": r"step must be in \[1, 8\]",
        "passage=best": "best",
        "prompts.rankgpt=LICENSE": "LICENSE: expected the messages system, user, assistant",
        "llm.key_variable=NO_KEY": "set the variable NO_KEY",
    }.items():
        cfg = configure(world, tmp_path, "http://127.0.0.1:1/v1", override)
        refused(rankgpt.main, cfg, message, error=(ValueError, KeyError))
