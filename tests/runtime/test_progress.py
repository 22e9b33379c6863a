"""Progress bars in logs without a terminal: few lines, and none overwritten."""

import io

from jaxret.runtime import progress
from jaxret.runtime.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def report(file, steps):
    with Progress(total=steps, desc="work", unit="step", file=file, mininterval=0) as bar:
        for i in range(steps):
            bar.set_postfix_str(f"step {i}")
            bar.update()
    return file.getvalue()


def test_a_log_gets_the_last_line_alone_where_all_is_quick():
    written = report(io.StringIO(), 200)
    assert "\r" not in written
    [line] = written.splitlines()
    assert line.startswith("work: 100%")
    assert "200/200" in line


def test_a_log_gets_a_line_now_and_then_where_it_takes_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    log = io.StringIO()
    with Progress(total=100, unit="step", file=log, mininterval=0) as bar:
        for _ in range(100):
            now[0] += 1.0
            bar.update()
            bar.refresh()
    lines = log.getvalue().splitlines()
    assert [line.split("|")[0].strip() for line in lines] == ["30%", "60%", "90%", "100%"]


def test_a_terminal_has_its_bar_and_a_loop_ends_with_its_line():
    assert report(Terminal(), 20).count("\r") > 5
    log = io.StringIO()
    assert list(Progress("abc", file=log)) == ["a", "b", "c"]
    assert log.getvalue().count("\n") == 1
    silent = io.StringIO()
    assert list(Progress("abc", file=silent, disable=True)) == ["a", "b", "c"]
    assert silent.getvalue() == ""
