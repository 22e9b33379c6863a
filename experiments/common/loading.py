"""Loads tasks, data sets and encoders from a config."""

from pathlib import Path

import jax
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, plain
from jaxret import data, encoders
from jaxret.data.dataset import Dataset, select
from jaxret.encoders import TextEncoder
from jaxret.runtime import sharding
from jaxret.task import Task


def task_of(cfg: DictConfig, document: str | None = None) -> Task:
    """Load and encode the data set that a config names; with another template of documents."""
    task = jr.load_task(
        cfg.dataset.name,
        cfg.dataset.path,
        encoder=encoder_of(cfg.encoder),
        document=document or cfg.document,
        cache=cache_folder(cfg),
        hops=bool(cfg.dataset.get("hops")),
        **plain(cfg.dataset.options),
    )
    assert task.dataset is not None
    print(task.dataset.summary(), flush=True)
    return task


def read_dataset(cfg: DictConfig) -> Dataset:
    """Read the data set that a config names, without encoding it."""
    return data.load(cfg.dataset.name, cfg.dataset.path, **plain(cfg.dataset.options))


def sample_queries(dataset: Dataset, number: int | None, seed: int) -> Dataset:
    """Draw a number of queries, in their order; None takes all."""
    rows = np.random.default_rng(seed).permutation(len(dataset.queries))
    return dataset if number is None else select(dataset, np.sort(rows[:number]))


def encoder_of(spec: DictConfig) -> TextEncoder:
    """Load the encoder that ``encoder=NAME`` stands for; its weights are read when it is used."""
    path = None if spec.path is None else Path(spec.path)
    options = {key: value for key, value in plain(spec).items() if key not in ("name", "path")}
    devices = options.pop("devices", 1)
    mesh = None if devices == 1 else sharding.make_mesh(model=devices, devices=jax.local_devices())
    encoder = encoders.load_encoder(spec.name, path, mesh=mesh, **options)
    print(f"{spec.name}: {encoder.memory()}", flush=True)
    return encoder
