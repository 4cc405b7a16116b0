"""Test error and NLL (A4.01): every image exactly once, whatever the batch and however many processes share it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
    """Error and mean NLL of the labels, on clean images, with the model in evaluation mode (and put back after)."""
    processes = processes or Processes()
    device = next(model.parameters()).device
    sums = torch.zeros(2, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
    with evaluating(model):
        for rows in torch.arange(processes.rank, len(data), processes.world).split(batch):
            logits = predict(model, data, rows.to(data.images.device), device, precision)
            labels = data.labels[rows.to(data.labels.device)].to(device)
            wrong = (logits.argmax(-1) != labels).sum()
            nll = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([wrong.float(), nll]).to(sums)
    error, nll = (processes.total(sums) / len(data)).tolist()
    return {"test_error": error, "test_nll": nll}


def predict(
    model: nn.Module, data: Dataset, rows: Tensor, device: torch.device, precision: str
) -> Tensor:
    """float32 logits of some rows."""
    images = data.normalise(data.images[rows].to(device))
    with autocast(device, precision):
        logits: Any = model(images)
    return getattr(logits, "logits", logits).float()


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """bf16 where it is asked for; nothing otherwise."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
