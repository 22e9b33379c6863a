"""Which fields do tool documents have and lack?               (Tool-REX, Figure 1, Table 1, A.3)

    uv run python -m experiments.document_fields
    uv run python -m experiments.document_fields folder=../shared/data \\
        more=[ultratool,toollens,toolbench-stable]
    uv run python -m experiments.document_fields judge=llm llm.model=qwen3:8b \\
        llm.base_url=http://localhost:11434/v1

For each data set:

    coverage    share of documents with a nonempty canonical field
    tokens      encoder tokens per document, special tokens included: original, profile, expanded;
                `cut` is the share of documents longer than the encoder's limit
    incomplete  share of documents without a statement of function or without guidance on use,
                before and, if there are profiles, after expansion: by rules on the fields of all
                documents, or by a language model on a sample. `states_function` and `guides_use`
                are always by rules, before expansion

and ``fields.json`` with the forms of documents and the raw names without a group.

Table 1 counts tokens, but names neither the tokenizer nor the text: the JSON of a document or its
words alone. Here the text is the input of our encoders: the templates ``full`` and ``expanded`` of
`jaxret.data.templates`, cut at 8,192 characters. The columns of Table 1 add up, so the length of
the profile is the difference of the other two. The averages of the paper are plain means over three
domains of 36,978, 3,794 and 2,443 tools.

Letters: I documents.

2 cores: 10 s; with seven more data sets 20 s. Expect of DeskBank 136 tokens a document and 202
expanded, of which the encoder cuts 1 in 168 documents. By rules all documents are incomplete
before expansion, since none has a field for guidance, and none is after it.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure
from omegaconf import DictConfig
from tokenizers import Tokenizer

from experiments.common import asking
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import encoder_of, read_dataset
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.document_fields import audit
from jaxret import data
from jaxret.data.dataset import Document
from jaxret.data.templates import template
from jaxret.documents import (
    GROUPS,
    Audit,
    canonical_fields,
    original,
    profile,
    read,
    unknown_fields,
)
from jaxret.documents import audit as by_rules
from jaxret.documents.expansion import read_verdict
from jaxret.documents.fields import KINDS
from jaxret.evaluation import plots
from jaxret.runtime.validate import require

JUDGES = ("rules", "llm")
TOKENS = ("tokens/original", "tokens/profile", "tokens/expanded", "cut/original", "cut/expanded")
AUDIT = ("states_function", "guides_use", *(f"incomplete/{x}" for x in ("original", "expanded")))

Judge = Callable[[Sequence[Document], bool], Sequence[bool | None]]


class Coverage(NamedTuple):
    """The forms of I documents and the fields in them."""

    kinds: dict[str, int]  # kind, one of `KINDS` -> number of documents
    share: dict[str, float]  # canonical field -> share of documents where it is not empty
    unknown: dict[str, int]  # raw name without a group -> documents, most frequent first


class Lengths(NamedTuple):
    """Numbers of tokens of each document."""

    original: Int[np.ndarray, " I"]
    expanded: Int[np.ndarray, " I"]  # equal to the original without a profile

    @property
    def profile(self) -> Int[np.ndarray, " I"]:
        """Tokens that the profile adds, [I]."""
        return self.expanded - self.original


@experiment("document_fields")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Read, count and audit; write ``fields.json`` and the figures."""
    sets = documents(cfg)
    count, window = counter(cfg)
    judge, measured, found, forms = judge_of(cfg), {}, {}, {}
    results: dict[str, np.ndarray] = {}
    for name, texts in sets.items():
        print(f"{name}: {len(texts):,} documents", flush=True)
        seen = coverage([original(document) for document in texts])
        found[name] = list(seen.share.values())
        forms[name] = {"kinds": coverage(texts).kinds, "unknown": seen.unknown}
        results |= {f"{name}/{group}": np.array([x]) for group, x in seen.share.items()}
        measured[name] = lengths(texts, count)
        results |= {f"{name}/{key}": x for key, x in long(measured[name], window).items()}
        rules = [by_rules(original(document)) for document in texts]
        for part in Audit._fields:
            results[f"{name}/{part}"] = np.array([np.mean([getattr(x, part) for x in rules])])
        results |= {f"{name}/{key}": x for key, x in audited(cfg, texts, judge).items()}
    (run.directory / "fields.json").write_text(json.dumps(forms, indent=1) + "\n")
    run.save_figure(coverage_figure(found), "coverage")
    run.save_figure(tokens_figure(measured, window), "tokens")
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check judges and data sets."""
    require("judge", cfg.judge, f"one of {', '.join(JUDGES)}", lambda judge: judge in JUDGES)
    require("sample", cfg.sample, ">= 1", lambda n: n >= 1)
    asking.prompt(cfg, "audit", audit.PROMPT)
    if cfg.more and cfg.folder is None:
        raise ValueError(f"more={list(cfg.more)} needs folder=, which holds these data sets")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print coverage, tokens and audit of each data set."""
    names = [cfg.dataset.name, *cfg.more]
    for title, columns in (("coverage", GROUPS), ("tokens", TOKENS), ("audit", AUDIT)):
        results_table(results, names, list(columns), title)


def documents(cfg: DictConfig) -> dict[str, tuple[Document, ...]]:
    """Load the documents of each data set by name."""
    more = {name: data.load("jsonl", Path(cfg.folder) / name) for name in cfg.more}
    return {cfg.dataset.name: read_dataset(cfg).documents} | {
        k: x.documents for k, x in more.items()
    }


