"""Text networks in HuggingFace PyTorch that compute what jaxret's compute; needs torch.

    vectors = embed(random_bert(config), ids, mask)    the unit vectors of a text encoder
    Twin(bert, params, batch, ..).training()           one step of MLC or ToolRefiner

`Twin` covers what the benchmarks compare: BERT, the mean pool, shared positions, no padding among
the candidates.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jaxtyping import Array, Float
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from experiments.benchmarks.timing import DECAY, RATE
from jaxret.nn.backbone import Backbone
from jaxret.nn.checkpoints import convert
from jaxret.types import Params

PROGRAMS = 64  # maximum programs per compiled function


class Twin:
    """A PyTorch model with the weights of a jaxret model, on one batch.

    Args:
      bert: the backbone, on the device to compute on; see `read_bert`.
      params: parameters of the jaxret model, whose heads are copied.
      batch: batch of the jaxret recipe: of a ToolRefiner with ``candidates``, else of an MLC.
      compiled: whether to use torch.compile.
      bfloat16: whether products use it (torch.autocast); weights and AdamW stay in float32.
    """

    def __init__(
        self,
        bert: BertModel,
        params: Params,
        batch: Mapping[str, Array],
        *,
        compiled: bool = False,
        bfloat16: bool = False,
    ):
        self.bert, self.device = bert.eval(), bert.device  # eval() turns dropout off
        heads = {name: _linear(params[name]) for name in params if name != "backbone"}
        self.heads = {name: head.to(self.device) for name, head in heads.items()}
        parameters = [p for part in (self.bert, *self.heads.values()) for p in part.parameters()]
        # The fused kernel takes half the time of foreach=True and of the plain loop.
        self.optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY, fused=True)
        tensors = {
            name: torch.tensor(np.asarray(value), device=self.device)
            for name, value in batch.items()
        }
        self.ids, self.mask = tensors["ids"].long(), tensors["mask"]
        if refines := "candidates" in tensors:
            columns, self.tools = tensors["candidates"], tensors["tools"]
        else:
            columns = torch.arange(params["head"]["bias"].size, device=self.device)[None]
        labels = tensors["labels"]
        self.right = torch.eq(columns[:, :, None], labels[:, None, :]).any(2).float()
        forward = self._refine if refines else self._classify
        self.run = torch.compile(forward) if compiled else forward
        self.bfloat16 = bfloat16
        self.loss = F.binary_cross_entropy_with_logits if refines else F.cross_entropy

    def forward(self) -> torch.Tensor:
        """Compute the logits."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.run()

    def training(self) -> None:
        """Take one step, and wait for it."""
        self.optimizer.zero_grad()
        self.loss(self.forward().float(), self.right).backward()
        self.optimizer.step()
        wait(self.device)

    @torch.inference_mode()
    def inference(self) -> torch.Tensor:
        """Compute the logits without gradients."""
        return self.forward()

    def check(
        self, backbone: Backbone, logits: Float[Array, "B N"], start: Params, stepped: Params
    ) -> dict[str, float]:
        """Take a step, and refuse the comparison if jaxret's step ended elsewhere.

        AdamW moves a weight by about its rate even where its gradient is only rounding. So weights
        are compared by how far apart they end, relative to the length of the step.

        Returns:
          ``logits``: their largest difference; ``step``: distance of the weights after the step,
          relative to the length of the step.
        """
        gap = float(np.abs(self.inference().cpu().numpy() - logits).max())
        self.training()
        apart = _distance(stepped, weights_of(self.bert, backbone))
        moved = _distance(stepped, start)
        if not (gap <= 1e-4 and apart <= 0.05 * moved):  # true for NaN, too
            raise AssertionError(
                f"no comparison of times: logits differ by {gap:.1e}, and steps of length "
                f"{moved:.1e} end {apart:.1e} apart"
            )
        return {"logits": gap, "step": apart / moved}

    def _classify(self):
        hidden = self.bert(input_ids=self.ids, attention_mask=self.mask).last_hidden_state
        weights = self.mask[..., None].float()
        return self.heads["head"]((hidden * weights).sum(1) / weights.sum(1))

    def _refine(self):
        batch, length = self.ids.shape
        candidates = self.tools.shape[1]
        present = torch.ones(batch, candidates, dtype=torch.bool, device=self.device)
        words = self.bert.embeddings.word_embeddings(self.ids)
        hidden = self.bert(
            inputs_embeds=torch.cat([words, self.heads["projection"](self.tools)], 1),
            attention_mask=torch.cat([self.mask, present], 1),
            position_ids=torch.cat(
                [
                    torch.arange(length, device=self.device).expand(batch, -1),
                    self.mask.sum(1, keepdim=True).expand(-1, candidates),
                ],
                1,
            ),
        ).last_hidden_state
        return self.heads["score"](hidden[:, length:])[..., 0]


