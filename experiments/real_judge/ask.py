"""Asks a language model whether a tool does what the user wants, for every pair.

    uv run python -m experiments.local_llm start
    OPENAI_API_KEY=local uv run python -m experiments.real_judge.ask llm.base_url=http://127.0.0.1:8077/v1

Each answer is one token, of which P(yes) / (P(yes) + P(no)) is stored. The tool's text comes first
in a question and questions are ordered by tool, so that a server with a prompt cache reads little
more than the query. The table is written incrementally and no pair is asked twice; ``minutes=30``
asks for half an hour.

DeskBank's four domains have 27,648 pairs; two of them, 6,912, are in the repository. 2 cores: 0.33
s per pair with two slots of a server compiled for the processor, up to 0.6 s beside other work.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from omegaconf import DictConfig

from experiments.common import asking
from experiments.common.experiment import command
from experiments.common.loading import read_dataset
from experiments.real_judge import table as tables
from experiments.real_judge.table import TABLE, JudgeTable
from jaxret.data.dataset import Dataset
from jaxret.data.templates import template
from jaxret.llm import Chat, Messages, OutOfReach, load_prompt
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

PROMPT = load_prompt(Path(__file__).with_name("judge.txt"), ("tool", "query"))
WORDS = ("yes", "no")


@command("real_judge_ask")
def main(cfg: DictConfig) -> JudgeTable:
    """Ask about the missing pairs; return the table so far."""
    require("minutes", cfg.minutes, "> 0 or null", lambda x: x is None or x > 0)
    require("batch", cfg.batch, ">= 1", lambda x: x >= 1)
    dataset = read_dataset(cfg)
    path = TABLE if cfg.table is None else Path(cfg.table)
    tools, queries = chosen(dataset, cfg.domains)
    table = begun(path, cfg.llm.model, list(tools), list(queries))
    chat = asking.chat(cfg)
    texts = pairs(dataset, template(cfg.document), table)
    later = np.maximum.outer(list(queries.values()), list(tools.values()))
    return fill(table, later, texts, chat, path, batch=cfg.batch, minutes=cfg.minutes)


def chosen(dataset: Dataset, domains: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Select the tools of some domains, and the queries whose only label is among them.

    Returns:
      id -> position of its domain, for tools and for queries.
    """
    found = [document.get("domain") for document in dataset.documents if isinstance(document, dict)]
    for domain in domains:
        known = ", ".join(dict.fromkeys(map(str, found)))
        require("domains", domain, f"some of {known}", found.__contains__)
    one = (dataset.labels >= 0).sum(axis=1) == 1
    tools, queries = {}, {}
    for place, domain in enumerate(domains):
        rows = [row for row, name in enumerate(found) if name == domain]
        tools |= {dataset.tool_ids[row]: place for row in rows}
        answered = np.flatnonzero(one & np.isin(dataset.labels[:, 0], rows))
        queries |= {dataset.query_ids[row]: place for row in answered}
    return tools, queries


def begun(path: Path, model: str, tools: list[str], queries: list[str]) -> JudgeTable:
    """Read the table of an earlier call, or make an empty one."""
    words = "\n".join(text.template for _, text in PROMPT.parts)
    judge = {"model": model, "prompt": hashlib.sha256(words.encode()).hexdigest()[:16]}
    fresh = tables.empty(judge, tools, queries)
    if not path.exists():
        return fresh
    table = tables.load(path)
    for name in ("judge", "tools", "queries"):
        if getattr(table, name) != getattr(fresh, name):
            differ = f"{path} has answers to other questions ({name} differ)"
            raise ValueError(f"{differ}: move it away")
    return table


def pairs(
    dataset: Dataset, text_of: Callable[..., str], table: JudgeTable
) -> Callable[[int, int], Messages]:
    """Build the questions: (query, tool), as positions in the table -> question."""
    documents = dict(zip(dataset.tool_ids, dataset.documents, strict=True))
    texts = dict(zip(dataset.query_ids, dataset.queries, strict=True))
    tools = [text_of(documents[tool]) for tool in table.tools]
    queries = [texts[query] for query in table.queries]
    return lambda n, i: PROMPT.messages(tool=tools[i], query=queries[n])


def fill(
    table: JudgeTable,
    later: Int[np.ndarray, "N I"],
    question: Callable[[int, int], Messages],
    chat: Chat,
    path: Path,
    *,
    batch: int,
    minutes: float | None,
) -> JudgeTable:
    """Ask in order, tool by tool; write the table after each batch."""
    end = None if minutes is None else time.monotonic() + 60 * minutes
    yes = table.yes.copy()
    unasked = np.argwhere(np.isnan(yes)).tolist()
    todo = sorted(((n, i) for n, i in unasked), key=lambda pair: (later[pair], pair[1], pair[0]))
    done = yes.size - len(todo)
    with Progress(total=yes.size, initial=done, desc="pairs", unit="pair") as bar:
        for start in range(0, len(todo), batch):
            if end is not None and time.monotonic() > end:
                break
            some = todo[start : start + batch]
            weights = chat.weigh_all([question(*pair) for pair in some], WORDS, progress=False)
            if not any(weights):
                raise OutOfReach(
                    f"none of {len(some)} questions in a row has an answer; {path} has "
                    f"{np.isfinite(yes).sum():,} of {yes.size:,} pairs: the same command continues"
                )
            for pair, found in zip(some, weights, strict=True):
                if found is not None:
                    yes[pair] = found["yes"] / (found["yes"] + found["no"])
            table = table._replace(yes=yes)
            table.save(path)
            bar.update(len(some))
    print(f"{path}: {np.isfinite(yes).sum():,} of {yes.size:,} pairs; {dict(chat.counts)}")
    return table


if __name__ == "__main__":
    main.cli()
