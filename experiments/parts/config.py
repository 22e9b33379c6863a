"""Configs as plain data, and the name that a run gets from its settings."""

import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

CONFIGS = str(Path(__file__).resolve().parents[2] / "configs")
_WHERE_NOT_WHAT = ("directory", "again", "cache", "tracking", "hydra")  # change no result


def plain(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    """The config as a dict of dicts, lists and numbers."""
    content = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def settings(cfg: DictConfig) -> dict[str, Any]:
    """All settings that can change a result."""
    content = plain(cfg, resolve=False)
    return {key: value for key, value in content.items() if key not in _WHERE_NOT_WHAT}


def fingerprint(*, _root_: DictConfig) -> str:
    """Eight letters that stand for the settings; ``${fingerprint:}`` in a config."""
    return hashlib.sha256(json.dumps(settings(_root_), sort_keys=True).encode()).hexdigest()[:8]


OmegaConf.register_new_resolver("fingerprint", fingerprint, replace=True)
