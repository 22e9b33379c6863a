"""Defines a data set for tool retrieval: a catalogue of documents, and labelled queries.

Every loader calls `build`, which handles duplicates, unknown labels and groups.

Documents are stored as in the source: a dict of top-level fields under the source's names
(``name``, ``description``, ``parameters``, ...), or a string of running text.
`jaxret.data.templates` renders either as the text that is encoded.

Letters: I tools, N queries, L labels per query (padded with -1).
"""

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require_one_of

Document: TypeAlias = dict[str, Any] | str
Unknown: TypeAlias = Literal["refuse", "drop"]  # what becomes of labels outside the catalogue
Empty: TypeAlias = Literal["refuse", "drop", "keep"]  # what becomes of documents without text
PART_NAMES = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}  # names of parts; other values of a split are tasks or categories


class Step(NamedTuple):
    """One hop of a query: a self-contained sub-query and the row of its tool."""

    query: str
    label: int


class Query(NamedTuple):
    """A query of a source; tools are named by id."""

    id: str
    text: str
    labels: tuple[str, ...]  # in order of use, if the source states an order
    group: Hashable = None  # identifies the question; None: the text does
    split: str | None = None
    steps: tuple[tuple[str, str], ...] = ()  # (sub-query, tool id)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Tools, queries and labels, created by `build`."""

    name: str
    tool_ids: tuple[str, ...]  # I
    documents: tuple[Document, ...]  # I
    query_ids: tuple[str, ...]  # N
    queries: tuple[str, ...]  # N
    labels: Int[np.ndarray, "N L"]  # int32 positions in tool_ids, -1 pads
    groups: Int[np.ndarray, " N"]  # int32, equal for queries of one question
    split: tuple[str, ...] | None  # N
    steps: tuple[tuple[Step, ...], ...] | None  # N, empty if a query has a single hop
    merged_tools: int  # number of duplicates in the source
    merged_queries: int
    none_right: bool = False  # whether queries may have no label: no tool is right

    def summary(self) -> str:
        """Describe sizes and merged duplicates in one line."""
        per_query = (self.labels >= 0).sum() / max(len(self.queries), 1)
        return (
            f"{self.name}: {len(self.tool_ids):,} tools, {len(self.queries):,} queries "
            f"({per_query:.2f} labels a query, {len(np.unique(self.groups)):,} questions), "
            f"merged {self.merged_tools:,} duplicate tools, "
            f"{self.merged_queries:,} duplicate queries"
        )

    def __repr__(self) -> str:
        return f"<{self.summary()}>"


def build(
    name: str,
    tools: Iterable[tuple[str, Document]],
    queries: Iterable[Query] | None,
    *,
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
    none_right: bool = False,
) -> Dataset:
    """Check the tools and queries of a source, and merge duplicates.

    Tools with equal ids and documents are merged. Queries with equal text, group and steps are
    merged into the first of them, with the labels of all: a retriever cannot distinguish them, and
    each of the tools is a right answer. Copies in different parts of a train, validation and test
    split are not merged, so that `jaxret.data.split` can refuse them.

    Args:
      name: name of the data set.
      tools: (id, document) pairs, in the order of the rows.
      queries: queries in the order of the source; None: the source is a catalogue alone.
      unknown: "refuse" labels that name a tool outside the catalogue, or "drop" them, and queries
        without another label.
      empty: "keep" a document without text, with its id as its text and a warning; "drop" the tool;
        or "refuse" it.
      none_right: whether queries may have no label, which means that no tool is right for them.

    Raises:
      ValueError: if there are no tools or no queries, an id is not a string or has two documents, a
        query lacks id, text or labels (unless ``none_right``), has a repeated id, or names unknown
        tools, or only some queries have a split.
    """
    require_one_of("unknown", unknown, ("refuse", "drop"))
    require_one_of("empty", empty, ("refuse", "drop", "keep"))
    documents, merged_tools = _merge_tools(name, tools)
    documents = _with_text(name, documents, empty)
    rows = {tool: row for row, tool in enumerate(documents)}
    checked = _check_queries(
        queries or (), known=rows, drop=unknown == "drop", none_right=none_right
    )
    if queries is not None and not checked:
        raise ValueError(f"{name} has no queries")
    merged = _merge_queries(checked)

    width = max((len(query.labels) for query in merged), default=1) or 1
    labels = np.full((len(merged), width), -1, np.int32)
    for row, query in enumerate(merged):
        labels[row, : len(query.labels)] = [rows[label] for label in query.labels]
    numbers: dict[Hashable, int] = {}
    groups = [numbers.setdefault(query.group, len(numbers)) for query in merged]
    splits = tuple(query.split for query in merged if query.split is not None)
    if splits and len(splits) < len(merged):
        without = next(query.id for query in merged if query.split is None)
        raise ValueError(f"{name}: query {without!r} has no split, others have: give all or none")
    steps = tuple(
        tuple(Step(query=text, label=rows[label]) for text, label in query.steps)
        for query in merged
    )
    return Dataset(
        name=name,
        tool_ids=tuple(documents),
        documents=tuple(documents.values()),
        query_ids=tuple(query.id for query in merged),
        queries=tuple(query.text for query in merged),
        labels=labels,
        groups=np.asarray(groups, np.int32),
        split=splits or None,
        steps=steps if any(steps) else None,
        merged_tools=merged_tools,
        merged_queries=len(checked) - len(merged),
        none_right=none_right,
    )


