"""Leading eigenvalues, of either sign, of symmetric maps known by their products with vectors.

The Lanczos basis is kept orthogonal to rounding (full Gram-Schmidt, twice). So no eigenvalue
appears twice, and none is lost if two of opposite sign are close, for which power iteration stalls.
All coefficients V·Hv are computed, so the projected matrix need not be tridiagonal: a full basis is
replaced by its best Ritz vectors, and the iteration continues (thick restart, Wu & Simon 2000). For
a pair (θ, Vs)

    residual = |H x - θ x| = β |s_last|

needs no further product. The iteration stops when it is at most `tolerance · |θ|` for all requested
pairs. Residuals do not show whether a pair is missing: a single start finds one vector of a
multiple eigenvalue, and a vector with a small component in the start converges late. So `verify`
searches again from a random start orthogonal to all eigenvectors found, and adds larger pairs,
until a start finds none.

The first basis also gives Gauss quadrature of the spectrum weighted by the random start (stochastic
Lanczos quadrature, Golub & Meurant): nodes θ with weights s_first², whose mean over starts is the
spectral density.

Several maps run in parallel, row by row, to use a GPU better. The state of each is read when it has
converged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import log, sqrt

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.curvature.vectors import project_off, sign_vectors, vector_generator

Product = Callable[[Tensor], Tensor]

BASIS = 64
"""Maximum number of basis vectors; each takes as much memory as the parameters."""
CHUNK = 8
"""Number of basis vectors that are allocated at a time."""
BROKEN = {torch.float64: 1e-13}
"""A smaller remainder, relative to the largest eigenvalue, is rounding: the space is invariant."""
CHANCE = 1e-4
"""Accepted probability that a random start misses an eigenvalue."""
SEPARATION = 0.1
"""Relative distance by which a missed eigenvalue exceeds the smallest one found, for `CHANCE` to
hold if the next eigenvalue is too close to decide earlier."""


@dataclass
class Spectrum:
    """Leading eigenvalues of one map, and its spectral density."""

    values: np.ndarray
    """(k,) eigenvalues, the largest in size first."""
    residuals: np.ndarray
    """(k,) |H x - θ x| of unit x."""
    nodes: np.ndarray
    weights: np.ndarray
    """Weights of the Gauss quadrature of the density, with sum one."""
    products: int
    vectors: Tensor
    """(k, n) eigenvectors; empty unless requested."""
    begun: str
    """Hash of the start."""
    verified: bool = False
    """Whether the search from another random start found no larger eigenvalue."""
    trace: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(draws,) estimates of the sum of all eigenvalues."""


def extreme(
    product: Product, start: Tensor, k: int, *, tolerance: float = 1e-3, most: int = 300,
    basis: int = BASIS, every: int = 1, vectors: bool = False, draws: int = 0,
) -> list[Spectrum]:  # fmt: skip
    """Find the k eigenvalues of largest absolute value of each map, fewer if there are no more.

    Parameters
    ----------
    product
        Multiplies one vector per map, (maps, n) to (maps, n).
    start
        (maps, n) random vectors.
    tolerance
        Largest residual, relative to the eigenvalue.
    most
        Maximum number of products for the search; the residuals show how good its result is. After
        as many more in the search for missing ones, `verified` is false.
    every
        Products between two checks for convergence, each of which makes a GPU wait.
    vectors
        Whether to return eigenvectors.
    draws
        Products for the trace.
    """
    found = _search(product, start, k, tolerance, most, basis, every)
    verify(product, found, k, tolerance=tolerance, most=most, basis=basis, every=every)
    for spectrum, values in zip(found, _traces(product, found, draws), strict=True):
        spectrum.trace = values
        spectrum.products += draws
        if not vectors:
            spectrum.vectors = spectrum.vectors[:0]
    return found


