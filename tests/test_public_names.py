"""The public names of the packages, and the cost of importing them."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = (
    *("data", "documents", "encoders", "environments", "generation", "learners.bandits"),
    *("llm", "methods", "nn", "retrieval", "tools"),
)
HEAVY = (
    "flax",
    "transformers",
    "tokenizers",
    "orbax",
    "hydra",
    "wandb",
    "matplotlib",
    "openai",
    "fastmcp",
    "langchain",
    "langgraph",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(f"jaxret.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [name for name in module.__all__ if not hasattr(module, name)]
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = module.nothing_of_the_kind
    if "__getattr__" in vars(module):  # a lazy package lists what it imports later
        assert sorted(module.__dir__()) == sorted(module.__all__)


def test_importing_the_packages_loads_nothing_heavy():
    program = f"""
import sys
import {", ".join(f"jaxret.{package}" for package in (*PACKAGES, "runtime.tracking"))}
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["", *(f".{package}" for package in PACKAGES)])
def test_no_name_is_that_of_a_module_beside_it(package):
    """A module that is imported would replace the name."""
    module = importlib.import_module(f"jaxret{package}")
    stub = Path(module.__file__).with_suffix(".pyi")
    if stub.exists():
        homes = re.findall(r"^from \.(\w+) import", stub.read_text(), flags=re.MULTILINE)
        assert not set(homes) & set(module.__all__)
