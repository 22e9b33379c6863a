"""Generates queries for any catalogue of tools, as for ToolBank.  (Tool2Vec, section 3, C)

    uv run python -m experiments.generate_queries dry_run=true
    uv run python -m experiments.generate_queries llm.base_url=http://localhost:11434/v1 \\
        stages.write.model=qwen3:8b stages.polish.model=qwen3:8b stages.judge.model=qwen3:8b
    uv run python -m experiments.generate_queries dataset.name=mine dataset.path=mine/tools.jsonl
    uv run python -m experiments.orag dataset=jsonl dataset.path=RUN/data

Of ten offered tools, the model chooses some that belong together and writes a query for them, which
a second question polishes. Answers are checked; a wrong answer is requested again, with the reason,
and a query that nearly repeats an earlier one is dropped. ``data`` in the run directory is a data
set with three disjoint parts; ``statistics.json`` and ``pairs.jsonl`` count the tools and pairs of
tools in queries. A judge compares pairs of queries in both orders: polished and unpolished ones, or
ours and another data set's (``judge.against``).

An interrupted run continues with the same command, and no answer is paid for twice.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.build_catalogue.libraries import LIBRARIES, build_catalogue
from experiments.common import asking
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.generate_queries import dataset, judge
from jaxret.data import jsonl
from jaxret.generation import (
    Accepted,
    Draft,
    Prompts,
    Settings,
    Writers,
    batch_questions,
    check_settings,
    descriptions,
    generate,
    seed_examples,
)
from jaxret.generation.queries import OURS, polish_question
from jaxret.llm import (
    Chat,
    OutOfReach,
    Price,
    Prompt,
    Workload,
    announcement,
    count_tokens,
    replace_prompts,
)
from jaxret.runtime.files import json_lines, write_json_lines
from jaxret.runtime.validate import require

STAGES = ("write", "polish", "judge")
ANSWER = {"write": 120, "polish": 60, "judge": 30}  # tokens per answer, without reasoning
RATES = ("win", "tie", "loss", "position")


@experiment("generate_queries")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Generate, split and judge; write the data set and its statistics."""
    rows, prices, chats = read_tools(cfg), asking.prices(cfg, STAGES), chats_of(cfg)
    tools = describe(rows, cfg.words)
    settings = Settings(seed=cfg.seed, **plain(cfg.generate))
    stages = asking.stages(cfg, run, chats)
    accepted: list[Accepted] = []
    failures, tokens = Counter(), Counter()
    writers = Writers(write=stages["write"], polish=stages.get("polish"))
    folder, prompts = run.directory / "iterations", prompts_of(cfg)
    both = Prompts(write=prompts["write"], polish=prompts["polish"])
    for done in generate(writers, tools, settings, seed_examples(cfg.dataset.name), folder, both):
        accepted += done.accepted
        failures, tokens = failures + done.failures, tokens + done.tokens
        print(f"iteration {done.number}: {len(done.accepted)} queries", flush=True)
    if not accepted:
        raise OutOfReach(f"no query in {settings.iterations} iterations: {dict(failures)}")
    by_tools = cfg.split.by_tools
    shares = {"validation": cfg.split.validation, "test": cfg.split.test}
    parted = dataset.assign(accepted, list(tools), **shares, seed=cfg.seed, by_tools=by_tools)
    data = dataset.save(run.directory / "data", accepted, parted, rows, by_tools=by_tools)
    print(data.summary(), flush=True)
    labels = [one.draft.functions for one in accepted]
    statistics = dataset.summary(labels, list(tools))
    (run.directory / "statistics.json").write_text(json.dumps(statistics, indent=2) + "\n")
    write_json_lines(run.directory / "pairs.jsonl", dataset.tool_pairs(labels))
    judged: dict[str, np.ndarray] = {}
    if cfg.judge.pairs:
        options = {"attempts": settings.attempts, "prompt": prompts["judge"]}
        verdicts = judge.compare(stages["judge"], pairs(cfg, accepted), **options)
        judged = {f"judge/{name}": x for name, x in judge.outcomes(verdicts).items() if len(x)}
        failures += Counter({f"judge/{kind}": n for kind, n in verdicts.failures.items()})
        for side in ("prompt", "completion"):
            tokens[f"judge/{side}"] = asking.tokens(stages["judge"].chat, side)
    single = statistics | {f"part/{part}": parted.count(part) for part in sorted(set(parted))}
    single |= {f"failures/{kind}": n for kind, n in sorted(failures.items())}
    single |= {f"tokens/{side}": n for side, n in sorted(tokens.items())}
    for name, price in prices.items():
        cost = price.of(tokens[f"{name}/prompt"], tokens[f"{name}/completion"])
        single |= {} if cost is None or name not in stages else {f"cost/{name}": cost}
    say(single, failures)
    return {name: np.array([value], float) for name, value in single.items()} | judged


