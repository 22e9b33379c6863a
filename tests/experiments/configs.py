"""Hydra settings of small runs, as an experiment's command line would compose them."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.common.config import CONFIGS

#: A cross-encoder of one layer that hardly trains.
SMALL_CROSS_ENCODER = [
    "recipes.cross_encoder.layers=1",
    "recipes.cross_encoder.epochs=0.1",
    "recipes.cross_encoder.limit=16",
    "recipes.cross_encoder.document_limit=16",
]


def config_of(name: str, *overrides: str) -> DictConfig:
    """Compose ``configs/NAME.yaml`` with some of its settings overridden.

    Hydra needs 0.2 to 0.5 s, so each choice of blocks is composed once in a process, and values are
    set on a copy. Hydra itself composes the whole if that fails, and so words the error.
    """
    values = [line for line in overrides if _sets_a_value(line)]
    blocks = tuple(line for line in overrides if line not in values)
    cfg = deepcopy(_once(name, *blocks))
    try:
        for override in map(_parsed, values):
            OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
    except OmegaConfBaseException:
        return composed(name, *overrides)
    return cfg


def composed(name: str, *overrides: str) -> DictConfig:
    """Compose ``configs/NAME.yaml`` anew, for blocks that change while the process runs."""
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(name, list(overrides))


_once = cache(composed)


def _sets_a_value(line: str) -> bool:
    """Return whether Hydra would set one value, rather than choose a block, add or delete."""
    override = _parsed(line)
    chooses = override.key_or_group in ConfigStore.instance().repo or override.package is not None
    return override.type is OverrideType.CHANGE and not chooses and not override.is_sweep_override()


@cache
def _parsed(line: str) -> Override:
    return OverridesParser.create().parse_override(line)


def in_world(world, directory) -> list[str]:
    """Return overrides that select the data and encoder of ``world`` and an output folder."""
    return ["dataset=jsonl", f"dataset.path={world / 'data'}", *with_encoder(world, directory)]


def with_encoder(world, directory) -> list[str]:
    """Return overrides that select the encoder of ``world`` and an output folder."""
    return [
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
        "tracking=files",
    ]


def refused(main, cfg: DictConfig, message: str, error=ValueError) -> None:
    """Check that an experiment refuses its settings in these words and leaves no folder."""
    with pytest.raises(error, match=message):
        main(cfg)
    assert not Path(cfg.directory).exists()
