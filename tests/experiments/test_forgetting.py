"""The forgetting experiment, end to end on a small world, and its measures by hand."""

import sys

import numpy as np
import pytest

import jaxret as jr
from experiments import forgetting
from experiments.common.config import plain
from experiments.common.learners import learner_grid
from experiments.common.loading import task_of
from jaxret.evaluation import metrics
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import step_of
from tests.experiments.processes import stopped_at

LEARNERS = ("frozen", "greedy", "mapped")
SMALL = [
    "seeds=2",
    "points=5",
    f"learner=[{','.join(LEARNERS)}]",
    "learners.greedy.tau=[0.04]",
    "learners.greedy.eta_over_tau=[0.1,0.3]",
    "learners.mapped.tau=[0.04]",
    "learners.mapped.eta_over_tau=[0.03]",
    "tsne.tools=10",
    "tsne.queries=30",
]


def configure(world, directory, *more):
    return config_of("forgetting", *SMALL, *in_world(world, directory), *more)


@pytest.fixture(scope="module")
def finished(world):
    """Run the experiment with the first two coordinates in place of t-SNE, which is slow."""
    cfg = configure(world, world / "forgetting")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgetting.tsne, "project", lambda vectors, seed: vectors[:, :2])
        results = forgetting.main(cfg)
    task = task_of(cfg)
    masks = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=[cfg.seed])
    return world / "forgetting", results, task, jr.Parts(*(mask[0] for mask in masks))


