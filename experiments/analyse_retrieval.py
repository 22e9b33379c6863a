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

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from omegaconf import DictConfig

from experiments.common import tsne
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from jaxret.evaluation import metrics, plots
from jaxret.methods.tool2vec import embeddings
from jaxret.runtime.validate import require

BY_TOOL = ("label", "rate", "sd", "sd_chance", "half", "half_chance")
BY_QUERY = tuple(f"{s}/{n}" for s in ("missed", "found") for n in ("n", "tokens", "sd", "tools"))
QUARTILES = {"q25": 25, "median": 50, "q75": 75}
COSINES = ("auc", *(f"{side}/{q}" for side in ("positive", "negative") for q in QUARTILES))
SHUFFLES = 200  # shuffles of the misses, for the numbers expected by chance


class Failures(NamedTuple):
    """The misses of one ranking, for the J tools that any of its N queries needs."""

    rates: Float[np.ndarray, " J"]  # in descending order
    by_chance: Float[np.ndarray, " J"]  # the same with misses shuffled over all labels
    queries: Bool[np.ndarray, " N"]  # queries with at least one miss
    numbers: dict[str, float]  # described in `experiments.analyse_retrieval`


@experiment("analyse_retrieval")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Analyse all methods and draw the figures."""
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
    """Check that the t-SNE picture can be drawn."""
    if cfg.tsne.queries:
        tsne.require_sklearn("tsne.queries=0")


@main.show
def show(cfg: DictConfig, found: Found) -> None:
    """Print misses by tool and by query, and cosines."""
    title = f"{cfg.dataset.name}, {cfg.document}"
    results_table(found, cfg.methods, BY_TOOL, f"{title}: tools missed in the top {cfg.k}")
    results_table(found, cfg.methods, BY_QUERY, f"{title}: queries with and without a miss")
    rows = [name.removesuffix("/auc") for name in found if name.endswith("/auc")]
    results_table(found, rows, COSINES, f"{title}: cosine of queries and tools")
    for name in (name for name in found if name.startswith("nearest/")):
        print(f"{name}: {found[name]['mean']:.3f}")


def failures(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Compute Table B.1 and draw Figure B.1."""
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


def missed(
    items: Int[np.ndarray, "N k"], labels: Int[np.ndarray, "N L"], lengths: Int[np.ndarray, " N"]
) -> Failures:
    """Compute the failures of labels that are not among the items."""
    needed = labels >= 0
    miss = needed & (np.asarray(metrics.ranks_in(items, labels)) == metrics.UNRANKED)
    rates, half = by_tool(labels[needed], miss[needed])
    rng = np.random.default_rng(0)
    others = [by_tool(labels[needed], rng.permutation(miss[needed])) for _ in range(SHUFFLES)]
    numbers = {
        "label": miss[needed].mean(),
        "rate": rates.mean(),
        "sd": rates.std(),
        "sd_chance": np.mean([one.std() for one, _ in others]),
    }
    if miss.any():
        numbers |= {"half": half, "half_chance": np.mean([one for _, one in others])}
    queries = miss.any(axis=1)
    for side, where in {"missed": queries, "found": ~queries}.items():
        numbers[f"{side}/n"] = where.sum()
        if where.any():
            numbers[f"{side}/tokens"] = lengths[where].mean()
            numbers[f"{side}/sd"] = lengths[where].std()
            numbers[f"{side}/tools"] = needed[where].sum(axis=1).mean()
    by_chance = np.mean([one for one, _ in others], axis=0)
    return Failures(rates=rates, by_chance=by_chance, queries=queries, numbers=numbers)


def by_tool(
    tools: Int[np.ndarray, " M"], miss: Bool[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " J"], float]:
    """Compute each tool's miss rate, worst first, and the smallest share with half the misses."""
    needs = np.bincount(tools)
    misses = np.bincount(tools, weights=miss)[needs > 0]
    most = np.cumsum(np.sort(misses)[::-1])
    half = 1 + np.searchsorted(most, most[-1] / 2)
    return np.sort(misses / needs[needs > 0])[::-1], half / len(misses)