def select(dataset: Dataset, indices: np.ndarray) -> Dataset:
    """Select queries, with the whole catalogue.

    Args:
      dataset: the data set.
      indices: positions [M], or a boolean mask [N].

    Returns:
      The queries in the order of ``indices``, with unchanged group numbers and width L.
    """
    chosen = np.arange(len(dataset.queries))[indices]

    def pick(values):
        return None if values is None else tuple(values[i] for i in chosen)

    return replace(
        dataset,
        query_ids=pick(dataset.query_ids),
        queries=pick(dataset.queries),
        labels=dataset.labels[chosen],
        groups=dataset.groups[chosen],
        split=pick(dataset.split),
        steps=pick(dataset.steps),
    )


def split_by_group(
    groups: Int[np.ndarray, " N"], fractions: tuple[float, ...], seed: int
) -> tuple[Int[np.ndarray, " M"], ...]:
    """Split queries at random so that no question is in two parts.

    The groups are shuffled, concatenated and cut at the group boundaries nearest to the fractions,
    so the size of a part deviates by at most the size of the largest group.

    Args:
      groups: question of each query [N] (``dataset.groups``).
      fractions: share of the queries in each part, positive, with sum 1.
      seed: seed of the shuffle.

    Returns:
      Positions [M] of the queries of each part, ascending.

    Raises:
      ValueError: the fractions are not positive with sum 1, or a part would be empty.
    """
    if min(fractions, default=0.0) <= 0 or not np.isclose(sum(fractions), 1.0):
        raise ValueError(f"fractions must be positive and sum to 1, got {fractions}")
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(sizes))
    ends = np.append(0, np.cumsum(sizes[order]))  # the boundaries, in queries
    targets = np.cumsum(fractions)[:-1] * len(groups)
    cuts = np.abs(ends[:, None] - targets).argmin(axis=0)
    place = np.argsort(order)  # position of each group after the shuffle
    part = np.searchsorted(cuts, place, side="right")[group]
    parts = tuple(np.flatnonzero(part == i) for i in range(len(fractions)))
    if not all(map(len, parts)):
        raise ValueError(
            f"{len(sizes)} groups cannot fill fractions {fractions}: a part would be empty"
        )
    return parts


def _merge_tools(
    name: str, tools: Iterable[tuple[str, Document]]
) -> tuple[dict[str, Document], int]:
    documents: dict[str, Document] = {}
    entries = 0
    for tool, document in tools:
        if not isinstance(tool, str) or not tool.strip():
            raise ValueError(f"{name}: ids must be strings that are not blank, got {tool!r:.60}")
        entries += 1
        if documents.setdefault(tool, document) != document:
            raise ValueError(f"{name}: tool {tool!r} has two different documents; ids must differ")
    if not documents:
        raise ValueError(f"{name} has no tools")
    return documents, entries - len(documents)


def is_empty(value: Any) -> bool:
    """Return whether a value is None, blank text or a collection of such; False and 0 are not."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _with_text(name: str, documents: dict[str, Document], empty: Empty) -> dict[str, Document]:
    """Refuse, drop or keep the documents without text."""
    bare = [tool for tool, document in documents.items() if is_empty(document)]
    if not bare:
        return documents
    found = f"{name}: {len(bare):,} of {len(documents):,} documents are empty, such as {bare[:3]}"
    if empty == "refuse":
        raise ValueError(
            f"{found}; empty='drop' leaves them out, empty='keep' takes the id as the text"
        )
    if empty == "drop":
        rest = {tool: one for tool, one in documents.items() if not is_empty(one)}
        if not rest:
            raise ValueError(f"{found}: no tool is left")
        return rest
    warnings.warn(
        f"{found}: their ids are their texts; empty='drop' leaves them out, empty='refuse' stops",
        stacklevel=2,
    )
    return {tool: tool if is_empty(one) else one for tool, one in documents.items()}


def _check_queries(
    queries: Iterable[Query], known: dict[str, int], *, drop: bool, none_right: bool
) -> list[Query]:
    checked: dict[str, Query] = {}
    for query in queries:
        if not query.id:
            raise ValueError(f"a query has no id; its text: {query.text!r:.80}")
        if not isinstance(query.id, str):
            raise ValueError(f"the id of a query must be a string, got {query.id!r:.60}")
        if query.id in checked:
            raise ValueError(f"two queries have the id {query.id!r}; ids must differ")
        if not query.text.strip():
            raise ValueError(f"the text of query {query.id!r} is empty")
        if not (query.labels or none_right):
            raise ValueError(f"query {query.id!r} has no labels; leave it out or label it")
        named = dict.fromkeys((*query.labels, *(label for _, label in query.steps)))
        if unknown := [label for label in named if label not in known]:
            if not drop:
                raise ValueError(
                    f"labels of query {query.id!r} name unknown tools {unknown}; "
                    f"known: {len(known):,} tools such as {list(known)[:3]}; "
                    "unknown='drop' leaves such labels out"
                )
            query = query._replace(
                labels=tuple(label for label in query.labels if label in known),
                steps=tuple(step for step in query.steps if step[1] in known),
            )
            if not query.labels:
                continue
        checked[query.id] = query
    return list(checked.values())


def _merge_queries(queries: list[Query]) -> list[Query]:
    merged: dict[Hashable, Query] = {}
    for query in queries:
        group = query.text if query.group is None else query.group
        key = query.text, group, query.steps, PART_NAMES.get(query.split or "")
        first = merged.setdefault(key, query._replace(group=group))
        labels = tuple(dict.fromkeys(first.labels + query.labels))
        merged[key] = first._replace(labels=labels)
    return list(merged.values())
