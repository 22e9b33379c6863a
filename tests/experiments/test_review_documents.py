"""The review page of expanded documents: its HTTP server, and the page in a real browser."""

import http.client
import json
import threading
from contextlib import contextmanager

import pytest

from experiments.review_documents import page as review_page
from experiments.review_documents.page import QUESTIONS, Review
from jaxret.runtime.files import write_json_lines
from tests.browser import browsing
from tests.experiments.conftest import rows_of

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PROFILE = {"function": "Says the time.", "tags": ["clock", "hour", "time"]}
FINE = dict.fromkeys(QUESTIONS, "ok")


def answer(tool="a", **fields):
    return {"id": tool, **FINE, "verdict": "pass", "note": ""} | fields


@pytest.fixture
def sample(tmp_path):
    example = {"example_usage": [{"query": "now?", "api_call": "c(1)"}]}
    rows = [
        {"id": "a", "document": {"name": "a", "zones": {"cet": ["+1", "+2"]}}, "profile": PROFILE},
        {"id": EVIL, "document": {EVIL: EVIL}, "profile": {"function": EVIL, "tags": [EVIL]}},
        {"id": "c", "document": {"name": "c"}, "profile": PROFILE | example},
    ]
    write_json_lines(tmp_path / "sample.jsonl", rows)
    return tmp_path / "sample.jsonl"


@contextmanager
def opened(sample, reviewer="A"):
    with Review(sample, sample.with_name("reviews.jsonl"), reviewer=reviewer) as page:
        thread = threading.Thread(target=page.serve)
        thread.start()
        try:
            yield page
        finally:
            page.stop()
            thread.join()


@pytest.fixture(scope="module")
def browser():
    with browsing() as one:
        yield one


def send(page, method, path, body=b"", **headers):
    """Send a request; return the status and the JSON of the reply."""
    host, port = page.url.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json"} | names)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def post(page, content, **headers):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return send(page, "POST", "/answers", body, **headers)


def lines(sample):
    return rows_of(sample.with_name("reviews.jsonl"))


def test_answers_are_lines_and_the_last_one_of_a_tool_counts(sample):
    with opened(sample) as page:
        assert page.url.startswith("http://127.0.0.1:")
        assert post(page, answer(hallucination="problem", verdict="fail", note="x\ny")) == (200, {})
        assert post(page, answer("c")) == (200, {})
        assert post(page, answer("c", completeness="problem")) == (200, {})
        _, state = send(page, "GET", "/state")
    assert [line["id"] for line in lines(sample)] == ["a", "c", "c"]
    assert lines(sample)[0]["note"] == "x\ny"
    assert state["answers"]["c"]["completeness"] == "problem"
    assert [tool["id"] for tool in state["tools"]] == ["a", EVIL, "c"]
    assert review_page.summary(sample.with_name("reviews.jsonl")) == {
        "reviewed": 2.0,
        "passed": 0.5,
        "problem/faithfulness": 0.0,
        "problem/completeness": 0.5,
        "problem/hallucination": 0.5,
        "problem/consistency": 0.0,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "an answer must be JSON: "),
        (b"\xff", "an answer must be JSON: "),
        (["a"], "an answer must be an object with id, faithfulness, completeness"),
        ({"id": "a"}, "an answer must be an object with id, faithfulness, completeness"),
        (answer(path="/etc"), "an answer must be an object with id, faithfulness, completeness"),
        (answer("b"), "id must be that of a tool in the sample, got 'b'"),
        (answer(["a"]), "id must be that of a tool in the sample, got ['a']"),
        (answer(completeness=True), "completeness must be ok or problem, got True"),
        (answer(verdict=None), "verdict must be pass or fail, got None"),
        (answer(note="x" * 2001), "note must be a text of at most 2,000 characters"),
    ],
)
def test_a_malformed_post_is_refused_and_leaves_no_line(sample, content, message):
    with opened(sample) as page:
        status, reply = post(page, content)
    assert status == 400
    assert reply["error"].startswith(message)
    assert not sample.with_name("reviews.jsonl").exists()


def test_posts_of_other_kinds_places_and_sites_are_refused(sample):
    with opened(sample) as page:
        assert post(page, answer(), Content_Type="text/plain")[0] == 400  # a form of another site
        assert post(page, answer(), Content_Length="99999999")[0] == 400
        assert post(page, answer(), Content_Length="-1")[0] == 400
        assert post(page, answer(), Host="evil.example")[0] == 403
        assert send(page, "GET", "/state", Host="evil.example")[0] == 403
        assert send(page, "POST", "/", json.dumps(answer()).encode())[0] == 400
        assert send(page, "GET", "/../etc/passwd")[0] == 404
    assert not sample.with_name("reviews.jsonl").exists()


