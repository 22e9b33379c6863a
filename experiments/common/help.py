"""The text of ``--help``: an experiment, its settings with their meaning, and names of blocks.

Hydra prints settings without the comments of ``configs/*.yaml``, which say what a setting means.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from experiments.common.config import CONFIGS, ENCODER, NAMES

#: Tables of named blocks; the first comment of a table gives the meaning of its settings.
TABLES = {
    "dataset": "datasets",
    "environment": "environments",
    "learner": "learners",
    "sweep": "sweeps",
    "recipe": "methods",
}
#: Meanings of settings that many experiments share, for configs without a comment of their own.
SHARED = {
    "chunk": "number of rounds between two points at which a run can be stopped and resumed",
    "cuts": "values of k in the ranking metrics: recall@k, ndcg@k",
    "dataset": "source of tools and queries; its name and content are part of the run's name",
    "document": "template that makes the text of a tool (jaxret.data.templates)",
    "eta_over_tau": "step of a row per unit of coefficient, eta / tau; a list is a grid",
    "experiment": "name of the folder of its runs: runs/EXPERIMENT",
    "exposures": "number of times that each query is streamed",
    "heldout": "share of the queries, split by question, that is never streamed",
    "k": "k in the ranking metrics: recall@k, ndcg@k",
    "llm": "language model: its name, its endpoint, and the variable that holds the key",
    "methods": "methods to compare; each is a row of the table",
    "models": "folder in which trained models are saved and looked up",
    "projection": "projection of the rows after an update (jaxret.rules.projections)",
    "recipes": "settings of trained methods that differ from configs/methods.yaml",
    "repeats": "number of times that each timing is repeated",
    "rounds": "number of rounds of each stream",
    "schedule": "schedule of the step size (jaxret.rules.schedules)",
    "seeds": "number of seeds, each with its own order and samples",
    "tau": "temperature of the softmax; a list is a grid",
    "tracking": "where metrics are written: files, offline or online (base.yaml explains them)",
    "validation": "share of the queries, split by question, on which settings are chosen",
}
HOW = """\
Settings: NAME=VALUE; a setting inside another one is NAME.INNER=VALUE. A list is one value;
-m NAME=A,B makes two runs, with A and with B. `--cfg job` prints the values with which a command
would run, and `--hydra-help` the options of Hydra."""


_BLOCK = r"^(?:{}):.*\n(?:[ -].*\n)*"  # a block of a file with its content


def help_text(about: str, config: str) -> str:
    """Make the help of an experiment."""
    parts = [about.strip(), HOW]
    for place, lines in sources(config):
        parts.append("\n".join([f"---- {place}", *explained(lines)]).rstrip())
    parts.append("---- named blocks of settings: GROUP=NAME")
    for group, names in NAMES.items():
        parts.append("\n".join([*_introduction(group), f"  {group}={'|'.join(names)}"]))
    return "\n\n".join(parts)


def sources(config: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location and the lines of a config, then those of the configs in its defaults."""
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
    """Add the meaning of each shared setting to lines without a comment of their own."""
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
    """Return the meaning of the settings in a group's blocks, as comments."""
    if group == "encoder":
        return [f"# encoder.{name}: {meaning}" for name, (_, meaning) in ENCODER.items()]
    lines = Path(CONFIGS, f"{TABLES[group]}.yaml").read_text().splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
