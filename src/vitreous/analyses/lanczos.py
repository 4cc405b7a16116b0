"""The eigenvalues of largest size, of either sign, of symmetric maps that are known by their products with vectors.

Lanczos' basis is kept orthogonal to rounding (Gram and Schmidt against all of it, again where digits cancel), so that
eigenvalues neither come twice nor get lost where two of opposite sign are close, which is where power iteration wanders
between them. With all coefficients V·Hv measured, the projected matrix need not be tridiagonal: when the basis is full
it is replaced by its best Ritz vectors and the iteration goes on (thick restart, Wu and Simon 2000). For a pair (θ, Vs)

    residual = |H x - θ x| = β |s_last|

is known without another product, and the iteration stops when that is at most `tolerance · |θ|` for all that were asked
for. The first basis also gives Gauss's quadrature of the spectrum as the random start sees it (stochastic Lanczos
quadrature, Golub and Meurant): nodes θ with weights s_first², whose mean over starts is the spectral density.

Several maps go in parallel, row by row, which is what a GPU wants. Each is read off when it has converged itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError

BASIS = 64
"""Vectors kept at most; each takes as much memory as the parameters."""
CHUNK = 8
"""Vectors that memory is taken for at a time."""
CANCELLED = 0.1
"""What is left of a product outside the basis, relative to the product, below which rounding calls for a second go."""
BROKEN = {torch.float64: 1e-13}
"""A remainder so small, relative to the largest entry, is rounding: the basis spans an invariant space."""


@dataclass
class Spectrum:
    """What is known of one map."""

    values: np.ndarray
    """(k,) eigenvalues, the largest in size first."""
    residuals: np.ndarray
    """(k,) |H x - θ x| of unit x."""
    nodes: np.ndarray
    weights: np.ndarray
    """Of Gauss's quadrature of the density, summing to one."""
    trace: float
    """The start's own estimate, size · vᵀHv (Hutchinson)."""
    products: int
    vectors: Tensor | None = None
    """(k, n)"""


def extreme(
    product: Callable[[Tensor], Tensor], start: Tensor, k: int, *, tolerance: float = 1e-3, most: int = 300,
    basis: int = BASIS, every: int = 1, vectors: bool = False,
) -> list[Spectrum]:  # fmt: skip
    """The k eigenvalues of largest size of each map, fewer where there are no more; `product` takes and gives
    (maps, n), as `start` is.

    Every so many products (`every`) the device is asked how far things are, which a GPU should not be all the time.
    After `most` products what is there is returned, and its residuals say how good it is.
    """
    run = _Run(start, max(basis, 2 * k + 8))
    done: list[Spectrum | None] = [None] * len(start)
    for count in range(1, most + 1):
        run.step(product)
        last = count == most or run.size == run.n
        if count % every and not last and run.size < run.room:
            continue
        state = run.state()
        for i, known in enumerate(done):
            if known is None and (last or state.converged(i, k, tolerance)):
                done[i] = state.spectrum(i, k, count, run.vectors(state, i, k) if vectors else None)
        if all(known is not None for known in done):
            break
        run.mend(state)
        if run.size == run.room:
            run.restart(state)
    return [known for known in done if known is not None]


@dataclass
class _State:
    """Eigenpairs of the projected matrices on the host, the largest in size first."""

    values: np.ndarray
    """(maps, size)"""
    vectors: np.ndarray
    """(maps, size, size), in columns."""
    rest: np.ndarray
    """(maps,) the norm of what the last product has outside the basis."""
    nodes: np.ndarray
    weights: np.ndarray
    trace: np.ndarray
    rounding: float
    """Of the numbers that the maps were given."""

    @property
    def broken(self) -> np.ndarray:
        """(maps,) whether the basis spans a space that the map does not leave."""
        found: np.ndarray = self.rest <= self.rounding * np.abs(self.values[:, 0])
        return found

    def residuals(self, i: int, k: int) -> np.ndarray:
        return np.abs(self.rest[i] * self.vectors[i, -1, :k])

    def converged(self, i: int, k: int, tolerance: float) -> bool:
        if self.values.shape[1] < (2 * k if self.broken[i] else k):
            return False
        return bool((self.residuals(i, k) <= tolerance * np.abs(self.values[i, :k])).all())

    def spectrum(self, i: int, k: int, products: int, vectors: Tensor | None) -> Spectrum:
        values, residuals = self.values[i, :k], self.residuals(i, k)
        return Spectrum(values, residuals, self.nodes[i], self.weights[i], float(self.trace[i]), products, vectors)


