"""Settings of small runs, as the command line of an experiment would compose them."""

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.common.config import CONFIGS


def config_of(name: str, *overrides: str) -> DictConfig:
    """The settings of ``configs/NAME.yaml`` with some of them overridden."""
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(name, list(overrides))


def in_world(world, directory) -> list[str]:
    """The data and the encoder of the fixture ``world``, and a place for what is written."""
    return [
        "dataset=jsonl",
        f"dataset.path={world / 'data'}",
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
        "tracking=files",
    ]
