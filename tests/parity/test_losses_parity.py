"""Losses and gradients against PyTorch, and the schedule against the reference's loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.training.losses import multi_label_bce, softmax_ce, triplet_margin
from jaxret.training.schedules import reference_warmup_cosine

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.parity

RNG = np.random.default_rng(0)
LABELS = np.array([[3, -1, -1], [0, 6, -1], [2, 5, 4], [1, 0, -1]])
MULTI_HOT = torch.tensor([[float(i in row) for i in range(7)] for row in LABELS.tolist()])


def compare(ours, theirs, *arrays):
    """Compare values and gradients of two losses on equal float32 arrays."""
    arrays = [np.asarray(x, np.float32) for x in arrays]
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    value, slopes = jax.jit(jax.value_and_grad(ours, argnums=tuple(range(len(arrays)))))(*arrays)
    want = theirs(*tensors)
    want.backward()
    np.testing.assert_allclose(value, want.item(), rtol=1e-6)
    for slope, tensor in zip(slopes, tensors, strict=True):
        np.testing.assert_allclose(slope, tensor.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 100])
def test_bce_equals_bce_with_logits(scale):
    compare(
        lambda z: multi_label_bce(z, LABELS),
        lambda z: F.binary_cross_entropy_with_logits(z, MULTI_HOT),
        scale * RNG.normal(size=(4, 7)),
    )


def test_bce_over_candidates_equals_the_mean_over_all_of_them():
    candidates = np.array([RNG.permutation(7)[:5] for _ in LABELS])
    targets = torch.gather(MULTI_HOT, 1, torch.tensor(candidates))
    compare(
        lambda z: multi_label_bce(z, LABELS, candidates),
        lambda z: F.binary_cross_entropy_with_logits(z, targets),
        RNG.normal(size=(4, 5)),
    )


@pytest.mark.parametrize("scale", [1, 100])
def test_softmax_cross_entropy_equals_what_the_reference_minimises(scale):
    compare(
        lambda z: softmax_ce(z, LABELS),
        lambda z: -(z.log_softmax(-1) * MULTI_HOT).sum(-1).mean(),
        scale * RNG.normal(size=(4, 7)),
    )


def test_transformers_minimises_the_same_loss_for_a_matrix_of_labels():
    transformers = pytest.importorskip("transformers")
    config = transformers.DebertaV2Config(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=7,
    )
    model = transformers.DebertaV2ForSequenceClassification(config).eval()
    output = model(input_ids=torch.arange(20).reshape(4, 5), labels=MULTI_HOT)
    got = softmax_ce(jnp.asarray(output.logits.detach()), LABELS)
    np.testing.assert_allclose(got, output.loss.item(), rtol=1e-6)


@pytest.mark.parametrize("margin", [0.5, 4.0])
def test_triplets_equal_triplet_margin_loss_on_raw_and_unit_vectors(margin):
    vectors = RNG.normal(size=(3, 6, 5))
    compare(
        lambda a, p, n: triplet_margin(a, p, n, margin=margin),
        lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=margin),
        *vectors,
    )
    compare(
        lambda a, p, n: triplet_margin(a, p, n, margin=margin, unit=True),
        lambda *x: F.triplet_margin_loss(*(F.normalize(v) for v in x), margin=margin),
        *vectors,
    )


def test_an_anchor_that_is_its_own_positive_has_the_gradient_of_pytorch():
    anchor, negative = RNG.normal(size=(2, 6, 5))
    compare(triplet_margin, F.triplet_margin_loss, anchor, anchor, negative)


@pytest.mark.parametrize(("warmup", "total"), [(2, 7), (10, 60), (100, 1000), (30, 30)])
def test_the_reference_schedule_equals_its_training_loop(warmup, total):
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=3e-5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    want = []
    for step in range(total):
        if step < warmup:
            optimizer.param_groups[0]["lr"] = 3e-5 * step / warmup
        else:
            optimizer.step()  # PyTorch warns if the schedule moves first
            cosine.step()
        want.append(optimizer.param_groups[0]["lr"])
    schedule = reference_warmup_cosine(3e-5, warmup=warmup, total=total)
    np.testing.assert_allclose(jax.vmap(schedule)(jnp.arange(total)), want, rtol=1e-4, atol=1e-11)
