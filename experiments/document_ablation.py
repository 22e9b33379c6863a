"""Which fields of a tool profile help, and do they dilute similarity?  (Tool-REX, Figures 3, 4; D)

    uv run python -m experiments.document_ablation
    uv run python -m experiments.document_ablation document=terse       # added to bad documents

Runs Add-One and One-Out (Section 2.4) for BM25 and a dense encoder. The two gains of a field are
``add/x`` minus ``original``, its effect on a bare document, and ``full`` minus ``out/x``, its
effect on a document that has the other fields.

    METHOD/VARIANT/metric       recall, nDCG and completeness of the original document, of the full
                                expansion, with one field alone (add/..) and with one left out
    METHOD/gain/FIELD/metric    what the field adds to the original (add/..), what it adds to the
                                others (out/..), and all of them together (full)
    .../p, .../holm             two-sided p by flipping signs per tool; corrected for all gains of a
                                metric
    METHOD/risen, .../fallen    share of the pairs of a query and a right tool that enter and leave
                                the first ranks (the largest of ``cuts``) with full documents, and
                                their ``count``; ``risen.json`` lists the largest rises (Appendix D)
    dilution/KIND/STEP/...      change of the cosine of queries with a tool that they need
                                (positive) and one that they do not (negative), and of the margin
                                between both, as fields are added one after the other

Standard errors are over tools, whose queries share a document: see `per_tool`.

In the paper (GritLM, 100 queries per domain) both cosines fall when documents are expanded, by
0.001 to 0.003 for positives and 0.004 to 0.015 for negatives, so the margin grows. The paper does
not say how negatives are chosen, which matters: here they are ``random``, or ``hard``, the best
wrong tools under the original documents. Hard negatives are selected for a high cosine, so part of
their fall is regression to the mean; random ones have no such bias.

Letters: N queries, n of them sampled, I tools, L labels a query, d width.

2 cores: 2 minutes 40, nearly all of it encoding; 20 s once that is cached. Expect on DeskBank
(single and multi) nDCG@10 of 0.184, expanded 0.442, for BM25, and 0.384, 0.489 for MiniLM. Tags
gain most, 0.18 and 0.05 alone, 0.09 and 0.03 beside the others; then function and when_to_use, with
equal gains; limitation gains almost nothing, and beside the others it costs BM25 0.008 (p = 0.001).
Of 2,889 pairs 0.328 enter the first ten and 0.029 leave for BM25, 0.125 and 0.018 for MiniLM.
With these profiles, written by the author of the queries, the cosine with the right tool rises by
0.034 and that with a random wrong tool does not change; with LLM-written profiles both are reported
to fall.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.config import cache_folder
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret import encoders
from jaxret.data.dataset import Document
from jaxret.data.templates import template, with_profile
from jaxret.documents import profile
from jaxret.documents.fields import is_empty
from jaxret.evaluation import metrics, plots
from jaxret.evaluation.statistics import holm, per_tool
from jaxret.retrieval.bm25 import bm25
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.retriever import search
from jaxret.runtime.files import write_whole
from jaxret.runtime.validate import require
from jaxret.task import Task

RETRIEVERS = ("bm25", "dense")
DEPTH = 1000  # ranks beyond are not told apart
SIDES = ("positive", "negative", "margin")
# In the order of Section 2.4, which calls two of them function_description and limitations.
FIELDS = ("function", "when_to_use", "limitation", "tags", "example_usage")
Kind = Literal["random", "hard"]
KINDS: tuple[Kind, ...] = ("random", "hard")


class Triples(NamedTuple):
    """Positions of queries and of a right and a wrong tool of each."""

    query: Int[np.ndarray, " n"]
    positive: Int[np.ndarray, " n"]
    negative: Int[np.ndarray, " n"]


class Similarity(NamedTuple):
    """Cosines of the queries of some triples with their two tools."""

    positive: Float[np.ndarray, " n"]
    negative: Float[np.ndarray, " n"]

    @property
    def margin(self) -> Float[np.ndarray, " n"]:
        """Cosine with the right tool minus cosine with the wrong tool."""
        return self.positive - self.negative


@experiment("document_ablation")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Rank with every variant, compare and draw; one value per tool (`per_tool`)."""
    task = task_of(cfg)
    fields = present(documents_of(task), cfg.fields)
    if missing := [field for field in cfg.fields if field not in fields]:
        print(f"no document has {', '.join(missing)}: left out", flush=True)
    tools = task.labels[:, 0]
    results: dict[str, np.ndarray] = {}
    cases: dict[str, list[dict[str, Any]]] = {}
    for method in cfg.retrievers:
        found = {
            name: ranked(cfg, task, run, method, name, kept)
            for name, kept in variants(fields).items()
        }
        ranks = {name: values.pop("ranks") for name, values in found.items()}
        cases[method] = moved(cfg, task, method, ranks["original"], ranks["full"], results)
        for name, values in found.items():
            for metric, x in values.items():
                results[f"{method}/{name}/{metric}"] = per_tool(x, tools)
        for name, (more, less) in gains_of(fields).items():
            for metric in found["full"]:
                change = per_tool(found[more][metric] - found[less][metric], tools)
                results[f"{method}/gain/{name}/{metric}"] = change
                p = sign_flips(change, draws=cfg.draws, seed=cfg.seed)
                results[f"{method}/gain/{name}/{metric}/p"] = np.array([p])
        gains_figure(run, method, fields, f"ndcg@{max(cfg.cuts)}", results)
    lines = json.dumps(cases, ensure_ascii=False, indent=1)
    write_whole(run.directory / "risen.json", f"{lines}\n")
    correct(results)
    diluted(cfg, task, run, fields, results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown names and cuts out of their range, before anything is loaded."""
    closed = {"retrievers": RETRIEVERS, "fields": FIELDS, "negatives": KINDS}
    for name, known in closed.items():
        if unknown := sorted(set(cfg[name]) - set(known)):
            raise ValueError(f"{name}: unknown {unknown}; known: {', '.join(known)}")
    require("cuts", list(cfg.cuts), "one or more numbers >= 1", lambda c: c and min(c) >= 1)
    require("cases", cfg.cases, ">= 0", lambda n: n >= 0)
    require("draws", cfg.draws, ">= 1", lambda n: n >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the quality of every variant, the gains of every field, and the dilution."""
    cut, steps = max(cfg.cuts), ["original", *(f"+{field}" for field in cfg.fields)]
    quality = [f"recall@{k}" for k in cfg.cuts] + [f"ndcg@{cut}", f"completeness@{cut}"]
    gains = [f"ndcg@{cut}{x}" for x in ("", "/p", "/holm")] + [f"recall@{cut}", quality[-1]]
    for method in cfg.retrievers:
        rows = [f"{method}/{name}" for name in variants(cfg.fields)]
        table(results, rows, quality, method)
        rows = [f"{method}/gain/{name}" for name in gains_of(cfg.fields)]
        table(results, rows, gains, f"{method}, gains")
    columns = [f"{name}{of}" for name in ("risen", "fallen") for of in ("", "/count")]
    title = f"right tools that enter and leave the first {cut} with full documents"
    results_table(results, list(cfg.retrievers), columns, title)
    for method, cases in json.loads((Path(cfg.directory) / "risen.json").read_text()).items():
        for case in cases:
            print(f"{method}: {case['tool']}, {case['before']} -> {case['after']}: {case['query']}")
    rows = [f"dilution/{kind}/{step}" for kind in cfg.negatives for step in steps]
    table(results, rows, SIDES, "cosine of the original documents, and its change")


def present(documents: Sequence[Document], fields: Sequence[str] = FIELDS) -> tuple[str, ...]:
    """Return the fields that the profile of some document has and that are not empty there."""
    profiles = [profile(document) for document in documents]
    present = tuple(f for f in fields if any(not is_empty(p.get(f)) for p in profiles))
    if not present:
        raise ValueError(f"no document has a tool_profile with one of {', '.join(fields)}")
    return present


def variants(fields: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the fields of the profile that each variant of the documents keeps, by its name."""
    every = tuple(fields)
    return (
        {"original": (), "full": every}
        | {f"add/{field}": (field,) for field in every}
        | {f"out/{field}": tuple(f for f in every if f != field) for field in every}
    )


def gains_of(fields: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the two variants whose difference each gain is, by the name of the gain."""
    return (
        {"full": ("full", "original")}
        | {f"add/{field}": (f"add/{field}", "original") for field in fields}
        | {f"out/{field}": ("full", f"out/{field}") for field in fields}
    )


def documents_of(task: Task) -> tuple[Document, ...]:
    """Return the documents of a task's data set."""
    assert task.dataset is not None
    return task.dataset.documents


def texts(cfg: DictConfig, task: Task, kept: Sequence[str]) -> list[str]:
    """Render the documents with some fields of their profiles."""
    render = with_profile(kept, base=template(cfg.document))
    return [render(document) for document in documents_of(task)]


def vectors(cfg: DictConfig, task: Task, kept: Sequence[str]) -> np.ndarray:
    """Encode the documents with some fields of their profiles, [I, d]."""
    assert task.encoder is not None
    documents, cache = texts(cfg, task, kept), cache_folder(cfg)
    return encoders.encode(task.encoder, documents, kind="document", cache=cache, progress=False)


def ranked(
    cfg: DictConfig, task: Task, run: RunDirectory, method: str, name: str, kept: Sequence[str]
) -> dict[str, np.ndarray]:
    """Compute every metric of every query, [N], and the ``ranks`` of its tools, [N, L].

    Ranks count from 1; `DEPTH` + 1 stands for all beyond. A run that has the step is read.
    """

    def measure():
        if method == "bm25":
            retriever, queries = bm25(texts(cfg, task, kept)), list(task.texts or ())
        else:
            retriever, queries = inner_product(name, vectors(cfg, task, kept)), task.queries
        cuts, depth = list(cfg.cuts), max(*cfg.cuts, min(DEPTH, len(task.ids)))
        items = search(retriever, queries, depth, progress=False).items
        ranks = np.minimum(metrics.ranks_in(items, task.labels), depth) + 1
        found = metrics.evaluate_ranking(items[:, : max(cuts)], task.labels, cuts)
        return {**found, "ranks": ranks}

    print(f"{method}, {name}: {', '.join(kept) or 'no field'}", flush=True)
    return run.result(f"{method}-{name}", measure)


def moved(
    cfg: DictConfig,
    task: Task,
    method: str,
    before: Int[np.ndarray, "N L"],
    after: Int[np.ndarray, "N L"],
    results: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """Add the shares of tools that enter and leave the first ranks; return the largest rises."""
    (query, column), cut = np.nonzero(task.labels >= 0), max(cfg.cuts)
    tools, old, new = (x[query, column] for x in (task.labels, before, after))
    rise = np.where((old > cut) & (new <= cut), old - new, 0)
    for name, some in (("risen", rise > 0), ("fallen", (old <= cut) & (new > cut))):
        results[f"{method}/{name}"] = per_tool(some, tools)
        results[f"{method}/{name}/count"] = np.array([some.sum()])
    largest = np.argsort(-rise, kind="stable")[: min(cfg.cases, (rise > 0).sum())]
    texts = task.texts or task.query_ids
    return [
        {
            "query": texts[query[i]],
            "tool": task.ids[tools[i]],
            "before": int(old[i]),
            "after": int(new[i]),
        }
        for i in largest
    ]


def sign_flips(values: Float[np.ndarray, " C"], *, draws: int, seed: int) -> float:
    """Compute the two-sided p-value of a mean of 0 by flipping signs at random.

    Args:
      values: independent values [C], one for each of C tools.
      draws: number of random sign vectors; the observed signs count as one more, so
        p >= 1 / (draws + 1).
      seed: seed of the draws.
    """
    signs = np.random.default_rng(seed).integers(0, 2, (draws, len(values))) * 2.0 - 1.0
    observed, permuted = abs(np.sum(values)), np.abs(signs @ values)
    slack = 1e-9 * np.abs(values).sum()  # rounding of equal sums in another order
    return float((1 + (permuted >= observed - slack).sum()) / (1 + draws))


def correct(results: dict[str, np.ndarray]) -> None:
    """Add ``holm`` beside each ``p``: corrected for all gains that a metric was tested for."""
    tested = [name.removesuffix("/p") for name in results if name.endswith("/p")]
    for metric in dict.fromkeys(name.rpartition("/")[2] for name in tested):
        names = [name for name in tested if name.endswith(f"/{metric}")]
        for name, p in zip(names, holm([results[f"{x}/p"][0] for x in names]), strict=True):
            results[f"{name}/holm"] = np.array([p])


def diluted(
    cfg: DictConfig,
    task: Task,
    run: RunDirectory,
    fields: Sequence[str],
    results: dict[str, np.ndarray],
) -> None:
    """Measure and draw the dilution, field by field (Figure 4)."""
    theta = {f"+{field}": vectors(cfg, task, fields[: i + 1]) for i, field in enumerate(fields)}
    curves: dict[str, np.ndarray] = {}
    for kind in cfg.negatives:
        chosen = triples(
            *(task.queries, task.labels, task.theta), negatives=kind, n=cfg.queries, seed=cfg.seed
        )
        tools = task.labels[chosen.query, 0]
        before = similarity(task.queries, task.theta, chosen)
        after = {step: similarity(task.queries, x, chosen) for step, x in theta.items()}
        for side in SIDES:
            level = getattr(before, side)
            results[f"dilution/{kind}/original/{side}"] = per_tool(level, tools)
            steps = [per_tool(getattr(x, side) - level, tools) for x in after.values()]
            for step, change in zip(after, steps, strict=True):
                results[f"dilution/{kind}/{step}/{side}"] = change
            line = "right tool" if side == "positive" else f"{kind} wrong tool"
            if side != "margin":
                curves[line] = np.stack([0 * steps[0], *steps], axis=1)
    dilution_figure(run, fields, curves)


def gains_figure(
    run: RunDirectory,
    method: str,
    fields: Sequence[str],
    metric: str,
    results: dict[str, np.ndarray],
) -> None:
    """Draw the gain of each field in both protocols (Figure 3)."""
    figure, ax = plots.new_figure("", f"gain in {metric.replace('ndcg', 'nDCG')}")
    ax.axhline(0, color=plots.GREY, linewidth=1)
    rows = {
        label: [results[f"{method}/gain/{protocol}/{field}/{metric}"] for field in fields]
        for label, protocol in (("added to the original", "add"), ("added to the others", "out"))
    }
    plots.dots(ax, [field.replace("_", " ") for field in fields], rows)
    ax.tick_params(axis="x", colors="black", labelsize=12)
    run.save_figure(figure, f"gains_{method}")


def dilution_figure(
    run: RunDirectory, fields: Sequence[str], curves: dict[str, np.ndarray]
) -> None:
    """Draw the change of the cosine as the profile grows."""
    figure, ax = plots.new_figure("", "change of the cosine")
    ax.axhline(0, color=plots.GREY, linewidth=1)
    for label, values in curves.items():
        plots.curve_with_band(ax, np.arange(1 + len(fields)), values, label)
    steps = ["original", *(f"+ {field}".replace("_", " ") for field in fields)]
    ax.set_xticks(range(len(steps)), steps, rotation=30, ha="right", rotation_mode="anchor")
    ax.tick_params(axis="x", colors="black", labelsize=12)
    plots.label_curves(ax)
    run.save_figure(figure, "dilution")


def table(results, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    """Print the rows with results, since not every data set has every field."""
    present = [row for row in rows if f"{row}/{columns[0]}" in results]
    results_table(results, present, columns, title)


def triples(
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
    theta: Float[np.ndarray, "I d"],
    *,
    negatives: Kind,
    n: int | None = None,
    seed: int = 0,
) -> Triples:
    """Draw queries, the same for both kinds of negatives, and a right and a wrong tool for each."""
    total, items = len(labels), len(theta)
    require("n", n, f"None or in 1 .. {total}", lambda n: n is None or 1 <= n <= total)
    rng = np.random.default_rng(seed)
    rows = np.arange(total) if n is None else np.sort(rng.permutation(total)[:n])
    right = np.zeros((len(rows), items), bool)
    which, column = np.nonzero(labels[rows] >= 0)
    right[which, labels[rows][which, column]] = True
    if right.all(axis=1).any():
        raise ValueError(f"query {rows[right.all(axis=1).argmax()]} needs every tool: no negative")
    drawn = rng.random(right.shape)
    positive = np.where(right, drawn, -1.0).argmax(axis=1)
    liking = drawn if negatives == "random" else queries[rows] @ theta.T
    negative = np.where(right, -np.inf, liking).argmax(axis=1)
    return Triples(query=rows, positive=positive, negative=negative)


def similarity(
    queries: Float[np.ndarray, "N d"], theta: Float[np.ndarray, "I d"], chosen: Triples
) -> Similarity:
    """Compute the cosines under one text of the documents, of unit vectors, in float64."""
    vectors, tools = (np.asarray(x, np.float64) for x in (queries, theta))
    rows = vectors[chosen.query]
    return Similarity(
        positive=np.sum(rows * tools[chosen.positive], axis=1),
        negative=np.sum(rows * tools[chosen.negative], axis=1),
    )


if __name__ == "__main__":
    main.cli()
