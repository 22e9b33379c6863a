"""An index on disk: its arrays, its open tickets, and the preset of its learner.

    index.json        ids, texts, open tickets, learner, encoder, version, name of the arrays
    arrays-<n>.npz    the learner's state, the initial rows, the queries of open tickets

``index.json`` is replaced last and atomically, so that an interrupted save leaves the old index. A
preset is restored from its name and settings; a custom learner must be given to `load`.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret import encoders
from jaxret.encoders import Encoder, TextEncoder
from jaxret.learners.learner import Learner, require_learner, vector_of
from jaxret.learners.registry import restore
from jaxret.logs import End
from jaxret.serving.allowed import NamedSet
from jaxret.serving.tickets import Open, Tickets
from jaxret.types import Prior, Query, State

VERSION = 2


class Stored(NamedTuple):
    """The contents of an index of I rows."""

    learner: Learner  # serving learner
    encoder: Encoder | None  # encoder of texts; None: queries are vectors
    state: State  # state of the learner
    names: list[str]  # tool of each row, including removed tools
    starts: Float[np.ndarray, "I d"]  # projected vector of each description [I, d]
    texts: list[str]  # text of each description; "" for a vector
    tickets: Tickets  # those that are open
    sets: list[NamedSet]  # sets of allowed tools that the journal has named, the latest last
    next_ticket: int  # number of the next ticket
    seed: int  # seed of the learner's draws
    identity: str  # secret of the index, of which the keys of tickets are made
    log: Path | None = None  # journal of the index
    end: End | None = None  # the last line of the journal before the save


def save(index: Stored, folder: Path) -> None:
    """Write an index."""
    open_, tickets = index.tickets, index.tickets.all
    queries = [vector_of(ticket.query) for ticket in tickets.values()]
    priors = [one.query.prior for one in tickets.values() if isinstance(one.query, Query)]
    sets = {one.name: one for one in index.sets}
    used = {one.allowed.name: one.allowed for one in tickets.values() if one.allowed is not None}
    leaves = jax.tree.leaves(index.state)
    arrays = {
        **{f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)},
        **{f"set_{name}": some.rows for name, some in (used | sets).items()},
        "starts": index.starts,
        "queries": np.array(queries, np.float32).reshape(-1, index.starts.shape[1]),
    }
    if priors:
        both = (np.array([np.asarray(one[i]) for one in priors]) for i in range(2))
        arrays |= dict(zip(("prior_items", "prior_scores"), both, strict=True))
    name = f"arrays-{uuid4().hex}.npz"
    described = {
        "version": VERSION,
        "arrays": name,
        "ids": index.names,
        "texts": index.texts,
        "seed": index.seed,
        "next_ticket": index.next_ticket,
        "log": None if index.log is None else str(index.log.resolve()),
        "end": index.end,
        "identity": index.identity,
        "open_tickets": open_.most,
        "expire": open_.age if np.isfinite(open_.age) else None,
        "tickets": [
            {
                **{name: getattr(ticket, name) for name in ("rows", "key", "time", "answered")},
                "number": number,
                "propensities": [None if np.isnan(p) else p for p in ticket.propensities],
                "allowed": None if ticket.allowed is None else ticket.allowed.name,
            }
            for number, ticket in tickets.items()
        ],
        "closed": open_.closed,
        "sets": list(sets),
        "learner": {"name": index.learner.name, "origin": index.learner.facts.origin},
        "encoder": None if index.encoder is None else _encoder_words(index.encoder),
    }
    np.savez(folder / name, allow_pickle=False, **arrays)
    part = folder / "index.json.part"
    part.write_text(json.dumps(described, indent=1, allow_nan=False) + "\n")
    _to_disk(folder / name, part)
    part.replace(folder / "index.json")
    for old in folder.glob("arrays-*.npz"):
        if old.name != name:
            old.unlink()


def _to_disk(*paths: Path) -> None:
    """Wait until files are on the disk, so that a loss of power leaves no index without arrays."""
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def load(folder: Path, learner: Learner | None, encoder: Encoder | None) -> Stored:
    """Read an index that `save` wrote.

    Args:
      folder: folder of the index.
      learner: learner of the index, required unless a preset made it; None: the named preset.
      encoder: encoder to use, required if the index was made with a callable; None: the encoder
        that the index names.

    Raises:
      FileNotFoundError: if there is no index.
      ValueError: if the index is damaged, its learner is unknown or not ``learner``, or its encoder
        was a callable and is not given.
    """
    path = folder / "index.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no index.json: write it with index.save({folder})")
    try:
        described = json.loads(path.read_text())
        with (folder / described["arrays"]).open("rb") as file, np.load(file) as stored:
            arrays = dict(stored)
        if described["version"] != VERSION:
            raise ValueError(f"version {described['version']}, not {VERSION}")
        named = {
            name.removeprefix("set_"): NamedSet(name.removeprefix("set_"), rows)
            for name, rows in arrays.items()
            if name.startswith("set_")
        }
        its_learner, its_encoder = described["learner"], described["encoder"]
        fields: dict[str, Any] = {
            **{name: described[name] for name in ("texts", "next_ticket", "seed", "identity")},
            "names": described["ids"],
            "starts": arrays["starts"],
            "tickets": _tickets(described, arrays, named),
            "sets": [named[name] for name in described["sets"]],
            "log": None if described["log"] is None else Path(described["log"]),
            "end": None if described["end"] is None else End(*described["end"]),
        }
    except Exception as error:  # NumPy raises many types for damaged files
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"{folder} is damaged or of another version ({problem})") from error
    learner = _learner(folder, its_learner, learner)
    if encoder is None and its_encoder is not None:
        if its_encoder.get("callable"):
            width = arrays["starts"].shape[1]
            raise ValueError(
                f"the texts of {folder} were encoded by the callable {its_encoder['name']!r} "
                f"(width {width:,}), which no file holds: Index.load(folder, encoder=it)"
            )
        encoder = encoders.load_encoder(its_encoder["name"], its_encoder["path"])
    state = _state(folder, learner, arrays)
    return Stored(learner=learner, encoder=encoder, state=state, **fields)


def _tickets(
    described: dict[str, Any], arrays: dict[str, np.ndarray], sets: dict[str, NamedSet]
) -> Tickets:
    """Rebuild the tickets of an index."""
    age = described["expire"]
    found = Tickets(described["open_tickets"], np.inf if age is None else age)
    found.closed = {int(number): why for number, why in described["closed"].items()}
    for one, query in zip(described["tickets"], _queries(arrays), strict=True):
        ticket = Open(
            query=query,
            rows=one["rows"],
            propensities=[np.nan if p is None else p for p in one["propensities"]],
            key=one["key"],
            time=one["time"],
            allowed=None if one["allowed"] is None else sets[one["allowed"]],
            answered=tuple(one["answered"]),
        )
        (found.partly if ticket.answered else found.waiting)[one["number"]] = ticket
    return found


def _queries(arrays: dict[str, np.ndarray]) -> list[Any]:
    """Return the queries of open tickets, with their priors if the learner reads them."""
    if "prior_items" not in arrays:
        return list(arrays["queries"])
    priors = map(Prior._make, zip(arrays["prior_items"], arrays["prior_scores"], strict=True))
    return [Query(*one) for one in zip(arrays["queries"], priors, strict=True)]


def _learner(folder: Path, named: dict[str, Any], given: Learner | None) -> Learner:
    """Return the learner of an index, restored or given."""
    name = named["name"]
    if given is not None:
        require_learner(given)
        if given.name != name:
            raise ValueError(f"{folder} holds a state of {name!r}, not of {given.name!r}")
        own, stored = given.facts.origin, named["origin"]
        if own is not None and stored is not None and list(own) != list(stored):
            raise ValueError(
                f"{folder} holds a state of {name!r} with the settings {stored[1]}, not {own[1]}"
            )
        return given
    try:
        return restore(name, named["origin"])
    except ValueError as error:
        raise ValueError(f"{error}: Index.load(folder, learner)") from error


def _state(folder: Path, learner: Learner, arrays: dict[str, np.ndarray]) -> State:
    """Rebuild the learner's state from its leaves, and check their shapes and types."""
    theta, available = jnp.asarray(arrays["starts"]), jnp.zeros(len(arrays["starts"]), bool)
    blank = jax.eval_shape(learner.init, theta, available)
    own, tree = jax.tree.flatten(blank)
    kind = [(leaf.shape, leaf.dtype) for leaf in own]
    count = sum(name.startswith("state_") for name in arrays)
    leaves = [arrays[f"state_{i}"] for i in range(count)]
    if kind != [(leaf.shape, leaf.dtype) for leaf in leaves]:
        raise ValueError(f"{folder} holds another state than {learner.name!r} has: other settings?")
    pairs = zip(leaves, own, strict=True)
    return jax.tree.unflatten(tree, [jnp.asarray(leaf, one.dtype) for leaf, one in pairs])


def _encoder_words(encoder: Encoder) -> dict[str, Any]:
    """Return the name of an encoder, and its path unless it has the published weights."""
    if not isinstance(encoder, TextEncoder):
        return {"name": encoders.encoder_name(encoder), "callable": True}
    path = None if encoder.sha256 is not None else str(encoder.directory)
    return {"name": encoder.spec.name, "path": path}
