"""Asks a language model which tool documents are complete, and estimates the share that is not.

A document is complete if it states what the tool does and guides its use: when to use it, typical
cases, or limits (Tool-REX, A.3, Figure 5). `jaxret.documents.audit` applies rules to the fields; in
this module a model reads the whole document.

The paper samples 100 documents from each of three domains and reports 41.6 % incomplete before
expansion, 23.5 % after. Of 300 documents neither share is possible (125 are 41.7 %, 70 are 23.3 %
and 71 are 23.7 %), so some answers were left out or averaged in another way. The paper gives no
standard errors; sampling alone makes them about 2.8 and 2.4 points.

Letters: I documents, M of them sampled.
"""

import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.data.dataset import Document
from jaxret.documents import original, profile
from jaxret.llm import load_prompt
from jaxret.runtime.validate import require

PROMPT = load_prompt(Path(__file__).with_name("audit.txt"), ("document",))


class Share(NamedTuple):
    """The share of incomplete documents."""

    mean: float  # mean over domains
    stderr: float | None  # None where a single document of a domain is sampled
    documents: int  # documents judged


def as_json(document: Document, *, expanded: bool) -> str:
    """Write a document as JSON, with its tool profile if it has one and is to be expanded."""
    fields = original(document)
    if expanded and (added := profile(document)):
        fields = fields | {"tool_profile": added}
    return json.dumps(fields, ensure_ascii=False, indent=1, default=str)


def sample(domains: Sequence[Hashable], n: int, seed: int) -> Int[np.ndarray, " M"]:
    """Draw n documents of each domain, or all of them where it has fewer.

    The draw from a domain does not depend on the other domains.
    """
    require("n", n, ">= 1", lambda n: n >= 1)
    drawn = [np.random.default_rng(seed).permutation(rows)[:n] for rows in _rows(domains).values()]
    return np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)


def incomplete(
    complete: Sequence[bool | None], rows: Sequence[int], domains: Sequence[Hashable]
) -> Share:
    """Estimate the share of incomplete documents, as the mean over equally weighted domains.

    The standard error is that of sampling without replacement within domains. It is 0 where every
    document was judged.
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
    """Compute the variance of a share of n among ``of`` documents; None if n = 1 < of."""
    if n == of:
        return 0.0
    return (1 - n / of) * share * (1 - share) / (n - 1) if n > 1 else None


def _rows(domains: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    rows: dict[Hashable, list[int]] = {}
    for row, domain in enumerate(domains):
        rows.setdefault(domain, []).append(row)
    return rows
