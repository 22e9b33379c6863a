"""Reads the sizes of a network from a HuggingFace ``config.json``, and checks its settings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_sizes(
    source: Path | Mapping[str, Any],
    *,
    kind: str,
    names: Mapping[str, str],
    computed: Mapping[str, Any],
) -> dict[str, Any]:
    """Reads the sizes of a network with attention heads.

    Args:
      source: the file, or its content as a dict.
      kind: kind of network, for the message.
      names: our name of a size -> published name; includes ``hidden`` and ``heads``.
      computed: supported value of each setting, which may also be missing.

    Returns:
      The sizes by our names.

    Raises:
      ValueError: if a size is missing, the heads do not divide the width, or a setting has an
        unsupported value.
    """
    if isinstance(source, Mapping):
        name, config = "config", source
    else:
        name, config = str(source), json.loads(Path(source).read_text())
    for setting, wanted in computed.items():
        if (actual := config.get(setting, wanted)) != wanted:
            raise ValueError(f"{name}: {setting} must be {wanted!r}, got {actual!r}")
    if missing := sorted(set(names.values()) - set(config)):
        raise ValueError(f"{name}: no value for {missing}, which {kind} config.json has")
    sizes = {own: config[published] for own, published in names.items()}
    if sizes["hidden"] % sizes["heads"]:
        raise ValueError(
            f"{name}: num_attention_heads must divide hidden_size, "
            f"got {sizes['heads']} heads and {sizes['hidden']}"
        )
    return sizes
