"""How many tools do NumPy, pandas and AWS have, beside the paper's?              (Tool2Vec, C.4)

    uv run python -m experiments.build_catalogue
    uv run python -m experiments.build_catalogue libraries=[numpy,pandas,aws] authors=FOLDER

Writes ``LIBRARY/tools.jsonl`` into the run directory, for `experiments.generate_queries` or as the
tools of your own data set. For every package it prints the numbers of objects found, merged
aliases, members left to a base class, objects without description, and remaining tools; given the
authors' tools, also the numbers of theirs and of those in both.

The paper has 511, 1,655 and 1,002. Expect 570, 1,788 and 1,084 from NumPy 2.0.1, pandas 2.2.2 and
botocore 1.34.140, which were current at the time of the paper:

    numpy     501 without random (62) and polynomial (7), which the authors' file lacks; it has 527
              paths under 513 invented names, of which 491 are also found here; the others are
              aliases, modules and objects to index
    pandas    1,322 are in both. Of the paper's other 333, 227 are members of offsets, which have no
              docstring in that version; of the other 466 here, 202 are too, 56 are Index.str
    aws       985 without S3 (99), which their file lacks although the paper names it; with the 17
              helpers of boto3's clients that it lists (get_waiter, ...) exactly 1,002

NumPy 2.4.6, pandas 3.1.1 and botocore 1.44.5: 578, 2,073 and 1,336. 2 cores: 10 s.
"""

from collections import Counter
from pathlib import Path

from omegaconf import DictConfig

from experiments.build_catalogue.libraries import COUNTS, LIBRARIES, build_catalogue
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.runtime.files import json_lines, write_json_lines

PAPER = {"numpy": 511, "pandas": 1655, "aws": 1002}
AUTHORS = ("authors", "both")


@experiment("build_catalogue")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Write the tools; return their counts."""
    found = {name: build_catalogue(name, words=cfg.words) for name in cfg.libraries}
    results: dict[str, list[int]] = {}
    for name, catalogue in found.items():
        rows = [tool.row() for tool in catalogue.tools]
        write_json_lines(run.directory / name / "tools.jsonl", rows)
        counts = {package: Counter(count) for package, count in catalogue.counts.items()}
        if cfg.authors:
            theirs = _authors(Path(cfg.authors) / f"tools_{name}.jsonl")
            ours = {tool.id for tool in catalogue.tools}
            for tool in sorted(theirs | ours):
                count = counts.setdefault(_package(tool, counts, name), Counter())
                count.update(authors=tool in theirs, both=tool in theirs & ours)
        counts["all"] = sum(counts.values(), Counter())
        for package, count in counts.items():
            row = name if package in ("all", name) else f"{name}.{package}"
            row = f"{name}, all" if package == "all" else row
            results |= {f"{row}/{column}": [count[column]] for column in (*COUNTS, *AUTHORS)}
    for name, catalogue in found.items():
        print(f"{catalogue.source}: {len(catalogue.tools):,} tools; the paper: {PAPER[name]:,}")
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check the names of libraries."""
    if unknown := [name for name in cfg.libraries if name not in LIBRARIES]:
        raise ValueError(f"libraries: unknown {unknown}; known: {', '.join(LIBRARIES)}")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per package."""
    rows = list(dict.fromkeys(name.rsplit("/", 1)[0] for name in results))
    results_table(results, rows, (*COUNTS, *(AUTHORS if cfg.authors else ())), "tools")


def _authors(path: Path) -> set[str]:
    return {row["id"] for row in json_lines(path, holds="their tools", fields=("id",))}


def _package(tool: str, packages: dict[str, Counter[str]], library: str) -> str:
    """Return the listed package of a path, or the library itself."""
    inside = tool.removeprefix(f"{library}.")
    of = [package for package in packages if inside.startswith(f"{package}.")]
    return max(of, key=len, default=library)


if __name__ == "__main__":
    main.cli()
