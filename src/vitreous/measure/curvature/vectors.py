"""Random vectors for Lanczos iteration, equal on all devices, and projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from vitreous.random_numbers import hash_bits

THREADS = 8
"""Number of threads that draw random signs for a GPU."""


def vector_generator(begun: str, number: int) -> torch.Generator:
    """Return a CPU generator for one draw; maps with other starts draw other numbers."""
    return torch.Generator().manual_seed(hash_bits(f"{begun} {number}", 56))


def sign_vectors(begun: Sequence[str], draws: int, like: Tensor) -> Iterator[Tensor]:
    """Draw vectors of random signs, (maps, n) for each draw.

    Parameters
    ----------
    begun
        Hash of the start of each map.
    like
        (maps, k, n) vectors, whose device and dtype the signs get.
    """

    def draw(number: int) -> Tensor:
        generators = [vector_generator(each, -1 - number) for each in begun]
        bits = [
            torch.randint(0, 2, like.shape[2:], generator=generator, dtype=torch.int8)
            for generator in generators
        ]
        return torch.stack(bits)

    def signs(bits: Tensor) -> Tensor:
        return bits.to(like.device).to(like.dtype).mul_(2).sub_(1)

    if not like.is_cuda:
        yield from (signs(draw(number)) for number in range(draws))
        return
    # Drawing on the CPU takes ten times as long as a product on a GPU, so all are drawn at once.
    with ThreadPoolExecutor(THREADS) as threads:
        yield from map(signs, threads.map(draw, range(draws)))


def project_off(image: Tensor, locked: Tensor) -> Tensor:
    """Make vectors (maps, n) orthogonal to others (maps, k, n), in place; return coefficients."""
    coefficients = torch.bmm(locked, image[:, :, None])[:, :, 0]
    image[:, None].baddbmm_(coefficients[:, None], locked, alpha=-1)
    return coefficients