def counter(cfg: DictConfig) -> tuple[Callable[[str], int], int]:
    """Return a function that counts an encoder's tokens without cutting, and its limit."""
    encoder = encoder_of(cfg.encoder)
    tokenizer = Tokenizer.from_file(str(encoder.directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text).ids), encoder.spec.max_tokens


def long(found: Lengths, window: int) -> Results:
    """Convert lengths to results, one value per document."""
    results = {"tokens/original": found.original, "cut/original": 1.0 * (found.original > window)}
    if found.profile.any():
        results |= {"tokens/profile": found.profile, "tokens/expanded": found.expanded}
        results["cut/expanded"] = 1.0 * (found.expanded > window)
    return results


def judge_of(cfg: DictConfig) -> Judge:
    """Make a function (documents, expanded) -> whether each is complete, None without answer."""
    if cfg.judge == "rules":
        return lambda some, expanded: [
            by_rules(x if expanded else original(x)).complete for x in some
        ]
    chat, prompt = asking.chat(cfg), asking.prompt(cfg, "audit", audit.PROMPT)

    def ask(some, expanded):
        questions = [prompt.messages(document=audit.as_json(x, expanded=expanded)) for x in some]
        answers = chat.ask_all(questions, read_verdict, title="audit")
        print(f"language model, so far: {dict(chat.counts)}", flush=True)
        return answers

    return ask


def audited(cfg: DictConfig, texts: Sequence[Document], judge: Judge) -> Results:
    """Compute the incomplete share before and, if there are profiles, after expansion."""
    one = [cfg.dataset.name] * len(texts)  # each data set is one domain
    rows = range(len(texts)) if cfg.judge == "rules" else audit.sample(one, cfg.sample, cfg.seed)
    some = [texts[row] for row in rows]
    results: Results = {}
    for text, expanded in (("original", False), ("expanded", True)):
        if expanded and not any(map(profile, some)):
            continue
        share = audit.incomplete(judge(some, expanded), list(rows), one)
        results[f"incomplete/{text}"] = np.array([share.mean])
        results[f"judged/{text}"] = np.array([float(share.documents)])
        if share.stderr is not None:
            results[f"incomplete/{text}/se"] = np.array([share.stderr])
    return results


def coverage_figure(found: dict[str, list[float]]) -> Figure:
    """Draw Figure 1: the share in per cent of each canonical field in each data set."""
    figure, ax = plots.new_figure("", "")
    figure.set_size_inches(6.0, 1.5 + 0.36 * len(found))
    shares = 100 * np.array(list(found.values()))
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(shares):
        share = float(value)
        colour = "white" if share > 60 else "black"
        text = "<1" if 0 < share < 0.5 else f"{share:.0f}"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=12)
    ax.set_xticks(range(len(GROUPS)), [group.replace("_", " ") for group in GROUPS])
    ax.set_yticks(range(len(found)), list(found))
    ax.tick_params(colors="black", length=0, labelsize=12)
    for label in ax.get_xticklabels():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set_title("documents that have the field, in %", fontsize=12, loc="left")
    return figure


def tokens_figure(measured: dict[str, Lengths], window: int) -> Figure:
    """Draw quartiles of the lengths, whiskers at 5 and 95 %, and the encoder's limit."""
    figure, ax = plots.new_figure("tokens a document", "")
    rows = []
    for name, found in measured.items():
        rows.append((name, found.original, plots.COLOURS[0]))
        if found.profile.any():
            rows.append((f"{name}, expanded", found.expanded, plots.COLOURS[1]))
    rows.reverse()
    figure.set_size_inches(6.0, 1.2 + 0.32 * len(rows))
    boxes = ax.boxplot(
        [values for _, values, _ in rows],
        orientation="horizontal",
        widths=0.6,
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for box, (_, _, colour) in zip(boxes["boxes"], rows, strict=True):
        box.set(facecolor=colour, alpha=0.75)
    ax.set_yticks(range(1, len(rows) + 1), [name for name, _, _ in rows])
    ax.tick_params(axis="y", colors="black", length=0, labelsize=12)
    ax.set_xscale("log")
    ax.set_xticks(ticks := [16, 32, 64, 128, 256, 512, 1024], [f"{x:,}" for x in ticks])
    ax.minorticks_off()
    ax.axvline(window, color=plots.GREY, linestyle="--", linewidth=1)
    ax.set_title(f"dashed: the encoder reads {window}", fontsize=12, loc="left")
    ax.grid(axis="y", visible=False)
    return figure


def coverage(documents: Sequence[Document]) -> Coverage:
    """Count the kinds of documents and the fields that are not empty."""
    if not documents:
        raise ValueError("there are no documents to look at")
    kinds, present, unknown_names = Counter(), Counter(), Counter()
    for number, document in enumerate(documents):
        try:
            kinds[read(document).kind] += 1
        except (TypeError, ValueError) as error:
            raise ValueError(f"document {number} of {len(documents)}: {error}") from error
        present.update(group for group, values in canonical_fields(document).items() if values)
        unknown_names.update(unknown_fields(document).keys())
    return Coverage(
        kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
        share={group: present[group] / len(documents) for group in GROUPS},
        unknown=dict(unknown_names.most_common()),
    )


def lengths(documents: Sequence[Document], count: Callable[[str], int]) -> Lengths:
    """Count the tokens of documents with and without their profiles."""
    full, expanded = template("full"), template("expanded")
    bare = [count(full(document)) for document in documents]
    of_expanded = [
        count(expanded(document)) if profile(document) else length
        for document, length in zip(documents, bare, strict=True)
    ]
    return Lengths(original=np.array(bare, np.int64), expanded=np.array(of_expanded, np.int64))


if __name__ == "__main__":
    main.cli()
