"""The papers' tables, figures and theorems, one row each, with a verdict that follows from numbers.

``configs/papers.yaml`` lists the rows. Each says what the paper reports and what is claimed, and
names one source:

    run      a run of ``configs/report.yaml``, as SECTION/DATASET or SECTION/DATASET/CHANGE
    page     a results page on which all numbers of the row stand, with the command
    tests    the test that holds the statement, or with ``shows`` refutes it
    absent   why nothing was run
    drawing  what a figure draws, which claims nothing

``ours`` is the text of the row, in which ``{KEY}`` is a result of the run and ``{KEY - KEY}`` a
difference of two, seed by seed. ``holds`` lists the paper's claims, ``A > B``: each side is a
key (RUN:KEY for another run), a number with or without its standard error, or the difference of
two. A claim holds if A exceeds B by more than two standard errors; if no error is known, the order
decides. ``A = B within T`` claims that they differ by less than T.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.tables import markdown
from experiments.report.jobs import Job
from jaxret.evaluation.estimate import Estimate
from jaxret.runtime import tracking

SOURCES = ("run", "page", "tests", "absent", "drawing")
HEAD = ("the paper's", "it reports", "here", "verdict", "what differs", "source")
NUMBER = re.compile(r"[+-]?\d*\.?\d+( ± \d*\.?\d+)?")
QUOTED = re.compile(r"\d+(?:\.\d+)?")  # a number in a text, without its sign

Numbers = Mapping[str, Sequence[float]]  # RUN:KEY -> one value per seed


class Quantity(NamedTuple):
    """A mean with its standard error, NaN if it is unknown; the values, if it has several seeds."""

    mean: float
    error: float
    values: tuple[float, ...] = ()

    def minus(self, other: "Quantity") -> "Quantity":
        """Subtract, seed by seed where both have the same seeds."""
        if self.values and len(self.values) == len(other.values):
            return of_seeds(np.subtract(self.values, other.values).tolist())
        errors = [x.error for x in (self, other) if not np.isnan(x.error)]
        error = float(np.hypot.reduce(errors)) if errors else float("nan")
        return Quantity(self.mean - other.mean, error)

    def __str__(self) -> str:
        if np.isnan(self.error) or self.error < 5e-4:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.error:.3f}"


def of_seeds(values: Sequence[float]) -> Quantity:
    """Return the mean and standard error of one value per seed."""
    estimate = Estimate.of(np.asarray(values))
    return Quantity(estimate.mean, estimate.error, tuple(values) if len(values) > 1 else ())


def page(papers: Mapping[str, Any], numbers: Numbers) -> str:
    """Format the page: a table for each paper, below a count of its verdicts."""
    every = [verdict(row, numbers) for one in papers["papers"].values() for row in one["rows"]]
    text = papers["text"].strip().replace("{verdicts}", _overall(every))
    parts = [f"# {papers['title']}", text]
    for paper in papers["papers"].values():
        verdicts = [verdict(row, numbers) for row in paper["rows"]]
        counts = {one: verdicts.count(one) for one in dict.fromkeys(verdicts)}
        summary = "; ".join(f"{one}: {n}" for one, n in counts.items())
        lines = [
            (
                row["item"],
                row["paper"],
                ours(row, numbers),
                word,
                row.get("differs", ""),
                source(row),
            )
            for row, word in zip(paper["rows"], verdicts, strict=True)
        ]
        parts += [f"## {paper['title']}\n{len(verdicts)} rows: {summary}."]
        parts.append(markdown(HEAD, lines))
    return "\n\n".join(parts) + "\n"


def _overall(verdicts: Sequence[str]) -> str:
    """Count the verdicts of all papers, those by tests with the others."""
    n = Counter(one.removesuffix(" (tests)") for one in verdicts)
    return (
        f"Of {len(verdicts)} rows {n['holds']} hold, {n['holds in part']} hold in part, "
        f"{n['does not hold']} do not hold, {n['within two errors']} are within two errors, "
        f"{n['not tested']} were not tested, and {n['no claim']} claim nothing."
    )


def verdict(row: Mapping[str, Any], numbers: Numbers) -> str:
    """Return what the numbers of a row say about the paper's claims."""
    if "drawing" in row:
        return "no claim"
    if "absent" in row:
        return "not tested"
    if "tests" in row:
        return f"{row.get('shows', 'holds')} (tests)"
    if "holds" not in row:
        return "no claim"
    verdicts = {claim_verdict(claim, row, numbers) for claim in row["holds"]}
    if len(verdicts) == 1:
        return verdicts.pop()
    return "holds in part" if "holds" in verdicts else "does not hold"


def claim_verdict(claim: str, row: Mapping[str, Any], numbers: Numbers) -> str:
    """Compare the sides of a claim; without an error of either, their order decides."""
    sides = [quantity(side, row, numbers) for side in sides_of(claim)]
    difference = sides[0].minus(sides[1])
    gap = difference.mean if len(sides) == 2 else sides[2].mean - abs(difference.mean)
    margin = 0.0 if np.isnan(difference.error) else 2 * difference.error
    if gap > margin:
        return "holds"
    return "does not hold" if gap < -margin else "within two errors"


