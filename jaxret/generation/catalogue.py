"""A catalogue of tools from an installed library.

    bank = build("numpy")
    save_lines(Path("bank/tools.jsonl"), [tool.row() for tool in bank.tools])

NumPy and pandas are introspected, AWS's services read from botocore. Descriptions are the first
paragraphs of the documentation, and tools go by their real names; ToolBank's descriptions were
condensed by a language model, and the functions of NumPy and pandas renamed.
"""

from jaxret.generation import introspect, services
from jaxret.generation.tools import Catalogue
from jaxret.validate import require

PYTHON = {"numpy": introspect.NUMPY, "pandas": introspect.PANDAS}
LIBRARIES = (*PYTHON, "aws")


def build(library: str, *, words: int = 80) -> Catalogue:
    """The catalogue of a library.

    Args:
      library: one of `LIBRARIES`.
      words: of a description, at most.

    Raises:
      ImportError: the library is not installed.
      ValueError: the library is unknown.
    """
    require("words", words, ">= 1", lambda x: x >= 1)
    require("library", library, f"one of {', '.join(LIBRARIES)}", lambda x: x in LIBRARIES)
    if library in PYTHON:
        return introspect.catalogue(library, PYTHON[library], words=words)
    return services.catalogue(words=words)
