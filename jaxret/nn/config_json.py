"""Reads the sizes of a network from a HuggingFace ``config.json``, and checks its settings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Our names of the sizes that every network has -> published names.
NAMES = {
    "vocab_size": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
}


def read_json(source: Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a source for messages, and its content."""
    if isinstance(source, Mapping):
        return "config", dict(source)
    return str(source), json.loads(Path(source).read_text())


def require_settings(
    name: str, config: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]
) -> None:
    """Check settings on which the computation depends.

    Args:
      name: name of the source, for messages.
      config: content of the source.
      allowed: supported values of each setting, the usual one first; None: it may be missing.

    Raises:
      ValueError: if a setting has an unsupported value.
    """
    for setting, values in allowed.items():
        if (actual := config.get(setting)) not in values:
            raise ValueError(f"{name}: {setting} must be {values[0]!r}, got {actual!r}")


def read_sizes(
    name: str, config: Mapping[str, Any], kind: str, names: Mapping[str, str]
) -> dict[str, Any]:
    """Read the sizes of a network with attention heads, by our names.

    Args:
      name: name of the source, for messages.
      config: content of the source.
      kind: kind of network, for messages.
      names: our name of a size -> published name, besides `NAMES`. Heads have the width
        ``hidden / heads`` unless ``head_width`` is among them.

    Raises:
      ValueError: if a size is missing, or the heads do not divide the width.
    """
    names = {**NAMES, **names}
    if missing := sorted(set(names.values()) - set(config)):
        raise ValueError(f"{name}: no value for {missing}, which {kind} config.json has")
    sizes = {own: config[published] for own, published in names.items()}
    if "head_width" not in sizes and sizes["hidden"] % sizes["heads"]:
        raise ValueError(
            f"{name}: num_attention_heads must divide hidden_size, "
            f"got {sizes['heads']} heads and {sizes['hidden']}"
        )
    return sizes
