"""Is a document complete enough to be found? The audit of Tool-REX (A.3, Figure 5).

A document is complete if it has (i) a statement of what the tool does and (ii) guidance on its use:
when to use it, typical cases, or limits. Two judges:

    rules       the canonical field ``description`` says more than the name; one of
                ``example_usage`` and ``limitations`` is there. They see fields, not prose: guidance
                that is hidden in a description is not found, so they call more incomplete.
    question    asks a language model; `jaxret.llm.Chat.ask_all` with `parse`. Each criterion alone,
                in one token: `criterion_question`, `jaxret.llm.Chat.weigh`

The paper samples 100 documents from each of three domains and reports 41.6 % incomplete before
expansion, 23.5 % after. Of 300 documents neither share is possible (125 are 41.7 %, 70 are 23.3 %
and 71 are 23.7 %), so some answers must have been left out, or averaged otherwise; it gives no
error either: drawing alone makes it about 2.8 and 2.4 points.

Letters: I documents, M of them sampled, D domains.
"""

import json
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.data.dataset import Document
from jaxret.documents.fields import canonical_fields
from jaxret.documents.reading import original, profile
from jaxret.llm import Malformed, Messages, load_prompt, without_thoughts
from jaxret.runtime.validate import require

PROMPT = load_prompt(Path(__file__).parent / "prompts" / "audit.txt", ("document",))
CRITERION = load_prompt(
    Path(__file__).parent / "prompts" / "criterion.txt", ("document", "criterion")
)
WORDS = ("yes", "no")  # that answer `criterion_question`
CRITERIA = {
    "states_function": "Does it state clearly what the tool does?",
    "guides_use": "Does it say in what context the tool is used: when to use it, in which typical "
    "situations, or where its limits are?",
}
_ENDS = re.compile(
    r"(?:^|\b(?:answer|verdict|judge?ment|conclusion)(?:\s+is)?[\s:=]*)(true|false)$"
)


class Audit(NamedTuple):
    """What the rules find in a document."""

    states_function: bool
    guides_use: bool

    @property
    def complete(self) -> bool:
        return self.states_function and self.guides_use


class Share(NamedTuple):
    """The share of incomplete documents."""

    mean: float  # over domains
    stderr: float | None  # None where a domain has a single one of its documents sampled
    documents: int  # that were judged


def by_rules(document: Document) -> Audit:
    """Looks for fields; those of a tool profile count.

    Raises:
      TypeError, ValueError: see `jaxret.documents.read`.
    """
    fields = canonical_fields(document)
    nothing = {"", *(_letters(name) for name in fields["name"])}
    stated = any(_letters(text) not in nothing for text in fields["description"])
    guided = bool(fields["example_usage"] or fields["limitations"])
    return Audit(states_function=stated, guides_use=guided)


def question(document: Document, *, expanded: bool) -> Messages:
    """Asks a language model about a document, as JSON.

    Args:
      document: in any form that `jaxret.documents.read` reads.
      expanded: with its tool profile, where it has one, or without.
    """
    return PROMPT.messages(document=_as_json(document, expanded))


def criterion_question(document: Document, criterion: str, *, expanded: bool) -> Messages:
    """Asks whether a document meets one criterion, in one of `WORDS`; arguments as `question`.

    Args:
      document: as above.
      criterion: one of `CRITERIA`.
      expanded: as above.
    """
    text = _as_json(document, expanded)
    return CRITERION.messages(document=text, criterion=CRITERIA[criterion])


def _as_json(document: Document, expanded: bool) -> str:
    fields = original(document)
    if expanded and (added := profile(document)):
        fields = fields | {"tool_profile": added}
    return json.dumps(fields, ensure_ascii=False, indent=1, default=str)


def parse(answer: str) -> bool:
    """The verdict: ``true`` or ``false``, alone or as the end of a reasoned answer.

    Thoughts before ``</think>`` are cut off. Of the rest, the last line must be the word, or end in
    ``answer: true``, ``verdict is false`` and the like, and must not hold the other word too.

    Raises:
      Malformed: it is neither, or both.
    """
    plain = re.sub(r"[*`\"'.]", "", without_thoughts(answer)).strip().lower()
    last = plain.splitlines()[-1].strip() if plain else ""
    ending = _ENDS.search(last)
    if ending is None or len(set(re.findall(r"true|false", last))) > 1:
        raise Malformed(f"ends neither in true nor in false: {answer[-80:]!r}")
    return ending[1] == "true"


def sample(domains: Sequence[Hashable], n: int, seed: int) -> Int[np.ndarray, " M"]:
    """Draws n documents of each domain; all of them where it has fewer.

    Args:
      domains: of the I documents.
      n: documents a domain.
      seed: of the draw; a domain's own draw does not depend on the others.

    Returns:
      their positions [M] among the I, ascending.
    """
    require("n", n, ">= 1", lambda n: n >= 1)
    drawn = [np.random.default_rng(seed).permutation(rows)[:n] for rows in _rows(domains).values()]
    return np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)


def incomplete(
    complete: Sequence[bool | None], rows: Sequence[int], domains: Sequence[Hashable]
) -> Share:
    """The share of incomplete documents: the mean over domains, each of the same weight.

    Its standard error is that of drawing without replacement within domains, so it is 0 where every
    document was judged.

    Args:
      complete: verdicts on M documents; None where there is none (``ask_all``).
      rows: their positions among the I documents, from `sample`.
      domains: of the I documents.

    Raises:
      ValueError: a domain has no verdict at all.
    """
    verdicts = dict(zip(rows, complete, strict=True))
    shares, variances = [], []
    for domain, members in _rows(domains).items():
        judged = [not verdicts[row] for row in members if verdicts.get(row) is not None]
        if not judged:
            raise ValueError(f"no document of domain {domain!r} was judged")
        shares.append(float(np.mean(judged)))
        variances.append(_variance(shares[-1], n=len(judged), of=len(members)))
    known = None not in variances
    return Share(
        mean=float(np.mean(shares)),
        stderr=float(np.sqrt(sum(variances)) / len(shares)) if known else None,
        documents=sum(verdict is not None for verdict in verdicts.values()),
    )


def _variance(share: float, *, n: int, of: int) -> float | None:
    """Of a share found in n of so many, drawn without replacement; None if n = 1 cannot tell."""
    if n == of:
        return 0.0
    return (1 - n / of) * share * (1 - share) / (n - 1) if n > 1 else None


def _rows(domains: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    rows: dict[Hashable, list[int]] = {}
    for row, domain in enumerate(domains):
        rows.setdefault(domain, []).append(row)
    return rows


def _letters(value: object) -> str:
    return re.sub(r"[\W_]+", "", str(value).lower())
