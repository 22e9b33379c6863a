"""Human review of tool profiles, on a page of this machine alone (Tool-REX, Appendix C).

    with Review(sample, results, reviewer="A") as review:
        print(review.url)
        review.serve()                                    # until Ctrl-C

The page shows the documentation beside the profile and asks the paper's four questions: is it
faithful, complete, free of hallucination, consistent? Then: pass or fail. Each answer is appended
to the results as a line of JSON, whole or not at all; a tool that is judged again gets another, and
the last one counts. Opened again, the page goes on where the reviewer stopped.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from jaxret.documents.review_results import append, checked, drop_torn_line, latest
from jaxret.runtime.files import json_lines

MAX_BYTES = 20_000  # of a post
PAGE = resources.files("jaxret.documents") / "review.html"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Review:
    """A page on 127.0.0.1 and the file of its results.

    Args:
      sample: JSON lines of tools, each with ``id``, ``document`` and ``profile``.
      results: JSON lines, appended to; made with the first answer.
      reviewer: whose answers these are.
      port: of the page; 0 takes a free one.

    Raises:
      FileNotFoundError, ValueError: the sample is missing, empty or broken.
      OSError: the port is taken.
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
        """Answers the browser until `stop`, or Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Ends `serve`, from another thread."""
        self._http.shutdown()

    def state(self) -> dict[str, Any]:
        """All that the page shows."""
        answers = latest(self.results, self.reviewer)
        return {
            "tools": list(self.tools.values()),
            "answers": {tool: answers[tool] for tool in answers if tool in self.tools},
            "reviewer": self.reviewer,
        }

    def add(self, answer: Any) -> None:
        """Appends one answer.

        Raises:
          ValueError: it is not an answer to this sample; says why.
        """
        line = checked(answer, self.tools) | {"reviewer": self.reviewer}
        with self._lock:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            append(self.results, line)


def _handler(review: Review) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds; browsers open connections that they may never use

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
            """Refuses pages of other sites that reach this one under a name of theirs."""
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
