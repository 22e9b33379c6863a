"""Quality and latency of retrieval methods                                      (ORAG Figure 3)

    uv run python -m experiments.latency dataset.path=FILE                              # UltraTool
    uv run python -m experiments.latency dataset=deskbank document=full methods=[documents,greedy]

Quality is that of `experiments.evaluate_retrieval --config-name baselines`, with the same models.
Time is measured for one query at a time, from its text to a ranked list: tokenise, encode, search,
and any further stages. Every method answers every query once before timing, to compile all
programs. Then each query is answered by all methods in random order, so that other work on the
machine affects all of them. Median and quartiles are over queries; query vectors are not cached.

2 cores, with trained models: UltraTool some 10 minutes. Expect there a median of 1.0 ms for bm25,
20 to 22 ms for methods with one vector per query (documents, dpr, nudge, learners), which is
encoding, 127 ms for the cross-encoder, which reads ten pairs, and 133 ms for refit after it.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

from experiments import evaluate_retrieval
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from jaxret.evaluation import plots
from jaxret.retrieval.ranking import Ranking, metrics_at
from jaxret.retrieval.retriever import search
from jaxret.runtime.validate import require

Answer = Callable[[Sequence[str]], Ranking]
QUARTILES = {"q25": 25, "median": 50, "q75": 75}
COLUMNS = tuple(f"milliseconds/{name}" for name in QUARTILES)
COLOURS = {"nothing": plots.GREY, "bits": plots.COLOURS[0], "labels": plots.COLOURS[1]}
TICKS = tuple(x * 10.0**power for power in range(-2, 6) for x in (1, 3))
FIGURES = {"quality_latency": "recall", "ndcg_latency": "ndcg"}


@experiment("latency")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Evaluate and time the configured methods, and draw the figure."""
    names, bench = list(cfg.methods), Bench(cfg, run)
    results = evaluate_retrieval.compute(bench, names) | measure(bench, names)
    for file, metric in FIGURES.items():
        figure(bench, results, names, f"{metric}@{max(cfg.cuts)}", file)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check the methods."""
    methods.check(cfg, list(cfg.methods))
    require("queries", cfg.queries, ">= 1", lambda n: n >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print quality and time of each method."""
    evaluate_retrieval.table(cfg, results, (*metrics_at(cfg.cuts), *COLUMNS))


def measure(bench: Bench, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Measure `COLUMNS` of each method on some test queries, with models of the first seed."""
    cfg = bench.cfg
    rows = np.random.default_rng(cfg.seed).permutation(bench.parts.test)[: cfg.queries]

    def compute():
        served = copy.copy(bench)
        served.cache = None
        forms = {name: answer(served, name, cfg.seed, max(cfg.cuts)) for name in names}
        return in_turn(forms, bench.texts(rows), cfg.seed)

    times = bench.run.result("latency", compute)
    return {
        f"{name}/milliseconds/{quartile}": np.array([np.percentile(times[name], percent)])
        for name in names
        for quartile, percent in QUARTILES.items()
    }


def answer(bench: Bench, name: str, seed: int, most: int) -> Answer:
    """Load a method as one call, from texts to the ``most`` best tools."""
    chain = [name]
    while before := methods.before(bench, chain[-1]):
        chain.append(before)
    found = methods.retriever(bench, chain[-1], seed)
    once = lru_cache(maxsize=1)(lambda *texts: found.read(texts))  # shared by all stages
    first = found._replace(read=lambda texts: once(*texts), params=jax.device_put(found.params))
    stages = [methods.second_stage(bench, stage, seed, first.read) for stage in chain[-2::-1]]
    count = most if not stages else bench.recipes[chain[-2].partition("+")[0]]["candidates"]

    def call(texts):
        once.cache_clear()
        ranking = search(first, texts, count, progress=False)
        for stage in stages:
            ranking = stage(texts, ranking, progress=False)
        return ranking

    return call


def in_turn(
    forms: Mapping[str, Answer], texts: Sequence[str], seed: int
) -> dict[str, Float[np.ndarray, " M"]]:
    """Time each form on each text, in milliseconds."""
    for form in forms.values():
        for text in texts:
            form([text])
    rng, names = np.random.default_rng(seed), list(forms)
    times = {name: np.zeros(len(texts)) for name in names}
    for row, text in enumerate(texts):
        for name in rng.permutation(names):
            begin = time.perf_counter()
            forms[name]([text])
            times[name][row] = 1e3 * (time.perf_counter() - begin)
    return times


def figure(
    bench: Bench, results: Mapping[str, np.ndarray], names: Sequence[str], metric: str, file: str
) -> None:
    """Draw quality over median time, with quartiles, coloured by the kind of training data."""
    low, middle, high = (
        np.array([results[f"{name}/{column}"][0] for name in names]) for column in COLUMNS
    )
    quality = np.array([results[f"{name}/{metric}"].mean() for name in names])
    sees = np.array([methods.sees(bench.cfg, name) for name in names])
    drawn, ax = plots.new_figure("milliseconds a query", f"{metric} on test queries")
    ax.set_xscale("log")
    ax.margins(0.05)
    for kind in sorted(set(sees), key=list(COLOURS).index):
        some, colour = sees == kind, COLOURS[kind]
        ax.hlines(quality[some], low[some], high[some], color=colour, linewidth=1)
        ax.scatter(middle[some], quality[some], s=24, color=colour, label=f"saw {kind}", zorder=3)
    ticks = [x for x in TICKS if low.min() / 2 <= x <= high.max() * 2]
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.minorticks_off()
    ax.legend(ncols=3, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    ends = np.stack([high, quality], axis=1)
    plots.label_points(ax, ends, names, [COLOURS[kind] for kind in sees])
    bench.run.save_figure(drawn, file)


if __name__ == "__main__":
    main.cli()
