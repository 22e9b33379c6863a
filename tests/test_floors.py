"""Imports go down the floors of the library only, and experiments use only the front door."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: From bottom to top. A package imports packages of lower floors, and none of its own floor.
FLOORS = (
    ("types", "version"),
    ("runtime",),
    ("tools",),
    ("rules", "nn", "data", "llm"),
    ("learners", "encoders"),
    ("environments", "task"),
    ("logs", "embeddings"),
    ("evaluation",),
    ("simulation", "retrieval", "training", "documents", "generation"),
    ("theory", "offline", "serving", "methods"),
    ("testing", "integrations"),
    ("__init__",),
)
HEIGHT = {name: floor for floor, names in enumerate(FLOORS) for name in names}
INSIDE = {
    f"benchmarks/{name}.py" for name in ("rounds", "rules", "scale", "simulate", "sizes", "timing")
}


def imported(path: Path) -> Iterator[str]:
    """Yield the full name of every module or name that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_down():
    up = []
    for path in sorted((ROOT / "jaxret").rglob("*.py")):
        inner = path.relative_to(ROOT / "jaxret")
        own = inner.with_suffix("").parts[0]
        for name in imported(path):
            head, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            other = other if other in HEIGHT else "__init__"  # a name of the facade
            if head == "jaxret" and other != own and HEIGHT[other] >= HEIGHT[own]:
                up.append(f"{inner} imports {name}")
            if head in ("hydra", "omegaconf") or (
                head == "wandb" and str(inner) != "runtime/tracking.py"
            ):
                up.append(f"{inner} imports {name}")
    assert not up


def test_experiments_import_nothing_from_inside_the_simulation():
    inside = []
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        name = path.relative_to(ROOT / "experiments").as_posix()
        if name not in INSIDE and any(x.startswith("jaxret.simulation") for x in imported(path)):
            inside.append(name)
    assert not inside
