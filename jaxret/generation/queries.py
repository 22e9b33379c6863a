"""Generates queries for a catalogue of tools with language models (Moon et al. 2024, section 3, C).

    tools, examples = descriptions(documents), seed_examples("numpy")
    for done in generate(writers, tools, Settings(), examples, folder):
        print(len(done.accepted), done.failures)

    write     the model chooses M of the T tools on offer and writes a query for them (section 3)
    check     the answer names 2 to 5 different tools that were offered, and the query does not give
              their names away; otherwise the model is asked again, with the reason. (The authors'
              code accepts every tool of the library and checks neither count nor repetition.)
    polish    a second question rewrites the query in the words of a person (Query Polish)
    compare   a query that is nearly the same as an earlier one is left out

Queries are generated in iterations. The examples in an iteration come from earlier iterations only,
so its questions are known when it begins: they follow from the seed and the files of the iterations
before. An interrupted run therefore asks the same questions and finds the answers in the cache. A
finished iteration is one file.

Letters: I tools, T tools on offer, M tools of a query.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.data.dataset import Document
from jaxret.data.near_duplicates import NearDuplicates
from jaxret.data.templates import name_description
from jaxret.llm import (
    Messages,
    Prompt,
    Schema,
    Stage,
    Wrong,
    ask_checked,
    json_object,
    load_prompt,
    object_schema,
    sentence,
)
from jaxret.runtime.files import json_lines, write_whole
from jaxret.runtime.validate import require

FOLDER = Path(__file__).parent / "prompts"
SEEDS = Path(__file__).parent / "examples.jsonl"
TEXT: Schema = {"type": "string"}
POLISH_SCHEMA = object_schema(reasoning=TEXT, instruction=TEXT)


class Prompts(NamedTuple):
    """The texts of the questions."""

    write: Prompt
    polish: Prompt


#: Our texts. A number is optional: another text may state its own, or none.
OURS = Prompts(
    write=load_prompt(FOLDER / "write.txt", ("examples", "tools"), optional=("fewest", "most")),
    polish=load_prompt(FOLDER / "polish.txt", ("functions", "instruction")),
)


class Draft(NamedTuple):
    """A query as the model wrote it, or an example of one."""

    instruction: str
    functions: tuple[str, ...]  # ids of tools, in order of use
    explanation: str

    def example(self) -> str:
        """Return one line of JSON in the form of an answer."""
        fields = {
            "functions": list(self.functions),
            "explanation": self.explanation,
            "instruction": self.instruction,
        }
        return json.dumps(fields, ensure_ascii=False)


class Settings(NamedTuple):
    """Settings of a run; the defaults are the paper's if it states them (C.3)."""

    iterations: int = 10
    batch: int = 30  # questions in an iteration
    offered: int = 10  # T, tools in a question
    fewest: int = 2  # smallest number M of functions in a query
    most: int = 5  # largest number M
    examples: int = 5  # examples in a question
    coverage: float = 0.0  # parameter of `draw_tools`
    near: float = 0.6  # threshold of `NearDuplicates`
    attempts: int = 3  # largest number of answers to a question
    seed: int = 0


class Writers(NamedTuple):
    """The models. The caches of their chats let an interrupted iteration resume."""

    write: Stage
    polish: Stage | None  # None leaves queries as they are written


class Accepted(NamedTuple):
    """An accepted query."""

    query: str
    draft: Draft  # before the polish
    iteration: int
    slot: int  # position of its question, in the iteration


class Iteration(NamedTuple):
    """The results of one iteration."""

    number: int
    accepted: list[Accepted]
    failures: Counter[str]  # write/KIND, polish/KIND, and near for near-duplicates
    tokens: Counter[str]  # write/prompt, write/completion, .. of all answers used


def generate(
    writers: Writers,
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    folder: Path,
    prompts: Prompts = OURS,
) -> Iterator[Iteration]:
    """Yield every iteration: finished ones from their files, the others as they end.

    Args:
      writers: the models.
      tools: I descriptions by id, from `descriptions`.
      settings: settings of the run.
      examples: the pool of examples in the first iteration.
      folder: folder of the files; empty, or of a run with the same tools, settings and prompts.
      prompts: the texts of the questions.

    Raises:
      ValueError: a setting is out of range, or a file of an iteration is damaged.
      OutOfReach: an endpoint does not answer.
    """
    check_settings(settings, len(tools))
    before: list[Iteration] = []
    near = NearDuplicates(settings.near)
    for number in range(settings.iterations):
        path = folder / f"{number:05d}.json"
        if path.exists():
            done = _read(path)
        else:
            done = _iterate(writers, tools, settings, examples, before, near, prompts)
            _write(path, done)
        before.append(done)
        for one in done.accepted:
            near.add(one.query)
        yield done


