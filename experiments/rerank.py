"""The gain of a reranker, and the cost of the paper's weight  (ORAG Algorithm 2, Figures 4, 12)

    uv run python -m experiments.rerank dataset.path=FOLDER                               # ToolLens
    uv run python -m experiments.rerank dataset.path=FOLDER rerankers=[rankgpt] seeds=1 \\
        llm.base_url=http://localhost:11434/v1 llm.model=qwen3:8b

Ten tools are drawn, a reranker picks one, and its success is the reward. Test queries are streamed,
starting from the documents' embeddings; rerankers were trained on the labels of the training part,
which learners do not use:

    none            the first item is used, as in Algorithm 1
    simulated       recognises a right tool on the slate in four of five cases (Hydra: accuracy)
    refiner_...     ToolRefiner, all ten in one pass
    cross_encoder   every pair in a separate pass
    tool_rank       likewise, by a language model's probability of true
    rankgpt         a language model, listwise, behind an OpenAI-compatible endpoint

``reranked`` divides by the probability with which the item was on the slate given the others' noise
(Kool et al. 2019), ``reranked_paper`` by the model's p as the paper does. Settings are
chosen on the validation part with the simulated reranker.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common import asking
from experiments.common.config import learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import accuracy_figure
from experiments.common.learners import chosen
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import ranking_metrics
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from experiments.retrieval.recipes import RERANKERS, config_of
from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.llm import Chat, Prompt
from jaxret.retrieval import rankgpt
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.types import Selector

COLUMNS = ("online/accuracy", "online/last", "final/recall@{k}", "final/ndcg@{k}")
UNTRAINED = ("none", "simulated", "rankgpt")
PAIRS = 8  # pairs scored together: two CPU cores are fastest with some 500 to 1,000 tokens


@experiment("rerank")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every learner with every reranker; write curves and the figure."""
    chat = chat_of(cfg)
    bench = Bench(cfg, run)
    task, seeds = bench.task, range(cfg.seed, cfg.seed + cfg.seeds)
    parts, metrics = bench.masks, ranking_metrics(cfg.k)
    simulated = Environment(reranker=simulated_reranker(accuracy=cfg.accuracy))
    results: dict[str, np.ndarray] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    picks = {name: selector_of(bench, name, cfg, chat) for name in cfg.rerankers}

    def choose(grid):
        """Choose a setting on the validation part, with the simulated reranker."""
        stream: dict[str, Any] = {"environment": simulated, "seeds": seeds[:1], "chunk": cfg.chunk}
        stream |= {"part": parts.validation, "resume": run.resume(f"{grid.name}-choice")}
        best = chosen(grid, task, on=parts.validation, metric=f"ndcg@{cfg.k}", **stream)
        return {"setting": best.settings[0]}

    def stream(grid, setting, name):
        """Stream the test queries with a reranker."""
        ran = jr.simulate(
            grid._replace(settings=np.tile(setting, (cfg.seeds, 1))),
            task,
            part=parts.heldout,
            exposures=cfg.exposures,
            seeds=seeds,
            environment=simulated if name == "simulated" else Environment(),
            select=picks[name],
            chunk=cfg.chunk,
            resume=run.resume(f"{grid.name}-{name}"),
        )
        ranked = jr.evaluate(ran, task, metrics, part=parts.heldout)
        found: dict[str, Any] = {f"final/{metric}": x.values for metric, x in ranked.items()}
        return found | {key: getattr(ran.trace, key) for key in ("success", "item", "propensity")}

    for grid in learner_grids(cfg):
        setting = run.result(f"{grid.name}-choice", partial(choose, grid))["setting"]
        for name in cfg.rerankers:
            found = run.result(f"{grid.name}-{name}", partial(stream, grid, setting, name))
            success = found.pop("success")
            del found["item"], found["propensity"]  # stored in the step
            results |= measured(f"{grid.name}/{name}", success, found)
            curves[f"{grid.name}, {name}"] = {"success": success}
            print(f"{grid.name}, {name}: {success.mean():.3f} at {grid.label(setting)}")
    run.save_curves(curves)
    accuracy_figure(run, curves)
    if chat is not None:
        print("language model:", dict(chat.counts))
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners and rerankers."""
    learner_grids(cfg)
    known = [*UNTRAINED, *(n for n, r in cfg.recipes.items() if r.model in RERANKERS)]
    if unknown := [name for name in cfg.rerankers if name not in known]:
        raise ValueError(f"rerankers: unknown {unknown}; known: {', '.join(known)}")
    for name in (one for one in cfg.rerankers if one in cfg.recipes):
        config_of(name, plain(cfg.recipes)[name])
        methods.check_below(plain(cfg.recipes), name)
    asking.prompt(cfg, "rankgpt", rankgpt.PROMPT)
    chat_of(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per learner and reranker."""
    rows = [f"{learner}/{name}" for learner in cfg.learners for name in cfg.rerankers]
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    results_table(results, rows, columns, cfg.dataset.name)