def read_bert(directory: Path, layers: int) -> BertModel:
    """Read the first blocks of a checkpoint; `Twin.check` notices any other missing weight."""
    config = BertConfig.from_pretrained(directory, num_hidden_layers=layers)
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict(load_file(directory / "model.safetensors"), strict=False)
    return bert


def random_bert(config: Mapping[str, Any]) -> BertModel:
    """Draw a BERT of a config.json in float32, whose attention is PyTorch's fused one (SDPA)."""
    torch.manual_seed(0)
    with torch.device(device()):
        settings: dict[str, Any] = {**config, "attn_implementation": "sdpa"}
        return BertModel(BertConfig(**settings), add_pooling_layer=False).eval()


def weights_of(model: torch.nn.Module, backbone: Backbone) -> Params:
    """Return a HuggingFace model's weights as those of a jaxret backbone, in float32."""
    tensors = {name: value.float().cpu().numpy() for name, value in model.state_dict().items()}
    return convert(tensors, backbone.keys, backbone.network().shapes())


def embed(model: BertModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Embed texts as jaxret's encoders with a mean pool do.

    Returns:
      unit vectors [B, d], float32.
    """
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(pooled.float(), dim=1)


def embedding(
    model: BertModel, inputs: Sequence[Sequence[torch.Tensor]], *, compiled: bool = False
) -> Callable[[], None]:
    """Return a function that embeds batches and wait for the last of them.

    Args:
      model: model of any precision.
      inputs: tokens and mask of each batch.
      compiled: whether to use torch.compile, with one program for each shape. (By default PyTorch
        compiles eight programs of a function, and then goes on without compiling.)
    """
    run = embed
    if compiled:
        limits: Any = torch._dynamo.config
        limits.recompile_limit, limits.fail_on_recompile_limit_hit = PROGRAMS, True
        run = torch.compile(embed, dynamic=False)

    @torch.inference_mode()
    def call() -> None:
        for ids, mask in inputs:
            run(model, ids, mask)
        wait(model.device)

    return call


def device() -> str:
    """Return ``cuda`` where PyTorch can use it, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def forms() -> dict[str, bool]:
    """Name the forms of a network that this machine runs, and whether each is compiled."""
    return {"torch": False} | ({"torch_compiled": True} if device() == "cuda" else {})


@contextmanager
def tf32(allowed: bool) -> Generator[None]:
    """Let products of float32 matrices use TF32 on a GPU, or not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed and device() == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def wait(place: torch.device) -> None:
    """Wait until a device has done its work."""
    if place.type == "cuda":
        torch.cuda.synchronize()


def _linear(weights: Params) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weights["kernel"].shape)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(weights["kernel"]).T))
        layer.bias.copy_(torch.tensor(np.asarray(weights["bias"])))
    return layer


def _distance(a: Params, b: Params) -> float:
    return float(optax.tree.norm(jax.tree.map(jnp.subtract, a, b)))
