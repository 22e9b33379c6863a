"""Language-model answers packed into the repository, and their reuse by the client's cache."""

import gzip
import json

import pytest

from experiments.local_llm import __main__ as command
from experiments.local_llm import answers, server
from jaxret.llm import Chat, Endpoint
from tests.fake_llm import Reply, serving

QUESTIONS = [[{"role": "user", "content": f"What is {what}?"}] for what in ("ours", "theirs")]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")


def asked(server, cache):
    return Chat(Endpoint(model="m", base_url=server.url, retries=0, concurrency=1), cache)


def test_answers_about_our_texts_alone_are_packed_and_serve_another_cache(tmp_path):
    file, first, second = tmp_path / "answers.gz", tmp_path / "first", tmp_path / "second"
    weighed = Reply("yes", first=(("yes", 0.7), ("no", 0.3)))
    with serving(lambda messages, i: weighed if i == 2 else Reply("yes")) as server:
        chat = asked(server, first)
        chat.ask_all(QUESTIONS, str, progress=False)
        chat.weigh(QUESTIONS[0], ("yes", "no"))
        assert answers.pack(first, {"is ours"}, file) == 1
        assert answers.unpack(file, second) == 1
        assert answers.unpack(file, second) == 0
        before = len(server.requests)
        again = asked(server, second)
        assert again.ask_all(QUESTIONS, str, progress=False) == ["yes", "yes"]
        assert len(server.requests) == before + 1  # "theirs" was not packed
    assert again.counts["cached"] == 1
    assert again.counts["cached_prompt_tokens"] == 7
    assert "theirs" not in gzip.decompress(file.read_bytes()).decode()


def test_packing_adds_to_what_is_there_and_the_same_answers_make_the_same_file(tmp_path):
    file, cache = tmp_path / "answers.gz", tmp_path / "cache"
    with serving(lambda messages, i: Reply(f"answer {i}")) as server:
        asked(server, cache).ask(QUESTIONS[0], str)
        assert answers.pack(cache, {"What"}, file) == 1
        one = file.read_bytes()
        assert answers.pack(cache, {"What"}, file) == 1
        assert file.read_bytes() == one
        asked(server, tmp_path / "other").ask(QUESTIONS[1], str)
        assert answers.pack(tmp_path / "other", {"What"}, file) == 2
    said = [json.loads(line)["answer"] for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert sorted(said) == ["answer 0", "answer 1"]


def test_a_question_about_a_sentence_of_an_answer_is_packed_too(tmp_path):
    file, cache = tmp_path / "answers.gz", tmp_path / "cache"
    long = " ".join(f"word{i}" for i in range(20))
    other = " ".join(f"other{i}" for i in range(20))
    said = [json.dumps({"function": long, "tags": ["a"]}), long + " more", "Short.", "Short."]
    with serving(lambda messages, i: Reply(said[i])) as server:
        chat = asked(server, cache)
        texts = ("What is ours?", f"Too long:\n\n{long}", f"Still:\n\n{long} more", other)
        for text in texts:
            chat.ask([{"role": "user", "content": text}], str)
        assert answers.pack(cache, {"is ours"}, file) == 3
    assert answers.pack(cache, {"is ours"}, file) == 3


@pytest.mark.parametrize(
    "content", [b"torn", gzip.compress(b'{"answer": "x"}\n')], ids=["torn", "without a name"]
)
def test_a_damaged_file_is_named_and_nothing_is_put_anywhere(tmp_path, content):
    (tmp_path / "answers.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"answers\.gz holds no answers"):
        answers.unpack(tmp_path / "answers.gz", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_answers_of_the_repository_are_put_where_the_client_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path))
    said = command.act("answers", server.Settings())
    kept = len(gzip.decompress(answers.FILE.read_bytes()).splitlines())
    assert said == f"{kept:,} new answers in {tmp_path}/llm"
    assert len(list((tmp_path / "llm").glob("*.json"))) == kept > 50