def sides_of(claim: str) -> list[str]:
    """Split ``A > B`` or ``A = B within T`` into its quantities."""
    if " = " in claim and " within " in claim:
        first, _, rest = claim.partition(" = ")
        return [first, *rest.split(" within ", 1)]
    return claim.split(" > ")


def ours(row: Mapping[str, Any], numbers: Numbers) -> str:
    """Return the text of a row with its numbers."""
    return re.sub(
        r"{(.+?)}", lambda found: str(quantity(found[1], row, numbers)), row.get("ours", "")
    )


def quantity(text: str, row: Mapping[str, Any], numbers: Numbers) -> Quantity:
    """Return a number, a result, or the difference of two.

    Raises:
      ValueError: if a result is missing.
    """
    found = []
    for name in text.split(" - "):
        if NUMBER.fullmatch(name):
            mean, _, error = name.partition(" ± ")
            found.append(Quantity(float(mean), float(error) if error else float("nan")))
        elif (key := full_name(name, row)) in numbers:
            found.append(of_seeds(numbers[key]))
        else:
            raise ValueError(
                f"{row['item']}: no result {key!r}; run its section, then publish=true"
            )
    return found[0].minus(found[1]) if len(found) > 1 else found[0]


def full_name(name: str, row: Mapping[str, Any]) -> str:
    """Return RUN:KEY for a key of the row's own run, or of another."""
    return name if ":" in name else f"{row['run']}:{name}"


def source(row: Mapping[str, Any]) -> str:
    """Return where the numbers come from, or why there are none."""
    if "run" in row:
        return f"`report run=true only=[{row['run'].partition('/')[0]}]`"
    if "page" in row:
        name = row["page"].partition(".md")[0].replace("_", " ")
        return f"[{name}]({row['page']})"
    if "tests" in row:
        file, _, test = row["tests"].partition("::")
        return f"[{test}](../../{file})"
    return row["absent"] if "absent" in row else row["drawing"]


def results_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the RUN:KEY of every result in a row's text and claims."""
    sides = re.findall(r"{(.+?)}", row.get("ours", ""))
    sides += [side for claim in row.get("holds", ()) for side in sides_of(claim)]
    for side in sides if "run" in row else ():
        for name in side.split(" - "):
            if not NUMBER.fullmatch(name):
                yield full_name(name, row)


def rows_of(papers: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of all papers, after a check of their form.

    Raises:
      ValueError: if a row has no source or several, or a claim that is neither ``A > B`` nor
        ``A = B within T``, or one on results without a run.
    """
    rows = [row for paper in papers["papers"].values() for row in paper["rows"]]
    for row in rows:
        if len(found := [name for name in SOURCES if name in row]) != 1:
            raise ValueError(f"{row['item']}: needs one of {', '.join(SOURCES)}, has {found}")
        for claim in row.get("holds", ()):
            sides = sides_of(claim)
            parts = [part for side in sides for part in side.split(" - ")]
            known = "run" in row or all(map(NUMBER.fullmatch, parts))
            if len(sides) != (3 if " = " in claim else 2) or not known:
                of = "results or numbers" if "run" in row else "numbers"
                allowed = f"A > B or A = B within T of {of}"
                raise ValueError(f"{row['item']}: a claim must be {allowed}, got {claim!r}")
    return rows


def check_pages(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Refuse a row whose numbers do not stand on the page that it names, in a folder of pages."""
    for row in rows:
        if "page" not in row:
            continue
        text = (folder / row["page"].partition("#")[0]).read_text()
        standing = {"0", *QUOTED.findall(text.replace(",", ""))}
        for words in (row.get("ours", ""), *row.get("holds", ())):
            if away := set(QUOTED.findall(words.replace(",", ""))) - standing:
                raise ValueError(f"{row['item']}: {sorted(away)} do not stand on {row['page']}")


def read_numbers(
    papers: Mapping[str, Any], jobs: Mapping[str, Sequence[Job]], stored: Path
) -> dict[str, list[float]]:
    """Return the results that the rows name, from finished runs or else from the stored file."""
    by_run = {
        "/".join(part for part in (section, job.dataset, job.change) if part): job
        for section, some in jobs.items()
        for job in some
        if job.done
    }
    old = json.loads(stored.read_text()) if stored.exists() else {}
    read: dict[str, Mapping[str, Any]] = {}
    numbers = {}
    for name in sorted({name for row in rows_of(papers) for name in results_of(row)}):
        run, _, key = name.partition(":")
        if run in by_run and run not in read:
            read[run] = tracking.read_results(by_run[run].directory)
        if run in read and key not in read[run]:
            raise ValueError(f"{run} has no result {key!r}; it has {', '.join(sorted(read[run]))}")
        if run in read:
            numbers[name] = read[run][key]["values"]
        elif name in old:
            numbers[name] = old[name]
    return numbers