def _search(
    product: Product, start: Tensor, k: int, tolerance: float, most: int, basis: int, every: int
) -> list[Spectrum]:
    """Iterate from one start until all maps have converged."""
    begun = [sha256(row[:4096].double().cpu().numpy().tobytes()).hexdigest() for row in start]
    run = _Run(start.clone(), max(basis, 2 * k + 8))
    spectra: list[Spectrum | None] = [None] * len(start)
    while True:
        run.step(product)
        last = run.steps == most or run.size == run.n
        if run.steps % every and not last and run.size < run.room:
            continue
        state = run.state()
        for i, spectrum in enumerate(spectra):
            if spectrum is None and (last or state.converged(i, k, tolerance)):
                vectors = run.vectors(state, i, k)
                spectrum = state.spectrum(i, k, run.steps, vectors, begun[i])
                spectrum.verified = run.size == run.n
                spectra[i] = spectrum
        converged = [spectrum for spectrum in spectra if spectrum is not None]
        if len(converged) == len(spectra):
            return converged
        run.prepare_next(state)


def verify(
    product: Product, found: Sequence[Spectrum], k: int, *, tolerance: float, most: int,
    basis: int, every: int,
) -> None:  # fmt: skip
    """Search for missing eigenvalues from new random starts, and add them, until none is found."""
    remaining, turn = most, 0
    while remaining > 0 and not all(spectrum.verified for spectrum in found):
        turn += 1
        locked = torch.stack([spectrum.vectors for spectrum in found])
        starts = [
            torch.randn(locked.shape[2], generator=vector_generator(spectrum.begun, turn))
            for spectrum in found
        ]
        run = _Run(torch.stack(starts).to(locked), max(basis, 2 * k + 8), locked)
        undecided = [i for i, spectrum in enumerate(found) if not spectrum.verified]
        while undecided and run.steps < remaining:
            run.step(product)
            if run.steps % every and run.steps < remaining and run.size < min(run.room, run.n):
                continue
            state = run.state()
            for i in list(undecided):
                smallest = float(np.abs(found[i].values[-1]))
                larger = _count_missing(state, run, i, smallest, tolerance)
                if larger is None:
                    continue
                undecided.remove(i)
                found[i].products += run.steps
                found[i].verified = not larger
                if larger:
                    _add_pairs(found[i], run, state, i, larger, k)
            if undecided:
                run.prepare_next(state)
        for i in undecided:
            found[i].products += run.steps
        remaining -= run.steps
    _compute_residuals(product, found)


def _count_missing(
    state: _State, run: _Run, i: int, smallest: float, tolerance: float
) -> int | None:
    """Count converged Ritz pairs of a new start that are larger than the smallest found so far.

    Returns None as long as this is undecided. After j products a random start
    underestimates the largest eigenvalue by a share ε of the spectrum's width with a probability of
    at most 1.648 √n exp(-(2j - 1) √ε) (Kuczyński & Woźniakowski 1992). The width is at most twice
    the size of a missed one.
    """
    sizes, residuals = np.abs(state.values[i]), state.residuals(i, len(state.values[i]))
    exhausted = run.size >= run.n or bool(state.broken[i])
    precision = max(10 * state.rounding, tolerance**2)  # relative error of an eigenvalue
    if sizes[0] > smallest * (1 + precision):
        good = (sizes > smallest) & (exhausted | (residuals <= tolerance * sizes))
        return int(np.append(good, False).argmin()) or None
    if exhausted:
        return 0
    gap = max(1 - sizes[0] / smallest, 0.0)
    required = log(1.648 * sqrt(run.n) / CHANCE) / (2 * run.steps - 1)  # √ε for CHANCE
    if required <= sqrt(gap / 2):
        return 0
    settled = residuals[0] <= max(tolerance * sizes[0], smallest - sizes[0])
    return 0 if settled and required <= sqrt(SEPARATION / 2) else None


def _add_pairs(found: Spectrum, run: _Run, state: _State, i: int, count: int, k: int) -> None:
    """Add Ritz pairs of a new start: solve in the joint space, and keep the k largest."""
    new_vectors = run.vectors(state, i, count)
    joint = torch.cat([found.vectors, new_vectors])
    coupling = run.coupling[i, :, : run.size].double().cpu().numpy() @ state.vectors[i, :, :count]
    projected = np.block(
        [[np.diag(found.values), coupling], [coupling.T, np.diag(state.values[i, :count])]]
    )
    values, rotation = np.linalg.eigh(projected)
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    found.values = values[order]
    found.residuals = np.full(len(order), np.nan)  # until `_compute_residuals`
    found.vectors = torch.from_numpy(rotation[:, order].T).to(joint) @ joint


