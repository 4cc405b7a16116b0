"""Neighbourhood attention as a masked fused product against the usual way, keys and values copied
out by unfold.

    python benchmarks/neighbourhood.py --device cuda
    python benchmarks/neighbourhood.py --device cpu --grids 8 --kernels 3 --batch 8

One layer of ViT-Ti (three heads of 64), forward and backward, on the grids of the papers: 8x8 is a
CIFAR image in patches of 4, 14x14 an ImageNet one in patches of 16.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from race import Race, Step, training_step  # noqa: E402

from vitreous.models.mixers import NeighbourhoodAttention  # noqa: E402

HEADS, HEAD_DIM = 3, 64


class Unfolded(nn.Module):
    """Every query's neighbours copied beside it: (batch, heads, N, kernel²) logits, borders
    masked."""

    def __init__(self, side: int, kernel: int) -> None:
        super().__init__()
        self.side, self.kernel = side, kernel
        self.qkv = nn.Linear(HEADS * HEAD_DIM, 3 * HEADS * HEAD_DIM)
        self.proj = nn.Linear(HEADS * HEAD_DIM, HEADS * HEAD_DIM)
        outside = self.around(torch.ones(1, 1, side, side)).squeeze(2) == 0
        self.register_buffer(
            "mask", torch.zeros(outside.shape).masked_fill(outside, -torch.inf), persistent=False
        )

    def around(self, x: Tensor) -> Tensor:
        """(B, C, side, side) to (B, 1 or heads, d, kernel², N)."""
        unfolded = F.unfold(x, self.kernel, padding=self.kernel // 2)
        return unfolded.view(len(x), -1, min(HEAD_DIM, x.shape[1]), self.kernel**2, self.side**2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).mT.unflatten(2, (self.side, self.side)).chunk(3, dim=1)
        q = q.reshape(len(x), HEADS, HEAD_DIM, 1, self.side**2)
        logits = (q * self.around(k)).sum(2) / HEAD_DIM**0.5 + self.mask
        mixed = (logits.softmax(2)[:, :, None] * self.around(v)).sum(3)
        return self.proj(mixed.flatten(1, 2).mT)


def layer(ours: bool, side: int, kernel: int) -> nn.Module:
    """Either layer, with the same weights."""
    torch.manual_seed(0)
    unfolded = Unfolded(side, kernel)
    if not ours:
        return unfolded
    masked = NeighbourhoodAttention(
        HEADS * HEAD_DIM, HEADS, HEAD_DIM, True, (side, side), kernel, 1, "masked"
    )
    masked.load_state_dict(unfolded.state_dict())
    return masked


def disagreement(side: int, kernel: int) -> float:
    """Largest difference in float32, before any time is spent on a race between different
    functions."""
    tokens = torch.randn(2, side * side, HEADS * HEAD_DIM)
    with torch.no_grad():
        return float(
            (layer(True, side, kernel)(tokens) - layer(False, side, kernel)(tokens)).abs().max()
        )


def contender(ours: bool, side: int, kernel: int, batch: int, device: str, compiled: bool) -> Step:
    model = layer(ours, side, kernel).to(device)
    tokens = torch.randn(batch, side * side, HEADS * HEAD_DIM, device=device, requires_grad=True)
    return training_step(model, tokens, low_precision=device == "cuda", compiled=compiled)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--grids", nargs="+", type=int, default=[8, 14, 28])
    parser.add_argument("--kernels", nargs="+", type=int, default=[3, 5])
    parser.add_argument(
        "--modes", nargs="+", choices=["compiled", "eager"], default=["eager", "compiled"]
    )
    parser.add_argument("--batch", type=int, help="images at a time; 128 on CUDA and 8 on CPU")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="time for each measurement, compiling not counted",
    )
    parser.add_argument(
        "--budget", type=float, default=200.0, help="start nothing after this many seconds"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()

    batch = asked.batch or (128 if asked.device == "cuda" else 8)
    race = Race("neighbourhood", asked.device, asked.seconds, asked.budget, asked.out)
    for mode in asked.modes:
        for side in asked.grids:
            for kernel in asked.kernels:
                if (difference := disagreement(side, kernel)) > 1e-5:
                    sys.exit(
                        f"the two differ by {difference:.2g} on {side}x{side}, so there is nothing "
                        f"to race"
                    )
                for ours in (True, False):
                    make = partial(
                        contender, ours, side, kernel, batch, asked.device, mode == "compiled"
                    )
                    race.run(
                        f"{side}x{side} kernel {kernel}",
                        mode,
                        "ours" if ours else "unfold",
                        batch,
                        make,
                    )
    print(f"\n{race.table('ours', 'unfold')}\n\nwritten to {race.write()}")


if __name__ == "__main__":
    main()
