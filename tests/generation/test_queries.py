"""Generated queries: prompts and answers by hand, and runs against healthy and failing servers."""

import json
from collections import Counter

import numpy as np
import pytest

from experiments.generate_queries import dataset as output
from jaxret.data import jsonl
from jaxret.data.split import own_split
from jaxret.generation import (
    Settings,
    Writers,
    batch_questions,
    check_settings,
    generate,
    queries,
    seed_examples,
)
from jaxret.generation.queries import draw_tools
from jaxret.llm import Chat, Endpoint, OutOfReach, Stage, Wrong, replace_prompts
from tests.fake_llm import Reply, serving
from tests.fake_writer import Writer, draft, offered
from tests.llm.conftest import allow

OFFERED = ["io.read_csv", "math.mean", "math.sort", "plot.line"]
KNOWN = [*OFFERED, "math.sum"]


def test_tools_are_drawn_without_replacement_and_each_question_has_its_own():
    used = np.zeros(20, int)
    draws = [draw_tools(np.random.default_rng([0, 3, slot]), used, 10) for slot in range(5)]
    assert all(len(set(draw.tolist())) == 10 for draw in draws)
    assert len({tuple(draw) for draw in draws}) == 5
    np.testing.assert_array_equal(draws[2], draw_tools(np.random.default_rng([0, 3, 2]), used, 10))


@pytest.mark.parametrize("coverage", [0.0, 1.0, 2.0])
def test_tools_that_have_queries_are_drawn_less_the_more_coverage_counts(coverage):
    used, random, n = np.array([0, 1, 3, 0]), np.random.default_rng(0), 4_000
    found = np.bincount(
        [draw_tools(random, used, 1, coverage=coverage)[0] for _ in range(n)], minlength=4
    )
    weights = np.array([1.0, 1 / 2**coverage, 1 / 4**coverage, 1.0])
    share = weights / weights.sum()
    np.testing.assert_allclose(found / n, share, atol=4 * np.sqrt(0.25 / n))


GOOD = {
    "functions": ["math.mean", "io.read_csv"],
    "instruction": "How warm was May?",
    "explanation": "why",
}


def read(text):
    text = text if isinstance(text, str) else json.dumps(GOOD | text)
    return queries.read_draft(text, OFFERED, KNOWN, fewest=2, most=3)


def test_an_answer_is_parsed_from_surrounding_text():
    fields = '{"functions": ["math.sort", "plot.line"], "instruction": "Draw\\n it.", '
    fields += '"explanation": "x"}'
    text = f'<think>{{"functions": 1}}</think>Sure!\n```json\n{fields}\n```'
    assert read(text) == queries.Draft("Draw it.", ("math.sort", "plot.line"), "x")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("repeated", {"functions": ["math.mean", "math.mean"]}),
        ("invented", {"functions": ["math.mean", "math.median"]}),
        ("not_offered", {"functions": ["math.mean", "math.sum"]}),
        ("count", {"functions": ["math.mean"]}),
        ("count", {"functions": OFFERED}),
        ("fields", {"functions": "math.mean"}),
        ("fields", {"functions": [1, 2]}),
        ("fields", {"instruction": " "}),
        ("fields", {"explanation": None}),
        ("named", {"instruction": "Use read_csv on the file."}),
        ("named", {"instruction": "What does Math.Mean give?"}),
        ("not_json", "I cannot."),
        ("not_json", '{"functions": ["a"'),
        ("fields", '{"functions": []}'),
    ],
)
def test_an_answer_that_cannot_be_used_says_of_what_kind_it_is(kind, answer):
    with pytest.raises(Wrong) as wrong:
        read(answer)
    assert wrong.value.kind == kind


def test_a_plain_word_is_no_function_name():
    assert read({})
    assert read({"functions": ["math.sort", "math.mean"], "instruction": "Sort the mean."})


def test_the_schema_of_an_answer_lists_the_offered_tools():
    offered = ("math.mean", "io.read_csv", "io.save")
    form = queries.write_schema(offered, fewest=2, most=3)
    functions = form["properties"]["functions"]
    assert functions["items"] == {"enum": list(offered)}
    assert (functions["minItems"], functions["maxItems"]) == (2, 3)
    names = ["functions", "explanation", "instruction"]
    assert form["required"] == list(form["properties"]) == names
    assert form["additionalProperties"] is False


