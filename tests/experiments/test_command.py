"""The command line of experiments: errors in one line, and the text of ``--help``."""

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from experiments import orag
from experiments.benchmarks import encode
from experiments.common.config import CONFIGS, table
from experiments.common.experiment import one_line
from experiments.common.help import TABLES, explained, help_text, sources
from tests.experiments.processes import ROOT

FILES = {path.stem for path in Path(CONFIGS).glob("*.yaml")}
FILES -= {*TABLES.values(), "variants", "papers"}


def run(*words):
    command = [sys.executable, "-m", "experiments.orag", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


GREDDY = "unknown learner 'greddy'; known: frozen, hybrid, "


@pytest.mark.slow  # each starts JAX and Hydra
@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("learner=[greddy]", GREDDY),
        ("+learners.greedy.policy=bold", "learner 'greedy': unknown policy 'bold'; known: "),
        ("foo=1", "Could not override 'foo'. "),
    ],
)
def test_wrong_input_ends_in_one_line_and_status_2(tmp_path, word, line):
    ended = run(word, f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 2
    [said] = ended.stderr.splitlines()
    assert said.startswith(line)
    assert ended.stdout == ""


def test_an_unknown_learner_ends_in_one_line_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setattr(sys, "argv", ["orag", "learner=[greddy]", f"hydra.run.dir={tmp_path}"])
    with pytest.raises(SystemExit) as ended:
        orag.main.cli()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    [said] = printed.err.splitlines()
    assert said.startswith(GREDDY)
    assert printed.out == ""


@pytest.mark.slow
def test_the_traceback_is_there_for_who_asks(tmp_path):
    ended = run("document=bad", "-v", f"hydra.run.dir={tmp_path}")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ValueError: document must be one of" in ended.stderr


def test_an_error_is_one_line():
    text = (
        "In 'orag': Could not find 'world/x'\n\nAvailable options in 'world':\n\tcalm\n\twild\n"
        "Config search path:\n\tprovider=hydra, path=pkg://hydra.conf"
    )
    assert one_line(HydraException(text)) == (
        "In 'orag': Could not find 'world/x'. Available options in 'world': calm, wild"
    )
    for group in ("dataset", "sweep"):
        error = HydraException(text.replace("world", group))
        assert re.match(f"unknown {group} 'x'; known: .*(deskbank|exposures)", one_line(error))
    assert one_line(KeyError("tau")) == "KeyError: 'tau'"


def help_of(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["orag", *words])
    orag.main.cli()
    return capsys.readouterr().out


def test_help_is_the_docstring_each_setting_with_its_meaning_and_the_names(monkeypatch, capsys):
    shown = help_of(monkeypatch, capsys, "--help")
    assert shown.startswith(orag.__doc__.strip())
    for line in (
        "exposures: 5          # how often each query comes; 1 is a deployment that sees each once",
        "document: full   # template that makes the text of a tool (jaxret.data.templates)",
        "again: false          # true repeats a finished run",
        "# encoder.layers: number of first layers; null: all",
    ):
        assert f"\n{line}\n" in shown
    assert re.search(r"^  learner=frozen\|hybrid\|", shown, re.MULTILINE)
    assert "defaults:" not in shown


def test_help_of_a_variant_begins_with_its_own_settings(monkeypatch, capsys):
    shown = help_of(monkeypatch, capsys, "-h", "--config-name=latency")
    places = re.findall(r"^---- configs/(.*)", shown, re.MULTILINE)
    want = ["variants.yaml, latency", "variants.yaml, baselines", "evaluate_retrieval.yaml"]
    assert places == [*want, "base.yaml"]
    assert "queries: 50         # of the test part, that are timed" in shown


def test_every_setting_of_every_experiment_has_a_meaning():
    variants = [*table("variants")]
    assert len(variants) > 5
    without = []
    for place, lines in [next(sources(config)) for config in (*FILES, *variants)]:
        blocks = re.split(r"^(?=\w+:)", "\n".join(explained(lines)), flags=re.MULTILINE)
        for before, block in itertools.pairwise(blocks):
            own = re.sub(r"^#.*", "", block, flags=re.MULTILINE)
            last = before.rstrip("\n").rpartition("\n")[2]
            if "#" not in own and not (before.endswith("\n") and last.startswith("#")):
                without.append(f"{place}: {block.partition(':')[0]}")
    assert not without


def test_help_of_an_unknown_config_names_the_file():
    with pytest.raises(FileNotFoundError, match=r"nothing\.yaml"):
        help_text("", "nothing")


def test_every_option_of_a_parser_has_a_help_text():
    """Read from the source: some commands need what is not installed here."""
    calls, silent = 0, []
    for path in sorted(Path(orag.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument":
                calls += 1
                if not any(word.arg == "help" for word in node.keywords):
                    silent.append(f"{path.name}, line {node.lineno}: {ast.unparse(node.args[0])}")
    assert calls > 25
    assert silent == []


def test_help_of_the_encoders_benchmark_measures_nothing(monkeypatch, capsys):
    monkeypatch.setattr(encode.machine, "measured", lambda: pytest.fail("measures"))
    with pytest.raises(SystemExit) as ended:
        encode.main(["--help"])
    assert ended.value.code == 0
    assert "timed rounds of all forms" in capsys.readouterr().out
