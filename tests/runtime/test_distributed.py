"""Several real processes that run one program: the results of one process, and crashes."""

import shutil
import signal
import time
from functools import cache

import numpy as np
import pytest

from jaxret.runtime import distributed
from tests import together
from tests.distributed import program


def command(folder, *parts):
    return ["tests.distributed.program", str(folder), *parts]


def read(folder, part):
    with np.load(folder / f"{part}.npz") as found:
        return dict(found)


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def assert_state(found):
    np.testing.assert_array_equal(found["theta"], np.arange(64).reshape(16, 4))
    np.testing.assert_array_equal(found["own"], np.arange(3))
    np.testing.assert_array_equal(found["losses"], [1 / 3, 1e-300])
    np.testing.assert_array_equal(found["key"], [0, 7])
    assert found["seen"] == 2**40 + 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a function that computes a part in the test's own process, once."""
    return cache(lambda part: getattr(program, part)(tmp_path_factory.mktemp(part)))


def test_two_processes_simulate_as_one_and_read_each_other(tmp_path, alone):
    """The only quick test of this file that starts processes."""
    together.run(command(tmp_path, "agree", "simulate", "save"), tmp_path / "said", 2, seconds=300)
    assert_equal(read(tmp_path, "simulate"), alone("simulate"))
    assert_state(program.restore(tmp_path))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Run all programs in two processes of two devices each; return their folder."""
    folder = tmp_path_factory.mktemp("two")
    job = command(folder, "save", "simulate", "alone", "mesh", "method")
    together.run(job, folder / "said", 2, devices=2)
    return folder


@pytest.fixture(scope="module")
def four(two, tmp_path_factory):
    """Run four processes, and kill one of them in its fourth chunk; return their folder."""
    folder = tmp_path_factory.mktemp("four")
    shutil.copytree(two / "state", folder / "state")
    job = command(folder, "restore", "simulate", "chunks")
    with together.started(job, folder / "said", 4, KILLED="2:3") as processes:
        while processes[2].poll() is None:
            assert all(one.poll() is None for one in processes), processes.said()
            time.sleep(0.05)
        status = processes.end(60)
        assert status[2] == -signal.SIGKILL, processes.said()
        assert all(status), processes.said()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["two", "four"])
def test_seeds_side_by_side_give_the_same_bits(processes, alone, request):
    assert_equal(read(request.getfixturevalue(processes), "simulate"), alone("simulate"))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["alone", "mesh"])
def test_other_programs_show_the_same_items(two, alone, part):
    """The programs differ only in rounding.

    A single seed is replicated over processes, on a mesh that one process does not need; a
    catalogue over devices sums its parts in another order.
    """
    found, expected = read(two, part), alone(part)
    np.testing.assert_array_equal(found["item"], expected["item"])
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
    assert expected.get("rows_as_shared", True)
    assert found.get("rows_as_shared", True)


@pytest.mark.slow
def test_a_method_is_trained_as_by_one(two, alone):
    """The gradient is the mean of the devices' means, so each step rounds differently."""
    found, expected = read(two, "method"), alone("method")
    np.testing.assert_array_equal(found["items"], expected["items"])
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    names = {path.name for path in (two / "saved").iterdir()}
    assert names == {"params.safetensors", "model.json"}


@pytest.mark.slow
def test_a_checkpoint_of_two_processes_is_read_by_more(four):
    """The quick test reads it with a single process."""
    assert_state(read(four, "restore"))


@pytest.mark.slow
def test_if_a_process_dies_or_is_stopped_all_end_and_the_same_command_resumes(four, alone, capsys):
    """One of four processes was killed; two go on and are stopped; one computes the rest."""
    with together.started(command(four, "chunks"), four / "said", 2, STOPPED="1:5") as processes:
        assert processes.end(300) == [143, 143], processes.said()
        for i in range(2):
            assert "chunks [3, 4, 5]\n" in processes.log(i).read_text(), processes.said()
    assert [path.name for path in (four / "checkpoints").iterdir()] == ["6"]

    expected = alone("chunks")
    capsys.readouterr()
    assert_equal(program.chunks(four), expected)
    assert capsys.readouterr().out == "chunks [6, 7]\n"


@pytest.mark.slow
def test_an_error_in_one_ends_all(tmp_path):
    """Include SLURM's names of the processes.

    The program ends without waiting for the process that waits for the others.
    """
    job, slurm = command(tmp_path, "who", "fail"), together.slurm(2)
    with together.started(job, tmp_path / "said", 2, each=slurm) as processes:
        while "ArithmeticError: here alone" not in processes.log(1).read_text():
            assert processes[0].poll() is None, processes.said()
            time.sleep(0.05)
        assert processes[1].wait(15) == 1  # gloo gives up after 30 s
        assert processes.end(60)[0], processes.said()
        for i in range(2):  # each has a GPU of its own
            assert f"who {i} 2 2 {i}\n" in processes.log(i).read_text(), processes.said()


def test_settings_are_passed_to_jax_distributed(monkeypatch):
    """Settings come from the arguments, and otherwise from the environment."""
    calls = []

    def record(*args, **options):
        calls.append((args, options))

    monkeypatch.setattr(distributed.jax.distributed, "initialize", record)
    monkeypatch.setattr(distributed.sys, "excepthook", None)
    distributed.start("10.0.0.1:99", 4, 3, [2, 3])
    here = "127.0.0.1:99"
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", here)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    distributed.start_as({"heartbeat": 7})
    distributed.start(count=8, index=5, local_device_ids=1)
    monkeypatch.setenv("JAX_PROCESS_ID", "two")
    with pytest.raises(ValueError, match="JAX_PROCESS_ID must be a whole number, got two"):
        distributed.start()
    expected = [
        (("10.0.0.1:99", 4, 3, [2, 3]), None, distributed.HEARTBEAT),
        ((here, 2, 0, None), here, 7),
        ((here, 8, 5, 1), here, distributed.HEARTBEAT),
    ]
    assert calls == [
        (args, {"coordinator_bind_address": bound, "heartbeat_timeout_seconds": seconds})
        for args, bound, seconds in expected
    ]
    assert distributed.HEARTBEAT <= 60  # all processes end within a minute


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("always", "distributed must be null, auto or a block with some of coordinator, .* always"),
        ({"host": "a:1"}, r"distributed must be null, auto or a block .* got {'host': 'a:1'}"),
        ({"coordinator": "host"}, "coordinator must be HOST:PORT, such as .*, got host"),
        ({"coordinator": "host:0"}, "a port in 1 .. 65535, got host:0"),
        ({"count": 0}, "count must be a whole number >= 1, got 0"),
        ({"count": 2, "index": 2}, r"index must be a whole number in 0 .. 1, .* got 2"),
        ({"index": -1}, "index must be a whole number 0 or more, got -1"),
        ({"local_device_ids": [0, -1]}, r"numbers of GPUs, 0 or more, got \[0, -1\]"),
        ({"heartbeat": 0.5}, "heartbeat must be a whole number of seconds >= 1, got 0.5"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        distributed.start_as(setting)


def test_a_single_process_needs_no_start():
    distributed.start_as(None)
    assert distributed.leads()
    assert not distributed.several()
    assert distributed.agreed(3) == 3
    assert distributed.anyone(True)
    tree = {"a": np.arange(3)}
    assert distributed.fetch(tree)["a"] is tree["a"]
    distributed.wait()
    distributed.end(1)  # no process waits
