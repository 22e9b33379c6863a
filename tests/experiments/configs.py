"""Hydra settings of small runs, as an experiment's command line would compose them."""

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.common.config import CONFIGS


def config_of(name: str, *overrides: str) -> DictConfig:
    """Composes ``configs/NAME.yaml`` with some of its settings overridden."""
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(name, list(overrides))


def in_world(world, directory) -> list[str]:
    """Returns overrides that select the data and encoder of ``world`` and an output folder."""
    return [
        "dataset=jsonl",
        f"dataset.path={world / 'data'}",
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
        "tracking=files",
    ]
