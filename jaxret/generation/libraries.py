"""A catalogue of tools from an installed library.

    bank = build_catalogue("numpy")
    write_json_lines(Path("bank/tools.jsonl"), [tool.row() for tool in bank.tools])

NumPy and pandas are introspected, AWS's services read from botocore. Descriptions are the first
paragraphs of the documentation, and tools go by their real names; ToolBank's descriptions were
condensed by a language model, and the functions of NumPy and pandas renamed.
"""

from jaxret.generation import introspect, services
from jaxret.generation.catalogue import Catalogue
from jaxret.runtime.validate import require

LIBRARIES = ("numpy", "pandas", "aws")


def build_catalogue(library: str, *, words: int = 80) -> Catalogue:
    """Builds the catalogue of a library.

    Args:
      library: one of `LIBRARIES`.
      words: of a description, at most.

    Raises:
      ImportError: the library is not installed.
      ValueError: the library is unknown.
    """
    require("words", words, ">= 1", lambda x: x >= 1)
    require("library", library, f"one of {', '.join(LIBRARIES)}", lambda x: x in LIBRARIES)
    if library == "aws":
        return services.catalogue(words=words)
    return introspect.catalogue(library, introspect.PACKAGES[library], words=words)
