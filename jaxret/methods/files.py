"""A trained model as files: ``params.safetensors`` and ``model.json``, to be taken elsewhere.

The folder holds all parameters and the method's settings. What is published anyway (tokenizer and
architecture of the encoder) it does not hold: `load` of a method is given the encoder.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from jaxret.encoders import TextEncoder
from jaxret.nn.tensor_files import load_safetensors
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.runtime import distributed
from jaxret.training.config import from_plain
from jaxret.types import Params

PARAMS, MODEL = "params.safetensors", "model.json"


class Saved(NamedTuple):
    """What `read` found."""

    name: str  # of the retriever or reranker
    config: dict[str, Any]  # fields of the method's Config
    params: Params
    facts: dict[str, Any]


def write(
    folder: str | Path, method: str, model: Retriever | Reranker, params: Params, **facts: Any
) -> None:
    """Writes a model; one that is there is replaced.

    Args:
      folder: is made where it is not there.
      method: what made the model.
      model: with its name and its config.
      params: nested dicts of arrays.
      **facts: what else JSON can hold.

    Raises:
      ValueError: for a model that the method did not make.
    """
    if model.config is None:
        raise ValueError(f"{model.name!r} has no config: save what {method}.fit returned")
    if not distributed.leads():
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    leaves = jax.tree.leaves_with_path(params)
    flat = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    (folder / PARAMS).write_bytes(save({k: np.ascontiguousarray(x) for k, x in flat.items()}))
    about = {"method": method, "name": model.name, "config": asdict(model.config), "facts": facts}
    (folder / MODEL).write_text(json.dumps(about, indent=2) + "\n")


def read(folder: str | Path, method: str) -> Saved:
    """Reads a model.

    Raises:
      FileNotFoundError: if the folder holds none.
      ValueError: if another method made it.
    """
    folder = Path(folder)
    if not (folder / MODEL).is_file():
        raise FileNotFoundError(f"{folder} holds no model: it has no {MODEL}")
    about = json.loads((folder / MODEL).read_text())
    if about["method"] != method:
        raise ValueError(f"{folder} holds a model of {about['method']}, not of {method}")
    params: Params = {}
    for path, array in load_safetensors(folder / PARAMS).items():
        *above, last = path.split("/")
        inner = params
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = jnp.array(array)
    return Saved(name=about["name"], config=about["config"], params=params, facts=about["facts"])


def read_dense(
    folder: str | Path, method: str, kind: type, encoder: TextEncoder | None, cache: Path | None
) -> Retriever:
    """Reads a retriever that is one vector a tool, written with ``{"theta": ..}``.

    Args:
      folder: where it is.
      method: that made it.
      kind: the method's Config.
      encoder: of the queries; None: they are vectors.
      cache: where vectors of new queries are kept; None keeps nothing.
    """
    saved = read(folder, method)
    theta = np.asarray(saved.params["theta"])
    retriever = dense(saved.name, theta, encoder, cache=cache)
    return retriever._replace(config=from_plain(kind, saved.config))