def test_curves_of_static_retrieval_are_means_over_the_queries_that_arrived(finished):
    """Recomputed from a full sort; only the mix of queries changes along the stream."""
    directory, _, task, parts = finished
    ranked = np.argsort(-(task.queries @ task.theta.T), axis=1, kind="stable")
    static = np.asarray(metrics.evaluate_ranking(ranked, task.labels, [10])["ndcg@10"])
    with np.load(directory / "curves.npz") as curves:
        rounds, seen = curves["rounds"], curves["frozen/seen/ndcg@10"]
        ten, held = curves["frozen/first_ten/ndcg@10"], curves["frozen/heldout/ndcg@10"]
    many = int((~parts.validation).sum())
    assert rounds.tolist() == [*range(0, many, -(-many // 5)), many]
    for seed in range(2):
        [order] = jr.stream_orders(task, 1, [seed], part=~parts.validation)
        arrived = [static[order[:i]].mean() for i in rounds[1:]]
        np.testing.assert_allclose(seen[seed], arrived, atol=2e-3)
        np.testing.assert_allclose(ten[seed], static[order[:10]].mean(), atol=2e-3)
    np.testing.assert_allclose(held, static[parts.heldout].mean(), atol=2e-3)


@pytest.mark.parametrize(("learner", "protocol"), [("greedy", "heldout"), ("mapped", "seen")])
def test_stopping_to_look_changes_nothing_of_what_is_learnt(
    finished, world, tmp_path, learner, protocol
):
    """One uninterrupted run ends with the rankings of the experiment's last point."""
    _, results, task, parts = finished
    cfg = configure(world, tmp_path)
    grid = learner_grid(learner, plain(cfg.learners)[learner])
    chosen = [results[f"{learner}/tau"], results[f"{learner}/eta"]]
    streamed = ranked = ~parts.validation
    if protocol == "heldout":
        streamed, ranked = parts.training, parts.heldout
    run = jr.simulate(grid._replace(settings=np.array([chosen])), task, part=streamed, seeds=2)
    for name, value in jr.evaluate(run, task, ["recall@10", "ndcg@10"], part=ranked).items():
        assert results[f"{learner}/{protocol}/{name}/last"] == pytest.approx(value.mean, abs=2e-3)


def test_learning_lifts_the_rankings_of_queries_seen_and_moves_rows_towards_them(finished):
    _, results, _, _ = finished
    assert results["greedy/gain/ndcg@10/last"] > 0.02
    assert results["greedy/moved"] > 0.05
    before, after = (results[f"greedy/needed/{when}"] for when in ("before", "after"))
    others = results["greedy/others/after"] - results["greedy/others/before"]
    assert after - before > others


def test_learnt_minus_lost_is_the_rise_of_accuracy_and_static_retrieval_forgets_nothing(finished):
    directory, results, _, _ = finished
    for learner in LEARNERS:
        accuracy = step_of(directory, learner)["values"][:, :, 0].mean(axis=(0, 2))
        rise = results[f"{learner}/learnt"] - results[f"{learner}/lost"]
        assert rise == pytest.approx(accuracy[-1] - accuracy[0], abs=1e-6)
    for name in ("learnt", "lost", "forgotten", "drop", "moved", "gain/ndcg@10/fall"):
        assert results[f"frozen/{name}"] == pytest.approx(0.0, abs=1e-6)


def test_learnt_lost_and_forgotten_queries_are_counted_as_by_hand():
    """One seed; the four queries arrive in rounds 0, 1, 2 and 4, two of them in the third chunk."""
    right = np.array([[[0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]], bool)
    rounds = np.array([0, 1, 2, 4])
    # The first query was right after it arrived and is wrong at the end; so is the second, from the
    # second point on. The fourth was right only under Theta_1, before it arrived.
    curve = forgetting.forgotten(right, rounds)
    np.testing.assert_allclose(curve, [[0, 0, 0.5, 0.5]])
    # The drop is over the first two queries; the last chunk cannot be forgotten yet.
    fates = {"learnt": [0.0], "lost": [0.5], "forgotten": [0.5], "drop": [1.0]}
    assert forgetting.fates(right, rounds) == fates
    seen = forgetting.seen(right[:, :, None].astype(float), rounds)[0, :, 0]
    np.testing.assert_allclose(seen, [1.0, 0.5, 0.25])
    late = np.array([[[0], [0], [0], [1]]], bool)  # best at the end: a negative drop
    assert forgetting.drop(late, np.array([0, 1, 2, 3])).tolist() == [-1.0]


def test_moments_name_the_deepest_fall_and_not_the_last():
    found = forgetting.moments(np.array([[0.2, 0.5, 0.1, 0.6, 0.4]]))
    assert found == {"first": 0.2, "half": 0.1, "last": 0.4, "fall": pytest.approx(0.4)}


def test_queries_are_put_in_the_order_in_which_they_come_first():
    streamed = np.array([True, False, True, True])
    values = np.array([10.0, 20.0, 30.0])[None, None, None]  # values of queries 0, 2 and 3
    ordered = forgetting.by_arrival(values, np.array([[3, 0, 2, 0, 2, 3]]), streamed)
    np.testing.assert_array_equal(ordered[0, 0, 0], [30.0, 10.0, 20.0])


def test_mean_cosines_are_those_of_all_pairs():
    rng = np.random.default_rng(0)
    theta, queries = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    labels = np.array([[0, 1], [2, -1], [3, -1], [1, 0], [2, 3]])
    sides = {True: [], False: []}
    for query, right in zip(queries, labels, strict=True):
        for tool, row in enumerate(theta):
            cosine = query @ row / (np.linalg.norm(query) * np.linalg.norm(row))
            sides[tool in right].append(cosine)
    expected = np.mean(sides[True]), np.mean(sides[False])
    np.testing.assert_allclose(forgetting.cosines(theta, queries, labels), expected)


def test_the_picture_has_tools_before_and_after_among_queries_of_the_stream(finished):
    directory, _, task, parts = finished
    before, after, asked = np.split(step_of(directory, "tsne")["points"], [10, 20])
    rows = step_of(directory, "greedy")["rows"]
    tools = [np.abs(task.theta[:, :2] - place).sum(axis=1).argmin() for place in before]
    np.testing.assert_allclose(task.theta[tools, :2], before, atol=1e-6)
    assert len(set(tools)) == 10
    assert np.abs(rows - task.theta[tools]).sum(axis=1).max() > 0.1
    np.testing.assert_allclose(rows[:, :2], after, atol=1e-6)
    streamed = task.queries[~parts.validation, :2]
    assert np.abs(asked[:, None] - streamed).sum(axis=-1).min(axis=1).max() < 1e-6
    assert len(asked) == 30
    for name in ("heldout", "seen", "first_ten", "forgotten", "embeddings"):
        assert (directory / f"{name}.png").stat().st_size > 10_000


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, world, tmp_path):
    """The run stops while it chooses a setting; t-SNE and learners without updates are left out."""
    _, results, _, _ = finished
    alone = ["tsne.tools=0", "~learners.frozen", "~learners.mapped"]
    cfg = configure(world, tmp_path / "run", *alone)
    with stopped_at(4):
        forgetting.main(cfg)
    assert (tmp_path / "run" / "checkpoints" / "greedy" / "choice").exists()
    assert not (tmp_path / "run" / "results.json").exists()
    expected = {name: value for name, value in results.items() if name.startswith("greedy/")}
    assert forgetting.main(cfg) == expected
    assert not (tmp_path / "run" / "embeddings.png").exists()


def test_a_run_is_stopped_while_a_learner_is_followed(world, tmp_path):
    cfg = configure(world, tmp_path, "tsne.tools=0", "~learners.mapped", "~learners.greedy")
    with stopped_at(2):  # the first point precedes the stream
        forgetting.main(cfg)


def test_wrong_settings_and_a_missing_extra_are_refused_before_any_work(
    world, tmp_path, monkeypatch
):
    for override, message in {
        "points=1": "points must be >= 2, got 1",
        "tsne.tools=-1": "tsne.tools must be >= 0, got -1",
        "tsne.learner=orag": r"tsne.learner must be one of \['frozen', 'greedy', 'mapped'\], got",
    }.items():
        refused(forgetting.main, configure(world, tmp_path / "run", override), message)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    message = r"jaxret\[tsne\], or leave it out by tsne.tools=0"
    refused(forgetting.main, configure(world, tmp_path / "run"), message, ImportError)
