"""What does ToolRefiner need?                                       (Tool2Vec, Tables A.1 and A.2)

    uv run python -m experiments.ablate_refiner dataset.path=FOLDER                # ToolLens
    uv run python -m experiments.ablate_refiner --config-name ablate_whole dataset.path=FOLDER

Two questions, for the recipe ``refiner_tool2vec``. How many candidates should the trained refiner
be given (``at_test``)? And what changes if one thing is trained otherwise (``variants``)?

The second command asks the paper's: which vectors stand for the tools (A.1) and how many candidates
there are (A.2), trained as long as the recipe. The first asks ours: whether the refiner sees their
order and how, whether a training query is left out of its own tools, whether right tools that were
missed are put back, where the projection of tools starts, whether the first stage's score enters
its logits while it trains, how many of the backbone's layers it has. Its ``budget`` is short, so it
says what is learnt soonest, not what is best in the end.

2 cores, quiet: about 1 minute a variant of 119 steps; the recipe itself and its like 5 to 15.
"""

from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig

from experiments.parts import methods, show
from experiments.parts.bench import CUTS, METRICS, Bench
from experiments.parts.config import CONFIGS, plain
from experiments.parts.fit import refiner
from experiments.parts.run import Run, open_run
from jaxret import plots, tracking
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine

BASE = "refiner_tool2vec"


@hydra.main(config_path=CONFIGS, config_name="ablate_refiner", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Trains and tests every variant; returns the mean of every result."""
    variants = named(cfg)
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, run, variants)
    results = tracking.read_results(cfg.directory)
    given = [at_test(n) for n in cfg.at_test]
    title = f"{cfg.dataset.name}, {cfg.document.recipe}: test"
    show.results_table(results, [cfg.recipes[BASE].first, BASE, *given], METRICS, title)
    show.results_table(results, list(variants), METRICS, f"{title}, with the budget")
    print(f"results and figure: {cfg.directory}")
    return {name: value["mean"] for name, value in results.items()}


def at_test(candidates: int) -> str:
    """The name of the trained refiner's results with so many candidates."""
    return f"{BASE}, N={candidates}"


def named(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """What is trained with the budget: name -> recipe, one setting changed from the first.

    The first is left out where the budget is the recipe's own.

    Raises:
      ValueError: for a setting that the recipe does not have.
    """
    recipe = plain(cfg.recipes)[BASE]
    base = {**recipe, **plain(cfg.budget)}
    variants = {} if base == recipe else {"unchanged": base}
    for setting, values in plain(cfg.variants).items():
        if setting not in recipe:
            raise ValueError(f"variants: {BASE} has no {setting!r}; it has {', '.join(recipe)}")
        for value in values:
            if value != base[setting]:
                variants[f"{setting}={value}"] = {**base, setting: value}
    return variants


def compute(cfg: DictConfig, run: Run, variants: dict[str, dict[str, Any]]) -> None:
    """Trains, tests, writes results and the figure over N."""
    bench = Bench(cfg, run)
    least, most = max(CUTS), bench.kept
    if beyond := [n for n in cfg.at_test if not least <= n <= most]:
        raise ValueError(f"at_test: candidates must be in {least} .. {most}, got {beyond}")
    bench.recipes |= variants
    rows, results = bench.parts.test, {}

    def keep(name, rankings):
        found = [bench.means(ranking, rows) for ranking in rankings]
        for metric in METRICS:
            results[f"{name}/{metric}"] = np.array([one[metric] for one in found])
        shown = {m: round(float(results[f"{name}/{m}"].mean()), 3) for m in METRICS}
        print(name, shown, flush=True)

    for name in (cfg.recipes[BASE].first, BASE):
        keep(name, [methods.rank(bench, name, seed) for seed in methods.seeds(bench, name)])
    for n in cfg.at_test:
        keep(at_test(n), [given(bench, n, seed) for seed in methods.seeds(bench, BASE)])
    figure_over_candidates(cfg, run, results)
    for name in variants:
        keep(name, [methods.rank(bench, name, seed) for seed in methods.seeds(bench, name)])
    run.finish(results)


def given(bench: Bench, candidates: int, seed: int) -> Ranking:
    """The trained refiner's ranking of so many candidates of its first stage."""
    rows = bench.parts.test
    bench.recipes["given"] = {**bench.recipes[BASE], "candidates": candidates}
    first = refiner.candidates(bench, "given", seed, "test", rows)
    return refine(refiner.reranker(bench, BASE, seed), bench.texts(rows), first)


def figure_over_candidates(cfg: DictConfig, run: Run, results: dict[str, np.ndarray]) -> None:
    """Recall over N, with the first stage as a dashed line."""
    sizes = sorted(cfg.at_test)
    figure, ax = plots.new_figure("candidates N", "recall on test queries")
    for k in CUTS:
        values = np.stack([results[f"{at_test(n)}/recall@{k}"] for n in sizes], axis=1)
        line = plots.curve_with_band(ax, np.array(sizes), values, f"R@{k}")
        first = results[f"{cfg.recipes[BASE].first}/recall@{k}"].mean()
        ax.axhline(first, color=line.get_color(), linestyle="--", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    plots.label_curves(ax)
    plots.save(figure, run.directory / "candidates.png")
    run.tracker.figure("candidates", run.directory / "candidates.png")


if __name__ == "__main__":
    cli()