def chat_of(cfg: DictConfig) -> Chat | None:
    """Connect to the language model, if one is used."""
    if "rankgpt" not in cfg.rerankers:
        return None
    return asking.chat(cfg)


def selector_of(bench: Bench, name: str, cfg: DictConfig, chat: Chat | None) -> Selector | None:
    """Make the selector of a reranker; None if the environment picks."""
    texts, documents = bench.task.texts or (), bench.task.documents or ()
    if chat is not None and name == "rankgpt":
        prompt = asking.prompt(cfg, "rankgpt", rankgpt.PROMPT)
        return by_language_model(chat, texts, documents, prompt=prompt)
    if name in UNTRAINED:
        return None
    trained = methods.reranker(bench, name, cfg.seed)
    if bench.recipes[name]["model"] == "refiner":
        return listwise(trained, texts)
    return pairwise(trained, texts, len(documents))


def listwise(reranker: Reranker, texts: Sequence[str]) -> Selector:
    """Make a selector of a reranker whose scores depend on the whole slate, such as ToolRefiner."""

    def select(queries, items):
        first = Ranking(items=items, scores=np.zeros(items.shape, np.float32))
        found = refine(reranker, [texts[query] for query in queries], first, progress=False)
        return (items == found.items[:, :1]).argmax(axis=1)

    return select


def pairwise(reranker: Reranker, texts: Sequence[str], items: int) -> Selector:
    """Make a selector of a reranker that scores each pair separately; each pair is scored once.

    Args:
      reranker: scores the items shown.
      texts: the N queries.
      items: the number of items, I.

    Returns:
      the selector, which keeps a table of scores [N, I].
    """
    features = jax.tree.map(jnp.asarray, reranker.read(texts))
    score = jax.jit(reranker.score)
    known = np.full((len(texts), items), np.nan, np.float32)

    def select(queries, items):
        wanted = np.broadcast_to(queries[:, None], items.shape)
        new = np.isnan(known[wanted, items])
        pairs = np.unique(np.stack([wanted[new], items[new]], axis=1), axis=0)
        for start in range(0, len(pairs), PAIRS):
            some = pairs[start : start + PAIRS]
            rows, tools = np.pad(some, ((0, PAIRS - len(some)), (0, 0)), mode="edge").T
            query = jax.tree.map(lambda x, rows=rows: x[rows], features)
            scores = score(reranker.params, query, tools[:, None])
            known[rows, tools] = np.asarray(scores)[:, 0]
        return known[wanted, items].argmax(axis=1)

    return select


def by_language_model(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    prompt: Prompt = rankgpt.PROMPT,
) -> Selector:
    """Make a selector of RankGPT: the first of its order, or of the slate without a valid answer.

    Args:
      chat: the language model.
      texts: the N queries.
      documents: the I documents.
      prompt: the text of the questions.
    """

    def select(queries, items):
        questions = [
            rankgpt.question(texts[query], [documents[i] for i in slate], prompt=prompt)
            for query, slate in zip(queries, items, strict=True)
        ]
        parse = partial(rankgpt.read_order, n=items.shape[1])
        orders = chat.ask_all(questions, parse, progress=False)
        return np.array([0 if order is None else order.positions[0] for order in orders])

    return select


def measured(
    name: str, success: np.ndarray, ranked: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Name success over the stream and in its last quarter, and the final rankings."""
    last = success[:, -(success.shape[1] // 4) :]
    return {
        f"{name}/online/accuracy": success.mean(axis=1),
        f"{name}/online/last": last.mean(axis=1),
        **{f"{name}/{key}": values for key, values in ranked.items()},
    }


if __name__ == "__main__":
    main.cli()
