"""What AWS offers, from the service models inside the package botocore; no network.

A tool is an operation of a service under the name of its method in boto3:
``ec2.client.accept_address_transfer``.
"""

from collections import Counter
from typing import Any

from jaxret.generation import docstrings
from jaxret.generation.catalogue import Catalogue, Tool

SERVICES = ("ec2", "rds", "iam", "s3", "sns")  # of the paper


def catalogue(*, words: int, services: tuple[str, ...] = SERVICES) -> Catalogue:
    """The operations of some services.

    Args:
      words: of a description, at most.
      services: names of botocore.

    Raises:
      ImportError: botocore is not installed.
      ValueError: a service is unknown.
    """
    try:
        import botocore
        import botocore.session
    except ImportError as error:
        raise ImportError(
            "the catalogue of AWS needs botocore installed: install jaxret[generation]"
        ) from error
    loader = botocore.session.get_session().get_component("data_loader")
    known = loader.list_available_services("service-2")
    if unknown := sorted(set(services) - set(known)):
        raise ValueError(f"services: unknown {unknown}; known: {len(known)} such as {known[:5]}")
    tools, counts = [], {}
    for service in services:
        model = loader.load_service_model(service, "service-2")
        count = counts[service] = Counter(found=len(model["operations"]))
        for name, operation in sorted(model["operations"].items()):
            plain = docstrings.strip_html(operation.get("documentation", ""))
            if description := docstrings.shorten(plain, words):
                method = f"{service}.client.{botocore.xform_name(name)}"
                parameters = _parameters(operation, model["shapes"])
                tools.append(Tool(id=method, description=description, parameters=parameters))
            count["undocumented" if not description else "tools"] += 1
    version = f"botocore {botocore.__version__}"
    return Catalogue(source=version, tools=tuple(tools), counts=counts)


def _parameters(operation: dict[str, Any], shapes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    given = operation.get("input")
    shape = shapes[given["shape"]] if given else {}
    required = shape.get("required", ())
    return {
        name: {"type": shapes[member["shape"]]["type"], "required": name in required}
        for name, member in shape.get("members", {}).items()
    }
