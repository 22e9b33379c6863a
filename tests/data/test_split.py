from dataclasses import replace

import numpy as np
import pytest

from jaxret.data import load
from jaxret.data.dataset import Query, build, select, split_by_group
from jaxret.data.split import overlap, own_split
from jaxret.data.templates import normalise

TOOLS = [("a", "text of a"), ("b", "text of b")]


def dataset_of(*rows):
    """Make a data set from rows (text, group, split); query ids are q0, q1, ..."""
    queries = [
        Query(id=f"q{i}", text=text, labels=("a",), group=group, split=split)
        for i, (text, group, split) in enumerate(rows)
    ]
    return build("made", TOOLS, queries)


def divided(train=20, test=5, **others):
    sizes = {"train": train, **others, "test": test}
    return dataset_of(*((f"{s} {i}", None, s) for s, n in sizes.items() for i in range(n)))


def assert_apart(dataset, found):
    """Assert that the parts cover every query once and share no text and no group."""
    everything = np.concatenate(found)
    np.testing.assert_array_equal(np.sort(everything), np.arange(len(dataset.queries)))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for keys in ([normalise(q) for q in dataset.queries], dataset.groups.tolist()):
            assert not {keys[i] for i in found[a]} & {keys[i] for i in found[b]}


def test_a_split_is_kept_and_validation_is_cut_from_train_or_kept_too():
    dataset = divided()
    found = own_split(dataset, validation=0.25)
    np.testing.assert_array_equal(found.test, np.arange(20, 25))
    assert (len(found.train), len(found.validation)) == (15, 5)
    assert_apart(dataset, found)
    for name in ("validation", "valid", "val", "dev"):
        found = own_split(divided(4, 2, **{name: 3}))
        assert [part.tolist() for part in found] == [[0, 1, 2, 3], [4, 5, 6], [7, 8]]


