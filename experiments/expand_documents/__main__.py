"""Expands tool documents with language models.               (Tool-REX, Section 2.3 and Figure 2)

    uv run python -m experiments.expand_documents dry_run=true
    uv run python -m experiments.expand_documents dataset=jsonl dataset.path=FOLDER \\
        llm.base_url=http://localhost:8000/v1 stages.refine.model=Qwen/Qwen3-32B
    uv run python -m experiments.orag dataset=jsonl dataset.path=RUN/expanded document=expanded

A model writes a profile of each tool, a second one judges it, a third one rewrites those that
failed (`jaxret.documents.expansion`). ``llm`` has the endpoint of all three, ``stages`` the model
and other differences of each (``+stages.judge.base_url=..``). The key is read from the environment
variable OPENAI_API_KEY; a local server accepts any text. Files in the run's directory:

    expanded/      the data set with ``tool_profile``; failures and provenance beside it
    sample.jsonl   for human review: python -m experiments.review_documents RUN

Answers are stored under ``cache``: an interrupted run resumes without asking a question twice, and
again=true only asks questions that had no answer (time-outs, a busy server). Tools without a
profile keep their document, and are listed in ``expanded/failures.jsonl``.

``confirm=[limitation]`` is not in the paper: the judge is asked again about this field of each
profile in isolation, and unconfirmed fields are removed.

The paper: about 1.5 % of 43,215 tools were refined, and 100 of 100 sampled profiles passed.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.common import asking
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import read_dataset
from experiments.common.run_directory import RunDirectory
from experiments.expand_documents import output
from jaxret.data.dataset import Dataset, Document
from jaxret.documents import (
    Outcome,
    Prompts,
    Rules,
    Stages,
    expand_documents,
    expand_question,
    judge_question,
)
from jaxret.documents.expansion import CONFIRMABLE, OURS
from jaxret.llm import (
    Chat,
    Messages,
    Price,
    Problem,
    Stage,
    Workload,
    announcement,
    count_tokens,
    replace_prompts,
)
from jaxret.runtime.files import write_json_lines, write_whole
from jaxret.runtime.validate import require

STAGES = Stages._fields
BEYOND_LIMIT = Outcome(profile=None, problem=Problem("not_asked", "beyond limit"), rounds=0)
PROFILE_TOKENS = 46  # average in the paper (Table 1)


@experiment("expand_documents")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run the pipeline; write the data set and the sample, return counts and cost."""
    chats, prices, rules = chats_of(cfg), asking.prices(cfg, STAGES), Rules(**plain(cfg.rules))
    dataset = read(cfg)
    print(dataset.summary(), flush=True)
    stages, documents = asking.stages(cfg, run, chats), dataset.documents[: cfg.limit]
    try:
        outcomes = expand_documents(
            documents,
            Stages(stages["expand"], stages["judge"], stages.get("refine")),
            rules,
            rounds=cfg.rounds,
            verdicts=cfg.verdicts,
            confirm=cfg.confirm,
            prompts=prompts_of(cfg),
        )
    finally:
        for name, stage in stages.items():
            print(spent(name, stage, prices[name]), flush=True)
    outcomes += [BEYOND_LIMIT] * (len(dataset.documents) - len(documents))
    output.save(run.directory / "expanded", dataset, outcomes)
    write_whole(run.directory / "expanded" / "provenance.json", provenance(cfg, dataset, rules))
    sample = output.sample(dataset, outcomes, cfg.sample, cfg.seed)
    write_json_lines(run.directory / "sample.jsonl", sample)
    return measured(outcomes, stages, prices)


