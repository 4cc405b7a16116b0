"""Centred kernel alignment (CKA) of two sets of features of the same images: the formulas.

    K = X Xᵀ of the features X (n images, d numbers each), L of others
    HSIC₁(K, L) = ⟨U(K), U(L)⟩ / (n (n − 3)),   U centres K without its diagonal (Székely and Rizzo)
    HSIC₀(K, L) = ⟨H K H, H L H⟩ / (n − 1)²,   the biased one
    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L)),   means over minibatches

Features are centred by the mean of the minibatch before the Gram matrix is computed. Exactly, this
changes nothing; in float32 it matters, because a large common offset would leave no digits for
differences. Gram matrices are computed in float32, everything after them in float64.

HSIC is a sum over pairs of images, and so a sum over images i, of row i of one centred matrix times
row i of the other. Replicates weight these rows with bootstrap weights. That weights only the first
image of every pair, so deviations of the replicates are half as large as they should be, which
`doubled` corrects. To first order this equals the bootstrap over images (centring adds nothing at
this order). It costs one more matrix product and needs no pair of an image with itself, with which
a plain bootstrap of HSIC₁ is biased.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from vitreous.specimen.observe import Feature

Estimator = Literal["unbiased", "biased"]
MIN_IMAGES: dict[Estimator, int] = {"unbiased": 4, "biased": 2}
"""Minimum number of images of a minibatch."""
CACHED = 1 << 18
"""Number of values that a CPU centres and multiplies at a time, so that they stay in its cache."""
SLICE = 512
"""Columns per product of a batched product on a GPU; used from eight times this number on."""
CELLS = 1 << 23
"""Maximum number of values of an intermediate result, 64 MiB."""


def vectors(feature: Feature) -> Tensor:
    """Flatten a feature to one vector per image, (b, d).

    The order of its elements is arbitrary. It is not copied if the batch is its first dimension.
    """
    if feature.layout is None:
        return feature.raw.flatten(1)
    return feature.layout.batch.split(feature.raw).flatten(1)


def centred_gram(features: Tensor, estimator: Estimator = "unbiased") -> Tensor:
    """Centred Gram matrix (…, n, n) in float64, of features (…, n, d).

    Unbiased: U(K), with zero diagonal and rows that sum to zero. Biased: H K H. All zero if the
    features differ between images by no more than rounding.
    """
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    gram, offset = _gram(features)
    n = gram.shape[-1]
    spread = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    constant = spread <= (16 * torch.finfo(features.dtype).eps) ** 2 * (spread + n * offset)
    gram.masked_fill_(constant[..., None, None], 0)
    if estimator == "biased":
        row = gram.mean(-1)
        return (
            gram.sub_(row[..., None, :]).sub_(row[..., :, None]).add_(row.mean(-1)[..., None, None])
        )
    gram.diagonal(dim1=-2, dim2=-1).zero_()
    row = gram.sum(-1) / (n - 2)
    gram.sub_(row[..., None, :]).sub_(row[..., :, None]).add_(
        row.sum(-1)[..., None, None] / (n - 1)
    )
    gram.diagonal(dim1=-2, dim2=-1).zero_()
    return gram


def _gram(features: Tensor) -> tuple[Tensor, Tensor]:
    """Gram matrices (…, n, n) of centred features in float64, and the squared norm (…) of the mean
    that was subtracted."""
    with full_precision():
        return (_in_strips if features.device.type == "cpu" else _at_once)(features)


def _in_strips(features: Tensor) -> tuple[Tensor, Tensor]:
    """`_gram` on a CPU: adds up products of as many columns as fit into the cache.

    Since a Gram matrix is symmetric, only one of its two off-diagonal quarters is computed.
    """
    flat = features.reshape(-1, *features.shape[-2:])
    n = features.shape[-2]
    half = n // 2
    mean_weights = flat.new_full((len(flat), 1, n), 1 / n)
    gram = flat.new_zeros(len(flat), n, n)
    offset = gram.new_zeros(len(flat), dtype=torch.float64)
    for strip in flat.split(max(CACHED // n, 1), -1):
        mean = mean_weights @ strip
        strip = strip - mean
        gram[:, :half, :half].baddbmm_(strip[:, :half], strip[:, :half].mT)
        gram[:, half:].baddbmm_(strip[:, half:], strip.mT)
        offset += mean.double().square().sum((-2, -1))
    gram[:, :half, half:] = gram[:, half:, :half].mT
    shape = features.shape[:-2]
    return gram.double().reshape(*shape, n, n), offset.reshape(shape)


def _at_once(features: Tensor) -> tuple[Tensor, Tensor]:
    """`_gram` on a GPU: divides the columns into slices whose products run as one batch.

    A single product of a matrix with few rows and many columns would leave most of the GPU idle.
    Matrices run one by one: slicing several at once needs a copy, as slow as the product itself.
    """
    mean = features.mean(-2, keepdim=True)
    n, columns = features.shape[-2:]
    centred = (features - mean).reshape(-1, n, columns)
    sliced = columns // SLICE * SLICE if columns >= 8 * SLICE else 0
    gram = centred[..., sliced:] @ centred[..., sliced:].mT
    for matrix, total in zip(centred, gram, strict=True) if sliced else ():
        parts = matrix[:, :sliced].unflatten(1, (-1, SLICE)).transpose(0, 1)
        total += (parts @ parts.mT).sum(0)
    return gram.double().reshape(*features.shape[:-2], n, n), mean.double().square().sum((-2, -1))


@contextmanager
def full_precision() -> Iterator[None]:
    """Disable TF32 in float32 products: its ten bits are too few for CKA."""
    cuda, cpu = cast(Any, torch.backends.cuda), cast(Any, torch.backends.mkldnn)
    backends = (cuda.matmul, cpu.matmul)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def weighted_hsic(
    left: Tensor,
    right: Tensor,
    weights: Tensor,
    estimator: Estimator = "unbiased",
    where: Tensor | None = None,
) -> Tensor:
    """n · HSIC of pairs of centred Gram matrices, with weighted images.

    Parameters
    ----------
    left, right
        Centred Gram matrices (A, n, n) and (B, n, n).
    weights
        (R, n) weights of the images, one row per replicate.
    where
        (2, P) indices of the pairs to compute (default: all).

    Returns
    -------
    (R, A, B), or (R, P) if `where` is given. All pairs are computed in one product.
    """
    n, pairs = left.shape[-1], (len(left), len(right))
    left, right = left.transpose(0, 1), right.transpose(0, 1)
    weights = weights.to(left.device)
    total = weights.new_zeros(
        len(weights), pairs[0] * pairs[1] if where is None else where.shape[1]
    )
    for rows in torch.arange(n).split(max(CELLS // (pairs[0] * pairs[1]), 1)):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        products = left[part] @ right[part].mT
        flat = products.flatten(1) if where is None else products[:, where[0], where[1]]
        total += weights[:, part] @ flat
    total /= n - 3 if estimator == "unbiased" else (n - 1) ** 2 / n
    return total if where is not None else total.reshape(-1, *pairs)


def self_hsic(grams: Tensor, weights: Tensor, estimator: Estimator = "unbiased") -> Tensor:
    """n · HSIC (R, A) of each centred Gram matrix (A, n, n) with itself; see `weighted_hsic`."""
    n = grams.shape[-1]
    total = weights.to(grams.device) @ grams.square().sum(-1).mT
    return total / (n - 3 if estimator == "unbiased" else (n - 1) ** 2 / n)


def ratio(cross: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """CKA (…, A, B) from HSICs (…, A, B), (…, A) and (…, B); NaN for constant features."""
    left_norm, right_norm = (np.sqrt(np.where(h > 0, h, np.nan)) for h in (left, right))
    return cross / (left_norm[..., :, None] * right_norm[..., None, :])


def doubled(replicates: np.ndarray) -> np.ndarray:
    """Move replicates (R, …) twice as far away from the first, the measured value.

    They are clipped to [-1, 1], the range of CKA.
    """
    values: np.ndarray = replicates[:1] + 2 * (replicates - replicates[:1])
    values[0] = replicates[0]
    return np.clip(values, -1, 1)


def minibatches(distinct: Tensor, size: int | None, estimator: Estimator) -> list[Tensor]:
    """Indices into a shard of the images of each minibatch that is large enough.

    Duplicates of earlier images are left out: the unbiased estimator leaves out pairs of an image
    with itself, and a duplicate would add such a pair again.
    """
    indices = torch.arange(len(distinct)).split(size or max(len(distinct), 1))
    kept = [part[distinct[part]] for part in indices]
    return [part for part in kept if len(part) >= MIN_IMAGES[estimator]]


def columns(values: Tensor, indices: Tensor, dim: int = 1) -> Tensor:
    """Select some images along `dim`.

    Consecutive indices become a slice, because sending indices to a GPU makes it wait.
    """
    first, count = int(indices[0]), len(indices)
    if int(indices[-1]) - first + 1 == count:
        return values.narrow(dim, first, count)
    return values.index_select(dim, indices.to(values.device))


class Grams:
    """Collects the centred Gram matrices of the minibatches of a shard, by name.

    If a shard runs in several batches, a minibatch may contain images of all of them. Then features
    are kept in main memory until the shard is complete.
    """

    def __init__(self, estimator: Estimator, minibatch: int | None = None) -> None:
        self.estimator = estimator
        self.minibatch = minibatch
        """Number of images that are compared with each other (default: the whole shard)."""
        self.grams: dict[str, list[Tensor]] = {}
        self.parts: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def add(
        self, name: str, features: Tensor, full_shard: bool, distinct: Tensor | None = None
    ) -> None:
        """Add features (…, b, d) of a full shard, or of its next part.

        `distinct` (b,) is False for images that duplicate an earlier one.
        """
        if distinct is None:
            distinct = torch.ones(features.shape[-2], dtype=torch.bool)
        if full_shard:
            self.grams[name] = self._grams(features, distinct)
        else:
            self.parts.setdefault(name, []).append(
                (features.detach().to("cpu", copy=True), distinct)
            )

    def _grams(self, features: Tensor, distinct: Tensor) -> list[Tensor]:
        """Gram matrices of all minibatches; those of full size are computed together, for a GPU."""
        if not bool(distinct.all()) or len(distinct) < MIN_IMAGES[self.estimator]:
            chosen = minibatches(distinct, self.minibatch, self.estimator)
            return [centred_gram(columns(features, part, -2), self.estimator) for part in chosen]
        count = features.shape[-2]
        size = min(self.minibatch or count, count)
        full = count // size * size
        grams = list(
            centred_gram(features[..., :full, :].unflatten(-2, (-1, size)), self.estimator).unbind(
                -3
            )
        )
        if count - full >= MIN_IMAGES[self.estimator]:
            grams.append(centred_gram(features[..., full:, :], self.estimator))
        return grams

    def take(self, name: str) -> list[Tensor]:
        """Remove and return the matrices of a name, one for each minibatch that is large enough."""
        if parts := self.parts.pop(name, None):
            features, distinct = zip(*parts, strict=True)
            return self._grams(torch.cat(features, -2), torch.cat(distinct))
        return self.grams.pop(name, [])
