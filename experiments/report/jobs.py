"""The runs of a section of ``configs/report.yaml``: command, directory and state."""

import shlex
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from experiments.common.config import CONFIGS, plain


class Job(NamedTuple):
    """One run of a section."""

    dataset: str
    change: str  # overrides of its sweep; empty without a sweep
    command: str
    cfg: DictConfig
    data: Path | None  # expected path of its data

    @property
    def label(self) -> str:
        return ", ".join(part for part in (self.dataset, self.change) if part)

    @property
    def directory(self) -> Path:
        return Path(self.cfg.directory)

    @property
    def done(self) -> bool:
        return (self.directory / "results.json").exists()

    @property
    def missing_data(self) -> bool:
        return self.data is not None and not self.data.exists()


def plan(cfg: DictConfig, section: Mapping[str, Any]) -> Iterator[Job]:
    """Yield the runs of a section: its data sets times the points of its sweep."""
    config = section.get("config", section["experiment"])
    sweep = [f"+sweep={section['sweep']}"] if "sweep" in section else []
    for dataset in section["datasets"]:
        where = [*sweep, *plain(cfg)["datasets"][dataset], *section.get("with", ())]
        where += cfg.always
        for changes in changes_of(config, where) if sweep else [()]:
            ran = composed(config, [*where, *changes])
            words = ["uv", "run", "python", "-m", f"experiments.{section['experiment']}"]
            words += ["--config-name", config] if config != section["experiment"] else []
            yield Job(
                dataset=dataset,
                change=", ".join(change.lstrip("+") for change in changes),
                command=shlex.join([*words, *where, *changes]),
                cfg=ran,
                data=None if ran.dataset.path is None else Path(ran.dataset.path),
            )


def changes_of(config: str, overrides: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of Hydra's sweeper, for a config with a preset."""
    params = plain(_compose(config, overrides).hydra.sweeper.params)
    lines = [f"{key}={values}" for key, values in params.items()]
    swept = OverridesParser.create().parse_overrides(lines)
    return product(
        *([f"{x.get_key_element()}={v}" for v in x.sweep_string_iterator()] for x in swept)
    )


def composed(config: str, overrides: list[str]) -> DictConfig:
    """Compose a config as on the command line, with the directory of the run."""
    cfg = _compose(config, overrides)
    directory = cfg.hydra.run.dir
    OmegaConf.set_readonly(cfg, False)
    OmegaConf.set_struct(cfg, False)
    del cfg["hydra"]
    cfg.directory = directory
    return cfg


def _compose(config: str, overrides: list[str]) -> DictConfig:
    GlobalHydra.instance().clear()  # one at a time; the report's config is already read
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(config, overrides, return_hydra_config=True)
