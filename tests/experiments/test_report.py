"""The report: results of finished runs, reasons for missing ones, and valid commands."""

import json
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra

from experiments.common.config import plain
from experiments.report import __main__ as report
from experiments.report import jobs, page
from tests.experiments.configs import config_of

QUICK = ["tracking=files", "updates=2", "batches=[40]", "copies=[1]", "exposures=[1]", "seeds=2"]
QUICK += ["schedules=[constant]", "learner=[greedy]"]
QUICK += ["learners.greedy.tau=[0.04]", "learners.greedy.eta_over_tau=[0.1]"]


def configure(*overrides):
    GlobalHydra.instance().clear()
    return config_of("report", *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run one section in an empty folder."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as in this suite
        only = ["only=[paper_settings]", "sections.paper_settings.datasets=[deskbank]"]
        cfg = configure(*only, "run=true", f"always={json.dumps(QUICK)}")
        return folder, report.main(cfg), report.main(cfg)


def test_missing_runs_are_made_once_and_the_page_holds_table_figure_and_time(finished):
    folder, counts, again = finished
    assert counts == again == {"runs": 1, "missing": 0}
    [run] = (folder / "runs" / "paper_settings").iterdir()
    text = (folder / "runs" / "report" / "report.md").read_text()
    results = json.loads((run / "results.json").read_text())
    gain = results["greedy/gain/ndcg@10"]["mean"]
    line = next(line for line in text.splitlines() if line.startswith("| `greedy`"))
    assert f"{gain:.3f}" in line
    figure = folder / "runs" / "report" / "figures" / "paper_settings" / run.name / "gain.png"
    assert figure.stat().st_size > 5_000
    assert f"figures/paper_settings/{run.name}/gain.png" in text
    seconds = json.loads((run / "speed.json").read_text())["seconds"]
    assert f"1 runs took {seconds / 60:.1f} minutes in all" in text


def test_a_section_whose_data_are_missing_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = report.main(configure("only=[functionality]", "run=true", "data=nowhere"))
    text = (tmp_path / "runs" / "report" / "report.md").read_text()
    assert "its data are not at `nowhere/apibench-torchhub` (give `data=`)" in text
    assert counts["runs"] == 0


@pytest.mark.slow
def test_every_section_names_commands_that_hydra_takes():
    """Compose the first command of each section from the words that a reader would type."""
    cfg = configure()
    for name, section in plain(cfg)["sections"].items():
        job = next(jobs.plan(cfg, section))
        words = shlex.split(job.command)
        assert words[:4] == ["uv", "run", "python", "-m"], name
        options = [word for word in words[5:] if word != "--config-name"]
        config = options.pop(0) if "--config-name" in words else words[4].split(".")[1]
        assert jobs.composed(config, options).directory == job.cfg.directory, job.command


def test_unknown_sections_and_data_sets_are_refused():
    for override, message in {
        "only=[nois]": r"only: unknown sections \['nois'\]; known: tables_1_and_2",
        "sections.noise.experiment=orga": r"section noise: unknown experiment \['orga'\]; known:",
        "sections.noise.datasets=[x]": r"section noise: unknown data set \['x'\]; known: deskb",
    }.items():
        with pytest.raises(ValueError, match=message):
            report.main(configure(override))


def test_a_curve_ends_where_the_first_seed_ends(tmp_path, monkeypatch):
    """Success is NaN after the end of the shorter seed's stream."""
    success = np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, np.nan]])
    np.savez(tmp_path / "curves.npz", **{"greedy/success": success})
    drawn = []
    monkeypatch.setattr(page.plots, "curve_with_band", lambda ax, *curve: drawn.append(curve))
    monkeypatch.setattr(page.plots, "label_curves", lambda ax: None)
    job = SimpleNamespace(directory=tmp_path)
    page.draw({"greedy": (job, "greedy/success")}, tmp_path / "figure.png")
    [(rounds, values, name)] = drawn
    assert name == "greedy"
    np.testing.assert_array_equal(rounds, [1, 2, 3])
    np.testing.assert_array_equal(values, success[:, :3])
