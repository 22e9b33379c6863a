"""An index on disk: its arrays, its open tickets, and how to make its learner again.

    index.json     ids, open tickets, learner, encoder, version
    arrays.npz     the learner's state, the descriptions, the queries of open tickets

A preset is made again from its name and settings; a rule of one's own must be given to `load`.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxret import encoders
from jaxret.encoders import TextEncoder
from jaxret.online import presets
from jaxret.online.learner import Learner

if TYPE_CHECKING:
    from jaxret.online.index import Index

VERSION = 1


def save(index: "Index", folder: Path) -> None:
    """Writes an index; files are replaced one after the other, the description last."""
    folder.mkdir(parents=True, exist_ok=True)
    leaves = jax.tree.leaves(index.state)
    arrays = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays["documents"] = index.documents
    tickets = index.tickets
    arrays["queries"] = np.array([ticket.query for ticket in tickets.values()]).reshape(
        -1, index.documents.shape[1]
    )
    described = {
        "version": VERSION,
        "ids": index.ids,
        "seed": index.seed,
        "next_ticket": index.next_ticket,
        "tickets": [
            {"number": number, "rows": ticket.rows, "propensities": ticket.propensities}
            for number, ticket in tickets.items()
        ],
        "learner": {"name": index.learner.name, "origin": index.learner.origin},
        "encoder": None if index.encoder is None else _encoder_words(index.encoder),
    }
    part = folder / "arrays.part.npz"
    np.savez(part, allow_pickle=False, **arrays)
    part.replace(folder / "arrays.npz")
    (folder / "index.json").write_text(json.dumps(described, indent=1) + "\n")


def load(folder: Path, learner: Learner | None, encoder: TextEncoder | None) -> dict[str, Any]:
    """The attributes of an index.

    Raises:
      FileNotFoundError: where there is none.
      ValueError: for a damaged one, or where the learner is not known or another one.
    """
    from jaxret.online.index import Open

    path = folder / "index.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no index.json: write it with index.save({folder})")
    try:
        told = json.loads(path.read_text())
        with np.load(folder / "arrays.npz") as file:
            arrays = dict(file)
        named, tickets = told["learner"], told["tickets"]
    except Exception as error:  # NumPy raises many kinds for a damaged file
        raise ValueError(f"{folder} is damaged ({type(error).__name__}): save it again") from error
    if learner is None:
        if named["origin"] is None:
            name = named["name"]
            raise ValueError(f"learner {name!r} is no preset: give it, Index.load(folder, learner)")
        name, settings = named["origin"]
        learner = presets.REGISTRY[name](**presets.revived(settings))
    elif learner.name != named["name"]:
        raise ValueError(f"{folder} holds a state of {named['name']!r}, not of {learner.name!r}")
    documents = arrays["documents"]
    blank = jax.eval_shape(learner.init, jnp.asarray(documents), jnp.zeros(len(documents), bool))
    leaves = [jnp.asarray(arrays[f"state_{i}"]) for i in range(len(jax.tree.leaves(blank)))]
    wanted = [leaf.shape for leaf in jax.tree.leaves(blank)]
    if [leaf.shape for leaf in leaves] != wanted:
        raise ValueError(f"{folder} holds another state than {learner.name!r} has: other settings?")
    if encoder is None and told["encoder"] is not None:
        encoder = encoders.load_encoder(
            told["encoder"]["name"],
            None if told["encoder"]["path"] is None else Path(told["encoder"]["path"]),
        )
    return {
        "learner": learner,
        "encoder": encoder,
        "seed": told["seed"],
        "ids": told["ids"],
        "documents": documents,
        "state": jax.tree.unflatten(jax.tree.structure(blank), leaves),
        "tickets": {
            ticket["number"]: Open(query, ticket["rows"], ticket["propensities"])
            for ticket, query in zip(tickets, arrays["queries"], strict=True)
        },
        "next_ticket": told["next_ticket"],
    }


def _encoder_words(encoder: TextEncoder) -> dict[str, str | None]:
    """Its name; and where it is, unless it has the published weights, which are found by name."""
    path = None if encoder.sha256 is not None else str(encoder.directory)
    return {"name": encoder.spec.name, "path": path}
