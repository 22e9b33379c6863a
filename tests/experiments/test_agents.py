"""Scripted agents on a fake server: what they draw, and that the protocol changes no number."""

import numpy as np
import pytest

from experiments import agents
from experiments.agents import Server, called, chosen, compared, index, life
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import values_of

TOOLS, REQUESTS = 6, 60


def encode(texts):
    """Encode a text as the mean of random vectors of its letters."""
    letters = np.random.default_rng(0).standard_normal((128, 16)).astype(np.float32)
    rows = np.stack([letters[[ord(x) % 128 for x in text]].mean(axis=0) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def server():
    names = [f"tool_{'abcdef'[n]}" for n in range(TOOLS)]
    tools = [{"name": name, "description": f"Does {name[-1] * 3}."} for name in names]
    right = [names[n % TOOLS] for n in range(REQUESTS)]
    requests = [f"request {n} {name[-1] * (n % 3)}" for n, name in enumerate(right)]
    return Server(tools, requests, right, np.arange(REQUESTS), encode)


def configure(*more):
    return config_of("agents", "calls=30", "k=3", "repeated=4", "probes=12", *more)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_protocol_finds_the_same_lists_as_the_index_alone(server, share):
    pytest.importorskip("fastmcp", minversion="4.2", reason="FastMCP: install jaxret[mcp]")
    row = f"protocol={{rule: greedy, traffic: skewed, fails: {share}, calls: 30}}"
    cfg = configure("skill=0.5", row)
    assert compared(cfg, server)["differ"] == 0
    its = life(cfg, server, "skewed", share, 0)
    search, learn = index(server, "greedy", 3)
    learnt = called(server, its, search, learn)
    assert learnt != called(server, its, *index(server, "frozen", 3))  # the lists are of a learner


@pytest.mark.parametrize("kind", agents.KINDS)
def test_requests_are_drawn_as_the_traffic_says(server, kind):
    cfg = configure()
    its = life(cfg, server, kind, 0.5, 7)
    assert its.asked.shape == (30,)
    assert not {*its.asked} & {*its.probes}
    counts = np.bincount(its.asked, minlength=REQUESTS)
    if kind == "uniform":
        assert counts.max() == 1
    elif kind == "repeated":
        assert (counts > 0).sum() == 4
    else:
        many = life(cfg, server, kind, 0.5, 7, calls=3000)
        tools = np.bincount(many.asked % TOOLS, minlength=TOOLS) / 3000
        zipf = 1 / np.arange(1, TOOLS + 1)
        np.testing.assert_allclose(np.sort(tools)[::-1], zipf / zipf.sum(), atol=0.03)


def test_shares_and_skill_change_nothing_but_the_failures_and_the_choice(server):
    none, half, every = (life(configure(), server, "skewed", x, 0) for x in (0.0, 0.5, 1.0))
    np.testing.assert_array_equal(none.asked, every.asked)
    assert not none.fails.any()
    assert every.fails.all()
    assert 0.2 < half.fails.mean() < 0.8
    assert not none.sees.any()
    assert life(configure("skill=1"), server, "skewed", 0.0, 0).sees.all()


def test_an_agent_calls_the_right_tool_if_it_sees_it():
    assert chosen(["a", "b"], "b", sees=True) == "b"
    assert chosen(["a", "b"], "b", sees=False) == "a"
    assert chosen(["a", "b"], "c", sees=True) == "a"


def test_calls_teach_one_if_there_was_no_error(server):
    its = life(configure("skill=0.5"), server, "uniform", 0.5, 3)
    told = []

    def search(asked):
        return [["tool_a", server.right[asked[0]]]]

    called(server, its, search, lambda name, worked: told.append((name, worked)))
    for (name, worked), asked, fails in zip(told, its.asked, its.fails, strict=True):
        assert worked == (name == server.right[asked] or not fails)
    assert {True, False} == {worked for _, worked in told}


def test_the_experiment_reports_each_rule_and_draws_them(world, tmp_path):
    small = [*in_world(world, tmp_path), "document=full", "tools=12", "seeds=2", "calls=20"]
    rules = ["rules=[frozen,greedy]", "traffic=[repeated,uniform]", "fails=[0,1]", "protocol=null"]
    cfg = config_of("agents", *small, *rules, "repeated=5", "probes=10", "k=3")
    agents.main(cfg)
    found = values_of(tmp_path)
    for kind in cfg.traffic:
        np.testing.assert_array_equal(
            found[f"{kind}/frozen/0/before"], found[f"{kind}/frozen/1/heldout"]
        )
        np.testing.assert_array_equal(
            found[f"{kind}/frozen/1/before"], found[f"{kind}/greedy/1/before"]
        )
    server = agents.server_of(agents.task_of(cfg), cfg.tools)
    rows = server.encoder([f"x {one['description']}" for one in server.tools])
    assert rows.shape[0] == len(server.tools) == 12
    for seed in range(2):
        probes = life(cfg, server, "uniform", 1.0, seed).probes
        search, _ = index(server, "frozen", 3)
        right = [search([n])[0][0] == server.right[n] for n in probes]
        assert found["uniform/frozen/1/heldout"][seed] == pytest.approx(np.mean(right))
    assert list(tmp_path.rglob("agents.png"))


@pytest.mark.parametrize("setting", ["protocol=null", "rules=[frozen]"])
def test_what_needs_fastmcp_says_so(world, tmp_path, monkeypatch, setting):
    monkeypatch.setattr(agents, "find_spec", lambda name: None)
    cfg = config_of("agents", *in_world(world, tmp_path / "run"), setting)
    refused(agents.main, cfg, "need FastMCP 4.2: pip install", ImportError)


def test_uniform_traffic_needs_as_many_requests_as_calls(server):
    with pytest.raises(ValueError, match=r"at most 42, the requests that are not held out"):
        life(configure("calls=43"), server, "uniform", 1.0, 0)
