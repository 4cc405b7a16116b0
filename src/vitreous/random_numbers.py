"""Every way to turn a seed and a purpose into random numbers. All randomness of the package begins
here.

Results, runs and bundled models depend on the formulas, so they never change. Images have their own
streams, on any device, in `vitreous.data.random_streams`; where a seed is used as it is, plain
`np.random.default_rng(seed)` or `torch.Generator().manual_seed(seed)` stands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    import torch


def hash_bits(text: str, bits: int) -> int:
    """The first `bits` bits, up to 64, of the SHA-256 of a text, as a number."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> (64 - bits)


def derive_seed(*purpose: object) -> int:
    """A seed of 56 bits for one purpose, usually (seed, name, step …); each purpose has its own."""
    return hash_bits(repr(purpose), 56)


def torch_generator(*purpose: object) -> torch.Generator:
    """A torch generator on the CPU for one purpose, so that every device gets the same numbers."""
    import torch  # here and below, because stored results are judged without torch

    return torch.Generator().manual_seed(derive_seed(*purpose))


@contextlib.contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators inside the block, on the CPU and GPUs; restore them after
    it."""
    with kept_random_state(device):
        seed_torch(seed)
        yield


@contextlib.contextmanager
def kept_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Restore torch's global generators after the block: those of the CPU, of all GPUs if one is in
    use, and of a GPU `device`."""
    import torch

    if device is not None and device.type == "cuda":
        torch.cuda.init()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=gpus):
        yield


def seed_torch(seed: int) -> None:
    """Seed torch's global generators, but not those of GPUs that nothing has used so far.

    `torch.manual_seed` would seed these as well, on first use, when nobody can restore them. And
    without a GPU it first writes down the whole call stack for each kind of GPU, which takes a
    millisecond, as long as a step of a small model.
    """
    import torch

    unused = torch.cuda.is_available() and not torch.cuda.is_initialized()
    if unused or not torch.accelerator.is_available():
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def row_generators(seed: int, rows: Iterable[int]) -> Iterator[np.random.Generator]:
    """Yield a numpy generator for each image, with the Philox stream of (seed, row).

    It is one generator, turned to the next stream: four times as fast as making another. Draw all
    numbers of a row before asking for the next.
    """
    philox = np.random.Philox(key=[seed, 0])
    generator, state = np.random.Generator(philox), philox.state
    for row in rows:
        state["state"]["key"][1] = row
        philox.state = state
        yield generator


def named_generator(name: str) -> np.random.Generator:
    """A numpy generator that depends on a name alone."""
    return np.random.default_rng(crc32(name.encode()))
