"""What does ToolRefiner need?                                       (Tool2Vec, Tables A.1 and A.2)

    uv run python -m experiments.ablate_refiner dataset.path=FOLDER                # ToolLens
    uv run python -m experiments.ablate_refiner --config-name ablate_whole dataset.path=FOLDER

For the recipe ``refiner_tool2vec`` it varies the number of candidates of a trained refiner
(``at_test``), and one training setting at a time (``variants``).

The second command runs the paper's variants, trained as long as the recipe: the vectors that
represent the tools (A.1) and the number of candidates (A.2). The first command runs ours: whether
and how the refiner sees the order of the candidates, whether a training query is left out of the
means of its tools, whether missed right tools are inserted, the initial projection, whether the
first stage's score enters the logits in training, and the number of layers. Its ``budget`` is
short, so it compares speed of learning rather than final quality.

2 quiet cores: about 1 minute for a variant of 119 steps, 5 to 15 for one trained as long as the
recipe.
"""

from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from jaxret.evaluation import plots
from jaxret.methods.common import CUTS
from jaxret.retrieval.ranking import Ranking, mean_metrics, metrics_at
from jaxret.retrieval.retriever import refine

BASE = "refiner_tool2vec"
METRICS = metrics_at(CUTS)


@experiment("ablate_refiner")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Train and test every variant; return the results, and draw the figure over N."""
    bench, variants = Bench(cfg, run), named(cfg)
    least, most = max(CUTS), bench.kept
    if beyond := [n for n in cfg.at_test if not least <= n <= most]:
        raise ValueError(f"at_test: candidates must be in {least} .. {most}, got {beyond}")
    bench.recipes |= variants
    labels, results = bench.tasks.test.labels, {}

    def keep(name, rankings):
        found = [mean_metrics(ranking, labels, CUTS) for ranking in rankings]
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
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check that the recipe has the settings."""
    named(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the trained refiner with more and fewer candidates, then the variants."""
    given = [at_test(n) for n in cfg.at_test]
    title = f"{cfg.dataset.name}, {cfg.document}: test"
    results_table(results, [cfg.recipes[BASE].first, BASE, *given], METRICS, title)
    results_table(results, list(named(cfg)), METRICS, f"{title}, with the budget")


def at_test(candidates: int) -> str:
    """Return the name of the trained refiner's results with a number of candidates."""
    return f"{BASE}, N={candidates}"


def named(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """List the recipes to train by name, each with one setting changed from the first.

    The first is left out if the budget is the recipe's own.
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


def given(bench: Bench, candidates: int, seed: int) -> Ranking:
    """Rank a number of candidates of the first stage by the trained refiner."""
    first = methods.rank(bench, bench.recipes[BASE]["first"], seed)
    trained = methods.reranker(bench, BASE, seed)
    return refine(trained, bench.texts(bench.parts.test), methods.cut(first, candidates))


def figure_over_candidates(
    cfg: DictConfig, run: RunDirectory, results: dict[str, np.ndarray]
) -> None:
    """Draw recall over N, with the first stage as a dashed line."""
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
    run.save_figure(figure, "candidates")


if __name__ == "__main__":
    main.cli()
