"""The README: its code runs and prints the output shown, and the names in it exist."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    "README.md",
    "experiments/README.md",
    *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("experiments/results/*.md"))),
]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", flags=re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?")
SECONDS = re.compile(r"\d+\.\d s\b")


@pytest.mark.slow
def test_the_readmes_python_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall(README)
    assert len(blocks) == README.count("```python") >= 4
    assert sum(bool(shown) for _, shown in blocks) >= 3
    monkeypatch.chdir(tmp_path)  # the code writes files
    names = {"__name__": "readme"}
    for code, shown in blocks:
        exec(compile(code, "README.md", "exec"), names)
        printed = capsys.readouterr().out
        if shown:
            _agree(printed, shown)
    assert (tmp_path / "embeddings" / "theta.npy").is_file()


def test_an_output_that_is_not_what_the_code_prints_is_noticed():
    shown = "greedy: 8,065 rounds (blocked, 3.6 s), accuracy 0.361 ± 0.001\n"
    _agree("greedy: 8,065 rounds (blocked, 9.9 s), accuracy 0.364 ± 0.002\n", shown)
    for right, wrong in (("8,065", "8,066"), ("0.361", "0.461"), ("blocked", "scan")):
        with pytest.raises(AssertionError):
            _agree(shown.replace(right, wrong), shown)


@pytest.mark.parametrize("page", PAGES)
def test_links_files_and_anchors_of_a_page_exist(page):
    here, text = (ROOT / page).parent, (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = here / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target.read_text()), link
    for path in re.findall(r"`((?:notebooks|tests|jaxret|configs)/[\w/.]*\.\w+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_name_modules_that_exist(page):
    text = re.sub(r"\s+", " ", (ROOT / page).read_text())
    for name in set(re.findall(r"(?:python -m |`)(experiments(?:\.[a-z_0-9]+)+)", text)):
        assert find_spec(name) is not None, f"{page}: {name}"


def test_the_map_has_every_experiment_and_no_other():
    text = (ROOT / "experiments/README.md").read_text()
    cells = [row.split(" | ")[1] for row in text.splitlines() if row.startswith("| ")]
    named = {command.split()[0] for cell in cells for command in re.findall(r"`([^`]+)`", cell)}
    for name in named - {"experiments."}:  # the table's header
        assert find_spec(f"experiments.{name}") is not None, f"on the map, but not there: {name}"
    for file in (ROOT / "experiments").rglob("*.py"):
        script = re.search(r'^if __name__ == "__main__"', file.read_text(), flags=re.MULTILINE)
        if script or file.name == "__main__.py":
            name = ".".join(file.relative_to(ROOT / "experiments").with_suffix("").parts)
            name = name.removesuffix(".__main__")
            shown = f"`{name}" in text or f"experiments.{name} " in text
            assert shown, f"there, but not on the map: {name}"


def test_pages_are_short_and_the_main_commands_are_there():
    assert README.count("\n") <= 150
    assert (ROOT / "experiments/README.md").read_text().count("\n") <= 160
    for command in ("uv run python -m experiments.orag", "uv run pytest", "pip install uv"):
        assert command in README


def _anchors(text: str) -> set[str]:
    """Return GitHub's anchors for the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _agree(printed: str, shown: str) -> None:
    """Compare words exactly, whole numbers exactly, other numbers closely, and no durations."""
    printed, shown = (SECONDS.sub("_ s", text) for text in (printed, shown))
    words = [NUMBER.sub("#", text).split() for text in (printed, shown)]
    assert words[0] == words[1]
    for one, other in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        near = 0.02 if "." in other else 0.0
        value, want = (float(number.replace(",", "")) for number in (one, other))
        assert abs(value - want) <= near, f"printed {one}, shown {other}"