def check_settings(settings: Settings, tools: int) -> None:
    """Raise ValueError if a setting is out of range for this number of tools."""
    for name in ("iterations", "batch", "fewest", "attempts"):
        require(name, getattr(settings, name), ">= 1", lambda x: x >= 1)
    for name in ("examples", "coverage", "seed"):
        require(name, getattr(settings, name), ">= 0", lambda x: x >= 0)
    fewest, most, offered = settings.fewest, settings.most, settings.offered
    require("offered", offered, f"in [1, {tools}], the tools", lambda x: 1 <= x <= tools)
    require("most", most, f"in [{fewest}, {offered}]", lambda x: fewest <= x <= offered)
    NearDuplicates(settings.near)


def batch_questions(
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    before: Sequence[Iteration],
    prompt: Prompt = OURS.write,
) -> list[tuple[list[str], Messages]]:
    """Build the questions of the next iteration.

    Args:
      tools: I descriptions by id.
      settings: settings of the run.
      examples: the pool of examples in the first iteration.
      before: the iterations so far.
      prompt: the text of the questions.

    Returns:
      For each question the ids of the T tools on offer, and the messages.
    """
    accepted = [one for done in before for one in done.accepted]
    pool = [*examples, *(one.draft._replace(instruction=one.query) for one in accepted)]
    names = list(tools)
    used = Counter(tool for one in accepted for tool in one.draft.functions)
    counts = np.array([used[name] for name in names])
    questions = []
    for slot in range(settings.batch):
        random = np.random.default_rng([settings.seed, len(before), slot])
        rows = draw_tools(random, counts, settings.offered, coverage=settings.coverage)
        offered = [names[row] for row in rows]
        shown = random.choice(len(pool), min(settings.examples, len(pool)), replace=False)
        messages = prompt.messages(
            fewest=str(settings.fewest),
            most=str(settings.most),
            examples="\n".join(pool[i].example() for i in shown) or "(none)",
            tools="\n".join(f"{i}. {tool}: {tools[tool]}" for i, tool in enumerate(offered, 1)),
        )
        questions.append((offered, messages))
    return questions


def seed_examples(library: str) -> list[Draft]:
    """Read the first examples of a pool: those of the library, or general ones if it has none."""
    rows = list(json_lines(SEEDS, holds="examples", fields=("library", *Draft._fields)))
    own = [row for row in rows if row["library"] == library]
    return [
        Draft(row["instruction"], tuple(row["functions"]), row["explanation"])
        for row in own or [row for row in rows if row["library"] == "any"]
    ]


def descriptions(tools: Mapping[str, Document], *, words: int = 60) -> dict[str, str]:
    """Return the description of each tool, cut for a question.

    Raises:
      ValueError: a tool has no description.
    """
    names = {
        tool: document.get("name", "") if isinstance(document, dict) else ""
        for tool, document in tools.items()
    }
    return {
        tool: shorten(name_description(document).removeprefix(f"{names[tool]}: "), words)
        for tool, document in tools.items()
    }


def write_schema(offered: Sequence[str], *, fewest: int, most: int) -> Schema:
    """Return the schema of an answer, which cannot name a function that was not offered.

    Args:
      offered: ids of the T tools that the model may choose from.
      fewest: smallest number of functions of a query.
      most: largest number of functions of a query.
    """
    functions = {
        "type": "array",
        "items": {"enum": list(offered)},
        "minItems": fewest,
        "maxItems": most,
    }
    return object_schema(functions=functions, explanation=TEXT, instruction=TEXT)


def read_draft(
    text: str, offered: Sequence[str], known: Collection[str], *, fewest: int, most: int
) -> Draft:
    """Read the query that a model wrote.

    Args:
      text: the answer.
      offered: ids of the T tools.
      known: ids of all I tools, to distinguish an invented function from one not on offer.
      fewest: smallest number of functions of a query.
      most: largest number of functions of a query.

    Raises:
      Wrong: of kind ``not_json``, ``fields``, ``repeated``, ``not_offered``, ``invented``,
        ``count`` or ``named``.
    """
    content = json_object(text, Draft._fields)
    functions = content["functions"]
    if not isinstance(functions, list) or not all(isinstance(f, str) for f in functions):
        raise Wrong("fields", f"functions must be a list of names, got {functions!r:.60}")
    if len(set(functions)) < len(functions):
        raise Wrong("repeated", "a function is there twice")
    if strangers := [f for f in functions if f not in offered]:
        kind = "not_offered" if all(f in known for f in strangers) else "invented"
        raise Wrong(kind, f"these functions are not in the list: {', '.join(strangers)}")
    if not fewest <= len(functions) <= most:
        raise Wrong("count", f"{len(functions)} functions instead of {fewest} to {most}")
    instruction = sentence(content["instruction"], "instruction")
    _refuse_names(instruction, functions)
    return Draft(
        instruction=instruction,
        functions=tuple(functions),
        explanation=sentence(content["explanation"], "explanation"),
    )


def polish_question(draft: Draft, prompt: Prompt = OURS.polish) -> list[dict[str, str]]:
    """Build the question for the same query in the words of a person."""
    return prompt.messages(functions=", ".join(draft.functions), instruction=draft.instruction)


def read_polished(text: str, functions: Sequence[str]) -> str:
    """Read a polished query.

    Raises:
      Wrong: of kind ``not_json``, ``fields`` or ``named``.
    """
    answer = json_object(text, ("reasoning", "instruction"))
    instruction = sentence(answer["instruction"], "instruction")
    _refuse_names(instruction, functions)
    return instruction


