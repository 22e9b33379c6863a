"""A local HTTP server that speaks the chat completions protocol, with optional failures."""

import json
import math
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """A server's reply; ``body``, if given, replaces the completion."""

    text: str = ""
    status: int = 200
    body: bytes | None = None
    delay: float = 0.0  # seconds before the reply
    headers: tuple[tuple[str, str], ...] = ()
    first: tuple[tuple[str, float], ...] = ()  # first tokens and their probabilities


class Server:
    """Serves ``answer(messages, request number)``, a `Reply`, for each request."""

    def __init__(self, answer: Callable[[list[dict[str, str]], int], Reply]):
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.at_once = self.most_at_once = 0
        self._answer, self._lock, self._gone = answer, threading.Lock(), threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                request = json.loads(self.rfile.read(length))
                with server._lock:
                    server.requests.append(request)
                    server.keys.append(self.headers["Authorization"])
                    number = len(server.requests) - 1
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                reply = server._answer(request["messages"], number)
                server._gone.wait(reply.delay)
                with server._lock:
                    server.at_once -= 1
                body = reply.body
                if body is None:
                    body = json.dumps(completion(reply, request["model"])).encode()
                try:
                    self.send_response(reply.status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    for name, value in reply.headers:
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except BrokenPipeError:  # the client has given up
                    pass

            def log_message(self, format, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False  # close() waits for them, so that no socket stays open
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def start(self) -> None:
        # Polls every 0.01 s instead of every 0.5 s, so that the server stops quickly.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._gone.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def completion(reply: Reply, model: str) -> dict[str, Any]:
    """Return the JSON of a completion or of an error."""
    if reply.status != 200:
        return {"error": {"message": reply.text or "no", "type": "error", "code": reply.status}}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": reply.text},
                "logprobs": {"content": [logprobs(reply)]} if reply.first else None,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def logprobs(reply: Reply) -> dict[str, Any]:
    """Return the protocol's log probabilities of a first token."""
    top = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in reply.first]
    return top[0] | {"top_logprobs": top}


@contextmanager
def serving(answer: Callable[[list[dict[str, str]], int], Reply]) -> Generator[Server]:
    """Run a server on a free port for the duration of a block."""
    server = Server(answer)
    server.start()
    try:
        yield server
    finally:
        server.stop()
