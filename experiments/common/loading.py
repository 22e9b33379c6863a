"""From a config to a task and its encoder; the parts of its queries."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from jaxret import data, encoders, sharding, task
from jaxret.data.dataset import Dataset, split_by_group
from jaxret.data.hops import as_hops
from jaxret.task import Task


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TextTask(Task):
    """A task that came from texts, as those of all experiments do."""

    documents: tuple[str, ...]
    texts: tuple[str, ...]
    encoder: encoders.TextEncoder
    document: str
    dataset: Dataset


class Masks(NamedTuple):
    """Whose query is whose: masks over the queries, no question on two sides.

    Of all seeds [N], or with a line a seed [S, N].
    """

    validation: Bool[np.ndarray, "*S N"]  # settings are chosen on these
    heldout: Bool[np.ndarray, "*S N"]  # never streamed in the held-out protocol
    training: Bool[np.ndarray, "*S N"]


def load_task(cfg: DictConfig) -> TextTask:
    """Loads and encodes what the config names; vectors come from the cache where they can."""
    dataset = read_dataset(cfg)
    return encode_dataset(cfg, as_hops(dataset) if cfg.dataset.get("hops") else dataset)


def read_dataset(cfg: DictConfig) -> Dataset:
    """The data set, its tasks of several steps whole."""
    return data.load(cfg.dataset.name, cfg.dataset.path, **plain(cfg.dataset.options))


def encode_dataset(cfg: DictConfig, dataset: Dataset) -> TextTask:
    """A data set in numbers."""
    print(dataset.summary(), flush=True)
    encoder = find_encoder(cfg.encoder)
    found = task.encoded(dataset, encoder, document=cfg.document, cache=cache_folder(cfg))
    return TextTask(**{field.name: getattr(found, field.name) for field in fields(found)})


def find_encoder(spec: DictConfig) -> encoders.TextEncoder:
    """The encoder that ``encoder=NAME`` stands for.

    It says how much memory the weights will take, and reads none, unless ``layers`` cuts them.
    """
    path = None if spec.path is None else Path(spec.path)
    options = {key: value for key, value in plain(spec).items() if key not in ("name", "path")}
    devices = options.pop("devices", 1)
    mesh = None if devices == 1 else sharding.make_mesh(model=devices)
    encoder = encoders.load_encoder(spec.name, path, mesh=mesh, **options)
    print(f"{spec.name}: {encoder.memory()}", flush=True)
    return encoder


def draw_parts(
    groups: Int[np.ndarray, " N"], validation: float, heldout: float, seed: int
) -> Masks:
    """Draws a validation part, and of the rest a held-out part, by question."""
    fractions = (validation, (1 - validation) * heldout, (1 - validation) * (1 - heldout))
    masks = []
    for positions in split_by_group(groups, fractions, seed):
        mask = np.zeros(len(groups), bool)
        mask[positions] = True
        masks.append(mask)
    return Masks(*masks)


def draw_parts_each(
    groups: Int[np.ndarray, " N"], validation: float, heldout: float, seeds: Sequence[int]
) -> Masks:
    """Draws parts anew for each seed, so that means over seeds are over splits too."""
    each = [draw_parts(groups, validation, heldout, seed) for seed in seeds]
    return Masks(*map(np.stack, zip(*each, strict=True)))
