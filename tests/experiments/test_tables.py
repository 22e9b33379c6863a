"""Tables on a terminal: wide ones are folded, never cut."""

import pytest

import jaxret as jr
from experiments.common.tables import cell, results_table, settings_table
from jaxret.learners.grid import grid

ROWS = ("frozen", "mapped_full_information")
COLUMNS = [f"{part}/{metric}" for part in ("online", "final", "heldout") for metric in "abcd"]


def printed(capsys, monkeypatch, width, words=None):
    monkeypatch.setenv("COLUMNS", str(width))
    number = {"mean": 0.757, "stderr": 0.0123, "n": 5}
    results = {f"{row}/{column}": number for row in ROWS for column in COLUMNS}
    results_table(results, ROWS, COLUMNS, "a title", words)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [40, 80, 100, 250])
def test_every_cell_is_whole_and_no_line_too_long(capsys, monkeypatch, width):
    lines = printed(capsys, monkeypatch, width)
    text = "\n".join(lines)
    assert text.count("0.757 ±0.012") == len(ROWS) * len(COLUMNS)
    assert "…" not in text
    assert max(map(len, lines)) <= max(width, 42)  # at least a name and one column
    assert text.count("a title") == 1


def test_a_wide_terminal_has_one_block_and_a_narrow_one_repeats_the_names(capsys, monkeypatch):
    wide, narrow = (printed(capsys, monkeypatch, width) for width in (250, 80))
    assert sum(line.startswith("│ frozen") for line in wide) == 1
    assert sum(line.startswith("│ frozen") for line in narrow) == 4


def test_text_columns_are_repeated_in_every_block_of_a_table(capsys, monkeypatch):
    words = {"sees": dict(zip(ROWS, ("nothing", "labels"), strict=True))}
    lines = printed(capsys, monkeypatch, 80, words)
    blocks = [line for line in lines if line.startswith("│ frozen")]
    assert len(blocks) > 1
    assert all("nothing" in line for line in blocks)


def test_columns_keep_their_order(capsys, monkeypatch):
    lines = printed(capsys, monkeypatch, 80)
    heads = " ".join(line for line in lines if line.startswith("┃")).replace("┃", " ").split()
    assert [word for word in heads if word in "abcd"] == list("abcd") * 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ({"mean": 0.75712, "stderr": 0.01234}, "0.757 ±0.012"),
        ({"mean": 0.5, "stderr": None}, "0.500"),
        ({"mean": 5303.52, "stderr": 12.34}, "5303.5 ±12.3"),
        ({"mean": 1e-5, "stderr": None}, "1e-05"),
        ({"mean": 2.5e7, "stderr": 1.0}, "2.5e+07"),
    ],
)
def test_a_cell_is_as_short_as_it_is_useful(value, expected):
    assert cell(value) == expected


def test_settings_are_counted_by_how_many_seeds_chose_them(capsys):
    learner = grid(jr.greedy, tau=[0.02, 0.04], eta=[0.001])
    values = {"greedy/online/tau": [0.02, 0.04, 0.04], "greedy/online/eta": [0.001] * 3}
    results = {name: {"values": some} for name, some in values.items()}
    settings_table(results, [learner], {"online, final": "online"})
    lines = [line for line in capsys.readouterr().out.splitlines() if "tau" in line]
    assert ["tau=0.04, eta=0.001  x2" in lines[0], "tau=0.02, eta=0.001  x1" in lines[1]] == [1, 1]