@main.check
def check(cfg: DictConfig) -> dict[str, float] | None:
    """Check settings; with ``dry_run`` prints the planned questions instead of running."""
    require("limit", cfg.limit, ">= 1 or null", lambda x: x is None or x >= 1)
    require("sample", cfg.sample, ">= 0", lambda x: x >= 0)
    require("rounds", cfg.rounds, ">= 0", lambda x: x >= 0)
    require("verdicts", cfg.verdicts, ">= 1", lambda x: x >= 1)
    for field in cfg.confirm:
        require("confirm", field, f"some of {', '.join(CONFIRMABLE)}", CONFIRMABLE.__contains__)
    prices, rules = asking.prices(cfg, STAGES), Rules(**plain(cfg.rules))
    prompts_of(cfg)
    if cfg.terse:
        read(cfg)  # refused before the folder is made
    if cfg.dry_run:
        return plan(cfg, read(cfg).documents[: cfg.limit], rules, prices)
    chats_of(cfg)
    return None


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the number of tools with a profile."""
    expanded, tools = (results[name]["mean"] for name in ("expanded", "tools"))
    print(f"{expanded:,.0f} of {tools:,.0f} tools have a profile")
    print(f"data set: {cfg.directory}/expanded")


def read(cfg: DictConfig) -> Dataset:
    """Read the data set; with ``terse`` documents are replaced by name and one line."""
    dataset = read_dataset(cfg)
    if not cfg.terse:
        return dataset
    bad = [
        {"name": document["name"], "description": document["terse"]}
        for document in dataset.documents
        if isinstance(document, dict) and document.get("terse")
    ]
    if len(bad) < len(dataset.documents):
        raise ValueError(f"terse=true: {dataset.name} has documents without a terse version")
    return replace(dataset, documents=tuple(bad))


def chats_of(cfg: DictConfig) -> dict[str, Chat]:
    """Connect to the model of each stage in use."""
    return {name: asking.chat(cfg, name) for name in STAGES if name != "refine" or cfg.rounds}


def prompts_of(cfg: DictConfig) -> Prompts:
    """Read the prompts that the config gives; the others are ours."""
    return Prompts(**replace_prompts(OURS._asdict(), plain(cfg.prompts)))


def measured(
    outcomes: Sequence[Outcome], stages: dict[str, Stage], prices: dict[str, Price]
) -> dict[str, Any]:
    """Count tools, problems of each stage by kind, tokens, and the cost of all answers used."""
    found: dict[str, float] = {
        "tools": len(outcomes),
        "expanded": sum(one.profile is not None for one in outcomes),
        "refined": sum(one.profile is not None and one.rounds > 0 for one in outcomes),
    }
    for one in outcomes:
        if one.problem is not None:
            key = f"failed/{one.problem.kind}"
            found[key] = found.get(key, 0) + 1
    for name, stage in stages.items():
        found |= {f"{name}/{kind}": count for kind, count in stage.problems.items()}
        prompt, completion = (asking.tokens(stage.chat, x) for x in ("prompt", "completion"))
        found |= {f"{name}/prompt_tokens": prompt, f"{name}/completion_tokens": completion}
        cost = prices[name].of(prompt, completion)
        if cost is not None:
            found[f"{name}/cost"] = cost
    return {name: np.array([value], float) for name, value in found.items()}


def spent(name: str, stage: Stage, price: Price) -> str:
    """Format a line about the work of a stage in this process."""
    counts = stage.chat.counts
    prompt, completion = counts["prompt_tokens"], counts["completion_tokens"]
    cost = price.of(prompt, completion)
    problems = ", ".join(f"{kind} {count:,}" for kind, count in sorted(stage.problems.items()))
    return (
        f"{name} ({stage.chat.endpoint.model}): asked {counts['asked']:,}, from the cache "
        f"{counts['cached']:,}, retries {counts['retries']:,}; tokens {prompt:,} + {completion:,}, "
        f"cost {'unknown' if cost is None else f'{cost:.4f}'}; problems: {problems or 'none'}"
    )


def plan(
    cfg: DictConfig, documents: Sequence[Document], rules: Rules, prices: dict[str, Price]
) -> dict[str, float]:
    """Print the planned questions, without sending anything or needing a key."""
    prompts = prompts_of(cfg)
    questions: dict[str, list[Messages]] = {"expand": [], "judge": []}
    for row, document in enumerate(documents):
        try:
            questions["expand"].append(expand_question(document, rules, prompts.expand))
            questions["judge"].append(judge_question(document, {}, prompts.judge))
        except (TypeError, ValueError) as error:
            print(f"tool {row} would not be asked for: {error}")
    if not questions["expand"]:
        raise ValueError(f"none of {len(documents)} documents can be read: nothing to ask")
    estimates = {}
    for name, messages in questions.items():
        calls = len({json.dumps(question) for question in messages})
        extra, answer = (0, PROFILE_TOKENS) if name == "expand" else (PROFILE_TOKENS, 1)
        prompt = round(sum(map(count_tokens, messages))) + calls * extra
        estimates[name] = Workload(
            model=asking.endpoint(cfg, name).model,
            price=prices[name],
            calls=calls,
            prompt=prompt,
            answer=calls * answer,
        )
    model = asking.endpoint(cfg, "refine").model
    refines = f"refine, {model}: up to {cfg.rounds} calls a tool that fails"
    note = refines if cfg.rounds else "refine: never (rounds=0)"
    text, numbers = announcement(estimates, questions["expand"][0], note=note)
    print(text)
    return numbers


def provenance(cfg: DictConfig, dataset: Dataset, rules: Rules) -> str:
    """Describe the origin of profiles, without a date, so that equal runs write equal files."""
    hashes = output.prompt_hashes(prompts_of(cfg))
    names = [name for name in STAGES if name != "refine" or cfg.rounds]
    models = {name: asking.endpoint(cfg, name) for name in names}
    stages = {
        name: {
            "model": one.model,
            "temperature": one.temperature,
            "max_tokens": one.max_tokens,
            "prompts": hashes[name],
        }
        for name, one in models.items()
    }
    content: dict[str, Any] = {"dataset": dataset.name, "stages": stages}
    content |= {"rules": rules._asdict(), "rounds": cfg.rounds, "verdicts": cfg.verdicts}
    content |= {"confirm": list(cfg.confirm), "limit": cfg.limit}
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    main.cli()
