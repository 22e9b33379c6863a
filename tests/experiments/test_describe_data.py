"""The table of data sets, for two small ones encoded with the tiny encoder."""

import shutil

import numpy as np
import pytest

from experiments import describe_data
from jaxret import data, encoders
from tests.experiments.configs import config_of, with_encoder
from tests.experiments.conftest import write_data

QUERIES = {  # with the rows of their tools
    "list the open bills of this month please": [0],
    "List the open bills of this month, please!": [0, 1],
    "pay one of them": [1],
    "book a table for two": [0],
}


def configure(world, directory, *more):
    return config_of("describe_data", *with_encoder(world, directory), *more)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    """Write two data sets: the small world, and three tools one of which is never a label."""
    folder = tmp_path_factory.mktemp("folder")
    shutil.copytree(world / "data", folder / "apibench-torchhub")
    documents = data.load("deskbank").documents[:3]
    tools = [{"id": str(i), "documentation": document} for i, document in enumerate(documents)]
    queries = [{"id": x, "query": x, "labels": [*map(str, rows)]} for x, rows in QUERIES.items()]
    write_data(folder / "mine", tools, queries)
    return folder


@pytest.fixture(scope="module")
def table(world, folder, tmp_path_factory):
    """Describe the two data sets; return the run's settings, its folder and its results."""
    directory = tmp_path_factory.mktemp("run")
    mine = "+datasets.mine={name: jsonl, path: mine, document: terse}"
    cfg = configure(world, directory, f"folder={folder}", "only=[torchhub,mine]", mine)
    return cfg, directory, describe_data.main(cfg)


def test_a_data_set_is_described_as_by_hand(world, table):
    _, _, results = table
    names = ("tools", "labelled_tools", "queries", "labels_per_query", "queries_per_tool")
    assert [results[f"mine/{name}"] for name in names] == [3, 2, 4, 5 / 4, 2.5]
    assert results["mine/near_duplicates"] == 2 / 4
    encoder = encoders.load_encoder("minilm", world / "encoder")
    texts = [f"{x['name']}: {x['terse']}" for x in data.load("deskbank").documents[:3]]
    rows, asked = (
        encoders.encode(encoder, some, kind=kind, cache=None).astype(np.float64)
        for some, kind in ((texts, "document"), (list(QUERIES), "query"))
    )
    first = (asked @ rows.T).argmax(axis=1)
    right = np.mean([best in tools for best, tools in zip(first, QUERIES.values(), strict=True)])
    assert results["mine/accuracy"] == pytest.approx(right)


def test_the_table_is_markdown_with_a_row_a_data_set(world, table, capsys):
    cfg, directory, results = table
    assert describe_data.main(cfg) == results  # a second run reads the saved results
    printed = capsys.readouterr().out
    assert "finished before" in printed
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
    assert [row[:5] for row in rows] == [
        ["data set", "document", "tools", "labels", "queries"],
        ["---", "---", "---:", "---:", "---:"],
        ["torchhub", "full", "24", "24", f"{results['torchhub/queries']:.0f}"],
        ["mine", "terse", "3", "2", "4"],
    ]
    assert rows[3][5:9] == ["1.25", "2.5", "0.500", f"{results['mine/accuracy']:.3f}"]
    assert {path.stem for path in (directory / "steps").iterdir()} == {"torchhub", "mine"}


def test_data_sets_missing_from_the_folder_are_skipped_and_named(world, folder, tmp_path, capsys):
    cfg = configure(world, tmp_path / "run", f"folder={folder}", "~datasets.deskbank")
    results = describe_data.main(cfg)
    assert {name.partition("/")[0] for name in results} == {"torchhub"}
    absent = [name for name in cfg.datasets if name != "torchhub"]
    assert f"not in {folder}: {', '.join(absent)}\n" in capsys.readouterr().out
    assert list(describe_data.present(configure(world, tmp_path))) == ["deskbank"]  # no folder


def test_the_paths_are_those_of_the_data_at_hand(world, tmp_path, shared_data):
    cfg = configure(world, tmp_path, f"folder={shared_data}")
    assert list(describe_data.present(cfg)) == list(cfg.datasets)
    for spec in describe_data.present(cfg).values():
        assert len(data.load(spec["name"], spec["path"], **spec.get("options", {})).queries) > 50
