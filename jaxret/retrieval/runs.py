"""Run files: rankings on disk, in the format that trec_eval and other frameworks read.

    q17 Q0 weather.forecast 1 0.8214906 dense          query, Q0, tool, rank from 1, score, tag

A first stage can be searched once and reranked from its file, or come from another framework.
Scores are written with the digits that restore the same float32. Columns are separated by white
space; white space in an id (``GET /tv/popular``) is written as ``%20``.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np

from jaxret.retrieval.ranking import Ranking
from jaxret.runtime import distributed
from jaxret.runtime.files import existing, write_whole
from jaxret.runtime.validate import real_numbers, require, require_one_of, whole_numbers


def save_run(
    path: str | Path,
    ranking: Ranking,
    query_ids: Sequence[str],
    tool_ids: Sequence[str],
    *,
    tag: str,
) -> None:
    """Write a run file atomically.

    Args:
      path: path of the file, which is replaced if it exists; its folder is made if needed.
      ranking: ranking of N queries.
      query_ids: the ids of the N queries.
      tool_ids: the ids of the I tools.
      tag: the name of the run, without white space.

    Raises:
      ValueError: for a query without items, with an item twice, with a score that is not finite or
        above that of a better rank, for another number of queries than N, and for ids that are
        empty or would be written the same.
    """
    queries, tools = list(_words(query_ids)), list(_words(tool_ids))
    items = whole_numbers("the items of the ranking [N, k]", ranking.items, 2)
    scores = real_numbers("the scores of the ranking [N, k]", ranking.scores, 2)
    require("the shape of the scores", scores.shape, f"{items.shape}", lambda x: x == items.shape)
    ranking = Ranking(items=items, scores=scores)
    if len(queries) != len(ranking.items):
        raise ValueError(f"there are {len(queries)} query ids and {len(ranking.items)} rankings")
    if ranking.items.max(initial=-1) >= len(tools):
        raise ValueError(f"item {ranking.items.max()} is none of the {len(tools)} tool ids")
    if ranking.items.min(initial=-1) < -1:
        raise ValueError(f"items must be positions in the tool ids, -1 pads, got {items.min()}")
    if not isinstance(tag, str) or len(tag.split()) != 1:
        raise ValueError(f"tag must be one word, got {tag!r}")
    lines = []
    for query, items, scores in zip(queries, ranking.items, ranking.scores, strict=True):
        real = items >= 0
        if not real.any() or not np.isfinite(scores[real]).all():
            raise ValueError(f"query {query!r} has no items, or a score that is not finite")
        if len(np.unique(items[real])) < real.sum() or (np.diff(scores[real]) > 0).any():
            raise ValueError(f"query {query!r} has an item twice, or a score above a better rank's")
        ranked = zip(items[real].tolist(), scores[real].astype(np.float32), strict=True)
        lines += [
            f"{query} Q0 {tools[item]} {rank} {score!s} {tag}\n"
            for rank, (item, score) in enumerate(ranked, start=1)
        ]
    if distributed.leads():
        write_whole(Path(path), "".join(lines))


def load_run(
    path: str | Path,
    query_ids: Sequence[str],
    tool_ids: Sequence[str],
    *,
    missing: Literal["refuse", "zero", "drop"] = "refuse",
) -> Ranking:
    """Read a run file for the queries and tools of a data set.

    Systems that find nothing for a query write no line for it. trec_eval leaves such a query out of
    the mean, unless it is called with ``-c``, which counts it as 0.

    Args:
      path: path of the file.
      query_ids: the ids of the N queries.
      tool_ids: the ids of the I tools.
      missing: how to treat queries that the file lacks. ``zero`` gives them empty lists, which
        count as 0. ``drop`` leaves out their rows, so that the ranking fits ``task.select(rows)``,
        where ``rows = read.items[:, 0] >= 0`` if ``read`` is the run read with ``zero``. Both warn,
        naming some of the queries. ``refuse`` is an error.

    Returns:
      the ranking [N, k], items in the order of their ranks; k is the length of the longest list,
      and shorter lists are padded with -1. With ``drop`` N counts the queries of the file.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: with file and line, for a line without six columns, an unknown query or tool, a
        rank that is not a whole number, a score that is not finite, and a tool or rank that a query
        has twice. With file and id, for queries that the file lacks, and for a query with a score
        above that of a better rank. Also for a file without lines, ids that are not distinct
        strings, and an unknown ``missing``.
    """
    require_one_of("missing", missing, ("refuse", "zero", "drop"))
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
    if not seen:
        raise ValueError(f"{path} ranks no query: a run file has a line per query and tool")
    if lacking := [name for name, ranked in zip(query_ids, lists, strict=True) if not ranked]:
        lacks = f"{path} lacks {len(lacking)} of {len(lists)} queries, as {lacking[:5]}"
        if missing == "refuse":
            raise ValueError(
                f"{lacks}: missing='zero' counts them as 0, missing='drop' leaves them out"
            )
        done = "they have empty lists" if missing == "zero" else "their rows are left out"
        warnings.warn(f"{lacks}: {done}", stacklevel=2)
    if missing == "drop":
        query_ids = [name for name, ranked in zip(query_ids, lists, strict=True) if ranked]
        lists = [ranked for ranked in lists if ranked]
    longest = max(map(len, lists))
    items = np.full((len(lists), longest), -1, np.int32)
    scores = np.full(items.shape, -np.inf, np.float32)
    for row, ranked in enumerate(lists):
        for place, rank in enumerate(sorted(ranked)):
            items[row, place], scores[row, place] = ranked[rank]
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
    if isinstance(ids, str):
        raise ValueError(f"ids must be a list of strings, got the single string {ids!r}")
    for name in ids:
        if not isinstance(name, str) or not name:
            raise ValueError(f"ids in a run file must be strings that are not empty, got {name!r}")
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
