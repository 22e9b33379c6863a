"""What does ToolRefiner need?                                       (Tool2Vec, Tables A.1 and A.2)

    uv run python -m experiments.ablate_refiner dataset.path=FOLDER                # ToolLens
    uv run python -m experiments.ablate_refiner --config-name ablate_whole dataset.path=FOLDER
    uv run python -m experiments.ablate_refiner --config-name ablate_mlc dataset.path=FOLDER

For the recipe ``base`` it varies the number of candidates of a trained refiner (``at_test``), and
one training setting at a time (``variants``), or some together: ``tools_and_first: [documents]``.

The second and third commands run the paper's variants, trained as long as the recipe: the vectors
that represent the tools, on candidates of Tool2Vec and of documents (A.1, only ``ablate_whole``),
and the number of candidates of Tool2Vec and of MLC (A.2). ``variants.candidates=[]`` leaves A.2
out, ``variants.tools=[] variants.tools_and_first=[]`` A.1. The first command runs ours: whether and
how the refiner sees the order of the candidates, whether a training query is left out of the
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
from experiments.retrieval.recipes import config_of
from jaxret.evaluation import plots
from jaxret.methods.common import CUTS
from jaxret.retrieval.ranking import Ranking, mean_metrics, metrics_at
from jaxret.retrieval.retriever import refine
from jaxret.runtime.validate import require_one_of

METRICS = metrics_at(CUTS)


@experiment("ablate_refiner")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Train and test every variant; return the results, and draw the figure over N."""
    bench, variants = Bench(cfg, run), named(cfg)
    least, most = max(CUTS), bench.kept
    if beyond := [n for n in cfg.at_test if not least <= n <= most]:
        raise ValueError(f"at_test: candidates must be in {least} .. {most}, got {beyond}")
    bench.recipes |= variants
    base, first = cfg.base, cfg.recipes[cfg.base].first
    labels, results = bench.tasks.test.labels, {}

    def keep(name, rankings):
        found = [mean_metrics(ranking, labels, CUTS) for ranking in rankings]
        for metric in METRICS:
            results[f"{name}/{metric}"] = np.array([one[metric] for one in found])
        shown = {m: round(float(results[f"{name}/{m}"].mean()), 3) for m in METRICS}
        print(name, shown, flush=True)

    for name in (first, base):
        keep(name, [methods.rank(bench, name, seed) for seed in methods.seeds(bench, name)])
    for n in cfg.at_test:
        keep(at_test(cfg, n), [given(bench, n, seed) for seed in methods.seeds(bench, base)])
    figure_over_candidates(cfg, run, results)
    for name in variants:
        keep(name, [methods.rank(bench, name, seed) for seed in methods.seeds(bench, name)])
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check that the recipe is a refiner, and every variant of it."""
    refiners = [name for name, recipe in cfg.recipes.items() if recipe.model == "refiner"]
    require_one_of("base", cfg.base, refiners)
    recipes = plain(cfg.recipes) | named(cfg)
    for name in (cfg.base, *named(cfg)):
        config_of(name, recipes[name])
        methods.check_below(recipes, name)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the trained refiner with more and fewer candidates, then the variants."""
    given = [at_test(cfg, n) for n in cfg.at_test]
    title = f"{cfg.dataset.name}, {cfg.document}: test"
    results_table(results, [cfg.recipes[cfg.base].first, cfg.base, *given], METRICS, title)
    results_table(results, list(named(cfg)), METRICS, f"{title}, with the budget")


def at_test(cfg: DictConfig, candidates: int) -> str:
    """Return the name of the trained refiner's results with a number of candidates."""
    return f"{cfg.base}, N={candidates}"


def named(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """List the recipes to train by name, each changed in one setting, or in several to one value.

    The first is unchanged; it is left out if the budget is the recipe's own.
    """
    recipe = plain(cfg.recipes)[cfg.base]
    base = {**recipe, **plain(cfg.budget)}
    variants = {} if base == recipe else {"unchanged": base}
    for together, values in plain(cfg.variants).items():
        settings = together.split("_and_")
        if unknown := [setting for setting in settings if setting not in recipe]:
            known = ", ".join(recipe)
            raise ValueError(f"variants: {cfg.base} has no {unknown[0]!r}; it has {known}")
        for value in values:
            changed = {**base, **dict.fromkeys(settings, value)}
            if changed != base:
                variants[f"{together}={value}"] = changed
    return variants


def given(bench: Bench, candidates: int, seed: int) -> Ranking:
    """Rank a number of candidates of the first stage by the trained refiner."""
    first = methods.rank(bench, bench.recipes[bench.cfg.base]["first"], seed)
    trained = methods.reranker(bench, bench.cfg.base, seed)
    return refine(trained, bench.texts(bench.parts.test), methods.cut(first, candidates))


def figure_over_candidates(
    cfg: DictConfig, run: RunDirectory, results: dict[str, np.ndarray]
) -> None:
    """Draw recall over N, with the first stage as a dashed line."""
    sizes = sorted(cfg.at_test)
    figure, ax = plots.new_figure("candidates N", "recall on test queries")
    for k in CUTS:
        values = np.stack([results[f"{at_test(cfg, n)}/recall@{k}"] for n in sizes], axis=1)
        line = plots.curve_with_band(ax, np.array(sizes), values, f"R@{k}")
        first = results[f"{cfg.recipes[cfg.base].first}/recall@{k}"].mean()
        ax.axhline(first, color=line.get_color(), linestyle="--", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    plots.label_curves(ax)
    run.save_figure(figure, "candidates")


if __name__ == "__main__":
    main.cli()
