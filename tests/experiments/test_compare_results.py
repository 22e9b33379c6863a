"""The comparison of two sets of results, number by number, with the differences named."""

import json

import pytest

from experiments.compare_results import compare, main

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
    (line,) = compare(before, after)
    assert (line.results, line.equal, line.largest, line.missing) == (1, 1, 0.0, ())
    assert main([str(before), str(after)]) == 0
    assert "| orag | 1 | 1 | 0.0e+00 |" in capsys.readouterr().out


def test_another_mean_or_error_is_a_difference(folders):
    before, after = folders
    for changed in [(0.4 + 1e-4, 0.01), (0.4, 0.02), (0.4, None)]:
        write(after, "orag", RESULTS | {"greedy/online/accuracy": changed})
        (line,) = compare(before, after)
        assert line.equal == 0
        assert line.largest > 1e-6
        assert main([str(before), str(after)]) == 1


def test_a_missing_result_and_a_missing_run_are_named(folders, capsys):
    before, after = folders
    write(after, "orag", {})
    write(after, "regret", RESULTS)
    assert main([str(before), str(after)]) == 1
    said = capsys.readouterr().out
    assert "orag: missing greedy/online/accuracy" in said
    assert "regret: missing the run, before" in said
