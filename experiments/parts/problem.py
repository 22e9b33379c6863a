"""From a config to arrays: load a data set, encode it, part its queries."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

from experiments.parts.config import plain
from jaxret import data, encoders, metrics, sharding
from jaxret.data.dataset import Dataset, split_by_group
from jaxret.data.hops import as_hops
from jaxret.data.templates import normalise, template


class Problem(NamedTuple):
    """A data set in numbers."""

    dataset: Dataset
    encoder: encoders.TextEncoder
    documents: list[str]  # as they are encoded
    texts: list[str]  # the queries as they are encoded
    theta_1: Float[np.ndarray, "I d"]  # the documents' embeddings
    queries: Float[np.ndarray, "N d"]
    labels: Int[np.ndarray, "N L"]
    tie_order: Int[np.ndarray, " I"]


class Parts(NamedTuple):
    """Whose query is whose: masks over the queries, no question on two sides."""

    validation: Bool[np.ndarray, " N"]  # settings are chosen on these
    heldout: Bool[np.ndarray, " N"]  # never streamed in the held-out protocol
    training: Bool[np.ndarray, " N"]


def load(cfg: DictConfig) -> Problem:
    """Loads and encodes what the config names; embeddings come from the cache where they can."""
    dataset = read(cfg)
    return encoded(cfg, as_hops(dataset) if cfg.dataset.get("hops") else dataset)


def read(cfg: DictConfig) -> Dataset:
    """The data set, its tasks whole."""
    return data.load(cfg.dataset.name, cfg.dataset.path, **plain(cfg.dataset.options))


def encoded(cfg: DictConfig, dataset: Dataset) -> Problem:
    """A data set in numbers."""
    print(dataset.summary(), flush=True)
    metrics.check_labels(dataset.labels, len(dataset.tool_ids))
    render = template(cfg.document.recipe)
    documents = [render(document) for document in dataset.documents]
    encoder = find_encoder(cfg.encoder)
    cache = encoders.cache_directory() if cfg.cache is None else Path(cfg.cache)
    queries = [normalise(query) for query in dataset.queries]
    return Problem(
        dataset=dataset,
        encoder=encoder,
        documents=documents,
        texts=queries,
        theta_1=encoders.encode(encoder, documents, kind="document", cache=cache),
        queries=encoders.encode(encoder, queries, kind="query", cache=cache),
        labels=dataset.labels,
        tie_order=metrics.tie_order(dataset.tool_ids),
    )


def find_encoder(spec: DictConfig) -> encoders.TextEncoder:
    """The encoder that a config of the group ``encoder`` describes.

    It says how much memory the weights will take, and reads none, unless ``layers`` cuts them.
    """
    path = None if spec.path is None else Path(spec.path)
    options = {key: value for key, value in plain(spec).items() if key not in ("name", "path")}
    devices = options.pop("devices", 1)
    mesh = None if devices == 1 else sharding.make_mesh(model=devices)
    encoder = encoders.load_encoder(spec.name, path, mesh=mesh, **options)
    print(f"{spec.name}: {encoder.memory()}", flush=True)
    return encoder


def part(dataset: Dataset, validation: float, heldout: float, seed: int) -> Parts:
    """Draws a validation part, and of the rest a held-out part, by question."""
    fractions = (validation, (1 - validation) * heldout, (1 - validation) * (1 - heldout))
    masks = []
    for positions in split_by_group(dataset.groups, fractions, seed):
        mask = np.zeros(len(dataset.queries), bool)
        mask[positions] = True
        masks.append(mask)
    return Parts(*masks)