def _compute_residuals(product: Product, found: Sequence[Spectrum]) -> None:
    """Compute the residuals of added pairs, with one product per pair."""
    if not any(np.isnan(spectrum.residuals).any() for spectrum in found):
        return
    for rank in range(len(found[0].values)):
        vectors = torch.stack([spectrum.vectors[rank] for spectrum in found])
        images = product(vectors)
        for spectrum, vector, image in zip(found, vectors, images, strict=True):
            if np.isnan(spectrum.residuals[rank]):
                value = float(spectrum.values[rank])
                spectrum.residuals[rank] = float((image - value * vector).norm())
                spectrum.products += 1


def _traces(product: Product, found: Sequence[Spectrum], draws: int) -> np.ndarray:
    """Estimate the traces by Hutchinson's uᵀHu with random signs, (maps, draws).

    u is orthogonal to the eigenvectors found, whose eigenvalues are added. Otherwise these would
    cause most of the variance (Hutch++, Meyer et al. 2021).
    """
    locked = torch.stack([spectrum.vectors for spectrum in found])
    known = np.array([spectrum.values.sum() for spectrum in found])
    estimates = [torch.zeros(len(found), 0, dtype=torch.float64)]
    for vectors in sign_vectors([spectrum.begun for spectrum in found], draws, locked):
        project_off(vectors, locked)
        estimates.append((vectors.double() * product(vectors).double()).sum(1, keepdim=True).cpu())
    return known[:, None] + torch.cat(estimates, 1).numpy()


@dataclass
class _State:
    """Eigenpairs of the projected matrices, on the host, the largest |θ| first."""

    values: np.ndarray
    """(maps, size)"""
    vectors: np.ndarray
    """(maps, size, size), in columns."""
    rest: np.ndarray
    """(maps,) norm of the last product outside the basis."""
    nodes: np.ndarray
    weights: np.ndarray
    rounding: float
    """Relative size below which a remainder is rounding, for the dtype of the maps."""

    @property
    def broken(self) -> np.ndarray:
        """(maps,) whether the basis spans an invariant space."""
        invariant: np.ndarray = self.rest <= self.rounding * np.abs(self.values[:, 0])
        return invariant

    def residuals(self, i: int, k: int) -> np.ndarray:
        return np.abs(self.rest[i] * self.vectors[i, -1, :k])

    def converged(self, i: int, k: int, tolerance: float) -> bool:
        if self.values.shape[1] < k:
            return False
        return bool((self.residuals(i, k) <= tolerance * np.abs(self.values[i, :k])).all())

    def spectrum(self, i: int, k: int, products: int, vectors: Tensor, begun: str) -> Spectrum:
        values, residuals = self.values[i, :k], self.residuals(i, k)
        return Spectrum(values, residuals, self.nodes[i], self.weights[i], products, vectors, begun)


