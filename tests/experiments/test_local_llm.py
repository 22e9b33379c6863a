"""The local LLM server, with a script as the server, and its answers kept in the repository."""

import gzip
import json
import os
import signal
import socket
import sys
import threading

import pytest

from experiments.local_llm import __main__ as command
from experiments.local_llm import answers, server
from jaxret.llm import Chat, Endpoint
from tests.fake_llm import Reply, serving

pytestmark = pytest.mark.usefixtures("key")
SERVE = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
said = dict(word[2:].split("=", 1) for word in sys.argv[3:])
if sys.argv[1] == "dies":
    print("reading weights")
    sys.exit("no memory for the weights")

class Handler(BaseHTTPRequestHandler):
    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "" if sys.argv[1] == "empty" else f"ready, {asked['model']} with {said['slots']}"
        self.answer({"choices": [{"message": {"content": text}}]})

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(said["port"])), Handler).serve_forever()
"""
QUESTIONS = [[{"role": "user", "content": f"What is {what}?"}] for what in ("ours", "theirs")]


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def serve(tmp_path, monkeypatch, port):
    """Return a function that selects the fake server's behaviour, and stop the server later."""
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path))
    (tmp_path / "fake.py").write_text(SERVE)
    (tmp_path / "weights.gguf").write_bytes(b"weights")
    monkeypatch.setattr(server, "weights", lambda: tmp_path / "weights.gguf")

    def choose(kind):
        program = [sys.executable, str(tmp_path / "fake.py"), kind]
        monkeypatch.setattr(server, "_python", lambda: program)

    choose("answers")
    yield choose
    server.stop(port)


def start(port):
    return server.start(server.Settings(port=port))


def test_a_server_is_started_once_and_stopped(serve, port):
    assert start(port) == f"http://127.0.0.1:{port}/v1"
    pid = server.running(port)
    assert start(port) == f"http://127.0.0.1:{port}/v1"
    assert server.running(port) == pid
    assert server.check(port) == "ready, qwen2.5-coder-1.5b-instruct-q4 with 4"
    assert server.stop(port)
    assert server.running(port) is None
    assert not server.in_use(port)
    assert not server.stop(port)


def test_a_users_server_program_replaces_that_of_the_wheel(tmp_path, serve, port):
    serve("dies")  # the packaged server must not be used
    words = "said = dict(zip((word[2:] for word in sys.argv[3::2]), sys.argv[4::2]))\n"
    fake = SERVE.splitlines(keepends=True)
    (tmp_path / "own.py").write_text(
        "".join([*fake[:3], words, *fake[4:]]).replace("slots", "parallel")
    )
    program = f"{sys.executable} {tmp_path}/own.py answers"
    server.start(server.Settings(port=port, slots=2, program=program))
    assert server.check(port) == "ready, qwen2.5-coder-1.5b-instruct-q4 with 2"


def test_a_program_is_found_at_a_relative_path_or_its_absence_is_named(
    tmp_path, serve, port, monkeypatch
):
    (tmp_path / "llama-server").write_text("")
    (tmp_path / "llama-server").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    command = server._command(server.Settings(program="./llama-server -fa off"), tmp_path / "w")
    assert command[:3] == [str(tmp_path / "llama-server"), "-fa", "off"]
    with pytest.raises(server.ServerError, match=r"no program .*/absent"):
        server.start(server.Settings(port=port, program=f"{tmp_path}/absent --fast"))


def test_a_server_that_was_killed_is_started_again(serve, port, monkeypatch):
    monkeypatch.setattr(server, "_wait_until_closed", lambda port: None)  # not needed here
    start(port)
    pid = server.running(port)
    os.kill(pid, signal.SIGKILL)
    while server.running(port) is not None:
        pass
    start(port)
    assert server.running(port) not in (None, pid)


def test_a_port_of_another_program_is_refused(serve, port):
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(server.ServerError, match=rf"port {port} is in use .*--port"):
            start(port)


