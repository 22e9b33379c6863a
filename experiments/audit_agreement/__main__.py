"""Do judges of tool documents agree with a reader, criterion by criterion?       (Tool-REX, A.3)

    uv run python -m experiments.local_llm start
    OPENAI_API_KEY=local uv run python -m experiments.audit_agreement folder=../shared/data \\
        llm.base_url=http://127.0.0.1:8077/v1 llm.model=qwen2.5-coder-1.5b-instruct-q4

A document is complete if it states what the tool does and guides its use
(`jaxret.documents.audit`). ``by_eye.jsonl`` has one reader's verdicts on sixty documents of five
data sets, twelve of them with a profile. The criteria:

    states_function   it states what a call does; a name alone is not enough
    guides_use        it states users, situations, purpose, or limits; the form of a parameter does
                      not count

    JUDGE/CRITERION/yes         share of documents that meet it, by the rules or a language model
    JUDGE/CRITERION/agreement   share of documents on which the judge and the reader agree
    JUDGE/CRITERION/kappa       Cohen's kappa, agreement beyond chance; 0 if a judge always gives
                                the same verdict. low, high: 95 % interval by resampled documents
    llm/CRITERION/area_under_roc  of the probability of yes, over all thresholds
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool
from omegaconf import DictConfig

from experiments.common import asking
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.document_fields.audit import as_json
from jaxret import data
from jaxret.data.dataset import Document
from jaxret.documents import audit, original
from jaxret.evaluation.statistics import area_under_roc
from jaxret.llm import Chat, load_prompt
from jaxret.runtime.files import json_lines
from jaxret.runtime.validate import require

BY_EYE = Path(__file__).with_name("by_eye.jsonl")
JUDGES = ("rules", "llm")
CRITERIA = {
    "states_function": "Does it state clearly what the tool does?",
    "guides_use": "Does it say in what context the tool is used: when to use it, in which typical "
    "situations, or where its limits are?",
}
PROMPT = load_prompt(Path(__file__).with_name("criterion.txt"), ("document", "criterion"))
WORDS = ("yes", "no")  # answers whose probabilities are compared
FIELDS = ("dataset", "id", "expanded", *CRITERIA)


@experiment("audit_agreement")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Ask the judges and compare their verdicts with the reader's."""
    chat = asking.chat(cfg)
    path = BY_EYE if cfg.verdicts is None else Path(cfg.verdicts)
    rows = list(json_lines(path, holds="one verdict a line", fields=FIELDS))
    require(f"the number of verdicts in {path}", len(rows), ">= 1", lambda n: n >= 1)
    documents = documents_of(Path(cfg.folder), rows)
    results: dict[str, np.ndarray] = {}
    for criterion in CRITERIA:
        reader = np.array([row[criterion] for row in rows])
        results[f"reader/{criterion}/yes"] = np.array([reader.mean()])
        likely = judge_probabilities(chat, documents, [row["expanded"] for row in rows], criterion)
        found = {"rules": by_rules(documents, rows, criterion), "llm": likely > 0.5}
        for judge, verdicts in found.items():
            values = compared(verdicts, reader, cfg.bootstrap, cfg.seed)
            results |= {f"{judge}/{criterion}/{k}": np.array([v]) for k, v in values.items()}
        area = area_under_roc(likely, reader)
        results[f"llm/{criterion}/area_under_roc"] = np.array([area])
    print("language model:", dict(chat.counts))
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check that all files exist."""
    if cfg.folder is None:
        raise ValueError("folder is null: give the folder of the data sets, as ../shared/data")
    require("bootstrap", cfg.bootstrap, ">= 1", lambda x: x >= 1)
    asking.chat(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per judge and criterion."""
    rows = [f"{judge}/{name}" for name in CRITERIA for judge in ("reader", *JUDGES)]
    columns = ("yes", "agreement", "kappa", "low", "high", "area_under_roc")
    results_table(results, rows, columns, "documents judged by eye, by rules, by a model")


def documents_of(folder: Path, rows: list[dict]) -> list[Document]:
    """Read the document of each verdict."""
    names = dict.fromkeys(row["dataset"] for row in rows)
    sets = {name: data.load("jsonl", folder / name) for name in names}
    known = {
        name: dict(zip(one.tool_ids, one.documents, strict=True)) for name, one in sets.items()
    }
    for row in rows:
        if row["id"] not in known[row["dataset"]]:
            raise ValueError(f"{row['dataset']} in {folder} has no tool {row['id']!r}")
    return [known[row["dataset"]][row["id"]] for row in rows]


def by_rules(documents: list[Document], rows: list[dict], criterion: str) -> Bool[np.ndarray, " n"]:
    """Audit documents by rules, with the profile if the reader saw it."""
    seen = [
        document if row["expanded"] else original(document)
        for document, row in zip(documents, rows, strict=True)
    ]
    return np.array([getattr(audit(document), criterion) for document in seen])


def judge_probabilities(
    chat: Chat, documents: list[Document], expanded: list[bool], criterion: str
) -> np.ndarray:
    """Compute the language model's probability of yes against no; 0.5 if it gives neither."""
    texts = [as_json(x, expanded=whole) for x, whole in zip(documents, expanded, strict=True)]
    questions = [PROMPT.messages(document=x, criterion=CRITERIA[criterion]) for x in texts]
    yes, no = WORDS
    weights = chat.weigh_all(questions, WORDS, title=criterion)
    return np.array([0.5 if w is None else w[yes] / (w[yes] + w[no]) for w in weights])


def compared(
    verdicts: Bool[np.ndarray, " n"], reader: Bool[np.ndarray, " n"], draws: int, seed: int
) -> dict[str, float]:
    """Compute agreement and kappa, with an interval."""
    random, n = np.random.default_rng(seed), len(reader)
    resamples = (random.integers(n, size=n) for _ in range(draws))
    kappas = [cohens_kappa(verdicts[rows], reader[rows]) for rows in resamples]
    low, high = np.quantile(kappas, (0.025, 0.975))
    return {
        "yes": float(verdicts.mean()),
        "agreement": float((verdicts == reader).mean()),
        "kappa": cohens_kappa(verdicts, reader),
        "low": float(low),
        "high": float(high),
    }


def cohens_kappa(one: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"]) -> float:
    """Compute the agreement of two judges beyond chance (Cohen 1960): 1 is full, 0 is chance.

    Returns:
      kappa; 0 where both judges give the same verdict every time.
    """
    agreement, a, b = (one == other).mean(), one.mean(), other.mean()
    chance = a * b + (1 - a) * (1 - b)
    return 0.0 if chance == 1 else float((agreement - chance) / (1 - chance))


if __name__ == "__main__":
    main.cli()
