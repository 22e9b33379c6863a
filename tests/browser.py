"""Headless Chromium for the tests, from the package PyQt6-WebEngine.

Qt requires the main thread and cannot share a process with JAX, so the browser runs in a subprocess
that reads commands as lines of JSON.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """Controls a single page of the browser subprocess."""

    def __init__(self, process: subprocess.Popen):
        self._process = process

    def open(self, url: str) -> None:
        self._do(open=url)
        self.run("void (pressed = 0, addEventListener('keydown', () => pressed++, true))")

    def press(self, *keys: str) -> None:
        """Press keys, given by Qt names such as Y or Return, until the page receives each one.

        Chromium drops key presses before its first paint, and the page's script may start long
        before that.
        """
        for key in keys:
            before = self.run("pressed")
            end = time.monotonic() + 10
            while self.run("pressed") == before:
                assert time.monotonic() < end, f"{key} never arrived"
                self._do(press=key)
                self._arrived(before)

    def _arrived(self, before: int, seconds: float = 1.0) -> None:
        end = time.monotonic() + seconds
        while self.run("pressed") == before and time.monotonic() < end:
            time.sleep(0.01)

    def type(self, text: str) -> None:
        """Type a text and wait for all key events, so that none is mistaken for a later key."""
        end = self.run("pressed") + len(text)
        self._do(type=text)
        self.wait(f"pressed === {end}")

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression and return its value."""
        return self._do(run=script)

    def wait(self, script: str, seconds: float = 10.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}\n{self.text()}"
            time.sleep(0.02)

    def text(self) -> str:
        return self.run("document.body.innerText")

    def picture(self, path: Path) -> None:
        self._do(picture=str(path))

    def _do(self, **command: str) -> Any:
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        return json.loads(line)


@contextmanager
def browsing(width: int = 1360, height: int = 900) -> Iterator[Browser]:
    """Open a browser for the duration of a block; skip the test if Chromium is unavailable."""
    if importlib.util.find_spec("PyQt6") is None:
        pytest.skip("no browser: install PyQt6-WebEngine (as .ci/run does)")
    headless = {
        "QT_QPA_PLATFORM": "offscreen",
        "QTWEBENGINE_DISABLE_SANDBOX": "1",
        "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu",
    }
    process = subprocess.Popen(
        [sys.executable, __file__, str(width), str(height)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | headless,
    )
    with process:
        ready = process.stdout.readline()
        assert ready, "PyQt6-WebEngine is installed and does not start"
        if json.loads(ready) != "ready":
            pytest.skip(f"no browser, since a system library is missing: {ready.strip()}")
        try:
            yield Browser(process)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def serve(width: int, height: int) -> None:
    """Run the browser subprocess: reads commands and write their results."""
    try:
        from PyQt6.QtCore import QEventLoop, Qt, QUrl
        from PyQt6.QtTest import QTest
        from PyQt6.QtWebEngineWidgets import QWebEngineView
        from PyQt6.QtWidgets import QApplication
    except ImportError as error:  # a system library is missing
        print(json.dumps(str(error)), flush=True)
        return
    application = QApplication(["browser"])
    view = QWebEngineView()
    view.resize(width, height)
    view.show()

    def waited(begin):
        loop, found = QEventLoop(), []
        begin(lambda value: (found.append(value), loop.quit()))
        if not found:
            loop.exec()
        return found[0]

    def load(url):
        def begin(done):
            def loaded(ok):
                view.loadFinished.disconnect(loaded)
                done(ok)

            view.loadFinished.connect(loaded)
            view.load(QUrl(url))

        return waited(begin)

    def press(key):
        QTest.keyClick(view.focusProxy(), getattr(Qt.Key, f"Key_{key}"))

    def write(text):
        for letter in text:
            QTest.keyClick(view.focusProxy(), letter)

    def picture(path):
        QTest.qWait(400)  # wait for the first paint
        return view.grab().save(path)

    actions = {
        "open": load,
        "press": press,
        "type": write,
        "run": lambda script: waited(lambda done: view.page().runJavaScript(script, done)),
        "picture": picture,
    }
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        [(name, value)] = json.loads(line).items()
        found = actions[name](value)
        application.processEvents()
        print(json.dumps(found), flush=True)
    view.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