class _Run:
    """Bases and projected matrices of several maps, orthogonal to `locked` vectors (maps, k, n)."""

    def __init__(self, start: Tensor, room: int, locked: Tensor | None = None) -> None:
        self.locked = start.new_zeros(len(start), 0, start.shape[1]) if locked is None else locked
        self.n = start.shape[1] - self.locked.shape[1]
        """Dimensions of the space."""
        self.room = min(room, self.n)
        self.blocks: list[Tensor] = []
        self.size = self.steps = 0
        for _ in range(2):
            project_off(start, self.locked)
        self.next = start / start.norm(dim=1, keepdim=True)
        self.small = start.new_zeros(len(start), self.room, self.room)
        self.coupling = start.new_zeros(len(start), self.locked.shape[1], self.room)
        """Coefficients of the products of the basis along the locked vectors."""
        self.rest = start.new_zeros(len(start))
        self.quadrature: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def parts(self) -> list[Tensor]:
        """The basis in blocks, (maps, some, n) each."""
        blocks = ((block, self.size - i * CHUNK) for i, block in enumerate(self.blocks))
        return [block[:, :left] for block, left in blocks if left > 0]

    def step(self, product: Product) -> None:
        """Add a vector to the basis, and compute the coefficients of its product."""
        block, at = divmod(self.size, CHUNK)
        if block == len(self.blocks):
            shape = len(self.next), min(CHUNK, self.room - self.size), self.next.shape[1]
            self.blocks.append(self.next.new_empty(shape))
        self.blocks[block][:, at] = self.next
        image = product(self.next)
        self.size += 1
        self.steps += 1
        for first in (True, False):  # once leaves errors where digits cancel, twice is enough
            along, coefficients = project_off(image, self.locked), self._project_off_basis(image)
            if first:
                self.coupling[:, :, self.size - 1] = along
                self.small[:, : self.size, self.size - 1] = coefficients
            else:
                self.small[:, : self.size, self.size - 1] += coefficients
        self.rest = image.norm(dim=1)
        self.next = image / self.rest.clamp_min(torch.finfo(image.dtype).tiny)[:, None]

    def _project_off_basis(self, image: Tensor) -> Tensor:
        """Project off the basis, in place; return the coefficients."""
        coefficients = [torch.bmm(part, image[:, :, None])[:, :, 0] for part in self.parts]
        for part, each in zip(self.parts, coefficients, strict=True):
            image[:, None].baddbmm_(each[:, None], part, alpha=-1)
        return torch.cat(coefficients, 1)

    def state(self) -> _State:
        """Solve the projected matrices; the only place that waits for a GPU."""
        small = self.small[:, : self.size, : self.size].flatten(1)
        host = torch.cat([self.rest[:, None], small], 1).double().cpu().numpy()
        if not np.isfinite(host).all():
            raise VitreousError(
                "The curvature of the loss is not finite on these images: its gradients overflow."
            )
        values, vectors = np.linalg.eigh(host[:, 1:].reshape(-1, self.size, self.size), UPLO="U")
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        values = np.take_along_axis(values, order, 1)
        vectors = np.take_along_axis(vectors, order[:, None], 2)
        nodes, weights = self.quadrature or (values, vectors[:, 0] ** 2)
        return _State(
            values, vectors, host[:, 0], nodes, weights, BROKEN.get(self.next.dtype, 1e-6)
        )

    def prepare_next(self, state: _State) -> None:
        """Make room, and replace the next vector if nothing is left of it."""
        self._replace_next(state)
        if self.size == self.room:
            self._restart(state)

    def _replace_next(self, state: _State) -> None:
        """Draw a random next vector for maps whose basis is invariant."""
        for i in np.flatnonzero(state.broken):
            generator = torch.Generator().manual_seed(self.steps)
            image = self.next.clone()
            image[i] = torch.randn(image.shape[1], generator=generator, dtype=torch.float64).to(
                image
            )
            for _ in range(2):
                project_off(image, self.locked)
                self._project_off_basis(image)
            self.next[i] = image[i] / image[i].norm()

    def _restart(self, state: _State) -> None:
        """Keep the better half of the Ritz vectors, in place."""
        self.quadrature = state.nodes, state.weights
        keep = self.room // 2
        turn = torch.from_numpy(state.vectors[:, :, :keep]).to(self.next).mT
        for columns in torch.arange(self.next.shape[1]).split(1 << 16):
            at = slice(int(columns[0]), int(columns[-1]) + 1)
            kept = torch.bmm(turn, torch.cat([part[:, :, at] for part in self.parts], 1))
            for block, rows in zip(self.blocks, kept.split(CHUNK, 1), strict=False):
                block[:, : rows.shape[1], at] = rows
        self.coupling[:, :, :keep] = self.coupling[:, :, : self.size] @ turn.mT
        self.size = keep
        self.small.zero_()
        self.small[:, :keep, :keep] = torch.diag_embed(torch.from_numpy(state.values[:, :keep])).to(
            self.small
        )

    def vectors(self, state: _State, i: int, k: int) -> Tensor:
        """Return Ritz vectors of one map, (k, n)."""
        turn = torch.from_numpy(state.vectors[i, :, :k]).to(self.next).T.split(CHUNK, 1)
        return torch.stack(
            [rows @ part[i] for rows, part in zip(turn, self.parts, strict=True)]
        ).sum(0)