def test_an_answer_that_cannot_be_written_whole_is_not_written(sample, monkeypatch):
    results = sample.with_name("reviews.jsonl")
    with opened(sample) as page:
        post(page, answer())
        before = results.read_bytes()

        def full(number):
            raise OSError("no space left on device")

        monkeypatch.setattr(review_page.os, "fsync", full)
        status, reply = post(page, answer("c"))
    assert (status, reply) == (500, {"error": "not saved: no space left on device"})
    assert results.read_bytes() == before


def test_a_line_that_a_killed_process_left_unfinished_is_dropped(sample):
    with opened(sample) as page:
        post(page, answer())
    results = sample.with_name("reviews.jsonl")
    whole = results.read_bytes()
    results.write_bytes(whole + b'{"id": "c", "faith')
    with opened(sample) as page:
        assert list(page.state()["answers"]) == ["a"]
    assert results.read_bytes() == whole


def test_each_reviewer_has_answers_of_their_own(sample):
    with opened(sample, "A") as page:
        post(page, answer())
    with opened(sample, "B") as page:
        assert page.state()["answers"] == {}


def test_a_missing_or_empty_sample_is_refused(tmp_path):
    files = tmp_path / "sample.jsonl", tmp_path / "reviews.jsonl"
    with pytest.raises(FileNotFoundError, match=r"sample.jsonl does not exist"):
        Review(*files)
    files[0].write_text("")
    with pytest.raises(ValueError, match="holds no tools: nothing to review"):
        Review(*files)


def test_in_a_browser_the_page_works_by_keyboard_alone_and_resumes(sample, browser, tmp_path):
    with opened(sample) as page:
        browser.open(page.url)
        browser.wait("document.body.innerText.includes('tool 1 of 3')")
        assert {"Says the time.", "clock", "cet", "+1", "+2"} <= set(browser.text().split("\n"))
        browser.press("P")
        browser.wait("document.body.innerText.includes('Answer the four questions first.')")
        browser.press("Y", "N", "Y", "Y", "Up", "Up", "Y", "T")
        browser.type("yes, p is here")  # letters that are shortcut keys outside of the note
        browser.press("Escape", "Return")  # accepts the suggestion
        browser.wait("document.body.innerText.includes('tool 2 of 3')")
        assert lines(sample) == [answer(note="yes, p is here") | {"reviewer": "A"}]
        browser.press("Right")
        browser.wait("document.body.innerText.includes('c(1)')")

        browser.open(page.url)  # as after a break
        browser.wait("document.body.innerText.includes('tool 2 of 3')")
        browser.press("Y", "Y", "N", "Y", "F")
        browser.wait("document.body.innerText.includes('tool 3 of 3')")
        browser.press(*"YYYYP")
        browser.wait("document.body.innerText.includes('All 3 reviewed: 2 passed')")
        browser.picture(tmp_path / "page.png")
    assert [line["verdict"] for line in lines(sample)] == ["pass", "fail", "pass"]
    assert lines(sample)[1]["hallucination"] == "problem"
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_in_a_browser_texts_of_tools_are_text_and_nothing_is_loaded_from_elsewhere(sample, browser):
    with opened(sample) as page:
        browser.open(page.url)
        browser.wait("document.body.innerText.includes('tool 1 of 3')")
        browser.press("Right")
        browser.wait("document.body.innerText.includes('tool 2 of 3')")
        assert browser.text().count(EVIL) == 5  # the id, a name, a value, a function, a tag
        assert browser.run("document.title") == "Tool profiles: review"
        assert browser.run("document.querySelectorAll('img').length") == 0
        loaded = browser.run("performance.getEntriesByType('resource').map(x => x.name)")
        assert loaded == [f"{page.url}state"]


def test_in_a_browser_a_page_whose_program_has_ended_says_so_and_keeps_the_answers(sample, browser):
    with opened(sample) as page:
        browser.open(page.url)
        browser.wait("document.body.innerText.includes('tool 1 of 3')")
    browser.press(*"YYYYP")
    browser.wait("document.body.innerText.includes('Not saved: the program behind this page')")
    assert browser.run("document.querySelectorAll('[aria-pressed=true]').length") == 4
    assert not sample.with_name("reviews.jsonl").exists()
