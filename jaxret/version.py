"""The version of the installed package."""

from importlib import metadata

try:
    __version__ = metadata.version("jaxret")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
