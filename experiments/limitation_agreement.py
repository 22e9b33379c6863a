"""Does a judge that is asked about single limitations remove the invented ones?

    uv run python -m experiments.local_llm answers
    uv run python -m experiments.expand_documents confirm=[limitation] ...      # as on its page
    uv run python -m experiments.limitation_agreement RUN

RUN is the directory of that run. ``limitations_by_eye.jsonl`` has one reader's verdicts on the 73
limitations in its hundred sampled profiles: whether the documentation states them. The judge's
prompt was developed on those marked ``tried``; the others were read before the model was asked.
Prints how many of the stated and of the invented limitations the run has kept.
"""

import argparse
from collections import Counter
from pathlib import Path

from jaxret.runtime.files import json_lines

BY_EYE = Path(__file__).with_name("limitations_by_eye.jsonl")


def kept(tools: Path, by_eye: Path = BY_EYE) -> dict[tuple[bool, bool], tuple[int, int]]:
    """Count the kept limitations of a run: (tried, stated) -> (kept, all)."""
    rows = json_lines(tools, holds="one tool a line", fields=("id", "tool_profile"))
    profiles = {row["id"]: row["tool_profile"] for row in rows}
    left, all_ = Counter(), Counter()
    for row in json_lines(by_eye, holds="verdicts", fields=("id", "tried", "stated")):
        if row["id"] not in profiles:
            raise ValueError(f"{tools} has no tool {row['id']!r}: give a run on DeskBank")
        group = (row["tried"], row["stated"])
        all_[group] += 1
        left[group] += "limitation" in profiles[row["id"]]
    return {group: (left[group], all_[group]) for group in all_}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="directory of a finished run")
    found = kept(parser.parse_args().run / "expanded" / "tools.jsonl")
    for tried, title in ((True, "tried"), (False, "read before")):
        counts = " and ".join("{} of {}".format(*found[tried, stated]) for stated in (True, False))
        print(f"{title}: kept {counts} (stated and invented)")


if __name__ == "__main__":
    main()