@pytest.mark.parametrize("splits", [(None,), ("test",), ("task one", "task two")])
def test_without_parts_of_its_own_everything_is_cut(splits):
    dataset = dataset_of(*((f"text {i}", i // 2, splits[i % len(splits)]) for i in range(100)))
    found = own_split(dataset, validation=0.1, test=0.2)
    assert [len(part) for part in found] == [70, 10, 20]
    assert_apart(dataset, found)


def test_a_cut_depends_on_the_seed_and_on_nothing_else():
    for dataset in (divided(100), dataset_of(*((f"text {i}", None, None) for i in range(100)))):
        first, again, other = (own_split(dataset, seed=seed) for seed in (1, 1, 2))
        for one, same in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, same)
        assert not np.array_equal(first.validation, other.validation)


@pytest.mark.parametrize("seed", range(3))
def test_phrasings_of_a_question_stay_together(seed):
    rows = [(f"{word} {g}", g, "train") for g in range(40) for word in ("how", "what", "who")]
    tests = [(f"test {i}", f"test {i}", "test") for i in range(9)]
    for dataset in (dataset_of(*rows, *tests), dataset_of(*((*row[:2], None) for row in rows))):
        assert_apart(dataset, own_split(dataset, seed=seed))


@pytest.mark.parametrize("seed", range(3))
def test_questions_that_share_a_text_are_cut_as_one(seed):
    # Texts that differ only in white space connect groups 3k, 3k+1 and 3k+2.
    rows = [(f"own {g}", g, None) for g in range(60)]
    rows += [(f"link {g // 3}" + "\n" * (g % 3), g, None) for g in range(60)]
    dataset = dataset_of(*rows)
    assert len(dataset.queries) == 120
    found = own_split(dataset, seed=seed)
    assert_apart(dataset, found)
    for part in found:
        assert not len(part) % 6


def test_copies_survive_in_train_and_test_and_are_merged_within_a_part():
    copies = [("how?", None, split) for split in ("train", "test", "test", "train", "dev")]
    dataset = dataset_of(*copies)
    assert dataset.query_ids == ("q0", "q1", "q4")
    assert dataset.split == ("train", "test", "dev")
    assert dataset.merged_queries == 2
    assert dataset.groups.tolist() == [0, 0, 0]
    two_names = dataset_of(("how?", None, "val"), ("how?", None, "dev"))
    assert two_names.split == ("val",)
    assert dataset_of(("how?", None, "task one"), ("how?", None, "task two")).merged_queries == 1


def test_a_text_or_question_on_two_sides_is_refused_with_its_first_query():
    dataset = dataset_of(
        ("first", 0, "train"),
        ("how\nlong?", 1, "train"),
        ("how wide?", 2, "train"),
        (" how wide?", 3, "dev"),
        ("how long? ", 4, "test"),
        ("how wide? ", 5, "test"),
    )
    message = (
        r"made: 3 queries are also in a later part of the split\. The first is 'q1' of train "
        r"\('how\\nlong\?'\), the same text as 'q4' of test\. "
        r"Leave them out: select\(dataset, ~overlap\(dataset\)\)"
    )
    with pytest.raises(ValueError, match=message):
        own_split(dataset)
    np.testing.assert_array_equal(np.flatnonzero(overlap(dataset)), [1, 2, 3])
    dataset = dataset_of(("a", "x", "train"), ("b", "y", "train"), ("c", "y", "test"))
    with pytest.raises(ValueError, match=r"'q1' of train \('b'\), the same question as 'q2' of te"):
        own_split(dataset)


def test_the_remedy_named_in_the_error_works_and_keeps_the_test_part():
    rows = [(f"text {i}", None, "train") for i in range(30)]
    rows += [(f"text {i}\n", None, "val") for i in range(25, 35)]
    rows += [(f" text {i}", None, "test") for i in range(34, 40)]
    rows += [("asked anew", "text 3", "test")]
    dataset = dataset_of(*rows)
    clean = select(dataset, ~overlap(dataset))
    assert not overlap(clean).any()
    found = own_split(clean)
    assert [len(part) for part in found] == [24, 9, 7]
    assert_apart(clean, found)


def test_an_overlap_is_found_for_any_order_of_the_parts_and_needs_parts():
    for order in (("train", "test"), ("test", "train")):
        dataset = dataset_of(*(("how?", None, split) for split in order))
        assert overlap(dataset).tolist() == [split == "train" for split in order]
    assert not overlap(dataset_of(("a", 0, None), ("a", 1, None))).any()


@pytest.mark.parametrize("names", [("train", "eval"), ("train", "val"), ("dev", "test")])
def test_a_split_that_is_no_division_into_the_parts_is_refused(names):
    dataset = dataset_of(*((name, None, name) for name in names))
    listed = ", ".join(map(repr, sorted(names)))
    with pytest.raises(ValueError, match=rf"needs train and test, .*got \[{listed}\]; known names"):
        own_split(dataset)
    assert [len(part) for part in own_split(replace(divided(8, 2), split=None))] == [7, 1, 2]


def test_shares_out_of_range_and_too_few_questions_are_refused():
    for shares in ((0.0, 0.2), (0.1, 0.0), (0.5, 0.5), (-0.1, 0.2)):
        message = f"must be positive shares .* {shares[0]} and {shares[1]}"
        with pytest.raises(ValueError, match=message):
            own_split(divided(), validation=shares[0], test=shares[1])
    with pytest.raises(ValueError, match="1 groups cannot fill fractions"):
        own_split(dataset_of(("a", "x", "train"), ("b", "x", "train"), ("c", "y", "test")))


def test_deskbank_is_cut_by_question():
    dataset = load("deskbank", part="all")
    found = own_split(dataset)
    assert_apart(dataset, found)
    assert [len(part) for part in found] == [1646, 236, 470]  # cuts at 0.7 and 0.8 of 2,352 queries


def test_no_ultratool_question_is_in_two_parts(shared_data):
    dataset = load("ultratool", shared_data / "raw/ultratool")
    assert_apart(dataset, own_split(dataset))
    train, test = split_by_group(dataset.groups, (0.9, 0.1), seed=0)
    asked = [query.split('", select the best tool')[0] for query in dataset.queries]
    assert not {asked[i] for i in train} & {asked[i] for i in test}
    assert abs(len(test) - 238.1) <= 5


def test_both_formats_of_toollens_have_its_own_split(shared_data):
    for path in ("raw/toollens", "toollens"):
        dataset = load("toollens", shared_data / path)
        found = own_split(dataset, validation=0.1)
        assert (len(dataset.tool_ids), len(found.test)) == (464, 1877)
        assert (len(found.train), len(found.validation)) == (16893 - 1689, 1689)
        assert {dataset.split[i] for i in found.test} == {"test"}
        assert_apart(dataset, found)
