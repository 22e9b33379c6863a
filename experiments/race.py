"""Compares your own learner with the presets.

    uv run python -m experiments.race my_learner.py                             # DeskBank, built in
    uv run python -m experiments.race my_learner.py ultratool=FILE mine=FOLDER  # and other data
    uv run python -m experiments.race my_learner.py --presets orag,greedy,mapped --seeds 10

``my_learner.py`` is any file with a function ``learner()`` that returns a learner or a list of
learners:

    import jaxret as jr

    def learner():
        return jr.greedy(tau=0.05, eta=0.01)._replace(name="warmer")

Every learner of the file is first tested by `jaxret.check_learner`. All learners run on the same
streams of four fifths of the queries, with the same seeds, and rank the last fifth. The table gives
the difference between the first learner of the file and each other one, with its 95 % interval
(`jaxret.compare`: seeds and questions are resampled). A data set is ``name=path``
(`jaxret.data.SOURCES`; any other name is a folder in the jsonl layout). Presets have their default
settings; use `jaxret.sweep` to choose others.

2 cores, busy with other work too: DeskBank 41 to 52 s, and two minutes the first time, when its
texts are encoded. Writes ``runs/race/<file>/race.txt`` and ``race.png``.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

import jaxret as jr
from experiments.common.learner_files import first_line, names_of
from jaxret import data
from jaxret.evaluation import plots

PRESETS = ("frozen", "orag", "banditron", "greedy", "full_information")
ONLINE, RANKED = METRICS = ("online accuracy", "ndcg@10")


class Line(NamedTuple):
    """One learner on one data set."""

    task: str
    learner: str
    values: dict[str, jr.Estimate]  # values of each metric
    ahead: dict[str, jr.Comparison]  # lead of the file's first learner; empty for itself


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.race", description=about)
    parser.add_argument("file", type=Path, help="with a function learner()")
    parser.add_argument("data", nargs="*", help="beside deskbank: name=path")
    parser.add_argument("--presets", default=",".join(PRESETS), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (5)")
    parser.add_argument("--exposures", type=int, default=2, help="times each query is streamed (2)")
    parser.add_argument("--encoder", default="minilm", help="name of the encoder (minilm)")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/race"), help="folder of the results (runs/race)"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 2 for wrong input."""
    options = parsed(arguments)
    try:
        if options.seeds < 2 or options.exposures < 1:
            raise ValueError("--seeds must be 2 or more, and --exposures 1 or more")
        own = learners_of(options.file)
        others = opponents([name for name in options.presets.split(",") if name], own)
        if not others and len(own) < 2:
            raise ValueError("no learner to race against: name --presets")
        tasks = [load(named, options.encoder) for named in ("deskbank", *options.data)]
        if len({task.name for task in tasks}) < len(tasks):
            raise ValueError("two data sets have one name: give another, as in mine=FOLDER")
    except (ValueError, OSError) as error:
        print(f"race: {error}", file=sys.stderr)
        return 2
    lines = race(own, others, tasks, seeds=options.seeds, exposures=options.exposures)
    folder = options.output / options.file.stem
    folder.mkdir(parents=True, exist_ok=True)
    text = table(lines)
    (folder / "race.txt").write_text(text + "\n")
    plots.save(figure(lines), folder / "race.png")
    print(text)
    print(f"written: {folder}/race.txt, {folder}/race.png", file=sys.stderr)
    return 0


def learners_of(file: Path) -> list[jr.Learner]:
    """Read the learners that ``learner()`` of a file returns, and check each."""
    if not file.is_file():
        raise ValueError(f"{file} does not exist")
    names = names_of(file)
    try:
        made = names["learner"]() if "learner" in names else None
    except Exception as error:
        raise ValueError(f"{file}: {first_line(error)}") from error
    if made is None:
        raise ValueError(f"{file} has no function learner() that returns a learner")
    found = [made] if isinstance(made, jr.Learner) else made
    if not isinstance(found, list | tuple) or not all(isinstance(x, jr.Learner) for x in found):
        raise ValueError(
            f"learner() of {file} must return a learner or a list of them, got {made!r}"
        )
    if not found:
        raise ValueError(f"learner() of {file} returns an empty list")
    for one in found:
        try:
            jr.check_learner(one)
        except Exception as error:
            raise ValueError(f"{file}: {first_line(error)}") from error
    return list(found)


