"""End answers of multi-hop tasks: which tasks are asked, and which answers are right."""

import json

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.multihop import answers
from jaxret.data.dataset import Query, build
from jaxret.llm import Chat, Endpoint
from jaxret.runtime.files import write_json_lines
from tests.fake_llm import Reply, serving

WAYS = [{"id": "p", "answer": ["The Verge", "Verge"]}, {"id": "q", "answer": "Google"}]


def settings(folder, gold=None):
    return OmegaConf.create({"dataset": {"path": str(folder)}, "gold_answers": gold})


def test_a_file_of_answers_comes_before_those_of_the_data_set(tmp_path):
    write_json_lines(tmp_path / "queries.jsonl", [{"id": "p", "answer": 7}, {"id": "q"}])
    assert answers.gold(settings(tmp_path)) == {"p": ["7"]}
    ours = tmp_path / "ours.jsonl"
    write_json_lines(ours, WAYS)
    assert answers.gold(settings(tmp_path, ours)) == {"p": ["The Verge", "Verge"], "q": ["Google"]}
    assert answers.gold(settings(tmp_path / "elsewhere")) == {}


def test_a_file_of_answers_that_is_missing_lacks_one_or_has_one_too_many_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        answers.gold(settings(tmp_path, tmp_path / "none.jsonl"))
    write_json_lines(tmp_path / "ours.jsonl", [*WAYS, {"id": "r"}])
    with pytest.raises(ValueError, match=r"line 3: fields \['answer'\] are missing"):
        answers.gold(settings(tmp_path, tmp_path / "ours.jsonl"))
    answers.refuse_unknown({"p"}, ["p", "q"])
    with pytest.raises(ValueError, match="gold_answers has 'r' and 1 more ids"):
        answers.refuse_unknown({"s", "p", "r"}, ["p", "q"])


def test_an_answer_is_right_if_it_agrees_with_one_way_to_say_it():
    right = {"p": ["The Verge news site", "Verge"], "q": ["Google"]}
    said = {"p": "verge", "q": "I think Google", "r": "no one knows"}
    lines = [{"id": key, "seed": seed, "answer": said[key]} for seed in (0, 1) for key in said]
    lines[0]["answer"] = "nothing"
    expected = {"answer/exact": [0.0, 0.5], "answer/contains": [0.5, 1.0]}
    assert answers.scores(lines, right) == expected
    assert answers.scores(lines, {}) == {}


class Run:
    """A run directory that stores nothing."""

    def result(self, name, ask):
        return {key: np.array(values) for key, values in ask().items()}


def test_only_tasks_with_an_answer_are_asked_with_the_documents_of_all_their_hops(key):
    tasks = [Query(name, f"what is {name}", ("a",)) for name in "pqr"]
    dataset = build("x", [(name, f"about {name}") for name in "abcd"], tasks)
    items = np.array([[[0, 1], [1, 2], [3, 0], [2, 2]], [[3, 3], [3, 3], [1, 0], [0, 0]]])
    hops = np.array([0, 0, 1, 2])

    def answer(messages, i):
        return Reply(json.dumps({"answer": messages[0]["content"].split("Question: ")[1][:9]}))

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url))
        given = (Run(), chat, "greedy", dataset, list("abcd"), items, hops)
        lines = answers.answer(*given, only=["r", "p"])
        assert len(answers.answer(*given)) == 6
    assert [(x["seed"], x["id"], x["documents"]) for x in lines] == [
        (0, "p", ["a", "b", "c"]),
        (0, "r", ["c"]),
        (1, "p", ["d"]),
        (1, "r", ["a"]),
    ]
    assert [line["answer"] for line in lines] == ["what is p", "what is r"] * 2
