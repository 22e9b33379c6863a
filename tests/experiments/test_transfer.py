"""The experiment on projections and transfer, end to end on a small configuration."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.common.loading import encoder_of, task_of
from experiments.transfer import __main__ as transfer
from experiments.transfer import later_tools, other_encoder
from experiments.transfer.protocols import Protocol
from jaxret.data.dataset import select
from jaxret.rules import projections
from jaxret.task import Parts, encoded
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import step_of
from tests.experiments.processes import stopped_at

SMALL = ["tracking=files", "seeds=2", "exposures=1", "chunk=512", "projections=[none,sphere]"]
SMALL += ["learner=[frozen,greedy]", "learners.greedy.tau=[0.03]"]
SMALL += ["learners.greedy.eta_over_tau=[0.1,0.3]", "other.layers=null"]


def configure(directory, *overrides):
    return config_of("transfer", *SMALL, f"directory={directory}", *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("transfer")
    return directory, transfer.main(configure(directory))


@pytest.fixture(scope="module")
def loaded(finished):
    """Return the task and the parts of each seed."""
    cfg = configure(finished[0])
    task = task_of(cfg)
    return task, task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=(0, 1))


def of_seed(parts, seed):
    return Parts(*(masks[seed : seed + 1] for masks in parts))


def ndcg(scores, labels, k=10):
    """Compute nDCG with NumPy, query by query."""
    values = []
    for line, right in zip(scores, labels, strict=True):
        right = right[right >= 0]
        gain = np.isin(np.argsort(-line)[:k], right) / np.log2(np.arange(k) + 2)
        values.append(gain.sum() / (1 / np.log2(np.arange(len(right)) + 2)).sum())
    return np.mean(values)


def test_static_numbers_are_those_of_the_documents(finished, loaded):
    """Recomputed with NumPy."""
    _, results = finished
    task, parts = loaded
    scores = task.queries @ task.theta.T
    for part, masks in {"seen": parts.training, "heldout": parts.heldout}.items():
        expected = np.mean([ndcg(scores[mask], task.labels[mask]) for mask in masks])
        assert results[f"frozen/none/{part}/ndcg@10"] == pytest.approx(expected, abs=1e-3)
        gain = results[f"greedy/sphere/{part}/ndcg@10"] - results[f"frozen/none/{part}/ndcg@10"]
        assert results[f"greedy/sphere/{part}/gain"] == pytest.approx(gain)
        assert results[f"frozen/none/{part}/gain"] == 0.0


def test_projections_hold_rows_where_they_should_and_none_does_not(finished):
    directory, results = finished
    norms = {}
    for kind in ("none", "sphere"):
        norms[kind] = step_of(directory, f"greedy-{kind}-online")["norms"]
        assert results[f"greedy/{kind}/norms/mean"] == pytest.approx(norms[kind].mean())
    assert norms["none"].max() > 1.01
    np.testing.assert_allclose(norms["sphere"], 1, atol=1e-5)


def test_streamed_queries_gain_more_than_paraphrases(finished):
    _, results = finished
    for kind in ("none", "sphere"):
        seen, heldout = (results[f"greedy/{kind}/{part}/gain"] for part in ("seen", "heldout"))
        assert seen > 0.01
        assert heldout < seen
        assert results[f"greedy/{kind}/heldout/share"] == pytest.approx(heldout / seen)
    assert "frozen/none/heldout/share" not in results


def test_tools_that_come_later_are_never_shown_nor_needed_before(finished, loaded):
    directory, _ = finished
    for seed in (0, 1):
        drawn = later_tools.draw(loaded[0], of_seed(loaded[1], seed), 0.2, seed)
        assert drawn.new.sum() == round(0.2 * len(drawn.new))
        step = step_of(directory, f"greedy-sphere-later-{seed}")
        assert not drawn.new[step["item"]].any()
        assert not drawn.new[loaded[0].labels[step["order"]]].any()
        np.testing.assert_array_equal(np.unique(step["order"]), np.flatnonzero(drawn.streamed))


def test_new_tools_ranked_first_for_old_ones_are_counted_and_vice_versa(finished, loaded):
    """Recompute the shares of static retrieval with NumPy."""
    _, results = finished
    task, parts = loaded
    first = (task.queries @ task.theta.T).argmax(axis=1)
    shares = []
    for seed in (0, 1):
        drawn = later_tools.draw(task, of_seed(parts, seed), 0.2, seed)
        shown = drawn.new[first]
        shares.append((shown[drawn.old_needed].mean(), 1 - shown[drawn.new_needed].mean()))
    for name, share in zip(("new_for_old", "old_for_new"), np.mean(shares, axis=0), strict=True):
        assert results[f"greedy/later/{name}/static"] == pytest.approx(share, abs=1e-6)


def test_fewer_layers_are_another_encoder_with_a_cache_of_its_own(loaded, tmp_path):
    cfg = configure(tmp_path, "other.layers=1")
    task = loaded[0]
    few = select(task.dataset, np.arange(8))
    there = encoded(few, encoder_of(cfg.other), document=cfg.document, cache=tmp_path)
    assert there.encoder.fingerprint != task.encoder.fingerprint
    assert (tmp_path / there.encoder.fingerprint).is_dir()
    assert list(there.encoder.params["blocks"]) == ["0"]
    cosines = (there.queries * task.queries[:8]).sum(axis=1)
    assert (np.abs(cosines) < 0.99).all()


def test_rows_are_carried_to_an_encoder_of_another_width():
    """Turn the plane by 90 degrees into three dimensions, where learned changes halve."""
    there = SimpleNamespace(task=SimpleNamespace(theta=np.array([[0.0, 0.0, 1.0]])))
    rotation = np.array([[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]])
    other = other_encoder.Other(there, rotation, np.array([0.5]), projections.none())
    found = other.aligned(np.array([[[1.0, 4.0]]]), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(found["rotated"], [[[-4.0, 1.0, 0.0]]])
    np.testing.assert_allclose(found["change"], [[[-2.0, 0.0, 1.0]]])
    assert "as_they_are" not in found
    on_sphere = other._replace(projection=projections.sphere())
    found = on_sphere.aligned(np.array([[[3.0, 4.0]]]), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(found["rotated"], [[[-0.8, 0.6, 0.0]]], rtol=1e-6)


def test_the_rotation_is_fitted_on_documents_and_streamed_queries_of_each_seed():
    """The second encoder rotates all vectors except a seed's held-out queries, which are random."""
    generator = np.random.default_rng(0)
    theta, queries = generator.normal(size=(9, 5)), generator.normal(size=(30, 5))
    turn = np.linalg.qr(generator.normal(size=(5, 5)))[0]
    heldout = np.zeros((2, 30), bool)
    heldout[0, :10], heldout[1, 20:] = True, True
    turned = queries @ turn
    turned[:10] = generator.normal(size=(10, 5))
    here, there = (
        SimpleNamespace(theta=x, queries=y, labels=np.zeros((30, 1), int))
        for x, y in ((theta, queries), (theta @ turn, turned))
    )
    parts = Parts(validation=np.zeros_like(heldout), heldout=heldout, training=~heldout)
    run = SimpleNamespace(result=lambda name, compute: compute())
    protocol = Protocol(None, run, here, parts, range(2))
    other, cosine = other_encoder.bridge(protocol, there, projections.none())
    np.testing.assert_allclose(other.rotation[0], turn, atol=1e-5)
    assert np.abs(other.rotation[1] - turn).max() > 0.01
    assert cosine[0] < 0.5 < cosine[1]


