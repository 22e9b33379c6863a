"""Queries for a catalogue, iteration by iteration: ask, check, polish, leave out what is near.

    tools, examples = descriptions(documents), seed_examples("numpy")
    for done in generate(writers, tools, Settings(), examples, folder):
        print(len(done.accepted), done.failures)

An iteration asks a batch of questions at a time. Its examples come from the queries that earlier
iterations accepted, never from its own: so all its questions are known when it begins, they follow
from the seed and from the files of the iterations before, and a run that was killed asks them
again word for word and finds the answers in the cache. A finished iteration is a file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxret.generation.checked_answers import ask_checked
from jaxret.generation.near_duplicates import NearDuplicates
from jaxret.generation.questions import (
    POLISH_SCHEMA,
    Draft,
    polish_question,
    read_draft,
    read_polished,
    write_question,
    write_schema,
)
from jaxret.generation.sample import draw_examples, draw_tools, generator
from jaxret.llm import Messages, Stage
from jaxret.runtime.files import write_whole
from jaxret.runtime.validate import require


class Settings(NamedTuple):
    """How queries are made; the paper's values where it has them (C.3)."""

    iterations: int = 10
    batch: int = 30  # questions an iteration
    offered: int = 10  # T, tools a question
    fewest: int = 2  # M, functions a query
    most: int = 5
    examples: int = 5  # a question
    coverage: float = 0.0  # of `draw_tools`
    near: float = 0.6  # of `NearDuplicates`
    attempts: int = 3  # at an answer that passes the checks
    seed: int = 0


class Writers(NamedTuple):
    """The models; the cache of their chats is what lets a killed iteration resume."""

    write: Stage
    polish: Stage | None  # None leaves queries as they are written


class Accepted(NamedTuple):
    """A query that stays."""

    query: str
    draft: Draft  # before it was polished
    iteration: int
    slot: int  # of its question, in the iteration


class Iteration(NamedTuple):
    """What one batch gave."""

    number: int
    accepted: list[Accepted]
    failures: Counter[str]  # write/kind, polish/kind (`Answers`) and near, for near-duplicates
    tokens: Counter[str]  # write/prompt, write/completion, and so on: of all answers that were used


def generate(
    writers: Writers,
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    folder: Path,
) -> Iterator[Iteration]:
    """Yields every iteration: those that are finished from their files, the others as they end.

    Args:
      writers: who is asked.
      tools: I descriptions by id (`descriptions`).
      settings: how.
      examples: the pool in the first iteration.
      folder: of the iterations; one of a run with the same tools and settings, or an empty one.

    Raises:
      ValueError: a setting is out of range, or a file of an iteration is damaged.
      OutOfReach: an endpoint does not answer.
    """
    check_settings(settings, len(tools))
    before: list[Iteration] = []
    near = NearDuplicates(settings.near)
    for number in range(settings.iterations):
        path = folder / f"{number:05d}.json"
        if path.exists():
            done = _read(path)
        else:
            done = _iterate(writers, tools, settings, examples, before, near)
            _write(path, done)
        before.append(done)
        for one in done.accepted:
            near.add(one.query)
        yield done


def check_settings(settings: Settings, tools: int) -> None:
    """Raises ValueError where a setting is out of range for so many tools."""
    for name in ("iterations", "batch", "fewest", "attempts"):
        require(name, getattr(settings, name), ">= 1", lambda x: x >= 1)
    for name in ("examples", "coverage", "seed"):
        require(name, getattr(settings, name), ">= 0", lambda x: x >= 0)
    fewest, most, offered = settings.fewest, settings.most, settings.offered
    require("offered", offered, f"in [1, {tools}], the tools", lambda x: 1 <= x <= tools)
    require("most", most, f"in [{fewest}, {offered}]", lambda x: fewest <= x <= offered)
    NearDuplicates(settings.near)


