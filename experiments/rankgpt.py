"""Does a language model's order beat the first stage's?                 (RankGPT; Sun et al. 2023)

    uv run python -m experiments.local_llm start
    OPENAI_API_KEY=local uv run python -m experiments.rankgpt \\
        llm.base_url=http://127.0.0.1:8077/v1 llm.model=qwen2.5-coder-1.5b-instruct-q4 \\
        llm.timeout=600 llm.concurrency=4
    ... dataset=ultratool dataset.path=FILE document=orag_ultratool queries=100

A language model orders the first stage's candidates, in windows that slide from the end of the list
to its start:

    first/..        the first stage's nDCG@k, recall@k and success of its first tool, per query
    rankgpt/..      the same for the language model's order
    gain/..         the difference, query by query
    answers/..      share of answers that are a permutation (whole), that lack passages, repeat
                    some, invent identifiers; of windows without a valid answer (lost); and of
                    answers that do not change the order (same)
    seconds         per question, with llm.concurrency questions at a time

Answers are stored: an interrupted run resumes without asking a question twice.
"""

import time

import numpy as np
from omegaconf import DictConfig

from experiments.common import asking
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.data.split import own_split
from jaxret.data.templates import template
from jaxret.evaluation import metrics
from jaxret.retrieval import rankgpt
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.retriever import search
from jaxret.runtime.validate import require
from jaxret.task import Task

MEASURED = ("ndcg@{k}", "recall@{k}", "recall@1")


@experiment("rankgpt")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Ask the model, and compare the two orders."""
    chat, task = asking.chat(cfg), sample_queries(cfg, task_of(cfg))
    assert task.dataset is not None
    assert task.texts is not None
    retriever = inner_product("first stage", task.theta)
    first = search(retriever, task.queries, cfg.candidates).items
    read = template(cfg.passage)
    passages = [read(document) for document in task.dataset.documents]
    began = time.perf_counter()
    found = rankgpt.rank(
        chat,
        task.texts,
        [[passages[i] for i in items] for items in first],
        words=cfg.words,
        size=cfg.size,
        step=cfg.step,
        prompt=asking.prompt(cfg, "rankgpt", rankgpt.PROMPT),
        before=lambda: run.pause(chat.counts["asked"] + chat.counts["cached"]),
    )
    seconds = time.perf_counter() - began
    print("language model:", dict(chat.counts), flush=True)
    last = np.take_along_axis(first, found.orders, axis=1)
    before, after = (measured(items, task.labels, cfg.k) for items in (first, last))
    results = {f"first/{name}": x for name, x in before.items()}
    results |= {f"rankgpt/{name}": x for name, x in after.items()}
    results |= {f"gain/{name}": after[name] - x for name, x in before.items()}
    results |= {f"answers/{name}": x for name, x in quality(found).items()}
    if chat.counts["asked"]:
        results["seconds"] = np.array([seconds / chat.counts["asked"]])
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check the numbers."""
    for name in ("queries", "words"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("candidates", cfg.candidates, ">= 2", lambda x: x >= 2)
    require("k", cfg.k, f"at most {cfg.candidates}, the candidates", lambda x: x <= cfg.candidates)
    rankgpt.windows(cfg.candidates, size=cfg.size, step=cfg.step)
    template(cfg.passage)
    asking.prompt(cfg, "rankgpt", rankgpt.PROMPT)
    asking.chat(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the quality of both orders, and statistics of the answers."""
    columns = [name.format(k=cfg.k) for name in MEASURED]
    title = f"{cfg.dataset.name}, {cfg.candidates} candidates"
    results_table(results, ["first", "rankgpt", "gain"], columns, title)
    names = [name for name in results if name.startswith("answers/") or name == "seconds"]
    print(", ".join(f"{name} {results[name]['mean']:.3f}" for name in names))


def sample_queries(cfg: DictConfig, task: Task) -> Task:
    """Draw a number of queries of the test part."""
    assert task.dataset is not None
    test = own_split(task.dataset, **plain(cfg.split)).test
    rows = np.random.default_rng(cfg.seed).permutation(test)[: cfg.queries]
    return task.select(np.sort(rows))


def measured(items: np.ndarray, labels: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Measure lists, one value per query."""
    found = metrics.evaluate_ranking(items, labels, sorted({1, k}))
    names = [name.format(k=k) for name in MEASURED]
    return {name: np.asarray(found[name], np.float64) for name in dict.fromkeys(names)}


def quality(found: rankgpt.Ranked) -> dict[str, np.ndarray]:
    """Measure the validity of answers.

    Returns:
      name -> 0 or 1, one value per question.
    """
    answers = [answer for window in found.answers for answer in window]
    valid = [answer for answer in answers if answer is not None]
    rows = {
        "whole": [x.whole for x in valid],
        "lacking": [x.named < len(x.positions) for x in valid],
        "repeated": [x.repeated > 0 for x in valid],
        "invented": [x.invented > 0 for x in valid],
        "same": [x.positions == list(range(len(x.positions))) for x in valid],
        "lost": [x is None for x in answers],
    }
    return {name: np.array(row, np.float64) for name, row in rows.items() if row}


if __name__ == "__main__":
    main.cli()
