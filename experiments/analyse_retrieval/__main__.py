"""Where does retrieval fail?      (Tool2Vec: Figure 3, Appendix B with Table B.1 and Figure B.1)

    uv run python -m experiments.analyse_retrieval dataset.path=FOLDER          # ToolLens
    uv run python -m experiments.analyse_retrieval dataset=deskbank_all methods=[documents,tool2vec]

For each method, on the test part:

    rate      miss rate of a tool: share of the queries that need it whose first k = 5 lack it. Mean
              and deviation are over the tools that a test query needs; ``label`` is the mean over
              uses, which is larger if widely used tools are missed.
    half      the smallest share of those tools that has half of all misses
    missed    queries with at least one miss, against those with none (``found``): their number,
              tokens and needed tools

Rates of tools with few queries differ by chance, and few misses always fall on few tools. So
``sd_chance`` and ``half_chance`` are the same numbers for the same misses shuffled over all uses.

For untrained embeddings, documents against Tool2Vec:

    cosine    of test queries with the tools they need (positive) and with all others (negative);
              ``auc`` is the probability that a positive is above a negative, over all queries. The
              paper does not say which queries it uses. The training queries that are part of
              Tool2Vec's means score higher, and are reported separately: ``tool2vec/train``.
    nearest   highest cosine with a test query, averaged over documents, over Tool2Vec and over
              queries (excluding the query itself), since t-SNE does not preserve distances

2 cores: a minute if everything is encoded and trained. The paper's findings, and what to expect
instead (DeskBank; ToolLens; one seed):

    Positive and negative cosines do not overlap for Tool2Vec, but do for descriptions. Auc 0.946
    against 0.841; 0.971 against 0.829. The boxes (quartiles) are separate for both, if barely for
    documents.

    Tool2Vec is near the queries, descriptions are not. Yes: the nearest query of a document has
    cosine 0.36; 0.37, of another query 0.44; 0.65, of Tool2Vec 0.56; 0.76.

    Tool2Vec fails on few tools, ToolRefiner evenly. DeskBank: no, deviation 0.29, by chance 0.28.
    ToolLens: half of Tool2Vec's misses fall on 1.5 % of the tools (by chance 8.8 %), of its
    refiner's on 2.2 % (7.3 %), of MLC's on 5.6 % (5.3 %), of that refiner's on 4.1 % (5.3 %).

    Tool2Vec fails on short queries, ToolRefiner on ones longer by 20 tokens. Not on ToolLens:
    queries with a miss have 36 tokens (Tool2Vec; 32 without), 31 (its refiner; 35), 25 (MLC; 35),
    26 (that refiner; 35).

Table B.1 divides by the uses in all data; here misses and uses are both of the test part. Its
37.88 % for NumpyBank cannot be the deviation of rates with mean 9.04 %, which is at most
sqrt(9.04 (100 - 9.04)) = 28.7 %.
"""

import numpy as np
from omegaconf import DictConfig

from experiments.analyse_retrieval.boxes import boxes
from experiments.analyse_retrieval.embeddings import QUARTILES, cosines, neighbours
from experiments.analyse_retrieval.failures import missed
from experiments.common import tsne
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from jaxret.evaluation import plots
from jaxret.runtime.validate import require

BY_TOOL = ("label", "rate", "sd", "sd_chance", "half", "half_chance")
BY_QUERY = tuple(f"{s}/{n}" for s in ("missed", "found") for n in ("n", "tokens", "sd", "tools"))
COSINES = ("auc", *(f"{side}/{q}" for side in ("positive", "negative") for q in QUARTILES))


@experiment("analyse_retrieval")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Analyses all methods and draws the figures."""
    results: dict[str, np.ndarray] = {}
    bench = Bench(cfg, run)
    require("k", cfg.k, f"in 1 .. {bench.kept}", lambda k: 1 <= k <= bench.kept)
    cosines(bench, results)
    if cfg.tsne.queries:
        neighbours(bench, results)
    failures(bench, results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Checks that the t-SNE picture can be drawn."""
    if cfg.tsne.queries:
        tsne.require_sklearn("tsne.queries=0")


@main.show
def show(cfg: DictConfig, found: Found) -> None:
    """Prints misses by tool and by query, and cosines."""
    title = f"{cfg.dataset.name}, {cfg.document}"
    results_table(found, cfg.methods, BY_TOOL, f"{title}: tools missed in the top {cfg.k}")
    results_table(found, cfg.methods, BY_QUERY, f"{title}: queries with and without a miss")
    rows = [name.removesuffix("/auc") for name in found if name.endswith("/auc")]
    results_table(found, rows, COSINES, f"{title}: cosine of queries and tools")
    for name in (name for name in found if name.startswith("nearest/")):
        print(f"{name}: {found[name]['mean']:.3f}")


def failures(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Computes Table B.1 and draws Figure B.1."""
    cfg, rows = bench.cfg, bench.parts.test
    labels = bench.task.labels[rows]
    tokens = bench.encoder.tokens(bench.texts(rows), kind="query")
    lengths = np.array([len(text) for text in tokens])
    figure, ax = plots.new_figure("share of tools, worst first", f"missed in the top {cfg.k}")
    sides: dict[str, dict[str, np.ndarray]] = {}
    for name in cfg.methods:
        found = [
            missed(methods.rank(bench, name, seed).items[:, : cfg.k], labels, lengths)
            for seed in methods.seeds(bench, name)
        ]
        for key in (*BY_TOOL, *BY_QUERY):
            if values := [one.numbers[key] for one in found if key in one.numbers]:
                results[f"{name}/{key}"] = np.array(values)
        rates = np.array([one.rates for one in found])
        share = np.linspace(0, 1, rates.shape[1])
        line = plots.curve_with_band(ax, share, rates, name)
        by_chance = np.mean([one.by_chance for one in found], axis=0)
        ax.plot(share, by_chance, ":", color=line.get_color())
        where = np.array([one.queries for one in found])
        each = np.broadcast_to(lengths, where.shape)
        sides[name] = {"at least one tool missed": each[where], "none missed": each[~where]}
    ax.plot([], [], ":", color=plots.GREY, label="same misses,\nshuffled")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=1.2)
    bench.run.save_figure(figure, "failures")
    bench.run.save_figure(boxes(sides, "tokens of the query"), "lengths")


if __name__ == "__main__":
    main.cli()
