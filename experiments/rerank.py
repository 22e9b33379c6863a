"""What does a reranker buy, what does the paper's weight cost? (ORAG Algorithm 2, Figures 4, 12)

    uv run python -m experiments.rerank dataset.path=FOLDER                               # ToolLens
    uv run python -m experiments.rerank dataset.path=FOLDER rerankers=[rankgpt] seeds=1 \\
        llm.base_url=http://localhost:11434/v1 llm.model=qwen3:8b

Ten tools are drawn, a reranker picks one, its success is the bit. Test queries are streamed from
the documents' embeddings; rerankers were trained on the labels of the training part, which no
learner sees:

    none            the first item is used, as in Algorithm 1
    simulated       recognises a right tool on the slate in four of five cases (Hydra: accuracy)
    refiner_...     ToolRefiner, all ten in one pass
    cross_encoder   every pair in a pass of its own
    tool_rank       likewise, by a language model's word for true
    rankgpt         a language model, listwise, behind an OpenAI-compatible endpoint

``reranked`` divides by the probability with which the item was on the slate given the others' noise
(Kool et al. 2019), ``reranked_printed`` by the model's p as the paper prints it. Settings are
chosen on the validation part with the simulated reranker.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import hydra
import numpy as np
from omegaconf import DictConfig

from experiments.parts import choosers, learners, methods, show
from experiments.parts.bench import Bench
from experiments.parts.config import CONFIGS, plain
from experiments.parts.fit import cross_encoder, refiner, tool_rank
from experiments.parts.learners import Rival
from experiments.parts.player import Choose, Player
from experiments.parts.run import Run, open_run
from experiments.parts.tuning import METRICS, Ranker, orders, tune
from jaxret import encoders, tracking
from jaxret.llm import Chat, Endpoint
from jaxret.online.environment import Environment, simulated_reranker

COLUMNS = ("online/accuracy", "online/last", "final/recall@{k}", "final/ndcg@{k}")
UNTRAINED = ("none", "simulated", "rankgpt")


@hydra.main(config_path=CONFIGS, config_name="rerank", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Runs what the config says, or reads it if it ran before; returns the mean of every result."""
    rivals = [learners.build(name, spec) for name, spec in plain(cfg.learners).items()]
    known = [*UNTRAINED, *(n for n, r in cfg.recipes.items() if r.model in TRAINED)]
    if unknown := [name for name in cfg.rerankers if name not in known]:
        raise ValueError(f"rerankers: unknown {unknown}; known: {', '.join(known)}")
    for name in (one for one in cfg.rerankers if one in cfg.recipes):
        methods.check_below(plain(cfg.recipes), name)
    chat = None
    if "rankgpt" in cfg.rerankers:
        cache = encoders.cache_directory() if cfg.cache is None else Path(cfg.cache)
        chat = Chat(Endpoint(**plain(cfg.llm)), cache / "llm")
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, rivals, chat, run)
    results = tracking.read_results(cfg.directory)
    rows = [f"{rival.name}/{name}" for rival in rivals for name in cfg.rerankers]
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    show.results_table(results, rows, columns, f"{cfg.dataset.name}: {cfg.directory}")
    if chat is not None:
        print("language model:", dict(chat.counts))
    return {name: value["mean"] for name, value in results.items()}


def compute(cfg: DictConfig, rivals: list[Rival], chat: Chat | None, run: Run) -> None:
    """Plays every learner with every reranker; writes results, curves and the figure."""
    bench = Bench(cfg, run)
    task, seeds = bench.task, range(cfg.seed, cfg.seed + cfg.seeds)
    parts = bench.masks
    ranker = Ranker(task, cfg.k)
    stream = orders(parts.heldout, cfg.exposures, seeds)
    make = partial(
        Player, run, theta_1=task.theta_1, queries=task.queries, labels=task.labels, chunk=cfg.chunk
    )
    simulated = Environment(reranker=simulated_reranker(accuracy=cfg.accuracy))
    results: dict[str, np.ndarray] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    picks = {name: chooser(bench, name, cfg, chat) for name in cfg.rerankers}
    for rival in rivals:
        one = make(rival.make, environment=simulated, seeds=seeds[:1])
        rehearsal = orders(parts.validation, 1, seeds[:1])
        tuned = tune(f"{rival.name}-tuning", rival, one, ranker, rehearsal, parts)
        tau, eta = rival.settings[tuned["best"]]
        for name in cfg.rerankers:
            world = simulated if name == "simulated" else Environment()
            player = make(rival.make, environment=world, seeds=seeds, choose=picks[name])
            found = player.record(
                f"{rival.name}-{name}",
                player.setting(tau, eta),
                stream,
                finish=lambda states, scores=player.scores: {
                    "final": ranker(states, parts.heldout, scores)
                },
            )
            results |= measured(f"{rival.name}/{name}", found, cfg.k)
            curves[f"{rival.name}, {name}"] = {"success": found["success"]}
            print(f"{rival.name}, {name}: {found['success'].mean():.3f} at tau={tau}, eta={eta}")
    flat = {f"{name}/success": curve["success"] for name, curve in curves.items()}
    np.savez(run.directory / "curves.npz", allow_pickle=False, **flat)
    show.accuracy_figure(run.directory, run.tracker, curves)
    run.finish(results)


def chooser(bench: Bench, name: str, cfg: DictConfig, chat: Chat | None) -> Choose | None:
    """Who picks from the slate; None where the environment does."""
    if chat is not None and name == "rankgpt":
        return choosers.by_language_model(chat, bench.task.texts, bench.task.documents)
    return None if name in UNTRAINED else TRAINED[bench.recipes[name]["model"]](bench, name, cfg)


def _refiner(bench: Bench, name: str, cfg: DictConfig) -> Choose:
    return choosers.listwise(refiner.reranker(bench, name, cfg.seed), bench.task.texts)


def _cross_encoder(bench: Bench, name: str, cfg: DictConfig) -> Choose:
    trained = cross_encoder.reranker(bench, name, cfg.seed)
    return choosers.pairwise(trained, bench.task.texts, len(bench.task.documents))


def _tool_rank(bench: Bench, name: str, cfg: DictConfig) -> Choose:
    trained = tool_rank.reranker(bench, name, cfg.seed)
    return choosers.pairwise(trained, bench.task.texts, len(bench.task.documents))


TRAINED = {"refiner": _refiner, "cross_encoder": _cross_encoder, "tool_rank": _tool_rank}


def measured(name: str, found: Mapping[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
    """Success over the stream and in its last quarter, and the last rankings, as results."""
    success = found["success"]
    last = success[:, -(success.shape[1] // 4) :]
    results = {
        f"{name}/online/accuracy": success.mean(axis=1),
        f"{name}/online/last": last.mean(axis=1),
    }
    for i, metric in enumerate(METRICS):
        results[f"{name}/final/{metric.format(k=k)}"] = found["final"][:, i]
    return results


if __name__ == "__main__":
    cli()