def test_every_library_begins_with_examples_that_would_pass():
    for library in ("numpy", "pandas", "aws", "deskbank"):
        pool = queries.seed_examples(library)
        assert len(pool) >= 5
        for one in pool:
            functions = one.functions
            assert queries.read_draft(one.example(), functions, functions, fewest=2, most=5) == one
    names = {f.split(".")[0] for one in queries.seed_examples("numpy") for f in one.functions}
    assert names == {"numpy"}


TOOLS = {f"lib.tool{i}x": f"Makes the {i}-th thing." for i in range(24)}
ROWS = [{"id": tool, "documentation": {"description": text}} for tool, text in TOOLS.items()]
SMALL = Settings(iterations=3, batch=8, offered=6, fewest=2, most=5, examples=3)


@pytest.fixture(autouse=True)
def key(monkeypatch, tmp_path):
    allow(monkeypatch, tmp_path)


def run(server, folder, settings=SMALL, *, prompts=queries.OURS, before=lambda: None, **endpoint):
    endpoint = {"retries": 0, "timeout": 60.0, "attempts": 1, "concurrency": 1} | endpoint
    chats = (
        Chat(Endpoint(model=name, base_url=server.url, **endpoint), folder / "llm")
        for name in ("write", "polish")
    )
    writers = Writers(*(Stage(chat, before=before) for chat in chats))
    given = (writers, TOOLS, settings, seed_examples("any"), folder / "iterations", prompts)
    return list(generate(*given))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Return a writer without faults, and the iterations of a run with it."""
    writer = Writer()
    with pytest.MonkeyPatch.context() as patch, serving(writer) as server:
        allow(patch, tmp_path_factory.mktemp("none"))
        return writer, run(server, tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="module")
def accepted(healthy):
    return [one for iteration in healthy[1] for one in iteration.accepted]


def test_queries_use_two_to_five_of_the_tools_on_offer_and_are_polished(healthy, accepted):
    writer, done = healthy
    assert [iteration.number for iteration in done] == [0, 1, 2]
    assert len(accepted) == 24
    assert {len(one.draft.functions) for one in accepted} == {2, 3, 4, 5}
    assert all(one.query == f"Please, {one.draft.instruction.lower()}" for one in accepted)
    assert all(iteration.failures == {} for iteration in done)
    assert all(count == 1 for count in writer.asked.values())
    assert done[0].tokens == {
        f"{stage}/{side}": 8 * n
        for stage in ("write", "polish")
        for side, n in (("prompt", 7), ("completion", 3))
    }


def test_an_endpoint_that_supports_schemas_is_sent_the_offered_tools(tmp_path):
    with serving(Writer()) as server:
        run(server, tmp_path, SMALL._replace(iterations=1), format="schema")
    forms = {"write": [], "polish": []}
    for request in server.requests:
        form = request["response_format"]["json_schema"]["schema"]
        forms[request["model"]].append((form, request["messages"]))
    assert [len(some) for some in forms.values()] == [8, 8]
    for form, messages in forms["write"]:
        assert form["properties"]["functions"]["items"]["enum"] == offered(messages)
    for form, _ in forms["polish"]:
        assert form["required"] == ["reasoning", "instruction"]


def test_examples_are_ours_at_first_and_then_also_what_was_accepted_before(healthy):
    writer, done = healthy
    asked = [json.loads(text) for text in writer.asked]

    def shown(number):
        """Return the examples in the questions of one iteration, all of which were asked."""
        every = batch_questions(TOOLS, SMALL, seed_examples("any"), done[:number])
        assert all(messages in asked for _, messages in every)
        lines = (line for _, messages in every for line in messages[1]["content"].splitlines())
        return {json.loads(line)["instruction"] for line in lines if line.startswith("{")}

    ours = {one.instruction for one in seed_examples("any")}
    theirs = {one.query for iteration in done[:2] for one in iteration.accepted}
    assert shown(0) <= ours
    assert shown(1)
    assert shown(2) <= ours | theirs
    assert shown(2) & theirs


def test_prompts_of_the_user_replace_ours(tmp_path):
    (tmp_path / "write").write_text("You write: mine\n---\n$tools\n$examples")
    (tmp_path / "polish").write_text("You edit: mine\n---\nThe request: $instruction\n$functions")
    files = {name: tmp_path / name for name in ("write", "polish")}
    mine = queries.Prompts(**replace_prompts(queries.OURS._asdict(), files))
    with serving(Writer()) as server:
        run(server, tmp_path, SMALL._replace(iterations=1), prompts=mine)
    heads = {request["messages"][0]["content"] for request in server.requests}
    assert heads == {"You write: mine", "You edit: mine"}


def test_a_finished_run_is_read_from_its_files(tmp_path):
    with serving(Writer()) as server:
        done = run(server, tmp_path)
        asked = len(server.requests)
        (tmp_path / "llm").rename(tmp_path / "gone")
        assert run(server, tmp_path) == done
        assert len(server.requests) == asked


def faults(stage, number, messages):
    """Make some requests fail, either once or in every attempt."""
    again = len(messages) > 2
    if stage == "polish":
        return Reply("no JSON") if number % 5 == 1 else None
    tools = offered(messages)
    return {
        1: None if again else Reply("{broken"),
        2: Reply(draft([tools[0], "lib.invented"])),
        3: Reply(draft([tools[0]])) if not again else None,
        4: Reply(draft([tools[0], tools[0]])),
        5: Reply(draft([tools[0], next(t for t in TOOLS if t not in tools)])),
        6: Reply(draft(tools[:2], "the same words in every iteration of them all")),
    }.get(number % 8)


def test_a_bad_answer_is_dropped_and_counted_by_its_kind(tmp_path):
    with serving(Writer(faults)) as server:
        first, second, third = run(server, tmp_path)
    assert [one.slot for one in first.accepted] == [0, 1, 3, 6, 7]
    assert [one.slot for one in second.accepted] == [0, 1, 3, 7]  # 6 repeats an earlier query
    assert first.failures == {
        "write/not_json": 1,
        "write/invented": 3,
        "write/count": 1,
        "write/repeated": 3,
        "write/not_offered": 3,
        "write/lost": 3,
        "polish/not_json": 3,
        "polish/lost": 1,
    }
    assert (second.failures["near"], third.failures["near"]) == (1, 1)
    raw = [one for one in first.accepted if one.query == one.draft.instruction]
    assert [one.slot for one in raw] == [1]  # an unpolished query keeps its first text


def test_near_duplicates_within_a_batch_are_one_query(tmp_path):
    def same(stage, number, messages):
        about = f"these very words are always there, {number}"
        return Reply(draft(offered(messages)[:2], about)) if stage == "write" else None

    with serving(Writer(same)) as server:
        done = run(server, tmp_path, SMALL._replace(iterations=1))
    assert len(done[0].accepted) == 1
    assert done[0].failures == {"near": 7}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Return the iterations of a run with faults, and the number of its questions."""
    with pytest.MonkeyPatch.context() as patch, serving(Writer(faults)) as server:
        allow(patch, tmp_path_factory.mktemp("none"))
        return run(server, tmp_path_factory.mktemp("straight")), len(server.requests)


