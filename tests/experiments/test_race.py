"""The race of a user's learner against presets: differences, table, figure and errors."""

import itertools

import numpy as np
import pytest

import jaxret as jr
from experiments import race as command
from experiments.race import opponents
from tests.problems import make_task

LEARNER = """
import jaxret as jr

def learner():
    return jr.greedy(tau=0.1, eta=0.02)._replace(name="mine")
"""
BROKEN = LEARNER.replace('name="mine"', "act=None")


@pytest.fixture(scope="module")
def lines():
    mine = jr.greedy(tau=0.1, eta=0.02)._replace(name="mine")
    tasks = [make_task(name="one"), make_task(seed=1, name="two")]
    others = opponents(["frozen", "greedy"], [mine])
    return command.race([mine], others, tasks, seeds=2, exposures=2)


def test_all_run_on_the_same_streams_and_are_compared_seed_by_seed(lines):
    everyone = itertools.product(("one", "two"), ("mine", "frozen", "greedy"))
    assert [(line.task, line.learner) for line in lines] == list(everyone)
    train, test = make_task(name="one").split((0.8, 0.2), seed=0)
    mine = jr.simulate(jr.greedy(tau=0.1, eta=0.02), train, exposures=2, seeds=2)
    greedy = jr.simulate(jr.greedy(), train, exposures=2, seeds=2)
    for metric, on in (("accuracy", None), ("ndcg@10", test)):
        lead = lines[2].ahead["online accuracy" if on is None else metric]
        want = jr.compare(mine, greedy, metric, on=on)
        assert (lead.difference, lead.low, lead.high) == (want.difference, want.low, want.high)
    held_out = jr.evaluate(mine, test)["ndcg@10"].values
    np.testing.assert_allclose(lines[0].values["ndcg@10"].values, held_out)
    assert not lines[0].ahead


def test_the_table_and_the_figure_say_who_leads_by_how_much(lines):
    text = command.table(lines).splitlines()
    assert text[0].split("  ")[0] == "data"
    assert "mine is ahead by" in text[0]
    assert len(text) == 7
    lead = lines[2].ahead["online accuracy"]
    assert f"{lead.difference:+.3f} [{lead.low:+.3f}, {lead.high:+.3f}]" in text[3]
    (ax,) = command.figure(lines).axes
    dots = [line for line in ax.get_lines() if line.get_label() in ("one", "two")]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["frozen", "greedy"]
    assert dots[0].get_xdata()[1] == pytest.approx(lead.difference)


def test_a_file_is_all_it_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "load", lambda named, encoder: make_task(name=named))
    monkeypatch.setattr(jr, "check_learner", lambda learner: None)  # tested below, and slow
    file = tmp_path / "my_learner.py"
    file.write_text(LEARNER)
    output = ["--output", str(tmp_path / "out"), "--seeds", "2", "--presets", "frozen"]
    assert command.main([str(file), *output]) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "out/my_learner/race.txt").read_text() == printed.out
    assert (tmp_path / "out/my_learner/race.png").read_bytes()[:4] == b"\x89PNG"
    assert "deskbank" in printed.out
    assert "mine on deskbank: 96 rounds x 2 seeds" in printed.err


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, [], "my_learner.py does not exist"),
        ("x = (", [], "SyntaxError"),
        ("import nothing_of_the_kind", [], "ModuleNotFoundError: No module named 'nothing"),
        ("x = 1", [], "has no function learner() that returns a learner"),
        ("def learner(): return 3", [], "must return a learner or a list of them, got 3"),
        ("def learner(): return []", [], "returns an empty list"),
        (LEARNER.replace("tau=0.1", "tau=-1.0"), [], "ValueError: tau must be > 0, got -1.0"),
        (BROKEN, [], "TypeError: 'NoneType' object is not callable"),
        (LEARNER, ["--presets", "gready"], "no preset 'gready'; there are frozen, hybrid, orag"),
        (LEARNER.replace("mine", "greedy"), [], "two learners are called 'greedy': rename yours"),
        (LEARNER, ["--presets", ""], "no learner to race against: name --presets"),
        (LEARNER, ["--seeds", "1"], "--seeds must be 2 or more"),
        (LEARNER, ["ultratool=nowhere"], "nowhere does not exist; expected there: UltraTool's"),
        (LEARNER, ["mine=nowhere"], "nowhere does not exist; expected there: a folder with tools"),
        (LEARNER, ["deskbnk"], "unknown data set 'deskbnk'"),
    ],
)
def test_a_file_that_cannot_race_gives_a_one_line_error(
    content, arguments, message, tmp_path, monkeypatch, capsys
):
    if content != BROKEN:
        monkeypatch.setattr(jr, "check_learner", lambda learner: None)
    load = command.load

    def quickly(named, encoder):
        return make_task() if named == "deskbank" else load(named, "minilm")

    monkeypatch.setattr(command, "load", quickly)
    file = tmp_path / "my_learner.py"
    if content is not None:
        file.write_text(content)
    assert command.main([str(file), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("race: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_learner_that_violates_the_contract_does_not_race(tmp_path, capsys):
    file = tmp_path / "peeking.py"
    file.write_text("""
import jaxret as jr

def learner():
    def update(state, query, choice, feedback):
        moved = state.theta.at[feedback.labels[0]].add(query)
        return state._replace(theta=moved, t=state.t + 1)

    return jr.greedy()._replace(name="peeking", update=update)
""")
    assert command.main([str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"race: {file}: learner 'peeking': update reads labels")
    assert error.count("\n") == 1
