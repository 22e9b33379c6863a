"""Generation of a data set from a catalogue; the judge and the statistics on their own."""

import json
import re

import numpy as np
import pytest

from experiments import orag
from experiments.build_catalogue import __main__ as build_catalogue
from experiments.generate_queries import __main__ as generate_queries
from experiments.generate_queries import dataset, judge
from experiments.generate_queries.judge import CRITERIA, Verdicts
from jaxret import data
from jaxret.data.split import own_split
from jaxret.llm import Chat, Endpoint, Stage, Wrong, replace_prompts
from jaxret.runtime.checkpoint import Interrupted
from jaxret.runtime.files import write_json_lines
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import TOOLS, rows_of
from tests.fake_llm import Reply, serving
from tests.fake_writer import Writer, draft, offered

pytestmark = pytest.mark.usefixtures("key")
SMALL = ["tracking=files", "generate.iterations=3", "generate.batch=12", "judge.pairs=5"]
PRICE = ["price.write={prompt: 2, completion: 10}"]
PAIRS = [("Plain words.", "do it"), ("do that", "A longer wish."), ("same", "same"), ("ab", "b")]


def generation(world, directory, server, *more):
    where = [
        "dataset.name=desk",
        f"dataset.path={world / 'data' / 'tools.jsonl'}",
        f"cache={directory / 'cache'}",
        f"directory={directory / 'run'}",
        f"llm.base_url={server.url}",
        "llm.retries=0",
        "llm.concurrency=1",
    ]
    return config_of("generate_queries", *SMALL, *where, *more)


def faults(stage, number, messages):
    if stage == "judge" and number == 0:
        return Reply("I would rather not say")
    if stage == "write" and number == 5:
        return Reply(draft([*offered(messages)[:2], "desk.invented"]))
    return None


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("generated")
    with pytest.MonkeyPatch.context() as patch, serving(Writer(faults)) as server:
        patch.setenv("OPENAI_API_KEY", "any")
        results = generate_queries.main(generation(world, directory, server, *PRICE))
    return directory / "run", results, len(server.requests)


def test_a_run_leaves_a_data_set_with_three_parts_and_says_what_it_took(finished):
    directory, results, _ = finished
    dataset = data.load("jsonl", directory / "data")
    assert len(dataset.tool_ids) == TOOLS
    assert len(dataset.queries) == results["queries"] == 35
    assert [len(part) for part in own_split(dataset)] == [
        results[f"part/{part}"] for part in ("train", "validation", "test")
    ]
    assert results["functions"] == pytest.approx((dataset.labels >= 0).sum() / 35)
    assert results["failures/write/invented"] == 3
    assert results["failures/write/lost"] == 1
    assert results["tokens/write/prompt"] == (36 + 2) * 7
    assert results["cost/write"] == pytest.approx(38 * (7 * 2 + 3 * 10) / 1e6)
    first = rows_of(directory / "pairs.jsonl")[0]
    assert set(first["tools"]) <= set(dataset.tool_ids)
    assert json.loads((directory / "statistics.json").read_text())["queries"] == 35
    assert results["judge/overall/win"] == 1.0  # the judge prefers long queries: polished ones
    assert results["judge/naturalness/position"] == 0.0
    assert results["failures/judge/not_json"] == 3


def test_learners_take_the_data_set_as_it_is(world, finished, tmp_path):
    small = [
        *in_world(world, tmp_path),
        f"dataset.path={finished[0] / 'data'}",
        "document=name_description",
        "learner=[frozen,greedy]",
        "learners.greedy.tau=[0.04]",
        "learners.greedy.eta_over_tau=[0.1]",
        *("exposures=1", "seeds=1", "chunk=32"),
    ]
    results = orag.main(config_of("orag", *small))
    assert 0 <= results["frozen/final/recall@10"] <= 1
    assert 0 <= results["greedy/online/accuracy"] <= 1


def test_a_run_that_is_stopped_resumes_with_the_same_data_and_repeats_no_call(
    world, finished, tmp_path, monkeypatch
):
    directory, results, requests = finished
    writer, pause = Writer(faults), generate_queries.RunDirectory.pause

    def stopped(run, done):
        if done == 40:
            raise Interrupted(run.directory, done)
        pause(run, done)

    with serving(writer) as server:
        cfg = generation(world, tmp_path, server, *PRICE)
        with monkeypatch.context() as patch:
            patch.setattr(generate_queries.RunDirectory, "pause", stopped)
            with pytest.raises(Interrupted):
                generate_queries.main(cfg)
        assert len(server.requests) == 40
        assert generate_queries.main(cfg) == results
        assert len(server.requests) == requests
        assert all(count == 1 for count in writer.asked.values())
    for name in ("tools.jsonl", "queries.jsonl"):
        ours = (tmp_path / "run" / "data" / name).read_bytes()
        assert ours == (directory / "data" / name).read_bytes()