def test_a_port_that_is_still_held_is_waited_for(serve, port, monkeypatch):
    """The port is bound without a listener, as after a server whose connections are closing."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", port))
        threading.Timer(0.5, held.close).start()
        assert start(port) == f"http://127.0.0.1:{port}/v1"
    monkeypatch.setattr(server, "CLOSE", 0.3)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        other = held.getsockname()[1]
        with pytest.raises(server.ServerError, match=rf"port {other} is not free after 0 seconds"):
            start(other)


def test_a_server_that_ends_at_the_start_says_its_last_words_in_one_line(
    serve, port, monkeypatch, capsys
):
    serve("dies")
    with pytest.raises(server.ServerError, match=r"status 1: .*no memory for the weights"):
        start(port)
    assert server.running(port) is None
    monkeypatch.setattr(sys, "argv", ["local_llm", "start", "--port", str(port)])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    said = capsys.readouterr().err
    assert said.startswith("error: the server ended with status 1")
    assert said.count("\n") == 1


def test_a_server_with_an_empty_answer_is_stopped(serve, port):
    serve("empty")
    with pytest.raises(server.ServerError, match=r"gave an empty answer"):
        start(port)
    assert not server.in_use(port)


def test_a_server_that_does_not_answer_in_time_is_stopped(serve, port, monkeypatch):
    monkeypatch.setattr(server, "START", 0.5)
    program = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(server, "_python", lambda: program)
    with pytest.raises(server.ServerError, match=r"did not answer in 0 seconds: it said nothing"):
        start(port)
    assert server.running(port) is None


def test_start_prints_the_arguments_for_an_experiment(serve, port):
    settings = server.Settings(port=port, slots=2, context=8192)
    said = command.act("start", settings)
    assert f"llm.base_url=http://127.0.0.1:{port}/v1" in said
    assert "2 questions side by side, 4,096 tokens each" in said
    assert "answers: ready" in command.act("status", settings)
    assert command.act("stop", settings) == "stopped"
    assert command.act("status", settings) == f"no server of ours at port {port}"


def asked(endpoint, cache):
    return Chat(Endpoint(model="m", base_url=endpoint.url, retries=0, concurrency=1), cache)


def test_answers_about_our_texts_alone_are_packed_and_serve_another_cache(tmp_path):
    file, first, second = tmp_path / "answers.gz", tmp_path / "first", tmp_path / "second"
    weighed = Reply("yes", first=(("yes", 0.7), ("no", 0.3)))
    with serving(lambda messages, i: weighed if i == 2 else Reply("yes")) as endpoint:
        chat = asked(endpoint, first)
        chat.ask_all(QUESTIONS, str, progress=False)
        chat.weigh(QUESTIONS[0], ("yes", "no"))
        assert answers.pack(first, {"is ours"}, file) == 1
        assert answers.unpack(file, second) == 1
        assert answers.unpack(file, second) == 0
        before = len(endpoint.requests)
        again = asked(endpoint, second)
        assert again.ask_all(QUESTIONS, str, progress=False) == ["yes", "yes"]
        assert len(endpoint.requests) == before + 1  # "theirs" was not packed
    assert again.counts["cached"] == 1
    assert again.counts["cached_prompt_tokens"] == 7
    assert "theirs" not in gzip.decompress(file.read_bytes()).decode()


def test_packing_adds_to_what_is_there_and_the_same_answers_make_the_same_file(tmp_path):
    file, cache = tmp_path / "answers.gz", tmp_path / "cache"
    with serving(lambda messages, i: Reply(f"answer {i}")) as endpoint:
        asked(endpoint, cache).ask(QUESTIONS[0], str)
        assert answers.pack(cache, {"What"}, file) == 1
        one = file.read_bytes()
        assert answers.pack(cache, {"What"}, file) == 1
        assert file.read_bytes() == one
        asked(endpoint, tmp_path / "other").ask(QUESTIONS[1], str)
        assert answers.pack(tmp_path / "other", {"What"}, file) == 2
    said = [json.loads(line)["answer"] for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert sorted(said) == ["answer 0", "answer 1"]


def test_a_question_about_a_sentence_of_an_answer_is_packed_too(tmp_path):
    file, cache = tmp_path / "answers.gz", tmp_path / "cache"
    long, other = (" ".join(f"{word}{i}" for i in range(20)) for word in ("word", "other"))
    said = [json.dumps({"function": long, "tags": ["a"]}), long + " more", "Short.", "Short."]
    with serving(lambda messages, i: Reply(said[i])) as endpoint:
        chat = asked(endpoint, cache)
        texts = ("What is ours?", f"Too long:\n\n{long}", f"Still:\n\n{long} more", other)
        for text in texts:
            chat.ask([{"role": "user", "content": text}], str)
        assert answers.pack(cache, {"is ours"}, file) == 3
    assert answers.pack(cache, {"is ours"}, file) == 3


def test_a_damaged_file_is_named_and_nothing_is_put_anywhere(tmp_path):
    for content in (b"torn", gzip.compress(b'{"answer": "x"}\n')):  # the second lacks a name
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
