"""What the packages offer by name, and what importing them costs."""

import importlib
import subprocess
import sys

import pytest

from jaxret.lazy import lazy

PACKAGES = ("data", "documents", "encoders", "generation", "llm", "nn", "online", "retrieval")
HEAVY = ("flax", "transformers", "tokenizers", "orbax", "hydra", "wandb", "matplotlib", "openai")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(f"jaxret.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert {name: hasattr(module, name) for name in module.__all__} == dict.fromkeys(
        module.__all__, True
    )
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = module.nothing_of_the_kind


@pytest.mark.parametrize("package", PACKAGES)
def test_a_lazy_package_lists_what_it_imports_later(package):
    module = importlib.import_module(f"jaxret.{package}")
    if "__getattr__" in vars(module):
        assert module.__dir__() == sorted(module.__all__)


def test_importing_the_packages_loads_nothing_heavy():
    program = f"""
import sys
import {", ".join(f"jaxret.{package}" for package in PACKAGES)}
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_a_module_too_is_refused():
    with pytest.raises(ValueError, match=r"jaxret.x: \['bm25'\] are modules and names"):
        lazy("jaxret.x", {"bm25": ("bm25",)})
