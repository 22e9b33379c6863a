"""How good is retrieval on ToolRet, by its authors' protocol?      (Tool-REX, Tables 2 and 3)

    uv run python -m experiments.evaluate_toolret dataset.path=FOLDER      # null: from the hub
    uv run python -m experiments.evaluate_toolret dataset.path=FOLDER \\
        methods=[bm25,tool_embed_4b,tool_rank]

Reads any copy of the data in the hub's layout, with the documents of ToolRet or the expanded ones
of Tool-REX (`jaxret.data.toolret`). Each task is run with and without its instructions, the pool is
all tools, lists have length 100, and ties rank by descending id as in trec_eval, also those of a
reranker or of a file. Metrics are nDCG@10, recall@10 and completeness@10 of each query; then means

    task/TASK             over its queries
    web, code, customized over the category's tasks      (CATEGORY/queries: over its queries)
    average               over the three categories      the paper's tables
    tasks                 over all tasks                 the scripts that come with it

Departures from the authors' code: weights in float32 or bfloat16, not float16; ties at rank 100,
which are broken by id here and by the order of a Python set there; and Tool-Rank, which uses our
prompt unless ``models.tool_rank.prompt=FILE`` gives the one that the weights were trained on, and
cuts documents instead of the end of the question.

2 cores: a copy of 1,287 tools (`experiments.arrange_toolret`), limit=60, BM25 and MiniLM: 1.5 min.

The paper's nDCG@10, recall@10 and completeness@10, averaged over categories:

    ToolRet     BM25 36.41 46.40 39.02     Qwen3-Embedding-0.6B 43.13 52.80 42.97
    Tool-REX    BM25 39.35 48.17 40.08     Qwen3-Embedding-0.6B 43.30 52.89 43.03

The paper does not say whether with instructions; its scripts only have them for BM25 and rerankers.
"""

import numpy as np
from omegaconf import DictConfig

from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table
from experiments.toolret import protocol as toolret
from experiments.toolret.protocol import SETTINGS, Request, World
from experiments.toolret.stages import check as check_models
from experiments.toolret.stages import stage
from jaxret.data.toolret import CATEGORIES, benchmark
from jaxret.retrieval import runs
from jaxret.runtime.validate import require

COLUMNS = (*CATEGORIES, "average", "tasks")


@experiment("evaluate_toolret")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Ranks, writes run files, measures."""
    methods = list(cfg.methods)
    world = World(cfg, run, benchmark(cfg.dataset.path, **plain(cfg.dataset.options)))
    print(toolret.counts(world.benchmark, world.rows), flush=True)
    results = {f"drawn/{task}": float(len(rows)) for task, rows in world.rows.items()}
    stages = {name: stage(world, name) for name in methods}
    done = 0
    for name in methods:
        for setting in SETTINGS:
            of_tasks = {}
            for task, rows in world.rows.items():
                request = Request(task=task, setting=setting, rows=rows)
                found = stages[name](request)
                path = run.directory / "rankings" / name / f"{request.name}.run"
                runs.save_run(path, found, world.ids(rows), world.tool_ids, tag=name)
                labels, order = world.labels[rows], world.trec_order
                of_tasks[task] = toolret.measured(found, labels, order, cfg.k)
                done += 1
                run.pause(done)
            means = toolret.averages(of_tasks, world.benchmark.tasks)
            results |= {f"{name}/{setting}/{which}": mean for which, mean in means.items()}
            print(f"{name}, {setting} instruction: done", flush=True)
    return {name: np.array([value]) for name, value in results.items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Checks methods and numbers."""
    check_models(plain(cfg.models), list(cfg.methods))
    for name in ("depth", "k", "chunk", "devices"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("k", cfg.k, f"at most depth, {cfg.depth}", lambda k: k <= cfg.depth)
    require("limit", cfg.limit, "null or >= 1", lambda x: x is None or x >= 1)
    require("pool", cfg.pool, f"one of {', '.join(toolret.POOLS)}", lambda x: x in toolret.POOLS)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints two tables in percent: the paper's averages, then nDCG of every task."""
    methods, means = list(cfg.methods), {name: x["mean"] for name, x in results.items()}
    drawn = {name.split("/")[1]: int(n) for name, n in means.items() if name.startswith("drawn/")}
    limit = "all queries" if cfg.limit is None else f"at most {cfg.limit} a task, seed {cfg.seed}"
    title = (
        f"{cfg.dataset.path or 'hub'}, pool={cfg.pool}: {sum(drawn.values()):,} queries of "
        f"{len(drawn)} tasks ({limit})"
    )
    rows = [f"{name}/{setting}" for name in methods for setting in SETTINGS]
    metrics = toolret.measures(cfg.k)
    columns = [(which, metric) for which in COLUMNS for metric in metrics]
    print_table(
        title,
        [f"{which if m == metrics[0] else ''}\n{m[0].upper()}@{cfg.k}" for which, m in columns],
        {row: [percent(means.get(f"{row}/{which}/{m}")) for which, m in columns] for row in rows},
    )
    print_table(
        f"N@{cfg.k} of every task",
        ["queries", *(row.replace("/", "\n") for row in rows)],
        {
            task: [str(count), *(percent(means[f"{row}/task/{task}/{metrics[0]}"]) for row in rows)]
            for task, count in drawn.items()
        },
    )


def percent(value: float | None) -> str:
    """Formats a number in percent; empty for None."""
    return "" if value is None else f"{100 * value:.2f}"


if __name__ == "__main__":
    main.cli()
