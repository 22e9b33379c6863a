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
the difference between the first learner of the file and each other one, paired by seed, with its
95 % interval (Student's t). Seeds differ in order and draws, not in the held-out queries. A data
set is ``name=path`` (`jaxret.data.SOURCES`; any other name is a folder in the jsonl layout).
Presets have their default settings; use `jaxret.sweep` to choose others.

2 cores, busy with other work too: DeskBank 41 to 52 s, and two minutes the first time, when its
texts are encoded. Writes ``runs/race/<file>/race.txt`` and ``race.png``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.race.entries import Refused, learners_of, load, opponents
from experiments.race.standings import figure, race, table
from jaxret.evaluation import plots

PRESETS = ("frozen", "orag", "banditron", "greedy", "full_information")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.race", description=about)
    parser.add_argument("file", type=Path, help="with a function learner()")
    parser.add_argument("data", nargs="*", help="beside deskbank: name=path")
    parser.add_argument("--presets", default=",".join(PRESETS), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--exposures", type=int, default=2)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--output", type=Path, default=Path("runs/race"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns 2 for wrong input."""
    options = parsed(arguments)
    try:
        if options.seeds < 2 or options.exposures < 1:
            raise Refused("--seeds must be 2 or more, and --exposures 1 or more")
        own = learners_of(options.file)
        others = opponents([name for name in options.presets.split(",") if name], own)
        if not others and len(own) < 2:
            raise Refused("nobody to race against: name --presets")
        tasks = [load(named, options.encoder) for named in ("deskbank", *options.data)]
        if len({task.name for task in tasks}) < len(tasks):
            raise Refused("two data sets have one name: give another, as in mine=FOLDER")
    except Refused as error:
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


if __name__ == "__main__":
    sys.exit(main())