@main.check
def check(cfg: DictConfig) -> dict[str, float] | None:
    """Check settings; with ``dry_run`` prints the planned questions instead of running."""
    settings = Settings(seed=cfg.seed, **plain(cfg.generate))
    prices = asking.prices(cfg, STAGES)
    prompts_of(cfg)
    require("judge.pairs", cfg.judge.pairs, ">= 0", lambda x: x >= 0)
    shares = cfg.split.validation, cfg.split.test
    require("split", shares, "positive, sum below 1", lambda x: min(x) > 0 and sum(x) < 1)
    tools = describe(read_tools(cfg), cfg.words)
    check_settings(settings, len(tools))
    if cfg.dry_run:
        return plan(cfg, tools, settings, prices)
    chats_of(cfg)
    return None


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the judge's verdicts and the number of queries."""
    if judged := [name for name in judge.CRITERIA if f"judge/{name}/win" in results]:
        title = f"polished against {cfg.judge.against or 'unpolished'}"
        results_table(results, [f"judge/{name}" for name in judged], RATES, title)
    print(f"{results['queries']['mean']:,.0f} queries: {cfg.directory}/data")


def chats_of(cfg: DictConfig) -> dict[str, Chat]:
    """Connect to the model of each stage in use."""
    used = [n for n in STAGES if n == "write" or (cfg.polish if n == "polish" else cfg.judge.pairs)]
    return {name: asking.chat(cfg, name) for name in used}


def prompts_of(cfg: DictConfig) -> dict[str, Prompt]:
    """Read the prompts that the config gives; the others are ours."""
    return replace_prompts(OURS._asdict() | {"judge": judge.PROMPT}, plain(cfg.prompts))


def read_tools(cfg: DictConfig) -> list[dict[str, Any]]:
    """Read rows of ``tools.jsonl`` from a file, or from an installed library."""
    name, path = cfg.dataset.name, cfg.dataset.path
    if path is not None:
        return list(json_lines(Path(path), holds="one tool a line", fields=("id", "documentation")))
    if name not in LIBRARIES:
        known = ", ".join(LIBRARIES)
        raise ValueError(
            f"dataset.name is {name!r}: give dataset.path, a tools.jsonl, or one of the "
            f"libraries that are read as they are installed: {known}"
        )
    return [tool.row() for tool in build_catalogue(name).tools]


def describe(rows: Sequence[dict[str, Any]], words: int) -> dict[str, str]:
    """Return the description of each tool in questions, by id."""
    return descriptions({row["id"]: jsonl.document(row) for row in rows}, words=words)


def pairs(cfg: DictConfig, accepted: Sequence[Accepted]) -> list[tuple[str, str]]:
    """Pair our queries with their unpolished versions, or with another data set's queries."""
    random = np.random.default_rng(cfg.seed)
    if cfg.judge.against is None:
        both = [(one.query, one.draft.instruction) for one in accepted]
        both = [pair for pair in both if pair[0] != pair[1]]
    else:
        theirs = [query.text for query in jsonl.read_queries(Path(cfg.judge.against))]
        n = min(len(accepted), len(theirs))
        rows = random.permutation(len(theirs))[:n]
        ours = random.permutation(len(accepted))[:n]
        both = [(accepted[i].query, theirs[j]) for i, j in zip(ours, rows, strict=True)]
    return [both[i] for i in sorted(random.permutation(len(both))[: cfg.judge.pairs])]


def plan(
    cfg: DictConfig, tools: Mapping[str, str], settings: Settings, prices: Mapping[str, Price]
) -> dict[str, float]:
    """Print calls, tokens, cost and the first prompt, without sending anything or needing a key.

    It assumes one answer per question and a query from every question; repeated questions add to
    this, dropped queries are not polished.
    """
    pool, prompts = seed_examples(cfg.dataset.name), prompts_of(cfg)
    questions = batch_questions(tools, settings, pool, [], prompts["write"])
    first = [messages for _, messages in questions]
    example = pool[0] if pool else Draft("a request", tuple(list(tools)[:2]), "why")
    wrote, instruction = settings.iterations * settings.batch, example.instruction
    question = prompts["judge"].messages(first=instruction, second=instruction)
    calls = {
        "write": (wrote, sum(map(count_tokens, first)) / len(first)),
        "polish": (
            wrote if cfg.polish else 0,
            count_tokens(polish_question(example, prompts["polish"])),
        ),
        "judge": (2 * min(cfg.judge.pairs, wrote), count_tokens(question)),
    }
    estimates = {
        name: Workload(
            model=asking.endpoint(cfg, name).model,
            price=prices[name],
            calls=n,
            prompt=round(n * each),
            answer=n * ANSWER[name],
        )
        for name, (n, each) in calls.items()
    }
    text, numbers = announcement(estimates, first[0])
    print(text)
    return numbers


def say(figures: Mapping[str, float], failures: Counter[str]) -> None:
    """Print failures of every kind, tokens and cost."""
    wrong = ", ".join(f"{kind} {n:,}" for kind, n in failures.most_common())
    print(f"answers and queries that failed: {wrong or 'none'}")
    for kind in ("tokens", "cost"):
        values = {k.split("/", 1)[1]: v for k, v in figures.items() if k.startswith(f"{kind}/")}
        print(f"{kind}: {', '.join(f'{k} {v:,.6g}' for k, v in values.items()) or 'unknown'}")


if __name__ == "__main__":
    main.cli()
