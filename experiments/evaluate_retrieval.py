"""How well do trained retrievers and refiners find tools?   (Tool2Vec, Tables 1, 2, A.3 and A.4)
How do they compare with learners from bandit feedback?                   (ORAG, Tables 1 to 3)

    uv run python -m experiments.evaluate_retrieval dataset.path=FOLDER          # ToolLens
    uv run python -m experiments.evaluate_retrieval --config-name evaluate_deskbank
    uv run python -m experiments.evaluate_retrieval --config-name baselines dataset.path=FILE
    uv run python -m experiments.evaluate_retrieval -m dataset.path=FOLDER \\
        methods=[documents,tool2vec] encoder.layers=1,3,null             # A.3: several encoders

Evaluates every method of `experiments.retrieval.methods` on the test part: recall and nDCG at
``cuts``, and the kind of training data that the method uses. Models are trained on the training
part, at the step with the best validation R@3, and stored in ``runs/models``; rankings are written
as TREC run files.

2 cores, one seed: an epoch of MLC 4 minutes, a refiner 6; two to four times as long beside other
work. Expect R@3 on ToolLens 0.59 for tool2vec, 0.93 for mlc, 0.89 for refiner_tool2vec, 0.93 for
refiner_mlc and 0.94 with its first stage's score.

The baselines on UltraTool take 43 minutes beside other work, mostly for cross_encoder and dpr.
Expect R@10 and nDCG@10 of 0.853 and 0.530 for documents, 0.828 and 0.699 for nudge_n, 0.977 and
0.887 for dpr, 0.920 and 0.715 for orag+once, 0.930 and 0.784 for greedy (learners: 5 seeds).
The cross-encoder sorts ten documents, so its R@10 is theirs.
"""

import time
from collections.abc import Sequence

import numpy as np
from omegaconf import DictConfig

from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from jaxret.retrieval import runs
from jaxret.retrieval.ranking import mean_metrics, metrics_at


@experiment("evaluate_retrieval")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Train missing models and test all methods."""
    return compute(Bench(cfg, run), named(cfg))


@main.check
def check(cfg: DictConfig) -> None:
    """Check the methods."""
    methods.check(cfg, named(cfg))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per method."""
    table(cfg, results, metrics_at(cfg.cuts))


def named(cfg: DictConfig) -> list[str]:
    """Return the selected methods, by default all recipes."""
    return list(cfg.methods) or list(cfg.recipes)


def compute(bench: Bench, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Rank the queries of a part by every method; return the metrics, one value per seed."""
    parts, cuts, directory = bench.parts, bench.cfg.cuts, bench.run.directory
    rows = getattr(parts, bench.cfg.part)
    print(
        f"train {len(parts.train):,}, validation {len(parts.validation):,}, "
        f"test {len(parts.test):,} queries",
        flush=True,
    )
    task = bench.task.select(rows)
    results: dict[str, np.ndarray] = {}
    for name in names:
        begin = time.perf_counter()
        of_seeds = []
        for seed in methods.seeds(bench, name):
            found = methods.rank(bench, name, seed, bench.cfg.part)
            path = directory / "rankings" / f"{name}-{seed}.run"
            runs.save_run(path, found, task.query_ids, task.ids, tag=name)
            of_seeds.append(mean_metrics(found, task.labels, cuts))
        for metric in metrics_at(cuts):
            results[f"{name}/{metric}"] = np.array([one[metric] for one in of_seeds])
        means = ", ".join(f"{m} {results[f'{name}/{m}'].mean():.3f}" for m in metrics_at(cuts))
        print(f"{name}: {means} ({time.perf_counter() - begin:.0f} s)", flush=True)
    return results


def table(cfg: DictConfig, results: Found, columns: Sequence[str]) -> None:
    """Print a line per method, with its kind of training data."""
    names = named(cfg)
    sees = {name: methods.sees(cfg, name) for name in names}
    title = f"{cfg.dataset.name}, {cfg.document}: {cfg.part}"
    results_table(results, names, columns, title, {"sees": sees})


if __name__ == "__main__":
    main.cli()