def shorten(text: str, words: int) -> str:
    """Cut a text to whole sentences of at most so many words in all.

    Args:
      text: the text.
      words: largest number of words. A first sentence that is longer is cut within.
    """
    parts = text.split()
    if len(parts) <= words:
        return " ".join(parts)
    cut = " ".join(parts[:words])
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s|$)", cut)]
    return cut[: ends[-1]] if ends else f"{cut} ..."


def draw_tools(
    random: np.random.Generator, used: Int[np.ndarray, " I"], n: int, *, coverage: float = 0.0
) -> Int[np.ndarray, " n"]:
    """Draw tools without replacement; the paper draws T = 10 uniformly (C.3).

    Args:
      random: the generator of the question.
      used: number of accepted queries of each tool [I].
      n: number of tools to draw, in 1 .. I.
      coverage: tools are drawn with probabilities proportional to ``(1 + used) ** -coverage``. 0 is
        uniform; larger values favour tools with few queries. Not negative.

    Returns:
      Positions [n].
    """
    weights = (1.0 + used) ** -float(coverage)
    return random.choice(len(used), n, replace=False, p=weights / weights.sum())


def _iterate(
    writers: Writers,
    tools: Mapping[str, str],
    settings: Settings,
    examples: Sequence[Draft],
    before: Sequence[Iteration],
    near: NearDuplicates,
    prompts: Prompts,
) -> Iteration:
    number, spent = len(before), _tokens(writers)
    questions = batch_questions(tools, settings, examples, before, prompts.write)
    bounds = {"fewest": settings.fewest, "most": settings.most}
    drafts = ask_checked(
        writers.write,
        [messages for _, messages in questions],
        [
            partial(read_draft, offered=offered, known=tools.keys(), **bounds)
            for offered, _ in questions
        ],
        attempts=settings.attempts,
        title=f"iteration {number}: write",
        schemas=[write_schema(offered, **bounds) for offered, _ in questions],
    )
    failures = _under("write", drafts.failures)
    kept = [(slot, draft) for slot, draft in enumerate(drafts.values) if draft is not None]
    texts = [draft.instruction for _, draft in kept]
    if writers.polish is not None and kept:
        polished = ask_checked(
            writers.polish,
            [polish_question(draft, prompts.polish) for _, draft in kept],
            [partial(read_polished, functions=draft.functions) for _, draft in kept],
            attempts=settings.attempts,
            title=f"iteration {number}: polish",
            schemas=[POLISH_SCHEMA] * len(kept),
        )
        failures += _under("polish", polished.failures)
        texts = [new or old for new, old in zip(polished.values, texts, strict=True)]
    accepted, fresh = [], NearDuplicates(settings.near)
    for (slot, draft), text in zip(kept, texts, strict=True):
        if near.find(text) or fresh.find(text):
            failures["near"] += 1
            continue
        fresh.add(text)
        accepted.append(Accepted(query=text, draft=draft, iteration=number, slot=slot))
    tokens = _tokens(writers) - spent
    return Iteration(number=number, accepted=accepted, failures=failures, tokens=tokens)


def _under(stage: str, counts: Counter[str]) -> Counter[str]:
    return Counter({f"{stage}/{kind}": n for kind, n in counts.items()})


def _tokens(writers: Writers) -> Counter[str]:
    """Count tokens by stage and side, with those of cached answers, which were paid for once."""
    tokens: Counter[str] = Counter()
    for name, stage in writers._asdict().items():
        for side in ("prompt", "completion"):
            counts = stage.chat.counts if stage is not None else {}
            for key in (f"{side}_tokens", f"cached_{side}_tokens"):
                tokens[f"{name}/{side}"] += counts.get(key, 0)
    return tokens


def _read(path: Path) -> Iteration:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        accepted = [
            Accepted(
                query=row["query"],
                draft=Draft(row["instruction"], tuple(row["functions"]), row["explanation"]),
                iteration=content["number"],
                slot=row["slot"],
            )
            for row in content["accepted"]
        ]
        failures, tokens = Counter(content["failures"]), Counter(content["tokens"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: delete it, and it is made again") from error
    return Iteration(number=content["number"], accepted=accepted, failures=failures, tokens=tokens)


def _write(path: Path, done: Iteration) -> None:
    rows = [{"query": one.query, "slot": one.slot} | one.draft._asdict() for one in done.accepted]
    counts = {"failures": dict(done.failures), "tokens": dict(done.tokens)}
    content = {"number": done.number, "accepted": rows} | counts
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1))


def _refuse_names(instruction: str, functions: Sequence[str]) -> None:
    """Raise `Wrong` of kind ``named`` if a query contains the name of a function.

    The name is the id, or the last part of the id unless that is a plain word: ``read_csv`` is a
    name, ``sort`` is a word.
    """
    for function in functions:
        last = function.rsplit(".", 1)[-1]
        for name in {function, last} - ({last} if last.isalpha() else set()):
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", instruction, re.IGNORECASE):
                raise Wrong("named", f"the request names the function {name}")