SLOW = [pytest.param(calls, marks=pytest.mark.slow) for calls in (3, 17, 26)]


@pytest.mark.parametrize("calls", [11, 52, *SLOW])
def test_a_run_killed_anywhere_resumes_with_the_same_queries_and_repeats_no_call(
    tmp_path, straight, calls
):
    writer, left = Writer(faults), {"calls": calls}

    def before():
        if left["calls"] == 0:
            raise SystemExit
        left["calls"] -= 1

    with serving(writer) as server:
        with pytest.raises(SystemExit):
            run(server, tmp_path, before=before)
        assert len(server.requests) == calls
        done = run(server, tmp_path)
        assert all(count == 1 for count in writer.asked.values())
        assert (done, len(server.requests)) == straight


@pytest.mark.slow
def test_time_outs_and_429s_lose_only_their_questions(tmp_path):
    def failing(stage, number, messages):
        if stage == "polish":
            return None
        return {1: Reply("slow down", status=429), 2: Reply("{}", delay=60.0)}.get(number)

    with serving(Writer(failing)) as server:
        [done] = run(server, tmp_path, SMALL._replace(iterations=1), timeout=3.0)
    assert [one.slot for one in done.accepted] == [0, 3, 4, 5, 6, 7]
    assert done.failures == {"write/rate_limit": 1, "write/timeout": 1, "write/lost": 2}


