"""Run files: rankings on disk, in the format that trec_eval and other frameworks read.

    q17 Q0 weather.forecast 1 0.8214906 dense          query, Q0, tool, rank from 1, score, tag

A first stage can be searched once and reranked from its file, or come from another framework.
Scores are written with the digits that restore the same float32. Columns are separated by white
space; white space in an id (``GET /tv/popular``) is written as ``%20``.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import numpy as np

from jaxret.retrieval.ranking import Ranking
from jaxret.runtime import distributed
from jaxret.runtime.files import existing


def save_run(
    path: Path, ranking: Ranking, query_ids: Sequence[str], tool_ids: Sequence[str], *, tag: str
) -> None:
    """Write a run file atomically.

    Args:
      path: path of the file, which is replaced if it exists; its folder is made if needed.
      ranking: ranking of N queries.
      query_ids: the ids of the N queries.
      tool_ids: the ids of the I tools.
      tag: the name of the run, without white space.

    Raises:
      ValueError: for a query without items or with a score that is not finite, for another number
        of queries than N, and for ids that would be written the same.
    """
    queries, tools = list(_words(query_ids)), list(_words(tool_ids))
    if len(queries) != len(ranking.items):
        raise ValueError(f"there are {len(queries)} query ids and {len(ranking.items)} rankings")
    if ranking.items.max(initial=-1) >= len(tools):
        raise ValueError(f"item {ranking.items.max()} is none of the {len(tools)} tool ids")
    if len(tag.split()) != 1:
        raise ValueError(f"tag must be one word, got {tag!r}")
    lines = []
    for query, items, scores in zip(queries, ranking.items, ranking.scores, strict=True):
        real = items >= 0
        if not real.any() or not np.isfinite(scores[real]).all():
            raise ValueError(f"query {query!r} has no items, or a score that is not finite")
        ranked = zip(items[real].tolist(), scores[real].astype(np.float32), strict=True)
        lines += [
            f"{query} Q0 {tools[item]} {rank} {score!s} {tag}\n"
            for rank, (item, score) in enumerate(ranked, start=1)
        ]
    if not distributed.leads():
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    part.write_text("".join(lines), encoding="utf-8")
    os.replace(part, path)


def load_run(path: Path, query_ids: Sequence[str], tool_ids: Sequence[str]) -> Ranking:
    """Read a run file for the queries and tools of a data set.

    Args:
      path: path of the file.
      query_ids: the ids of the N queries.
      tool_ids: the ids of the I tools.

    Returns:
      the ranking [N, k], items in the order of their ranks; k is the length of the longest list,
      and shorter lists are padded with -1.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: by file and line, for a line without six columns, an unknown query or tool, a rank
        that is no whole number, a score that is not finite, and a tool or rank that a query has
        twice. By file and id, for queries that the file lacks, and for a query with a score above
        that of a better rank.
    """
    queries, tools = _words(query_ids), _words(tool_ids)
    lists: list[dict[int, tuple[int, float]]] = [{} for _ in query_ids]  # by rank
    seen = set()
    with existing(Path(path), "a run file").open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                query, tool, rank, score = _parse(line, queries, tools)
                if (query, tool) in seen or rank in lists[query]:
                    raise ValueError("its query has had this tool or this rank before")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}: {line.strip()!r}") from error
            seen.add((query, tool))
            lists[query][rank] = (tool, score)
    if missing := [name for name, ranked in zip(query_ids, lists, strict=True) if not ranked]:
        raise ValueError(f"{path} lacks {len(missing)} of {len(lists)} queries, as {missing[:5]}")
    longest = max((len(ranked) for ranked in lists), default=0)
    items = np.full((len(lists), longest), -1, np.int32)
    scores = np.full(items.shape, -np.inf, np.float32)
    for row, ranked in enumerate(lists):
        ordered = [ranked[rank] for rank in sorted(ranked)]
        items[row, : len(ranked)], scores[row, : len(ranked)] = zip(*ordered, strict=True)
    rises = (scores[:, 1:] > scores[:, :-1]).any(axis=1)
    if rises.any():
        name = query_ids[int(rises.argmax())]
        raise ValueError(f"{path}: query {name!r} has a score above that of a better rank")
    return Ranking(items=items, scores=scores)


def word(text: str) -> str:
    """Return an id as run files write it; qrels for trec_eval must write the same."""
    return re.sub(r"\s", lambda space: quote(space[0]), text)


def _words(ids: Sequence[str]) -> dict[str, int]:
    """Map each id, as written in run files, to its position."""
    words = [word(name) for name in ids]
    if repeated := [name for name, count in Counter(words).items() if count > 1]:
        raise ValueError(f"ids must differ in a run file, but {repeated[:5]} occur more than once")
    return {name: position for position, name in enumerate(words)}


def _parse(line, queries, tools) -> tuple[int, int, int, float]:
    columns = line.split()
    if len(columns) != 6:
        raise ValueError(f"expected 6 columns, query Q0 tool rank score tag, got {len(columns)}")
    query, _, tool, rank, score, _ = columns
    if query not in queries:
        raise ValueError(f"unknown query {query!r}")
    if tool not in tools:
        raise ValueError(f"unknown tool {tool!r}")
    if not rank.isdecimal():
        raise ValueError(f"rank must be a whole number, got {rank!r}")
    if not math.isfinite(value := float(score)):
        raise ValueError(f"score must be finite, got {score!r}")
    return queries[query], tools[tool], int(rank), value
