"""Trained models as files: ``params.safetensors`` and ``model.json``.

    from jaxret import methods
    methods.save(retriever, "best_mlc")
    retriever = methods.load("best_mlc", encoder)

The folder holds all parameters and the method's settings. The tokenizer and the architecture of the
encoder are published elsewhere, so `load` takes the encoder.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import SequenceKey, keystr
from safetensors.numpy import save as to_bytes

from jaxret.encoders import Encoder, TextEncoder
from jaxret.methods import cross_encoder, encoder_tuning, mlc, nudge, refiner, tool2vec, tool_rank
from jaxret.nn.tensor_files import load_safetensors
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.runtime import distributed
from jaxret.training.config import from_plain
from jaxret.types import Params

PARAMS, MODEL = "params.safetensors", "model.json"

#: Method -> the class of its settings, and its ``build(config, params, encoder, name)``.
METHODS: dict[str, tuple[type, Callable[..., Any]]] = {
    "tool2vec": (tool2vec.Config, tool2vec.build),
    "nudge": (nudge.Config, tool2vec.build),
    **{name: (kind, encoder_tuning.build) for name, kind in encoder_tuning.CONFIGS.items()},
    "mlc": (mlc.Config, mlc.build),
    "refiner": (refiner.Config, refiner.build),
    "cross_encoder": (cross_encoder.Config, cross_encoder.build),
    "tool_rank": (tool_rank.Config, tool_rank.build),
}
#: Methods whose models have no weights of an encoder.
WITHOUT_ENCODER = ("tool2vec", "nudge", "tool_rank")


def save(model: Retriever | Reranker, folder: str | Path) -> None:
    """Write a model that a method's ``fit`` returned; replace a model in the folder.

    Args:
      model: the retriever or reranker.
      folder: made where it does not exist.

    Raises:
      ValueError: for a model that no method made.
    """
    method = [name for name, (kind, _) in METHODS.items() if type(model.config) is kind]
    if not method:
        raise ValueError(f"{model.name!r} has no config of a method: save what a fit returned")
    if not distributed.leads():
        return
    params, prior = model.params, getattr(model, "prior", None)
    if isinstance(model, Retriever) and method[0] in encoder_tuning.CONFIGS:
        assert isinstance(model.encoder, TextEncoder)
        params = (params, model.encoder.params)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {path: np.ascontiguousarray(leaf) for path, leaf in flat({"params": params}).items()}
    (folder / PARAMS).write_bytes(to_bytes(arrays))
    about = {"method": method[0], "name": model.name, "config": asdict(model.config)}
    (folder / MODEL).write_text(json.dumps(about | {"prior": prior}, indent=2) + "\n")


def load(folder: str | Path, encoder: Encoder | None = None) -> Any:
    """Read a model.

    Args:
      folder: written by `save`.
      encoder: the encoder that the model was trained from, with any weights. None for Tool-Rank,
        and for a model whose queries are vectors. Tool2Vec and NUDGE take a callable too.

    Raises:
      FileNotFoundError: if the folder holds no model.
      ValueError: for an unknown method or setting, or a method that needs an encoder with weights.
    """
    folder = Path(folder)
    if not (folder / MODEL).is_file():
        raise FileNotFoundError(f"{folder} holds no model: it has no {MODEL}")
    about = json.loads((folder / MODEL).read_text())
    if about["method"] not in METHODS:
        raise ValueError(
            f"{folder} holds a model of {about['method']!r}, which is not a method of jaxret"
        )
    kind, build = METHODS[about["method"]]
    if about["method"] not in WITHOUT_ENCODER and not isinstance(encoder, TextEncoder):
        raise ValueError(
            f"{folder} holds a model of {about['method']!r}, which needs the encoder that it was "
            "trained from: load(folder, load_encoder(NAME))"
        )
    arrays = load_safetensors(folder / PARAMS)
    params = nested({path: jnp.array(array) for path, array in arrays.items()})["params"]
    model = build(from_plain(kind, about["config"]), params, encoder, about["name"])
    return model if about["prior"] is None else model._replace(prior=about["prior"])


def flat(params: Params) -> dict[str, Any]:
    """Flatten nested dicts and tuples of arrays to ``{"#0/blocks/0/kernel": array}``."""

    def name(key):
        return f"#{key.idx}" if isinstance(key, SequenceKey) else keystr((key,), simple=True)

    leaves = jax.tree.leaves_with_path(params)
    return {"/".join(map(name, path)): leaf for path, leaf in leaves}


def nested(arrays: dict[str, Any]) -> Params:
    """Invert `flat`."""
    if set(arrays) == {""}:
        return arrays[""]
    groups: dict[str, dict[str, Any]] = {}
    for path, array in arrays.items():
        first, _, rest = path.partition("/")
        groups.setdefault(first, {})[rest] = array
    parts = {key: nested(group) for key, group in groups.items()}
    if any(key.startswith("#") for key in parts):
        return tuple(parts[f"#{i}"] for i in range(len(parts)))
    return parts
