"""What does ToolRefiner need?                                  (Tool2Vec, Tables A.1, A.2 and A.3)

    uv run python -m experiments.ablate_refiner dataset.path=FOLDER                # ToolLens

One thing is changed at a time from the recipe ``refiner_tool2vec``: how many candidates it sees
(A.2), which vectors stand for the tools (A.1), whether it sees their order and how, whether a
training query is left out of its own tools, whether right tools that were missed are put back,
where the projection of tools starts, whether the first stage's score enters its logits while it
trains (ours), how many of the backbone's layers it has (for A.3 smaller and larger encoders). Each
variant is trained as its own model.
"""

from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig

from experiments import methods, show
from experiments.bench import CUTS, METRICS, Bench
from experiments.config import CONFIGS, plain
from experiments.run import Run, open_run
from jaxret import plots, tracking

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
    rows = [cfg.recipes[BASE].first, BASE, *variants]
    show.results_table(results, rows, METRICS, f"{cfg.dataset.name}, {cfg.document.recipe}: test")
    print(f"results and figure: {cfg.directory}")
    return {name: value["mean"] for name, value in results.items()}


def named(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """The variants: name -> recipe, one setting changed from the base.

    Raises:
      ValueError: for a setting that the recipe does not have.
    """
    base = plain(cfg.recipes)[BASE]
    variants = {}
    for setting, values in plain(cfg.variants).items():
        if setting not in base:
            raise ValueError(f"variants: {BASE} has no {setting!r}; it has {', '.join(base)}")
        for value in values:
            if value != base[setting]:
                variants[f"{setting}={value}"] = {**base, setting: value}
    return variants


def compute(cfg: DictConfig, run: Run, variants: dict[str, dict[str, Any]]) -> None:
    """Trains, tests, writes results and the figure over N."""
    bench = Bench(cfg, run)
    bench.recipes |= variants
    rows, results = bench.parts.test, {}
    for name in (cfg.recipes[BASE].first, BASE, *variants):
        found = [
            bench.means(methods.rank(bench, name, seed), rows)
            for seed in methods.seeds(bench, name)
        ]
        for metric in METRICS:
            results[f"{name}/{metric}"] = np.array([one[metric] for one in found])
        print(
            name,
            {metric: round(float(results[f"{name}/{metric}"].mean()), 3) for metric in METRICS},
        )
    figure_over_candidates(bench, run, results)
    run.tracker.summary({name: float(values.mean()) for name, values in results.items()})
    tracking.write_results(run.directory, results)


def figure_over_candidates(bench: Bench, run: Run, results: dict[str, np.ndarray]) -> None:
    """Recall over N, with the first stage as a dashed line."""
    base = bench.recipes[BASE]
    sizes = {base["candidates"]: BASE} | {
        recipe["candidates"]: name
        for name, recipe in bench.recipes.items()
        if name.startswith("candidates=")
    }
    sizes = dict(sorted(sizes.items()))
    figure, ax = plots.new_figure("candidates N", "recall on test queries")
    for k in CUTS:
        values = np.stack([results[f"{name}/recall@{k}"] for name in sizes.values()], axis=1)
        line = plots.curve_with_band(ax, np.array(list(sizes)), values, f"R@{k}")
        first = results[f"{base['first']}/recall@{k}"].mean()
        ax.axhline(first, color=line.get_color(), linestyle="--", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(sizes), [str(size) for size in sizes])
    plots.label_curves(ax)
    plots.save(figure, run.directory / "candidates.png")
    run.tracker.figure("candidates", run.directory / "candidates.png")


if __name__ == "__main__":
    cli()