def cosines(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Compute the cosines of Figure 3, right."""
    task, parts, train = bench.task, bench.parts, bench.tasks.train
    usage = embeddings(train)
    groups = {
        "documents": similarities(task.queries[parts.test], task.labels[parts.test], task.theta),
        "tool2vec": similarities(task.queries[parts.test], task.labels[parts.test], usage),
        "tool2vec/train": similarities(train.queries, train.labels, usage),
    }
    for name, sides in groups.items():
        results[f"cosine/{name}/auc"] = np.array([auc(**sides)])
        for side, values in sides.items():
            found = np.percentile(values, list(QUARTILES.values()))
            for quartile, value in zip(QUARTILES, found, strict=True):
                results[f"cosine/{name}/{side}/{quartile}"] = np.array([value])
    bench.run.save_figure(boxes(groups, "cosine with the query"), "cosines")


def similarities(
    queries: Float[np.ndarray, "M d"], labels: Int[np.ndarray, "M L"], tools: np.ndarray
) -> dict[str, Float[np.ndarray, " P"]]:
    """Return cosines of queries with the tools they need, and with all others, of unit vectors."""
    right = np.zeros((len(queries), len(tools)), bool)
    which, column = np.nonzero(labels >= 0)
    right[which, labels[which, column]] = True
    every = queries @ tools.T
    return {"positive": every[right], "negative": every[~right]}


def auc(positive: Float[np.ndarray, " P"], negative: Float[np.ndarray, " Q"]) -> float:
    """Compute the probability that a positive is above a negative; ties count one half."""
    ordered = np.sort(negative)
    below, upto = (np.searchsorted(ordered, positive, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(negative)))


def neighbours(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Draw Figure 3, left, and compute its nearest cosines."""
    cfg, task = bench.cfg, bench.task
    rng = np.random.default_rng(cfg.seed)
    queries = task.queries[rng.permutation(bench.parts.test)[: cfg.tsne.queries]]
    used = np.unique(bench.tasks.train.labels)  # tools with training queries, so with a Tool2Vec
    tools = rng.permutation(used[used >= 0])[: cfg.tsne.tools]
    usage = embeddings(bench.tasks.train)
    groups = {"query": queries, "Tool2Vec": usage[tools], "document": task.theta[tools]}
    for name, vectors in groups.items():
        near = vectors @ queries.T
        if name == "query":
            np.fill_diagonal(near, -1.0)
        results[f"nearest/{name}"] = np.array([near.max(axis=1).mean()])

    def positions():
        return {"points": tsne.project(np.concatenate(list(groups.values())), cfg.seed)}

    points = bench.run.result("tsne", positions)["points"]
    figure, ax = plots.new_figure("t-SNE 1", "t-SNE 2")
    ends = np.cumsum([len(vectors) for vectors in groups.values()])
    looks = (("o", 8, plots.COLOURS[5]), ("^", 18, plots.COLOURS[1]), ("s", 10, plots.COLOURS[2]))
    for name, part, (marker, size, colour) in zip(
        groups, np.split(points, ends[:-1]), looks, strict=True
    ):
        ax.scatter(*part.T, s=size, marker=marker, color=colour, linewidths=0, label=name)
    ax.set(xticks=[], yticks=[])
    ax.margins(0.02)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handletextpad=0.1)
    bench.run.save_figure(figure, "tsne")


def boxes(groups: Mapping[str, Mapping[str, np.ndarray]], label: str) -> Figure:
    """Draw a box for each side of each group: quartiles, mean, whiskers at 5 and 95 %."""
    figure, ax = plots.new_figure("", label)
    sides = list(next(iter(groups.values())))
    for i, side in enumerate(sides):
        ax.boxplot(
            [group[side] for group in groups.values()],
            positions=np.arange(len(groups)) + 0.36 * (i - (len(sides) - 1) / 2),
            widths=0.3,
            whis=(5, 95),
            showfliers=False,
            showmeans=True,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": plots.COLOURS[i], "alpha": 0.75},
            medianprops={"color": "black"},
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black"},
        )
    names = ["\n".join(re.split("[_/+]", name)) for name in groups]  # splits long names into lines
    ax.set_xticks(range(len(groups)), names, color="black")
    ax.set_xlim(-0.5, len(groups) - 0.5)
    handles = [Patch(color=plots.COLOURS[i], alpha=0.75, label=s) for i, s in enumerate(sides)]
    ax.legend(handles=handles, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


if __name__ == "__main__":
    main.cli()
