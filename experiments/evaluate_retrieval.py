"""How well do trained retrievers and refiners find tools?   (Tool2Vec, Tables 1, 2, A.3 and A.4)
And beside learners that see bits alone?                                  (ORAG, Tables 1 to 3)

    uv run python -m experiments.evaluate_retrieval dataset.path=FOLDER          # ToolLens
    uv run python -m experiments.evaluate_retrieval --config-name evaluate_deskbank
    uv run python -m experiments.evaluate_retrieval --config-name baselines dataset.path=FILE
    uv run python -m experiments.evaluate_retrieval -m dataset.path=FOLDER \\
        methods=[documents,tool2vec] encoder.layers=1,3,null             # A.3: several encoders

Every method of `experiments.parts.bench` on the test part: recall and nDCG at ``cuts``, and what it
was allowed to see of the training part (`experiments.parts.methods`). Models are trained on the
training part, stop where R@3 validates best, and are kept in ``runs/models``; rankings are written
as TREC run files.

2 cores, one seed: an epoch of MLC 4 minutes, a refiner 6; two to four times as long beside other
work. Expect R@3 on ToolLens 0.59 for tool2vec, 0.93 for mlc, 0.89 for refiner_tool2vec, 0.93 for
refiner_mlc and 0.94 with its first stage's score.

The baselines on UltraTool take 43 minutes beside other work, mostly for cross_encoder and dpr.
Expect R@10 and nDCG@10 of 0.853 and 0.530 for documents, 0.828 and 0.699 for nudge_n, 0.969 and
0.863 for dpr, 0.920 and 0.715 for orag+once, 0.930 and 0.784 for greedy (learners: 5 seeds).
The cross-encoder sorts ten documents, so its R@10 is theirs.
"""

import time
from collections.abc import Sequence

import hydra
import numpy as np
from omegaconf import DictConfig

from experiments.parts import methods, show
from experiments.parts.bench import Bench, metrics_at
from experiments.parts.config import CONFIGS
from experiments.parts.run import open_run
from jaxret import tracking
from jaxret.retrieval import runs


@hydra.main(config_path=CONFIGS, config_name="evaluate_retrieval", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Trains what is missing and tests it all; returns the mean of every result."""
    names = list(cfg.methods) or list(cfg.recipes)
    methods.check(cfg, names)
    with open_run(cfg) as run:
        if run is not None:
            run.finish(compute(Bench(cfg, run), names))
    return shown(cfg, names, metrics_at(cfg.cuts))


def compute(bench: Bench, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Ranks the queries of a part by every method; returns the metrics, one value a seed."""
    parts, cuts, directory = bench.parts, bench.cfg.cuts, bench.run.directory
    rows = getattr(parts, bench.cfg.part)
    print(
        f"train {len(parts.train):,}, validation {len(parts.validation):,}, "
        f"test {len(parts.test):,} queries",
        flush=True,
    )
    ids = [bench.task.dataset.query_ids[row] for row in rows]
    results: dict[str, np.ndarray] = {}
    for name in names:
        begin = time.perf_counter()
        of_seeds = []
        for seed in methods.seeds(bench, name):
            found = methods.rank(bench, name, seed, bench.cfg.part)
            path = directory / "rankings" / f"{name}-{seed}.run"
            runs.save_run(path, found, ids, bench.task.dataset.tool_ids, tag=name)
            of_seeds.append(bench.means(found, rows, cuts))
        for metric in metrics_at(cuts):
            results[f"{name}/{metric}"] = np.array([one[metric] for one in of_seeds])
        means = ", ".join(f"{m} {results[f'{name}/{m}'].mean():.3f}" for m in metrics_at(cuts))
        print(f"{name}: {means} ({time.perf_counter() - begin:.0f} s)", flush=True)
    return results


def shown(cfg: DictConfig, names: Sequence[str], columns: Sequence[str]) -> dict[str, float]:
    """Prints what a run has found; returns the mean of every result."""
    results = tracking.read_results(cfg.directory)
    title = f"{cfg.dataset.name}, {cfg.document.recipe}: {cfg.part}"
    sees = {name: methods.sees(cfg, name) for name in names}
    show.results_table(results, names, columns, title, {"sees": sees})
    print(f"results, rankings and figures: {cfg.directory}")
    return {name: value["mean"] for name, value in results.items()}


if __name__ == "__main__":
    cli()
