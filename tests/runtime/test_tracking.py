import json
import time

import matplotlib.image
import numpy as np
import pytest

from jaxret.runtime.tracking import (
    CompositeTracker,
    JsonlTracker,
    NoopTracker,
    WandbTracker,
    decimate,
    read_results,
    write_results,
)


def lines(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("n", [1, 7, 512, 513, 100_000])
def test_decimated_indices_are_few_unique_and_hold_both_ends(n):
    kept = decimate(n)
    assert len(kept) == len(set(kept.tolist())) <= min(n, 512)
    assert (kept[0], kept[-1]) == (0, n - 1)
    assert (np.diff(kept) > 0).all()


def test_decimated_indices_are_evenly_spaced_in_the_logarithm():
    rounds = decimate(1_000_000, most=61) + 1  # ten per decade
    for decade in range(2, 6):
        assert ((rounds >= 10**decade) & (rounds < 10 ** (decade + 1))).sum() == 10


def test_a_step_is_a_line_of_json(tmp_path):
    tracker = JsonlTracker(tmp_path / "new")
    tracker.log({"recall@10": np.float32(0.5)}, step=100)
    tracker.log({"loss": 2.0}, step=100)
    tracker.summary({"recall@10": np.float32(0.25)})
    tracker.finish()
    assert lines(tmp_path / "new") == [{"step": 100, "recall@10": 0.5}, {"step": 100, "loss": 2.0}]
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == {"recall@10": 0.25}


def test_a_curve_is_decimated_and_keeps_its_ends(tmp_path):
    rounds = np.arange(1, 5001)
    JsonlTracker(tmp_path).curve("regret", rounds, np.sqrt(rounds))
    written = lines(tmp_path)
    assert len(written) <= 512
    assert written[0] == {"step": 1, "regret": 1.0}
    assert written[-1]["step"] == 5000
    assert all(line["regret"] == np.sqrt(line["step"]) for line in written)


def test_a_resumed_run_repeats_no_step_and_mends_a_line_that_was_cut_off(tmp_path):
    before = JsonlTracker(tmp_path)
    for step in (1, 2, 3):
        before.log({"loss": 1.0 / step}, step)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    after = JsonlTracker(tmp_path)  # resumed from the checkpoint of step 1
    for step in (2, 3, 4, 5):
        after.log({"loss": 1.0 / step}, step)
    after.log({"recall": 0.5}, 3)
    assert lines(tmp_path) == [
        *({"step": step, "loss": 1.0 / step} for step in (1, 2, 3, 4, 5)),
        {"step": 3, "recall": 0.5},
    ]
    (tmp_path / "metrics.jsonl").write_text('{"st')  # only half a line
    JsonlTracker(tmp_path).log({"loss": 1.0}, 1)
    assert lines(tmp_path) == [{"step": 1, "loss": 1.0}]


def test_a_composite_logs_to_every_tracker(tmp_path):
    one, other = JsonlTracker(tmp_path / "a"), JsonlTracker(tmp_path / "b")
    composite = CompositeTracker(one, NoopTracker(), other)
    composite.log({"loss": 1.0}, 1)
    assert lines(tmp_path / "a") == lines(tmp_path / "b") == [{"step": 1, "loss": 1.0}]


@pytest.fixture
def picture(tmp_path):
    matplotlib.image.imsave(tmp_path / "figure.png", np.zeros((4, 4)))
    return tmp_path / "figure.png"


def tell_everything(tracker, picture):
    tracker.log({"loss": 1.0}, 1)
    tracker.curve("regret", np.arange(1, 4), np.arange(3.0))
    tracker.summary({"recall@10": 0.5})
    tracker.figure("curves", picture)
    tracker.finish()


def test_wandb_is_offline_by_default_and_writes_its_file(tmp_path, picture, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tell_everything(WandbTracker(tmp_path / "run", name="a", config={"eta": 0.1}), picture)
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    names = (b"regret", b"step", b"recall@10", b"eta")
    deadline = time.monotonic() + 30  # another process writes the file, possibly late
    while not all(name in record.read_bytes() for name in names) and time.monotonic() < deadline:
        time.sleep(0.1)
    content = record.read_bytes()
    assert all(written in content for written in names)
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/files/media/images/curves_*.png"))


def history(record):
    """Read an offline run's history: a LevelDB log of protocol buffers after 7 header bytes."""
    from wandb.proto import wandb_internal_pb2

    content, lines, part, at = record.read_bytes(), [], b"", 7
    while at + 7 <= len(content):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        part, at = part + content[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a full record, or the last part
            found, part = wandb_internal_pb2.Record.FromString(part), b""
            items = {x.key or x.nested_key[0]: x.value_json for x in found.history.item}
            if items:
                values = {name: json.loads(value) for name, value in items.items()}
                lines.append({name: x for name, x in values.items() if name[0] != "_"})
    return lines


def test_a_resumed_offline_run_is_one_folder_with_each_step_once(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for steps in ((1, 2), (2, 3)):  # the second run resumes from step 1
        tracker = WandbTracker(tmp_path / "run", mode="offline")
        for step in steps:
            tracker.log({"loss": 1.0 / step}, step)
        tracker.curve("regret", np.array([1, 2]), np.array([0.5, 0.75]))
        tracker.finish()
    WandbTracker(tmp_path / "other", mode="offline").finish()
    (record,) = (tmp_path / "run").glob("wandb/offline-run-*/run-*.wandb")
    (other,) = (tmp_path / "other").glob("wandb/offline-run-*/run-*.wandb")
    assert record.stem == f"run-{(tmp_path / 'run' / 'wandb_id.txt').read_text().strip()}"
    assert record.stem != other.stem
    want = [(1, "loss", 1.0), (2, "loss", 0.5), (1, "regret", 0.5), (2, "regret", 0.75)]
    want = [{"step": step, name: x} for step, name, x in want] + [{"step": 3, "loss": 1 / 3}]
    deadline = time.monotonic() + 30
    while len(history(record)) < len(want) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert history(record) == lines(tmp_path / "run") == want


def test_wandb_can_be_disabled(tmp_path, picture):
    tell_everything(WandbTracker(tmp_path / "run", mode="disabled"), picture)
    assert not list(tmp_path.rglob("*.wandb"))
    assert not (tmp_path / "run" / "wandb_id.txt").exists()
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_results_are_means_with_standard_errors_over_seeds(tmp_path):
    write_results(tmp_path / "run", {"regret": [1.0, 2.0, 6.0], "accuracy": [0.5]})
    # Mean 3, squared deviations 4 + 1 + 9 = 14, variance 7, stderr sqrt(7 / 3) = 1.527525.
    results = read_results(tmp_path / "run")
    assert list(results) == ["accuracy", "regret"]
    assert results["accuracy"] == {"mean": 0.5, "stderr": None, "n": 1, "values": [0.5]}
    assert (results["regret"]["mean"], results["regret"]["n"]) == (3.0, 3)
    assert results["regret"]["stderr"] == pytest.approx(1.527525, abs=1e-6)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.1, float("nan")], "result 'regret' of seed 1 is nan"),
        ([float("inf")], "result 'regret' of seed 0 is inf"),
        ([], r"'regret' must be one value a seed, got an array of shape \(0,\)"),
        (0.5, r"'regret' must be one value a seed, got an array of shape \(\)"),
    ],
)
def test_results_that_mean_nothing_are_refused_and_leave_the_old_file(tmp_path, values, message):
    write_results(tmp_path, {"regret": [1.0]})
    with pytest.raises(ValueError, match=message):
        write_results(tmp_path, {"accuracy": [0.5], "regret": values})
    kept = {"mean": 1.0, "stderr": None, "n": 1, "values": [1.0]}
    assert read_results(tmp_path) == {"regret": kept}
