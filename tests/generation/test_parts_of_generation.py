"""Sampling, checks of answers, near-duplicates, statistics: by hand and by closed forms."""

import json

import numpy as np
import pytest

from jaxret import data
from jaxret.generation import cooccurrence, questions
from jaxret.generation.checked_answers import Wrong
from jaxret.generation.near_duplicates import NearDuplicates, shingles, similarity
from jaxret.generation.sample import draw_examples, draw_tools, generator

OFFERED = ["io.read_csv", "math.mean", "math.sort", "plot.line"]
KNOWN = [*OFFERED, "math.sum"]


def test_tools_are_drawn_without_replacement_and_each_question_has_its_own():
    used = np.zeros(20, int)
    draws = [draw_tools(generator(0, 3, slot), used, 10) for slot in range(5)]
    assert all(len(set(draw.tolist())) == 10 for draw in draws)
    assert len({tuple(draw) for draw in draws}) == 5
    np.testing.assert_array_equal(draws[2], draw_tools(generator(0, 3, 2), used, 10))


@pytest.mark.parametrize("coverage", [0.0, 1.0, 2.0])
def test_tools_that_have_queries_are_drawn_less_the_more_coverage_counts(coverage):
    used, random, n = np.array([0, 1, 3, 0]), np.random.default_rng(0), 4_000
    found = np.bincount(
        [draw_tools(random, used, 1, coverage=coverage)[0] for _ in range(n)], minlength=4
    )
    weights = np.array([1.0, 1 / 2**coverage, 1 / 4**coverage, 1.0])
    share = weights / weights.sum()
    np.testing.assert_allclose(found / n, share, atol=4 * np.sqrt(0.25 / n))


def test_more_tools_than_there_are_cannot_be_drawn():
    with pytest.raises(
        ValueError, match=r"n must be in \[1, 3\], the size of the catalogue, got 4"
    ):
        draw_tools(np.random.default_rng(0), np.zeros(3, int), 4)


def test_a_pool_that_is_too_small_is_shown_whole():
    assert sorted(draw_examples(np.random.default_rng(0), "abc", 5)) == ["a", "b", "c"]


def read(functions=("math.mean", "io.read_csv"), instruction="How warm was May?", **more):
    fields = {"functions": functions, "instruction": instruction, "explanation": "why"} | more
    return questions.read_draft(json.dumps(fields), OFFERED, KNOWN, fewest=2, most=3)


def test_an_answer_is_read_whatever_stands_around_it():
    fields = '{"functions": ["math.sort", "plot.line"], "instruction": "Draw\\n it.", '
    fields += '"explanation": "x"}'
    text = f'<think>{{"functions": 1}}</think>Sure!\n```json\n{fields}\n```'
    draft = questions.read_draft(text, OFFERED, KNOWN, fewest=2, most=3)
    assert draft == questions.Draft("Draw it.", ("math.sort", "plot.line"), "x")


@pytest.mark.parametrize(
    ("kind", "changed"),
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
    ],
)
def test_an_answer_that_cannot_be_used_says_of_what_kind_it_is(kind, changed):
    read()
    with pytest.raises(Wrong) as wrong:
        read(**changed)
    assert wrong.value.kind == kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("not_json", "I cannot."),
        ("not_json", '{"functions": ["a"'),
        ("fields", '{"functions": []}'),
    ],
)
def test_an_answer_without_its_object_is_wrong(kind, text):
    with pytest.raises(Wrong) as wrong:
        questions.read_draft(text, OFFERED, KNOWN, fewest=2, most=3)
    assert wrong.value.kind == kind


def test_the_form_of_an_answer_knows_what_is_offered_and_is_read_when_it_is_kept():
    offered = ("math.mean", "io.read_csv", "io.save")
    form = questions.write_schema(offered, fewest=2, most=3)
    functions = form["properties"]["functions"]
    assert functions["items"] == {"enum": list(offered)}
    assert (functions["minItems"], functions["maxItems"]) == (2, 3)
    assert (
        form["required"] == list(form["properties"]) == ["functions", "explanation", "instruction"]
    )
    assert form["additionalProperties"] is False


def test_a_plain_word_is_no_function_name():
    assert read(functions=["math.sort", "math.mean"], instruction="Sort the mean.")


def test_every_library_begins_with_examples_that_would_pass():
    for library in ("numpy", "pandas", "aws", "deskbank"):
        pool = questions.seed_examples(library)
        assert len(pool) >= 5
        for one in pool:
            functions = one.functions
            assert (
                questions.read_draft(one.example(), functions, functions, fewest=2, most=5) == one
            )
    names = {f.split(".")[0] for one in questions.seed_examples("numpy") for f in one.functions}
    assert names == {"numpy"}


def test_similarity_is_jaccard_of_word_pairs():
    one, other = shingles("Sum the sales of May, please."), shingles("sum the SALES of june please")
    assert similarity(one, other) == 3 / 7
    assert shingles("Help!") == {("help",)}


def test_near_finds_what_comparing_with_all_finds():
    """Queries of DeskBank, with words left out, against every one of them."""
    random, threshold = np.random.default_rng(0), 0.6
    texts = list(dict.fromkeys(data.load("deskbank").queries))[:300]
    near = NearDuplicates(threshold)
    for text in texts:
        near.add(text)
    kept, found, missed = [shingles(text) for text in texts], 0, 0
    for text in texts:
        words = text.split()
        drop = random.integers(len(words), size=random.integers(0, 4))
        changed = " ".join(word for i, word in enumerate(words) if i not in drop)
        best = max(similarity(shingles(changed), other) for other in kept)
        match = near.find(changed)
        assert (match is None) or similarity(shingles(changed), shingles(match)) >= threshold
        found += match is not None
        missed += best >= threshold and match is None
    assert found > 100
    assert found < 290
    assert missed <= 1  # one in 2,400 at the threshold itself


def test_the_same_words_are_near_at_any_threshold():
    near = NearDuplicates(1.0)
    near.add("Where is my parcel?")
    assert near.find("where is MY parcel") == "Where is my parcel?"
    assert near.find("where is my other parcel") is None


def test_what_occurs_together_is_counted():
    labels = [("a", "b"), ("b", "a"), ("a", "c", "d"), ("a", "b", "c")]
    found = cooccurrence.summary(labels, ["a", "b", "c", "d", "e"])
    used = np.array([4, 3, 2, 1]) / 10
    assert found == {
        "queries": 4,
        "functions": 2.5,
        "combinations": 3,
        "pairs": 5,
        "covered": 0.8,
        "evenness": pytest.approx(-(used * np.log(used)).sum() / np.log(5)),
    }
    first, second = cooccurrence.pairs(labels)[:2]
    assert first == {"tools": ["a", "b"], "queries": 3, "lift": 1.0}
    assert second == {"tools": ["a", "c"], "queries": 2, "lift": 1.0}
