"""Logs: exact round trips, truncated ends after a crash, and refusal of corrupt files."""

import binascii
import json

import numpy as np
import pytest

import jaxret as jr
from jaxret import logs
from jaxret.logs import LogWriter

IDS = ["mail", "weather", "maps"]
FACTS = {"learner": "greedy"}


def lines(rounds, rng=None):
    """Return rounds that show two tools and use the second, with vectors as queries."""
    rng = rng or np.random.default_rng(0)
    for t in range(rounds):
        vector = rng.normal(size=4).astype(np.float32)
        slate = [IDS[t % 3], IDS[(t + 1) % 3]]
        shown = logs.shown(t, vector, slate, np.float32([0.7, 0.1]), version=t)
        yield shown | logs.answered(t, slate[1], np.float32(0.3), t % 2)


def written(path, rounds):
    LogWriter(path, FACTS).append(lines(rounds))
    return path


def test_arrays_are_what_was_written(tmp_path):
    log = jr.load_log(written(tmp_path / "new" / "log.jsonl", 5), IDS)
    rng = np.random.default_rng(0)
    expected = np.stack([rng.normal(size=4).astype(np.float32) for _ in range(5)])
    np.testing.assert_array_equal(log.query, expected)  # exactly equal
    np.testing.assert_array_equal(log.slate, [[0, 1], [1, 2], [2, 0], [0, 1], [1, 2]])
    np.testing.assert_array_equal(log.item, [1, 2, 0, 1, 2])
    np.testing.assert_array_equal(np.float32(log.by_position), np.float32([[0.7, 0.1]] * 5))
    np.testing.assert_array_equal(np.float32(log.propensity), np.float32([0.3] * 5))
    np.testing.assert_array_equal(log.reward, [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(log.version, range(5))
    assert (log.rounds, log.theta, log.probabilities) == (5, None, None)
    some = logs.take(log, slice(1, 3))
    np.testing.assert_array_equal(some.round, [1, 2])
    np.testing.assert_array_equal(some.query, log.query[1:3])


def test_the_checksum_is_that_of_all_lines_so_far(tmp_path):
    text = written(tmp_path / "log.jsonl", 3).read_text()
    bodies = b""
    for line in text.splitlines():
        checksum = json.loads(line)["crc32"]
        bodies += line.replace(f',"crc32":"{checksum}"', "").encode()
        assert int(checksum, 16) == binascii.crc32(bodies)


def test_a_truncated_last_line_is_dropped_and_the_log_continues(tmp_path):
    whole = written(tmp_path / "whole.jsonl", 4).read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1  # start of the last line
    assert last > 300
    path = tmp_path / "log.jsonl"
    for end in (last + 1, last + 40, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.warns(UserWarning, match=r"log.jsonl: the last line is torn, and was left out"):
            assert jr.load_log(path, IDS).rounds == 3
        assert path.read_bytes() == whole[:end]  # reading does not modify the file
        with pytest.warns(UserWarning, match="the last line is torn, and was dropped"):
            writer = LogWriter(path, FACTS)
        assert writer.lines == 3
        writer.append([*lines(4)][3:])
        assert path.read_bytes() == whole
    path.write_bytes(whole[:-9] + b"?" + whole[-8:])  # a complete but wrong line
    with pytest.warns(UserWarning, match="torn"):
        assert jr.load_log(path, IDS).rounds == 3
    path.write_bytes(whole[:20])  # even the first line is cut
    with pytest.warns(UserWarning, match="torn"):
        LogWriter(path, FACTS).append(lines(4))
    assert path.read_bytes() == whole


def test_a_bad_line_elsewhere_is_an_error_that_names_it(tmp_path):
    path = written(tmp_path / "log.jsonl", 4)
    good = path.read_bytes().splitlines(keepends=True)

    def refused(content, line):
        path.write_bytes(b"".join(content))
        for read in (lambda: jr.load_log(path, IDS), lambda: LogWriter(path, FACTS)):
            with pytest.raises(ValueError, match=rf"log.jsonl, line {line}: does not match its ch"):
                read()

    refused([*good[:2], good[2].replace(b'"reward":1.0', b'"reward":0.0'), *good[3:]], 3)
    refused([*good[:1], good[1][:50] + b"\n", *good[2:]], 2)
    refused([*good[:2], *good[3:]], 3)  # one line is missing
    refused([good[0], good[2], good[1], *good[3:]], 2)  # two lines are swapped
    refused([*good[:3], good[2], *good[3:]], 4)  # one line is repeated
    refused([good[0].replace(b"greedy", b"greedz"), *good[1:]], 1)
    refused([*good[:2], b"\n", *good[2:]], 3)


def test_a_log_has_one_writer_and_one_owner(tmp_path):
    path = written(tmp_path / "log.jsonl", 2)
    one, other = LogWriter(path, FACTS), LogWriter(path, FACTS)
    one.append([*lines(3)][2:])
    with pytest.raises(ValueError, match=r"log.jsonl was written to by another: a log has one wri"):
        other.append([*lines(3)][2:])
    assert jr.load_log(path, IDS).rounds == 3
    with pytest.raises(ValueError, match=r"is the log of something else .*greedy.*give another pl"):
        LogWriter(path, {"learner": "orag"})


def test_unknown_tools_and_queries_are_named_with_their_line(tmp_path):
    path = written(tmp_path / "log.jsonl", 3)
    with pytest.raises(ValueError, match=r"log.jsonl, line 3: the catalogue has no tool 'maps'"):
        jr.load_log(path, IDS[:2])
    task = jr.Task.from_arrays(np.eye(3), np.eye(3), [0, 1, 2], ids=IDS)
    path = tmp_path / "named.jsonl"
    LogWriter(path, FACTS).append([logs.shown(0, name, ["mail"], [1], 0) for name in ("2", "7")])
    with pytest.raises(ValueError, match=r"named.jsonl, line 3: the catalogue has no query '7'"):
        jr.load_log(path, task)
    with pytest.raises(FileNotFoundError, match=r"expected there: a log"):
        jr.load_log(tmp_path / "none.jsonl", IDS)
    with pytest.raises(ValueError, match=r"a log for each seed: read one of \['log.jsonl', 'named"):
        jr.load_log(tmp_path, IDS)


def test_answers_come_late_or_never(tmp_path):
    path = tmp_path / "log.jsonl"
    writer, vector = LogWriter(path, FACTS), np.float32([1, 0])
    for t in range(4):
        writer.append([logs.shown(t, vector, IDS[: t % 2 + 1], [0.5, np.nan][: t % 2 + 1], 0)])
    writer.append([logs.answered(3, "weather", np.nan, 1), logs.answered(0, "mail", 0.5, 0.25)])
    log = jr.load_log(path, IDS)
    np.testing.assert_array_equal(log.reward, [0.25, np.nan, np.nan, 1])
    np.testing.assert_array_equal(log.item, [0, 0, 0, 1])
    np.testing.assert_array_equal(log.propensity, [0.5, 0.5, 0.5, np.nan])
    np.testing.assert_array_equal(log.slate, [[0, -1], [0, 1], [0, -1], [0, 1]])
    np.testing.assert_array_equal(log.by_position, [[0.5, 1], [0.5, np.nan]] * 2)
    writer.append([logs.answered(3, "mail", 0.5, 0)])  # a second answer
    with pytest.warns(UserWarning, match="1 answers to rounds that the log does not show as open"):
        assert jr.load_log(path, IDS).reward[3] == 1
    # A reloaded index continues from an older number, and its round with that number counts.
    writer.append([logs.shown(3, vector, ["maps"], [1], 0), logs.answered(3, "maps", 1, 0)])
    with pytest.warns(UserWarning, match="1 answers"):
        log = jr.load_log(path, IDS)
    np.testing.assert_array_equal(log.reward, [0.25, np.nan, np.nan, 1, 0])
    np.testing.assert_array_equal(log.item, [0, 0, 0, 1, 2])


def test_a_log_of_nothing_is_empty_without_a_warning(tmp_path):
    log = jr.load_log(written(tmp_path / "log.jsonl", 0), IDS)
    assert log.rounds == 0
    assert log.slate.shape == (0, 1)


@pytest.mark.parametrize(
    ("catalogue", "message"),
    [
        ("mail", "the catalogue must be a task or a list of tool ids, which are strings"),
        ([1, 2], "the catalogue must be a task or a list of tool ids, which are strings"),
        (["mail", "mail"], "the catalogue's ids must differ: 'mail' is at 0 and 1"),
    ],
)
def test_catalogues_that_would_name_other_tools_are_refused(tmp_path, catalogue, message):
    path = written(tmp_path / "log.jsonl", 2)
    with pytest.raises(ValueError, match=message):
        jr.load_log(path, catalogue)
