"""Serves a local page on which people review tool profiles (Tool-REX, Appendix C).

    with Review(sample, results, reviewer="A") as review:
        print(review.url)
        review.serve()                                    # until Ctrl-C

The page shows the documentation beside the profile and asks the paper's four questions (is the
profile faithful, complete, free of hallucination, consistent?) and for a verdict, pass or fail.
Each answer is appended to the results as one line of JSON. A tool may be judged again; its last
answer counts. Opened again, the page resumes where the reviewer stopped.
"""

import json
import os
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jaxret.runtime.files import json_lines

QUESTIONS = ("faithfulness", "completeness", "hallucination", "consistency")
ANSWERS = ("ok", "problem")
VERDICTS = ("pass", "fail")
FIELDS = ("id", *QUESTIONS, "verdict", "note")
NOTE_CHARACTERS = 2_000
MAX_BYTES = 20_000  # maximum bytes of a post
PAGE = Path(__file__).with_name("page.html")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Review:
    """A server on 127.0.0.1 that appends answers to a file.

    Args:
      sample: JSON lines of tools, each with ``id``, ``document`` and ``profile``.
      results: JSON lines; created with the first answer.
      reviewer: name stored with every answer.
      port: port of the page; 0 takes a free one.
    """

    def __init__(self, sample: Path, results: Path, *, reviewer: str = "", port: int = 0):
        rows = json_lines(sample, holds="a sample", fields=("id", "document", "profile"))
        self.tools = {row["id"]: row for row in rows}
        if not self.tools:
            raise ValueError(f"{sample} holds no tools: nothing to review")
        self.results, self.reviewer = results, reviewer
        self._lock = threading.Lock()
        drop_torn_line(results)
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"

    def __enter__(self) -> "Review":
        return self

    def __exit__(self, *exception) -> None:
        self._http.server_close()

    def serve(self) -> None:
        """Serve requests until `stop` is called or Ctrl-C is pressed."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """End `serve`; called from another thread."""
        self._http.shutdown()

    def state(self) -> dict[str, Any]:
        """Return the tools, this reviewer's answers and the name of the reviewer."""
        answers = latest(self.results, self.reviewer)
        return {
            "tools": list(self.tools.values()),
            "answers": {tool: answers[tool] for tool in answers if tool in self.tools},
            "reviewer": self.reviewer,
        }

    def add(self, answer: Any) -> None:
        """Append one answer."""
        line = checked(answer, self.tools) | {"reviewer": self.reviewer}
        with self._lock:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            append(self.results, line)


def latest(results: Path, reviewer: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the last answer to each tool: of one reviewer, or of any where None is given."""
    if not results.exists():
        return {}
    rows = json_lines(results, holds="answers of a reviewer", fields=(*FIELDS, "reviewer"))
    return {row["id"]: row for row in rows if reviewer in (None, row["reviewer"])}


def summary(results: Path) -> dict[str, float]:
    """Return the number of tools reviewed, and the shares that passed and had each problem."""
    answers = latest(results).values()
    shares = {"reviewed": float(len(answers))}
    if answers:
        shares["passed"] = sum(one["verdict"] == "pass" for one in answers) / len(answers)
        for question in QUESTIONS:
            troubled = sum(one[question] == "problem" for one in answers)
            shares[f"problem/{question}"] = troubled / len(answers)
    return shares


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a line to a file, and truncate the file again if the write fails."""
    line = (json.dumps(row) + "\n").encode()
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(f"{path}: only a part of the answer could be written")
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def drop_torn_line(path: Path) -> None:
    """Remove an unfinished last line, as a killed process leaves it."""
    if path.exists():
        whole, end, torn = path.read_bytes().rpartition(b"\n")
        if torn:
            os.truncate(path, len(whole + end))


def checked(answer: Any, tools: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer to one of these tools."""
    if not isinstance(answer, dict) or set(answer) != set(FIELDS):
        raise ValueError(f"an answer must be an object with {', '.join(FIELDS)} and nothing else")
    if not isinstance(answer["id"], str) or answer["id"] not in tools:
        raise ValueError(f"id must be that of a tool in the sample, got {answer['id']!r:.60}")
    allowed = dict.fromkeys(QUESTIONS, ANSWERS) | {"verdict": VERDICTS}
    for field, values in allowed.items():
        if answer[field] not in values:
            raise ValueError(f"{field} must be {' or '.join(values)}, got {answer[field]!r:.60}")
    note = answer["note"]
    if not isinstance(note, str) or len(note) > NOTE_CHARACTERS:
        raise ValueError(f"note must be a text of at most {NOTE_CHARACTERS:,} characters")
    return {field: answer[field] for field in FIELDS}


def _handler(review: Review) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds; browsers open connections without using them

        def do_GET(self):
            if not self._from_here():
                return
            if self.path == "/":
                self._send(200, PAGE.read_bytes(), "text/html; charset=utf-8")
            elif self.path == "/state":
                self._json(200, review.state())
            else:
                self._json(404, {"error": f"there is no {self.path!r:.60}"})

        def do_POST(self):
            if not self._from_here():
                return
            try:
                review.add(self._answer())
            except ValueError as error:
                self._json(400, {"error": str(error)})
            except OSError as error:
                self._json(500, {"error": f"not saved: {error}"})
            else:
                self._json(200, {})

        def _answer(self) -> Any:
            if self.path != "/answers":
                raise ValueError(f"answers go to /answers, not to {self.path!r:.60}")
            if self.headers.get_content_type() != "application/json":
                raise ValueError("an answer must be sent as application/json")
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MAX_BYTES:
                raise ValueError(f"an answer must have a length of at most {MAX_BYTES:,} bytes")
            try:
                return json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"an answer must be JSON: {error}") from error

        def _from_here(self) -> bool:
            """Refuse requests under another host name, as pages of other sites would send them."""
            if self.headers.get("Host") == review.url.removeprefix("http://").rstrip("/"):
                return True
            self._json(403, {"error": f"open {review.url} itself"})
            return False

        def _json(self, status: int, content: Any) -> None:
            self._send(status, json.dumps(content).encode(), "application/json")

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            for name, value in (HEADERS | {"Content-Type": kind}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            pass

    return Handler
