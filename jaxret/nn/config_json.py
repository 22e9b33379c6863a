"""What a HuggingFace ``config.json`` says of a network: its sizes, and that it is computed here."""

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
    """Reads the sizes of a network with heads of attention.

    Args:
      source: the file, or the dict that it holds.
      kind: of network, for the message.
      names: our name of a size -> the published one; ``hidden`` and ``heads`` are among them.
      computed: settings that may say one thing only, or nothing.

    Returns:
      the sizes by our names.

    Raises:
      ValueError: if a size is missing, the heads do not divide the width, or a setting says
        something else.
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
