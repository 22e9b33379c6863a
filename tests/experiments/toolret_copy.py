"""A small copy of ToolRet, and the config of a run on it."""

import json

import numpy as np

from jaxret import data
from jaxret.runtime.files import write_json_lines
from tests.experiments.configs import config_of

TASKS = {"apibank": "web", "mnms": "web", "toolink": "code", "desk": "customized"}
TOOLS, QUERIES = 48, 12  # tools in total, queries per task
CATEGORY = [("web", "code", "customized")[row % 3] for row in range(TOOLS)]


def write_copy(root):
    """Write tools whose ids sort differently from the rows; queries have 0 to 12 labels."""
    random = np.random.default_rng(0)
    bank = data.load("deskbank")
    ids = [f"{category}_tool_{row}" for row, category in enumerate(CATEGORY)]
    for category in set(CATEGORY):
        rows = [
            {"id": tool, "documentation": json.dumps(bank.documents[i], indent=1)}
            for i, tool in enumerate(ids)
            if CATEGORY[i] == category
        ]
        write_json_lines(root / "tools" / category / "tools.jsonl", rows)
    for number, (task, category) in enumerate(TASKS.items()):
        rows = []
        for i in range(QUERIES):
            chosen = random.choice(TOOLS, random.integers(2, 14), replace=False)
            labels = [{"id": ids[j], "relevance": int(j != chosen[-1])} for j in chosen]
            row = {"id": f"q{i}", "query": bank.queries[12 * (QUERIES * number + i)]}
            row |= {"labels": json.dumps(labels), "category": category}
            rows.append(row | {"instruction": f"Find what serves: {task}." if i else ""})
        write_json_lines(root / "queries" / task / "queries.jsonl", rows)


def configure(world, copy, directory, *more):
    where = [
        f"dataset.path={copy}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
        "tracking=files",
        "chunk=8",
        "depth=20",
        *(f"models.{name}.path={world / 'encoder'}" for name in ("minilm", "e5_small")),
    ]
    return config_of("evaluate_toolret", *where, *more)