def test_files_hold_curves_and_figures(finished):
    directory, results = finished
    with np.load(directory / "curves.npz") as curves:
        mean = np.nanmean(curves["greedy, sphere/success"], axis=1).mean()
    assert mean == pytest.approx(results["greedy/sphere/online/accuracy"])
    for name in ("projection", "later", "encoder"):
        assert (directory / f"{name}.png").stat().st_size > 5_000


def test_an_encoder_is_carried_to_itself_without_loss(finished):
    """In these runs, the other encoder is the first encoder itself."""
    _, results = finished
    learnt, static = (results[f"{x}/heldout/ndcg@10"] for x in ("greedy/sphere", "frozen/none"))
    assert results["encoder/cosine"] == pytest.approx(1, abs=1e-4)
    for way, start in other_encoder.WAYS.items():
        assert results[f"greedy/encoder/{way}"] == pytest.approx(learnt, abs=2e-3)
        assert results[f"greedy/encoder/{start}"] == pytest.approx(static, abs=2e-3)


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, tmp_path):
    """Only one step remains; SIGTERM arrives in the first chunk of the step's first setting."""
    steps = tmp_path / "steps"
    shutil.copytree(finished[0] / "steps", steps)
    left = steps / "greedy-sphere-unseen.npz"
    left.unlink()
    with stopped_at(1):
        transfer.main(configure(tmp_path))
    assert not left.exists()
    saved = tmp_path / "checkpoints" / left.stem / "0" / "checkpoints"
    assert [path.name for path in saved.glob("[0-9]*")] == ["1"]
    assert transfer.main(configure(tmp_path)) == finished[1]


def test_a_share_that_leaves_no_new_tool_is_refused_before_any_work(world, tmp_path):
    cfg = config_of("transfer", *SMALL, *in_world(world, tmp_path / "run"), "later.share=0.001")
    message = r"leaves no query \['new_needed'\] in the draw of seed 0: choose"
    with pytest.raises(ValueError, match=message):
        transfer.main(cfg)
    assert not (tmp_path / "run" / "steps").exists()
