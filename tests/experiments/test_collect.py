"""Folders of results: a sweep as one table and figure, and two sets number by number."""

import csv
import json

import numpy as np
import pytest

from experiments import collect, compare_results
from jaxret.runtime.tracking import write_results


def begin(folder, number, **settings):
    run = folder / f"run_{number}"
    (run / "steps").mkdir(parents=True)
    (run / "settings.json").write_text(json.dumps({"experiment": "orag", "world": settings}))
    return run


@pytest.fixture
def sweep(tmp_path):
    """Make a sweep of two finished runs, one that is in progress and one that has just begun."""
    for number, noise in enumerate((0.1, 0.02)):
        run = begin(tmp_path, number, noise=noise, seeds=[0, 1])
        accuracy = np.array([0.4, 0.6]) - noise
        results = {"greedy/online/accuracy": accuracy, "greedy/final/ndcg@10": accuracy + 0.2}
        write_results(run, results | {"frozen/online/accuracy": np.array([0.3, 0.3])})
    run = begin(tmp_path, 2, noise=0.3, seeds=[0, 1])
    success = np.array([[1, 0, 0, np.nan], [1, 1, 1, 0]])
    np.savez(run / "steps" / "greedy.npz", success=success, order=np.zeros((2, 4), int))
    np.savez(run / "steps" / "greedy-heldout.npz", best=np.zeros(2))
    (run / "steps" / ".77-frozen-online.npz").write_bytes(b"half of a file that is being writ")
    begin(tmp_path, 3, noise=10, seeds=[0, 1])
    return tmp_path


def test_runs_are_known_by_what_differs_and_results_of_unfinished_ones_are_read(sweep):
    runs = collect.collect(sweep)
    assert [run.words for run in runs] == [{"world.noise": n} for n in ("0.02", "0.1", "0.3", "10")]
    assert [run.state for run in runs] == ["finished", "finished", "2 steps", "0 steps"]
    _, finished, going_on, begun = runs
    np.testing.assert_allclose(finished.results["greedy/final/ndcg@10"], [0.5, 0.7])
    np.testing.assert_allclose(going_on.results["greedy/online/accuracy"], [1 / 3, 3 / 4])
    assert list(going_on.results) == ["greedy/online/accuracy"]
    assert begun.results == {}


def test_a_table_shows_the_metric_that_is_asked_for_and_the_csv_holds_all(sweep, capsys):
    assert collect.main([str(sweep), "online/accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "4 runs, 2 finished" in shown
    assert "ndcg" not in shown
    lines = [line.replace("┃", "│").split("│") for line in shown.splitlines()]
    head, *rows = [[cell.strip() for cell in line[1:-1]] for line in lines if len(line) > 5]
    assert head == ["", "world.noise", "state", "frozen", "greedy"]
    assert rows == [
        ["1", "0.02", "finished", "0.300", "0.480 ±0.100"],
        ["2", "0.1", "finished", "0.300", "0.400 ±0.100"],
        ["3", "0.3", "2 steps", "", "0.542 ±0.208"],
        ["4", "10", "0 steps", "", ""],
    ]
    with (sweep / "collected.csv").open() as file:
        rows = list(csv.DictReader(file))
    named = " ".join(f"{row['run']}:{row['name']}" for row in rows)
    assert named == "1:frozen 1:greedy 2:frozen 2:greedy 3:greedy 4:"
    assert float(rows[1]["online/accuracy mean"]) == pytest.approx(0.48)
    assert float(rows[1]["online/accuracy stderr"]) == pytest.approx(0.1)
    assert float(rows[1]["final/ndcg@10 mean"]) == pytest.approx(0.68)
    assert rows[4]["final/ndcg@10 mean"] == ""
    assert (sweep / "collected.png").stat().st_size > 5_000


def test_runs_are_not_touched_and_without_a_metric_all_are_listed(sweep, capsys):
    before = {path: path.stat().st_mtime_ns for path in sweep.rglob("*") if path.is_file()}
    collect.main([str(sweep)])
    shown = capsys.readouterr().out
    assert "can be asked for: online/accuracy, final/ndcg@10\n" in shown
    assert "│" not in shown
    after = {path: path.stat().st_mtime_ns for path in sweep.rglob("*") if path.is_file()}
    made = {sweep / "collected.csv", sweep / "collected.png"}
    assert {path: after[path] for path in after.keys() - made} == before


def test_a_missing_folder_or_metric_is_named(sweep, capsys):
    for message, arguments in {
        "no runs in": [str(sweep / "nowhere")],
        "no run has online/luck yet; known: online/": [str(sweep), "online/luck"],
    }.items():
        with pytest.raises(SystemExit):
            collect.main(arguments)
        assert message in capsys.readouterr().err


RESULTS = {"greedy/online/accuracy": (0.4, 0.01), "greedy/online/microseconds": (3.0, None)}


def write(folder, run, results):
    (folder / run).mkdir(parents=True, exist_ok=True)
    rows = {name: {"mean": mean, "stderr": error} for name, (mean, error) in results.items()}
    (folder / run / "results.json").write_text(json.dumps(rows))


@pytest.fixture
def folders(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    write(before, "orag", RESULTS)
    return before, after


def test_equal_runs_are_equal_although_their_times_differ(folders, capsys):
    before, after = folders
    write(after, "orag", RESULTS | {"greedy/online/microseconds": (9.0, None)})
    (line,) = compare_results.compare(before, after)
    assert (line.results, line.equal, line.largest, line.missing) == (1, 1, 0.0, ())
    assert compare_results.main([str(before), str(after)]) == 0
    assert "| orag | 1 | 1 | 0.0e+00 |" in capsys.readouterr().out


def test_another_mean_or_error_is_a_difference(folders):
    before, after = folders
    for changed in [(0.4 + 1e-4, 0.01), (0.4, 0.02), (0.4, None)]:
        write(after, "orag", RESULTS | {"greedy/online/accuracy": changed})
        (line,) = compare_results.compare(before, after)
        assert line.equal == 0
        assert line.largest > 1e-6
        assert compare_results.main([str(before), str(after)]) == 1


def test_a_missing_result_and_a_missing_run_are_named(folders, capsys):
    before, after = folders
    write(after, "orag", {})
    write(after, "regret", RESULTS)
    assert compare_results.main([str(before), str(after)]) == 1
    said = capsys.readouterr().out
    assert "orag: missing greedy/online/accuracy" in said
    assert "regret: missing the run, before" in said
