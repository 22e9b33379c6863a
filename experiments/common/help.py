"""The text of ``--help``: an experiment, its settings with what each means, and names of blocks.

Hydra prints settings without the comments of ``configs/*.yaml``, which say what a setting means.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from experiments.common.config import CONFIGS, ENCODER, NAMES

#: The tables of blocks, whose first comment says what their settings mean.
TABLES = {
    "dataset": "datasets",
    "environment": "environments",
    "learner": "learners",
    "sweep": "sweeps",
    "recipe": "methods",
}
#: Settings of many experiments, where a config has no comment of its own.
SHARED = {
    "chunk": "rounds between two points where a run can stop",
    "cuts": "k of the ranking metrics",
    "dataset": "source of tools and queries; its name and content are part of the run's name",
    "document": "the template that makes a text of a tool (jaxret.data.templates)",
    "eta_over_tau": "step of a row per unit of coefficient; a list is a grid",
    "experiment": "the folder of its runs: runs/EXPERIMENT",
    "exposures": "number of times that each query is streamed",
    "heldout": "share of the queries, split by question, that is never streamed",
    "k": "cut of the ranking metrics",
    "llm": "the language model: its name, endpoint, and the variable that holds the key",
    "methods": "methods to compare, one row of the table each",
    "models": "folder in which trained models are saved and looked up",
    "projection": "projection of the rows after an update (jaxret.rules.projections)",
    "recipes": "settings of the trained methods that differ from their block",
    "repeats": "repetitions of each timing",
    "rounds": "rounds of each stream",
    "schedule": "schedule of the step size (jaxret.rules.schedules)",
    "seeds": "number of seeds, each with its own order and samples",
    "tau": "temperature of the policy; a list is a grid",
    "tracking": "files, offline or online, as in base.yaml",
    "validation": "share of the queries, split by question, that chooses settings",
}
HOW = """\
Settings: NAME=VALUE, or NAME.INNER=VALUE for an inner one. A list is one value; -m NAME=A,B runs
each of A and B. `--cfg job` prints the values with which a command would run, and `--hydra-help`
the options of Hydra."""


_BLOCK = r"^(?:{}):.*\n(?:[ -].*\n)*"  # a block of a file with its content


def help_text(about: str, config: str) -> str:
    """Makes the help of an experiment.

    Args:
      about: its docstring.
      config: the name of a file of ``configs``, or of a block of ``configs/variants.yaml``.

    Returns:
      the docstring, the settings with their meaning, and the names of blocks.

    Raises:
      FileNotFoundError: where there is no such config.
    """
    parts = [about.strip(), HOW]
    for place, lines in sources(config):
        parts.append("\n".join([f"---- {place}", *explained(lines)]).rstrip())
    parts.append("---- blocks of settings that have a name: GROUP=NAME")
    for group, names in NAMES.items():
        parts.append("\n".join([*_introduction(group), f"  {group}={'|'.join(names)}"]))
    return "\n\n".join(parts)


def sources(config: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the place and the lines of a config, and then of those that it starts from."""
    variants = Path(CONFIGS, "variants.yaml").read_text()
    found = re.search(rf"^{config}:.*\n((?:  .*\n|\n)*)", variants, re.MULTILINE)
    if found is None:
        place, text = f"configs/{config}.yaml", Path(CONFIGS, f"{config}.yaml").read_text()
    else:
        place = f"configs/variants.yaml, {config}"
        text = re.sub(r"^  ", "", found[1], flags=re.MULTILINE)
    defaults = re.search(_BLOCK.format("defaults"), text, re.MULTILINE)
    listed = {"defaults": []} if defaults is None else OmegaConf.create(defaults[0])
    yield place, re.sub(_BLOCK.format("defaults|hydra"), "", text, flags=re.M).splitlines()
    for parent in dict(listed)["defaults"]:
        if isinstance(parent, str) and parent != "_self_":
            yield from sources(parent)


def explained(lines: Sequence[str]) -> list[str]:
    """Adds the meaning of shared settings where a line has no comment of its own."""
    starts = [i for i, line in enumerate(lines) if re.match(r"\w+:", line)]
    found = list(lines)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        setting = lines[start].partition(":")[0]
        commented = any("#" in line for line in lines[start:end] if not line.startswith("#"))
        above = start > 0 and lines[start - 1].startswith("#")
        if not (commented or above) and setting in SHARED:
            found[start] += f"   # {SHARED[setting]}"
    return found


def _introduction(group: str) -> list[str]:
    """Returns the meaning of the settings in a group's blocks, as comments."""
    if group == "encoder":
        return [f"# encoder.{name}: {meaning}" for name, (_, meaning) in ENCODER.items()]
    lines = Path(CONFIGS, f"{TABLES[group]}.yaml").read_text().splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
