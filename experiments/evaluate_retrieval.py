"""How well do trained retrievers and refiners find tools?        (Tool2Vec, Tables 1, 2 and A.4)

    uv run python -m experiments.evaluate_retrieval dataset.path=FOLDER          # ToolLens
    uv run python -m experiments.evaluate_retrieval --config-name evaluate_deskbank

Every method of `experiments.bench` on the test part: recall and nDCG at 3, 5 and 7. Models are
trained on the training part, stop where they validate best, and are kept
in ``runs/models``; rankings are written as TREC run files.

2 cores, one seed, busy with other work too: an epoch of MLC 9 minutes, a refiner 20 to 25. Expect
R@3 on ToolLens 0.59 for tool2vec, 0.93 for mlc; 0.89 for refiner_tool2vec, 0.94 for refiner_mlc.
"""

import time

import hydra
import numpy as np
from omegaconf import DictConfig

from experiments import methods, show
from experiments.bench import METRICS, Bench
from experiments.config import CONFIGS
from experiments.run import Run, open_run
from jaxret import tracking
from jaxret.retrieval import runs


@hydra.main(config_path=CONFIGS, config_name="evaluate_retrieval", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Trains what is missing and tests it all; returns the mean of every result."""
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, run)
    results = tracking.read_results(cfg.directory)
    names = list(cfg.methods) or list(cfg.recipes)
    show.results_table(results, names, METRICS, f"{cfg.dataset.name}, {cfg.document.recipe}: test")
    print(f"results, rankings and figures: {cfg.directory}")
    return {name: value["mean"] for name, value in results.items()}


def compute(cfg: DictConfig, run: Run) -> None:
    """Ranks the test part by every method; writes the results."""
    bench = Bench(cfg, run)
    rows = bench.parts.test
    print(
        f"train {len(bench.parts.train):,}, validation {len(bench.parts.validation):,}, "
        f"test {len(rows):,} queries",
        flush=True,
    )
    ids = [bench.task.dataset.query_ids[row] for row in rows]
    results: dict[str, np.ndarray] = {}
    for name in cfg.methods or cfg.recipes:
        begin = time.perf_counter()
        of_seeds = []
        for seed in methods.seeds(bench, name):
            found = methods.rank(bench, name, seed)
            path = run.directory / "rankings" / f"{name}-{seed}.run"
            runs.save_run(path, found, ids, bench.task.dataset.tool_ids, tag=name)
            of_seeds.append(bench.means(found, rows))
        for metric in METRICS:
            results[f"{name}/{metric}"] = np.array([one[metric] for one in of_seeds])
        shown = ", ".join(f"{m} {results[f'{name}/{m}'].mean():.3f}" for m in METRICS)
        print(f"{name}: {shown} ({time.perf_counter() - begin:.0f} s)", flush=True)
    run.finish(results)


if __name__ == "__main__":
    cli()