def batch_questions(
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    before: Sequence[Iteration],
) -> list[tuple[list[str], Messages]]:
    """(ids of the tools on offer, messages) of each question of the iteration after ``before``."""
    accepted = [one for done in before for one in done.accepted]
    pool = [*examples, *(one.draft._replace(instruction=one.query) for one in accepted)]
    names = list(tools)
    used = Counter(tool for one in accepted for tool in one.draft.functions)
    counts = np.array([used[name] for name in names])
    asked = []
    for slot in range(settings.batch):
        random = generator(settings.seed, len(before), slot)
        rows = draw_tools(random, counts, settings.offered, coverage=settings.coverage)
        offered = [names[row] for row in rows]
        messages = write_question(
            {name: tools[name] for name in offered},
            draw_examples(random, pool, settings.examples),
            fewest=settings.fewest,
            most=settings.most,
        )
        asked.append((offered, messages))
    return asked


def _iterate(
    writers: Writers,
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    before: Sequence[Iteration],
    near: NearDuplicates,
) -> Iteration:
    number, spent = len(before), _tokens(writers)
    asked = batch_questions(tools, settings, examples, before)
    bounds = {"fewest": settings.fewest, "most": settings.most}
    drafts = ask_checked(
        writers.write,
        [messages for _, messages in asked],
        [
            partial(read_draft, offered=offered, known=tools.keys(), **bounds)
            for offered, _ in asked
        ],
        attempts=settings.attempts,
        title=f"iteration {number}: write",
        schemas=[write_schema(offered, **bounds) for offered, _ in asked],
    )
    failures = _under("write", drafts.failures)
    kept = [(slot, draft) for slot, draft in enumerate(drafts.values) if draft is not None]
    texts = [draft.instruction for _, draft in kept]
    if writers.polish is not None and kept:
        polished = ask_checked(
            writers.polish,
            [polish_question(draft) for _, draft in kept],
            [partial(read_polished, functions=draft.functions) for _, draft in kept],
            attempts=settings.attempts,
            title=f"iteration {number}: polish",
            schemas=[POLISH_SCHEMA] * len(kept),
        )
        failures += _under("polish", polished.failures)
        texts = [new or old for new, old in zip(polished.values, texts, strict=True)]
    accepted, fresh = [], NearDuplicates(settings.near)
    for (slot, draft), text in zip(kept, texts, strict=True):
        if near.find(text) or fresh.find(text):
            failures["near"] += 1
            continue
        fresh.add(text)
        accepted.append(Accepted(query=text, draft=draft, iteration=number, slot=slot))
    tokens = _tokens(writers) - spent
    return Iteration(number=number, accepted=accepted, failures=failures, tokens=tokens)


def _under(stage: str, counts: Counter[str]) -> Counter[str]:
    return Counter({f"{stage}/{kind}": n for kind, n in counts.items()})


def _tokens(writers: Writers) -> Counter[str]:
    """Those of answers from the cache too: they were paid for once."""
    tokens: Counter[str] = Counter()
    for name, stage in writers._asdict().items():
        for side in ("prompt", "completion"):
            counts = stage.chat.counts if stage is not None else {}
            for key in (f"{side}_tokens", f"cached_{side}_tokens"):
                tokens[f"{name}/{side}"] += counts.get(key, 0)
    return tokens


def _read(path: Path) -> Iteration:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        accepted = [
            Accepted(
                query=row["query"],
                draft=Draft(row["instruction"], tuple(row["functions"]), row["explanation"]),
                iteration=content["number"],
                slot=row["slot"],
            )
            for row in content["accepted"]
        ]
        failures, tokens = Counter(content["failures"]), Counter(content["tokens"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: delete it, and it is made again") from error
    return Iteration(number=content["number"], accepted=accepted, failures=failures, tokens=tokens)


def _write(path: Path, done: Iteration) -> None:
    rows = [{"query": one.query, "slot": one.slot} | one.draft._asdict() for one in done.accepted]
    counts = {"failures": dict(done.failures), "tokens": dict(done.tokens)}
    content = {"number": done.number, "accepted": rows} | counts
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1))
