"""From a config to a task and its encoder."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import jax
import numpy as np
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from jaxret import data, encoders, task
from jaxret.data.dataset import Dataset, select
from jaxret.data.hops import as_hops
from jaxret.runtime import sharding
from jaxret.task import Task


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TextTask(Task):
    """A task that came from texts, as those of all experiments do."""

    documents: tuple[str, ...]
    texts: tuple[str, ...]
    encoder: encoders.TextEncoder
    document: str
    dataset: Dataset


def load_task(cfg: DictConfig) -> TextTask:
    """Loads and encodes what the config names; vectors come from the cache where they can."""
    dataset = read_dataset(cfg)
    return encode_dataset(cfg, as_hops(dataset) if cfg.dataset.get("hops") else dataset)


def read_dataset(cfg: DictConfig) -> Dataset:
    """The data set, its tasks of several steps whole."""
    return data.load(cfg.dataset.name, cfg.dataset.path, **plain(cfg.dataset.options))


def drawn(dataset: Dataset, number: int | None, seed: int) -> Dataset:
    """So many of the queries, in their order; all where no number is said."""
    rows = np.random.default_rng(seed).permutation(len(dataset.queries))
    return dataset if number is None else select(dataset, np.sort(rows[:number]))


def encode_dataset(cfg: DictConfig, dataset: Dataset) -> TextTask:
    """A data set in numbers."""
    print(dataset.summary(), flush=True)
    encoder = find_encoder(cfg.encoder)
    found = task.encoded(dataset, encoder, document=cfg.document, cache=cache_folder(cfg))
    return TextTask(**{field.name: getattr(found, field.name) for field in fields(found)})


def encoded(task: TextTask, encoder: encoders.TextEncoder, cache: Path) -> TextTask:
    """The task in another encoder's vectors."""
    return replace(
        task,
        encoder=encoder,
        theta=encoders.encode(encoder, task.documents, kind="document", cache=cache),
        queries=encoders.encode(encoder, task.texts, kind="query", cache=cache),
    )


def find_encoder(spec: DictConfig) -> encoders.TextEncoder:
    """The encoder that ``encoder=NAME`` stands for.

    It says how much memory the weights will take, and reads none, unless ``layers`` cuts them.
    """
    path = None if spec.path is None else Path(spec.path)
    options = {key: value for key, value in plain(spec).items() if key not in ("name", "path")}
    devices = options.pop("devices", 1)
    mesh = None if devices == 1 else sharding.make_mesh(model=devices, devices=jax.local_devices())
    encoder = encoders.load_encoder(spec.name, path, mesh=mesh, **options)
    print(f"{spec.name}: {encoder.memory()}", flush=True)
    return encoder