class _Run:
    """Bases and projected matrices of several maps."""

    def __init__(self, start: Tensor, room: int) -> None:
        self.n = start.shape[1]
        self.room = min(room, self.n)
        self.blocks: list[Tensor] = []
        self.size = 0
        self.next = start / start.norm(dim=1, keepdim=True)
        self.small = start.new_zeros(len(start), self.room, self.room)
        self.trace, self.rest = start.new_zeros(2, len(start))
        self.quadrature: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def parts(self) -> list[Tensor]:
        """The basis, (maps, some, n) each."""
        found = ((block, self.size - i * CHUNK) for i, block in enumerate(self.blocks))
        return [block[:, :left] for block, left in found if left > 0]

    def step(self, product: Callable[[Tensor], Tensor]) -> None:
        """One more vector in the basis, and the coefficients of its product."""
        block, at = divmod(self.size, CHUNK)
        if block == len(self.blocks):
            self.blocks.append(self.next.new_empty(len(self.next), min(CHUNK, self.room - self.size), self.n))
        self.blocks[block][:, at] = self.next
        image = product(self.next)
        self.size += 1
        before = image.norm()
        coefficients = self._take_off(image)
        if image.is_cuda or image.norm() < CANCELLED * before:  # on a GPU once more is quicker than asking
            coefficients += self._take_off(image)
        self.small[:, : self.size, self.size - 1] = coefficients
        if self.size == 1:
            self.trace = coefficients[:, 0] * self.n
        self._go_on(image)

    def _go_on(self, image: Tensor) -> None:
        self.rest = image.norm(dim=1)
        self.next = image / self.rest.clamp_min(torch.finfo(image.dtype).tiny)[:, None]

    def _take_off(self, image: Tensor) -> Tensor:
        """What lies in the basis, in place; how much of each vector it was."""
        found = [torch.bmm(part, image[:, :, None])[:, :, 0] for part in self.parts]
        for part, each in zip(self.parts, found, strict=True):
            image[:, None].baddbmm_(each[:, None], part, alpha=-1)
        return torch.cat(found, 1)

    def state(self) -> _State:
        """Solve the small matrices; the only place where a GPU is waited for."""
        about = torch.stack([self.rest, self.trace], 1)
        host = torch.cat([about, self.small[:, : self.size, : self.size].flatten(1)], 1).double().cpu().numpy()
        if not np.isfinite(host).all():
            raise VitreousError("The curvature of the loss is not finite on these images: its gradients overflow.")
        values, vectors = np.linalg.eigh(host[:, 2:].reshape(-1, self.size, self.size), UPLO="U")
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        values, vectors = np.take_along_axis(values, order, 1), np.take_along_axis(vectors, order[:, None], 2)
        nodes, weights = self.quadrature or (values, vectors[:, 0] ** 2)
        return _State(values, vectors, host[:, 0], nodes, weights, host[:, 1], BROKEN.get(self.next.dtype, 1e-6))

    def mend(self, state: _State) -> None:
        """Go on in a direction drawn at random where nothing is left of the start's."""
        for i in np.flatnonzero(state.broken):
            drawn = torch.randn(self.n, generator=torch.Generator().manual_seed(self.size), dtype=torch.float64)
            image = self.next.clone()
            image[i] = drawn.to(image)
            self._take_off(image)
            self._take_off(image)
            self.next[i] = image[i] / image[i].norm()

    def restart(self, state: _State) -> None:
        """Keep the better half of the Ritz vectors, in place, and the direction in which to go on."""
        self.quadrature = state.nodes, state.weights
        keep = self.room // 2
        turn = torch.from_numpy(state.vectors[:, :, :keep]).to(self.next).mT
        for columns in torch.arange(self.n).split(1 << 16):
            at = slice(int(columns[0]), int(columns[-1]) + 1)
            kept = torch.bmm(turn, torch.cat([part[:, :, at] for part in self.parts], 1))
            for block, rows in zip(self.blocks, kept.split(CHUNK, 1), strict=False):
                block[:, : rows.shape[1], at] = rows
        self.size = keep
        self.small.zero_()
        self.small[:, :keep, :keep] = torch.diag_embed(torch.from_numpy(state.values[:, :keep])).to(self.small)

    def vectors(self, state: _State, i: int, k: int) -> Tensor:
        """(k, n) Ritz vectors of one map."""
        turn = torch.from_numpy(state.vectors[i, :, :k]).to(self.next).T.split(CHUNK, 1)
        return torch.stack([rows @ part[i] for rows, part in zip(turn, self.parts, strict=True)]).sum(0)
