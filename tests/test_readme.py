"""What the README shows must run."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_readmes_links_and_files_exist():
    root = Path(__file__).parents[1]
    for path in re.findall(r"\]\(([^)]+)\)", README) + re.findall(
        r"`(notebooks/[^`]+\.ipynb)`", README
    ):
        assert (root / path).exists(), path