def opponents(names: Sequence[str], own: Sequence[jr.Learner]) -> list[jr.Learner]:
    """Return the presets of these names, which must differ from each other and from ``own``."""
    known = jr.learners()
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no preset {unknown[0]!r}; there are {', '.join(known)}")
    mine = [one.name for one in own]
    if twice := [name for name in (*mine, *names) if [*mine, *names].count(name) > 1]:
        raise ValueError(
            f"two learners are called {twice[0]!r}: rename yours, "
            f"{twice[0]}(...)._replace(name='my_{twice[0]}')"
        )
    return [getattr(jr, name)() for name in names]


def load(named: str, encoder: str) -> jr.Task:
    """Load a data set from ``name`` or ``name=path``."""
    name, _, path = named.partition("=")
    if name in data.SOURCES or not path:
        return jr.load_task(name, path or None, encoder=encoder)
    return replace(jr.load_task("jsonl", path, encoder=encoder), name=name)


def race(
    own: Sequence[jr.Learner],
    others: Sequence[jr.Learner],
    tasks: Sequence[jr.Task],
    *,
    seeds: int,
    exposures: int,
) -> list[Line]:
    """Run all learners on the same streams, and compare the first of ``own`` with all others.

    Each task is split by question, with four fifths for learning.
    """
    lines = []
    for task in tasks:
        train, test = task.split((0.8, 0.2), seed=0)
        first = None
        for learner in (*own, *others):
            run = jr.simulate(learner, train, exposures=exposures, seeds=seeds)
            print(run, file=sys.stderr)
            values = {ONLINE: run.accuracy, **jr.evaluate(run, test, metrics=[RANKED])}
            ahead: dict[str, jr.Comparison] = {}
            if first is not None:
                ahead = {
                    ONLINE: jr.compare(first, run),
                    RANKED: jr.compare(first, run, RANKED, on=test),
                }
            lines.append(Line(task.name, learner.name, values, ahead))
            first = first or run
    return lines


def table(lines: Sequence[Line]) -> str:
    """Format a line per learner and data set, with the first learner's lead for each metric."""
    first = lines[0].learner
    rows = [["data", "learner"]]
    for metric in METRICS:
        rows[0] += [metric, f"{first} is ahead by"]
    for line in lines:
        row = [line.task, line.learner]
        for metric in METRICS:
            lead = line.ahead.get(metric)
            words = f"{lead.difference:+.3f} [{lead.low:+.3f}, {lead.high:+.3f}]" if lead else ""
            row += [str(line.values[metric]), words]
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(padded)


def figure(lines: Sequence[Line]) -> Figure:
    """Draw the first learner's lead in online accuracy, with intervals, a colour per data set."""
    first = lines[0].learner
    names = [one.learner for one in lines if one.task == lines[0].task and one.learner != first]
    tasks = list(dict.fromkeys(line.task for line in lines))
    fig, ax = plots.new_figure(f"by how much {first} is ahead, online accuracy", "")
    fig.set_figheight(1.2 + 0.2 * len(names) * (1 + len(tasks)))
    heights_of = {name: -place for place, name in enumerate(names)}
    for number, task in enumerate(tasks):
        shift = 0.5 * ((len(tasks) - 1) / 2 - number) / len(tasks)
        of_task = [line for line in lines if line.task == task and line.learner in heights_of]
        leads = [line.ahead[ONLINE] for line in of_task]
        heights = [heights_of[line.learner] + shift for line in of_task]
        (dots,) = ax.plot([lead.difference for lead in leads], heights, "o", label=task)
        ends = ([lead.low for lead in leads], [lead.high for lead in leads])
        ax.hlines(heights, *ends, color=dots.get_color(), linewidth=2)
    ax.axvline(0, color=plots.GREY, linewidth=1)
    ax.set_yticks(list(heights_of.values()), list(heights_of))
    ax.set_ylim(0.6 - len(names), 0.6)
    ax.margins(x=0.05)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(tasks), frameon=False)
    return fig


if __name__ == "__main__":
    sys.exit(main())
