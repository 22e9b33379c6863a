import numpy as np
import pytest

from jaxret.data.dataset import Query, Step, build, select, split_by_group

TOOLS = [("a", {"name": "a"}), ("b", "text of b"), ("c", {"name": "c"})]
UNKNOWN = r"labels of query 'q7' name unknown tools \['x', 'y'\]; known: 3 tools"


def query(number, text="how?", labels=("a",), **rest):
    return Query(id=f"q{number}", text=text, labels=labels, **rest)


def grouped(sizes):
    """Make a data set whose group g has sizes[g] queries."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return build("x", TOOLS, [query(i, f"text {i}", group=int(g)) for i, g in enumerate(groups)])


def test_labels_are_rows_of_the_catalogue_padded_with_minus_one():
    queries = [query(1, "one", ("c",)), query(2, "two", ("b", "a")), query(3, "three", ("b", "b"))]
    dataset = build("x", TOOLS, queries)
    assert dataset.tool_ids == ("a", "b", "c")
    assert dataset.documents == ({"name": "a"}, "text of b", {"name": "c"})
    assert dataset.labels.dtype == np.int32
    np.testing.assert_array_equal(dataset.labels, [[2, -1], [1, 0], [1, -1]])
    assert dataset.split is None
    assert dataset.steps is None


def test_equal_tools_are_merged_and_counted_in_the_summary():
    dataset = build("bank", TOOLS + TOOLS[:2], [query(1, "one"), query(2, "two", ("b", "c"))])
    assert dataset.summary() == (
        "bank: 3 tools, 2 queries (1.50 labels a query, 2 questions), "
        "merged 2 duplicate tools, 0 duplicate queries"
    )


def test_a_repeated_query_has_the_labels_of_all_its_copies_and_the_first_id():
    copies = [query(1, labels=("b",), split="x"), query(2, labels=("a", "b"), split="y")]
    dataset = build("x", TOOLS, [*copies, query(3, "other", split="y")])
    assert dataset.query_ids == ("q1", "q3")
    assert dataset.split == ("x", "y")
    assert dataset.merged_queries == 1
    np.testing.assert_array_equal(dataset.labels, [[1, 0], [0, -1]])


def test_the_same_text_in_two_groups_stays_two_queries():
    dataset = build("x", TOOLS, [query(1, group="g"), query(2, group="h"), query(3, group="g")])
    assert dataset.query_ids == ("q1", "q2")
    np.testing.assert_array_equal(dataset.groups, [0, 1])
    ungrouped = build("x", TOOLS, [query(1, "one"), query(2, "two"), query(3, "one", ("c",))])
    np.testing.assert_array_equal(ungrouped.groups, [0, 1])  # each text is a group


def test_steps_point_at_rows_and_queries_of_one_hop_have_none():
    steps = (("first", "c"), ("then", "a"))
    dataset = build("x", TOOLS, [query(1, labels=("c", "a"), steps=steps), query(2, "simple")])
    assert dataset.steps == ((Step("first", 2), Step("then", 0)), ())


@pytest.mark.parametrize(
    ("tools", "queries", "message"),
    [
        ([], [query(1)], "x has no tools"),
        (TOOLS, [], "x has no queries"),
        ([*TOOLS, ("a", {"name": "other"})], [query(1)], "tool 'a' has two different documents"),
        (TOOLS, [query(1, "one"), query(1, "two")], "two queries have the id 'q1'"),
        (TOOLS, [query(1)._replace(id="")], "a query has no id; its text: 'how\\?'"),
        (TOOLS, [query(1, " \n")], "the text of query 'q1' is empty"),
        (TOOLS, [query(1, labels=())], "query 'q1' has no labels"),
        (TOOLS, [query(1, "one", split="s"), query(2, "two")], "query 'q2' has no split"),
        (TOOLS, [query(1), query(7, labels=("x", "a", "y"))], UNKNOWN),
        (TOOLS, [query(7, labels=("x",), steps=(("do", "y"),))], UNKNOWN),
    ],
)
def test_broken_sources_are_refused_by_name(tools, queries, message):
    with pytest.raises(ValueError, match=message):
        build("x", tools, queries)


def test_select_keeps_the_catalogue_and_the_order_asked_for():
    queries = [query(i, f"text {i}", ("abc"[i],), split=f"s{i}", group=i) for i in range(3)]
    dataset = build("x", TOOLS, queries)
    for indices in (np.array([2, 0]), np.array([True, False, True])):
        part = select(dataset, indices)
        order = [2, 0] if indices.dtype != bool else [0, 2]
        assert part.tool_ids == dataset.tool_ids
        assert part.query_ids == tuple(f"q{i}" for i in order)
        assert part.queries == tuple(f"text {i}" for i in order)
        assert part.split == tuple(f"s{i}" for i in order)
        assert part.steps is None
        np.testing.assert_array_equal(part.labels[:, 0], order)
        np.testing.assert_array_equal(part.groups, order)


@pytest.mark.parametrize("seed", range(5))
def test_a_split_parts_all_queries_by_whole_groups_near_the_fractions(seed):
    sizes = np.random.default_rng(seed).integers(1, 8, size=200)
    dataset = grouped(sizes)
    parts = split_by_group(dataset.groups, (0.7, 0.1, 0.2), seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(sizes.sum()))
    sides = [set(dataset.groups[part].tolist()) for part in parts]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 200
    off = [len(p) - f * sizes.sum() for p, f in zip(parts, (0.7, 0.1, 0.2), strict=True)]
    assert np.abs(off).max() <= sizes.max()


def test_groups_of_equal_size_are_split_exactly_and_can_be_split_again():
    groups = grouped([3] * 10).groups
    assert [len(part) for part in split_by_group(groups, (0.5, 0.3, 0.2), seed=0)] == [15, 9, 6]
    later = select(grouped([2] * 20), np.arange(20, 40)).groups  # groups 10 to 19
    assert [len(part) for part in split_by_group(later, (0.5, 0.5), seed=0)] == [10, 10]


@pytest.mark.parametrize("fractions", [(0.5, 0.4), (1.2, -0.2), (1.0, 0.0), ()])
def test_fractions_that_are_no_partition_are_refused(fractions):
    with pytest.raises(ValueError, match="fractions must be positive and sum to 1, got"):
        split_by_group(grouped([1] * 10).groups, fractions, seed=0)
