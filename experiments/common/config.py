"""Settings: named blocks of settings, configs as plain data, and the name of a run.

``dataset=NAME``, ``encoder=NAME``, ``environment=NAME``, ``learner=[NAME, ...]`` and
``+sweep=NAME`` select blocks of settings on the command line. A block is an entry of a table:
`ENCODERS` in this module, and ``configs/{datasets,environments,learners,sweeps}.yaml``. Each
setting of a block can be overridden (``dataset.path=FOLDER``, ``learners.orag.tau=[0.02]``).
``learner=[my_learner.py:learner]`` is a learner from a file (`experiments.common.learner_files`).
``configs/variants.yaml`` holds whole configs that start from another one, for ``--config-name``.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from experiments.common import learner_files
from experiments.common.learners import learner_grid
from jaxret import __version__, data, encoders
from jaxret.data.templates import TEMPLATES
from jaxret.learners.grid import LearnerGrid
from jaxret.runtime.files import content_digest
from jaxret.runtime.validate import require

CONFIGS = str(Path(__file__).resolve().parents[2] / "configs")
#: The mode of W&B.
TRACKING: dict[str, Any] = {"files": "disabled", "offline": None, "online": "online"}
#: Numbers that mean the same in every experiment: counts (an experiment itself checks a list of
#: them), and shares of the queries.
POSITIVE = ("exposures", "seeds", "chunk", "k", "repeats")
SHARES = ("validation", "heldout")
#: Settings that do not change results.
_WHERE_NOT_WHAT = ("directory", "again", "cache", "tracking", "project", "hydra", "distributed")

#: Setting of an encoder -> default, and meaning.
ENCODER: dict[str, tuple[Any, str]] = {
    "path": (None, "a folder in HuggingFace layout; null: the installed package, or the hub"),
    "instruction": (None, "instruction in queries; null: the encoder's default, '': none"),
    "width": (None, "number of first coordinates of a vector; null: all"),
    "layers": (None, "number of first layers; null: all"),
    "dtype": ("float32", "of parameters and products: float32 or bfloat16"),
    "devices": (1, "number of devices over which the weights are split"),
}
ENCODERS = {
    name: {"name": name, **{key: value for key, (value, _) in ENCODER.items()}}
    for name in encoders.ENCODERS
}
for _large in ("qwen3_4b", "qwen3_8b", "tool_embed_4b"):
    ENCODERS[_large]["dtype"] = "bfloat16"
#: Random weights for training, written by ``python -m experiments.tiny_qwen3``.
ENCODERS["qwen3_tiny"] = ENCODERS["qwen3_0_6b"] | {"path": "runs/models/tiny_qwen3"}


def table(name: str) -> dict[str, Any]:
    """Read a file of ``configs`` with a block for each name, without resolving interpolations."""
    content = OmegaConf.to_container(OmegaConf.load(f"{CONFIGS}/{name}.yaml"))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def plain(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    """Convert a config to a dict of dicts, lists and numbers."""
    content = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def check_shared(cfg: DictConfig) -> None:
    """Check the settings that many experiments share: names and numbers."""
    for setting, known in (("document", TEMPLATES), ("tracking", TRACKING)):
        if setting in cfg:
            allowed = f"one of {', '.join(known)}"
            require(setting, cfg[setting], allowed, known.__contains__)
    for setting in POSITIVE:
        if setting in cfg and not OmegaConf.is_list(cfg[setting]):
            require(setting, cfg[setting], ">= 1", lambda x: x >= 1)
    for setting in SHARES:
        if setting in cfg:
            require(setting, cfg[setting], "in (0, 1)", lambda x: 0 < x < 1)


def learner_grids(cfg: DictConfig) -> list[LearnerGrid]:
    """Return the learners of ``learner=[...]``, with their grids."""
    return [learner_grid(name, spec) for name, spec in plain(cfg.learners).items()]


def cache_folder(cfg: DictConfig) -> Path:
    """Return the folder of encoded texts and answers of language models."""
    return encoders.cache_directory() if cfg.cache is None else Path(cfg.cache)


def settings(cfg: DictConfig) -> dict[str, Any]:
    """Return everything that can change a result: settings, data and the version of the code."""
    content = plain(cfg, resolve=False)
    kept = {key: value for key, value in content.items() if key not in _WHERE_NOT_WHAT}
    name, path = (OmegaConf.select(cfg, f"dataset.{key}") for key in ("name", "path"))
    place = Path(data.__file__).with_name(str(name)) if path is None else Path(path)  # or built in
    kept |= {"data": content_digest(place), "version": __version__}
    if isinstance(queries := OmegaConf.select(cfg, "dataset.options.queries"), str):
        kept |= {"queries": content_digest(Path(queries))}  # in a file of their own
    files = prompt_files(content)
    return kept | {"prompt_files": files} if files else kept


def prompt_files(content: Any, *, within: bool = False) -> dict[str, str | None]:
    """Hash the files that replace prompts: each text called ``prompt`` or under ``prompts``."""
    found: dict[str, str | None] = {}
    for name, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, str) and (within or name == "prompt"):
            found[value] = content_digest(Path(value))
        found |= prompt_files(value, within=within or name == "prompts")
    return found


def fingerprint(*, _root_: DictConfig) -> str:
    """Hash the settings to eight characters, for ``${fingerprint:}`` in a config."""
    return hashlib.sha256(json.dumps(settings(_root_), sort_keys=True).encode()).hexdigest()[:8]


NAMES: dict[str, dict[str, Any]] = {}  # group -> name -> block of settings


def register(group: str, blocks: dict[str, Any], place: Callable[[str], str] | None = None) -> None:
    """Register names with Hydra, as if each were a file of a config group."""
    NAMES[group] = blocks
    for name, block in blocks.items():
        package = place(name) if place else None
        ConfigStore.instance().store(group=group, name=name, node=block, package=package)


def register_learner_files(words: Sequence[str]) -> None:
    """Make the learners of files known to Hydra, as lines of ``configs/learners.yaml`` are."""
    values = [word.partition("=")[2] for word in words if re.match(r"\+?learner=", word)]
    found = [one for value in values for one in re.findall(r"[^][,'\"\s]+\.py(?::\w*)?", value)]
    taken = dict.fromkeys(NAMES["learner"], "configs/learners.yaml")
    for reference in dict.fromkeys(found):
        name, block = learner_files.block(reference)
        if name in taken:
            raise ValueError(
                f"{reference} and a learner of {taken[name]} are both called {name!r}: rename one"
            )
        taken[name] = reference
        *folders, file = [part for part in reference.split("/") if part]
        group = "/".join(["learner", *folders])
        ConfigStore.instance().store(file, block, group, package=f"learners.{name}")


register("dataset", table("datasets"))
register("encoder", ENCODERS)
register("environment", table("environments"))
register("learner", table("learners"), "learners.{}".format)
register("sweep", table("sweeps"), lambda name: "_global_")
for _name, _block in table("variants").items():
    ConfigStore.instance().store(name=_name, node=_block)
OmegaConf.register_new_resolver("fingerprint", fingerprint, replace=True)
