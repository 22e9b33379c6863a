"""What the README shows must run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("folder", ["", "experiments"])
def test_the_readmes_links_and_files_exist(folder):
    here = ROOT / folder
    text = (here / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#]+)", text) + re.findall(r"`(notebooks/[^`]+\.ipynb)`", text):
        assert (here / path).exists(), path
