"""MLC and ToolRefiner in HuggingFace PyTorch, as a benchmark's other side; needs torch.

Only what `experiments.benchmarks.training` compares: BERT, the mean pool, shared places, no padding
among the candidates.
"""

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jaxtyping import Array, Float
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from jaxret.nn.backbone import Backbone
from jaxret.nn.checkpoints import convert
from jaxret.types import Params


class Twin:
    """A model with the weights of ours on its batch: `training`, `inference`, `check`.

    Args:
      bert: the backbone, on the device of all that follows; see `read_bert`.
      params: whose heads are copied.
      batch: as the recipe makes it; with ``candidates`` it is a ToolRefiner's, else an MLC's.
      rate: AdamW's.
      decay: AdamW's.
      compiled: uses torch.compile.
      bfloat16: computes products in it (torch.autocast); weights and AdamW stay in float32.
    """

    def __init__(
        self,
        bert: BertModel,
        params: Params,
        batch: Mapping[str, Array],
        *,
        rate: float,
        decay: float,
        compiled: bool,
        bfloat16: bool = False,
    ):
        self.bert, self.device = bert.eval(), bert.device  # eval: without dropout
        heads = {name: _linear(params[name]) for name in params if name != "backbone"}
        self.heads = {name: head.to(self.device) for name, head in heads.items()}
        parameters = [p for part in (self.bert, *self.heads.values()) for p in part.parameters()]
        # One kernel for all of it: half the time of foreach=True and of the plain loop.
        self.optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
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
        """The logits."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.run()

    def training(self) -> None:
        """One step."""
        self.optimizer.zero_grad()
        self.loss(self.forward().float(), self.right).backward()
        self.optimizer.step()

    @torch.inference_mode()
    def inference(self) -> torch.Tensor:
        return self.forward()

    def check(
        self, backbone: Backbone, logits: Float[Array, "B N"], start: Params, stepped: Params
    ) -> dict[str, float]:
        """Takes a step, and refuses to be compared if ours went elsewhere.

        AdamW moves a weight by about its rate even where its gradient is nothing but rounding. So
        weights are compared by how far apart they end, relative to the length of the step.

        Args:
          backbone: ours.
          logits: ours before the step.
          start: our backbone before the step.
          stepped: and after it.

        Returns:
          ``logits``: their largest difference; ``step``: how far apart, relative to its length.

        Raises:
          AssertionError: if logits differ by 1e-4, or the steps by a twentieth.
        """
        gap = float(np.abs(self.inference().cpu().numpy() - logits).max())
        self.training()
        tensors = {name: value.cpu().numpy() for name, value in self.bert.state_dict().items()}
        theirs = convert(tensors, backbone.keys, backbone.network().shapes())
        apart, moved = _distance(stepped, theirs), _distance(stepped, start)
        if not (gap <= 1e-4 and apart <= 0.05 * moved):  # nor where one is no number
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
        there = torch.ones(batch, candidates, dtype=torch.bool, device=self.device)
        words = self.bert.embeddings.word_embeddings(self.ids)
        hidden = self.bert(
            inputs_embeds=torch.cat([words, self.heads["projection"](self.tools)], 1),
            attention_mask=torch.cat([self.mask, there], 1),
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
    """The first blocks of a checkpoint; `Twin.check` would notice if more were left out."""
    config = BertConfig.from_pretrained(directory, num_hidden_layers=layers)
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict(load_file(directory / "model.safetensors"), strict=False)
    return bert


def _linear(weights: Params) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weights["kernel"].shape)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(weights["kernel"]).T))
        layer.bias.copy_(torch.tensor(np.asarray(weights["bias"])))
    return layer


def _distance(a: Params, b: Params) -> float:
    return float(optax.tree.norm(jax.tree.map(jnp.subtract, a, b)))