def test_an_endpoint_that_is_down_leaves_no_iteration_behind(tmp_path):
    down = pytest.raises(OutOfReach, match="write answered none of 8 questions")
    with serving(lambda messages, i: Reply("no", status=500)) as server, down:
        run(server, tmp_path)
    assert not (tmp_path / "iterations").exists()


def test_coverage_brings_tools_that_have_no_query_sooner(tmp_path):
    def used(coverage):
        settings = SMALL._replace(iterations=4, coverage=coverage, batch=2)
        with serving(Writer()) as server:
            done = run(server, tmp_path / str(coverage), settings)
        return {tool for it in done for one in it.accepted for tool in one.draft.functions}

    assert len(used(4.0)) > len(used(0.0))


def test_the_data_set_loads_and_its_parts_share_no_query(tmp_path, accepted):
    shares = {"validation": 0.2, "test": 0.25}
    parted = output.assign(accepted, list(TOOLS), **shares, seed=0)
    assert Counter(parted) == {"train": 13, "validation": 5, "test": 6}
    dataset = output.save(tmp_path, accepted, parted, ROWS)
    assert list(dataset.queries) == [one.query for one in accepted]
    assert list(dataset.split) == parted
    for row, one in zip(dataset.labels, accepted, strict=True):
        assert tuple(dataset.tool_ids[i] for i in row if i >= 0) == one.draft.functions


def test_parts_may_be_kept_from_sharing_a_set_of_tools(tmp_path, accepted):
    one = accepted[0]
    copies = [
        one._replace(query=f"word{i} query{i}", slot=100 + i, draft=one.draft._replace(functions=f))
        for i in range(40)
        for f in [one.draft.functions[:: 1 if i % 2 else -1] if i < 20 else (f"lib.tool{i - 20}x",)]
    ]
    shares = {"validation": 0.2, "test": 0.2}
    parted = output.assign(copies, list(TOOLS), **shares, seed=1, by_tools=True)
    assert len(set(parted[:20])) == 1  # the order of the tools is irrelevant
    output.save(tmp_path, copies, parted, ROWS, by_tools=True)
    rows = jsonl.load(tmp_path)
    wrong = ["train", "test"] * 20
    with pytest.raises(ValueError, match="the same question as"):
        output.save(tmp_path, copies, wrong, ROWS, by_tools=True)
    assert len(own_split(rows).test) == parted.count("test")


def test_parts_that_share_a_query_are_refused(tmp_path, accepted):
    one, two, *_ = accepted
    copy = two._replace(query=f" {one.query}\n")
    with pytest.raises(ValueError, match=r"1 queries are also in a later part .* the same text as"):
        output.save(tmp_path, [one, copy], ["train", "test"], ROWS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"most": 7}, r"most must be in \[2, 6\], got 7"),
        ({"offered": 30}, r"offered must be in \[1, 24\], the tools, got 30"),
        ({"fewest": 0}, "fewest must be >= 1, got 0"),
        ({"near": 0.0}, r"threshold must be in \(0, 1\], got 0"),
        ({"coverage": -1}, "coverage must be >= 0, got -1"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        check_settings(SMALL._replace(**setting), len(TOOLS))


def test_a_damaged_iteration_is_named(tmp_path):
    with serving(Writer()) as server:
        run(server, tmp_path)
        path = tmp_path / "iterations" / "00001.json"
        path.write_text(path.read_text()[:50])
        with pytest.raises(ValueError, match=r"00001\.json cannot be read: delete it"):
            run(server, tmp_path)
