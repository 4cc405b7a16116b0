"""Test error and NLL: every image exactly once, for any batch size and number of processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: Dataset,
    *,
    batch: int = 512,
    precision: str = "fp32",
    processes: Processes | None = None,
) -> dict[str, float]:
    """Error and mean NLL of a model in evaluation mode on clean images.

    Returns
    -------
    `{"test_error": ..., "test_nll": ...}`. The model is left in the mode it was in.
    """
    processes = processes or Processes()
    device = next(model.parameters()).device
    sums = torch.zeros(2, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
    with eval_mode(model):
        for rows in torch.arange(processes.rank, len(data), processes.world).split(batch):
            images = data.normalise(data.images[rows.to(data.images.device)].to(device))
            labels = data.labels[rows.to(data.labels.device)].to(device)
            with autocast(device, precision):
                output: Any = model(images)
            logits = getattr(output, "logits", output).float()
            wrong = (logits.argmax(-1) != labels).sum()
            nll = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([wrong.float(), nll]).to(sums)
    error, nll = (processes.total(sums) / len(data)).tolist()
    return {"test_error": error, "test_nll": nll}


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """torch's autocast to bfloat16 for precision "bf16", else a context that does nothing."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def trained_attention() -> contextlib.AbstractContextManager[Any]:
    """Inside, fused attention does not use cuDNN, whose gradients may be NaN (since torch 2.11).

    Known with a mask, 64, 192, 320, … tokens and scores far below zero, on H100 and H200:
    https://github.com/pytorch/pytorch/issues/196678. Three trainings of ConViT, 64 tokens and no
    mask, ended in NaN after 1700 to 2400 steps; without cuDNN one went beyond 3700.
    """
    return sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode inside the block; restore each module's mode after it."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