def test_a_dry_run_says_what_it_would_cost_and_sends_nothing(world, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = tmp_path / "mine.txt"
    given.write_text("Choose between $fewest and $most of them:\n---\n$examples\n$tools")
    more = (*PRICE, "dry_run=true", f"prompts.write={given}")
    with serving(Writer()) as server:
        found = generate_queries.main(generation(world, tmp_path, server, *more))
    assert not server.requests
    assert not (tmp_path / "run").exists()
    assert found["write/calls"] == found["polish/calls"] == 36
    assert found["judge/calls"] == 10
    said = capsys.readouterr().out
    cost = (found["write/prompt_tokens"] * 2 + 36 * 120 * 10) / 1e6
    assert f"about 36 calls, {found['write/prompt_tokens']:,.0f} tokens sent" in said
    assert f"cost {cost:.4f}" in said
    assert "Choose between 2 and 5 of them:" in said
    assert "nothing was sent" in said


def test_wrong_settings_are_refused_before_any_work(world, tmp_path):
    wrong = {
        "dataset.path=null": "dataset.name is 'desk': give dataset.path",
        "prompts.polish=LICENSE": r"LICENSE: .* lack .*\['functions', 'instruction'\]",
        "generate.offered=25": r"offered must be in \[1, 24\], the tools, got 25",
        "judge.pairs=-1": "judge.pairs must be >= 0, got -1",
        "split.test=0.9": "split must be positive, sum below 1",
        "llm.key_variable=NO_KEY": "set the variable NO_KEY",
    }
    with serving(Writer()) as server:
        for override, message in wrong.items():
            refused(generate_queries.main, generation(world, tmp_path, server, override), message)
    assert not server.requests


def test_a_catalogue_is_written_with_its_counts_beside_the_authors(tmp_path):
    names = ["numpy.linalg.inv", "numpy.mgrid", "numpy.sort"]
    write_json_lines(tmp_path / "tools_numpy.jsonl", [{"id": name} for name in names])
    where = [f"directory={tmp_path / 'run'}", f"authors={tmp_path}"]
    results = build_catalogue.main(config_of("build_catalogue", "tracking=files", *where))
    tools = rows_of(tmp_path / "run" / "numpy" / "tools.jsonl")
    assert results["numpy, all/tools"] == len(tools)
    assert (results["numpy, all/authors"], results["numpy, all/both"]) == (3, 2)
    assert (results["numpy/authors"], results["numpy/both"]) == (2, 1)
    assert results["numpy.linalg/authors"] == results["numpy.linalg/both"] == 1


def verdicts(pick, pairs=PAIRS, **options):
    """Judge pairs by a function of both texts, whose verdict is A, B, tie or invalid text."""

    def answer(messages, i):
        said = pick(*re.findall(r"Request [AB]: (.*)", messages[1]["content"]))
        return Reply(json.dumps(dict.fromkeys(CRITERIA, said)))

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url))
        found = judge.compare(Stage(chat), pairs, attempts=2, **options)
    return found, len(server.requests)


def test_a_users_prompt_for_the_judge_is_sent(tmp_path):
    (tmp_path / "mine").write_text("Mine.\n---\nRequest A: <$first>\nRequest B: <$second>")
    prompt = replace_prompts({"": judge.PROMPT}, {"": tmp_path / "mine"})[""]
    seen = []
    verdicts(lambda a, b: seen.append((a, b)) or "A", [("x", "y")], prompt=prompt)
    assert sorted(seen) == [("<x>", "<y>"), ("<y>", "<x>")]


def rates(found):
    return {name: rows.tolist() for name, rows in judge.outcomes(found).items()}


def test_a_fair_judge_gives_wins_and_losses_in_both_orders():
    def longer(a, b):
        return "tie" if len(a) == len(b) else "A" if len(a) > len(b) else "B"

    found, asked = verdicts(longer)
    assert asked == 2 * len(PAIRS) - 1  # (same, same) is one prompt in both orders
    expected = {"win": [1, 0, 0, 1], "loss": [0, 1, 0, 0], "tie": [0, 0, 1, 0], "position": [0] * 4}
    for criterion in CRITERIA:
        for outcome, values in expected.items():
            assert rates(found)[f"{criterion}/{outcome}"] == values


def test_a_judge_with_position_bias_gives_ties_and_its_bias_is_reported():
    found, _ = verdicts(lambda a, b: "A")
    assert rates(found)["overall/tie"] == [1, 1, 1, 1]
    assert rates(found)["overall/position"] == [1, 1, 1, 1]
    # Half a verdict is a tie without bias.
    forward, backward = (np.array([[v] * 4 for v in some]) for some in ([1, 0, -1], [0, 1, 0]))
    found = rates(Verdicts(forward, backward, failures={}))
    assert found["fluency/tie"] == [1, 1, 1]
    assert found["fluency/win"] == found["fluency/loss"] == found["fluency/position"] == [0, 0, 0]


def test_a_judge_that_says_neither_is_asked_again_and_then_its_pair_is_left_out():
    def confused(a, b):
        return "both" if {a, b} == {"ab", "b"} else "A" if a > b else "B"

    found, _ = verdicts(confused)
    assert len(found.forward) == 3
    assert found.failures == {"verdict": 4, "lost": 2}


def test_a_verdict_needs_every_criterion():
    for said in ('{"naturalness": "A"}', "A", '{"overall": 1}'):
        with pytest.raises(Wrong):
            judge.check(said)


def test_queries_functions_and_pairs_of_functions_are_counted():
    labels = [("a", "b"), ("b", "a"), ("a", "c", "d"), ("a", "b", "c")]
    found = dataset.summary(labels, ["a", "b", "c", "d", "e"])
    used = np.array([4, 3, 2, 1]) / 10
    assert found == {
        "queries": 4,
        "functions": 2.5,
        "combinations": 3,
        "pairs": 5,
        "covered": 0.8,
        "evenness": pytest.approx(-(used * np.log(used)).sum() / np.log(5)),
    }
    first, second = dataset.tool_pairs(labels)[:2]
    assert first == {"tools": ["a", "b"], "queries": 3, "lift": 1.0}
    assert second == {"tools": ["a", "c"], "queries": 2, "lift": 1.0}
