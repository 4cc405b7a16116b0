"""Centred kernel alignment (CKA) of two sets of features of the same images: the formulas.

    K = X Xᵀ of the features X (n images, d numbers each), L of others
    HSIC₁(K, L) = ⟨U(K), U(L)⟩ / (n (n − 3)),   U centres K without its diagonal (Székely and Rizzo)
    HSIC₀(K, L) = ⟨H K H, H L H⟩ / (n − 1)²,   the biased one
    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L)),   means over minibatches

Features are centred by the minibatch before their Gram matrix is taken, which changes nothing
exactly and a great deal in float32: a large common offset would leave no digits for what differs.
Gram matrices are float32, what follows is float64.

HSIC is a sum over pairs of images, so it is also a sum over images: of row i of one centred matrix
times row i of the other. Summing the rows with the weights of a resampling counts an image as the
first of its pairs only; as it is the second of as many, the deviations of such replicates are half
of what they should be, and `doubled` mends that. It is the bootstrap of the images to first order
(the centring adds nothing at this order), costs one more matrix product, and needs no pair of an
image with itself, which is where a plain bootstrap of HSIC₁ goes wrong.
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
LEAST: dict[Estimator, int] = {"unbiased": 4, "biased": 2}
"""Images of the smallest minibatch."""
CACHED = 1 << 18
"""Numbers that a CPU centres and multiplies at a time: what its cache holds."""
ABREAST = 512
"""Columns of one of the products that a GPU computes side by side, where there are at least eight
times as many."""
CELLS = 1 << 23
"""Numbers of an intermediate result, 64 MiB."""


def vectors(feature: Feature) -> Tensor:
    """(b, d) one vector an image, in no order in particular; not copied where the batch comes
    first."""
    if feature.layout is None:
        return feature.raw.flatten(1)
    return feature.layout.batch.split(feature.raw).flatten(1)


def centred_gram(features: Tensor, estimator: Estimator = "unbiased") -> Tensor:
    """(…, n, n) float64 of features (…, n, d): U(K), whose diagonal is empty and whose rows sum to
    zero, or H K H.

    Zero where the features differ from image to image by no more than rounding does.
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
    """Gram matrices (…, n, n) of centred features, in float64, and the square of the mean that was
    taken off (…)."""
    with full_precision():
        return (_in_strips if features.device.type == "cpu" else _at_once)(features)


def _in_strips(features: Tensor) -> tuple[Tensor, Tensor]:
    """Some columns after the other, as many as a CPU's cache holds. A Gram matrix is symmetric: of
    its two off-diagonal quarters one is computed."""
    many = features.reshape(-1, *features.shape[-2:])
    n = features.shape[-2]
    half = n // 2
    even = many.new_full((len(many), 1, n), 1 / n)
    gram = many.new_zeros(len(many), n, n)
    offset = gram.new_zeros(len(many), dtype=torch.float64)
    for strip in many.split(max(CACHED // n, 1), -1):
        mean = even @ strip
        strip = strip - mean
        gram[:, :half, :half].baddbmm_(strip[:, :half], strip[:, :half].mT)
        gram[:, half:].baddbmm_(strip[:, half:], strip.mT)
        offset += mean.double().square().sum((-2, -1))
    gram[:, :half, half:] = gram[:, half:, :half].mT
    shape = features.shape[:-2]
    return gram.double().reshape(*shape, n, n), offset.reshape(shape)


def _at_once(features: Tensor) -> tuple[Tensor, Tensor]:
    """All columns, divided into products that a GPU computes side by side: one of a small matrix
    and so many columns would leave most of it idle. Matrices one after the other, because only
    one's columns can be divided without copying them, which takes as long as the product."""
    mean = features.mean(-2, keepdim=True)
    n, columns = features.shape[-2:]
    centred = (features - mean).reshape(-1, n, columns)
    even = columns // ABREAST * ABREAST if columns >= 8 * ABREAST else 0
    gram = centred[..., even:] @ centred[..., even:].mT
    for one, found in zip(centred, gram, strict=True) if even else ():
        parts = one[:, :even].unflatten(1, (-1, ABREAST)).transpose(0, 1)
        found += (parts @ parts.mT).sum(0)
    return gram.double().reshape(*features.shape[:-2], n, n), mean.double().square().sum((-2, -1))


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 with all their bits, whatever the process allows elsewhere: TF32 has ten,
    too few for CKA."""
    cuda, cpu = cast(Any, torch.backends.cuda), cast(Any, torch.backends.mkldnn)
    backends = (cuda.matmul, cpu.matmul)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, given in zip(backends, before, strict=True):
            backend.fp32_precision = given


def weighted_hsic(
    left: Tensor,
    right: Tensor,
    weights: Tensor,
    estimator: Estimator = "unbiased",
    where: Tensor | None = None,
) -> Tensor:
    """(R, A, B) n HSIC of every pair of centred Gram matrices (A, n, n) and (B, n, n), once for
    each row of the weights (R, n) of the images; or (R, P), of the P pairs in `where`, (2, P),
    alone. All pairs in one product."""
    n, pairs = left.shape[-1], (len(left), len(right))
    one, other = left.transpose(0, 1), right.transpose(0, 1)
    weights = weights.to(left.device)
    total = weights.new_zeros(
        len(weights), pairs[0] * pairs[1] if where is None else where.shape[1]
    )
    for rows in torch.arange(n).split(max(CELLS // (pairs[0] * pairs[1]), 1)):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        products = one[part] @ other[part].mT
        flat = products.flatten(1) if where is None else products[:, where[0], where[1]]
        total += weights[:, part] @ flat
    total /= n - 3 if estimator == "unbiased" else (n - 1) ** 2 / n
    return total if where is not None else total.reshape(-1, *pairs)


def own_hsic(grams: Tensor, weights: Tensor, estimator: Estimator = "unbiased") -> Tensor:
    """(R, A) n HSIC of each centred Gram matrix (A, n, n) with itself."""
    n = grams.shape[-1]
    own = weights.to(grams.device) @ grams.square().sum(-1).mT
    return own / (n - 3 if estimator == "unbiased" else (n - 1) ** 2 / n)


def ratio(cross: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """CKA (…, A, B) from HSICs (…, A, B), (…, A) and (…, B); NaN where features are constant:
    nothing is like them."""
    norms = (np.sqrt(np.where(own > 0, own, np.nan)) for own in (left, right))
    one, other = norms
    return cross / (one[..., :, None] * other[..., None, :])


def doubled(replicates: np.ndarray) -> np.ndarray:
    """(R, …) values, the first as measured: the others twice as far from it. CKA lies between -1
    and 1."""
    values: np.ndarray = replicates[:1] + 2 * (replicates - replicates[:1])
    values[0] = replicates[0]
    return np.clip(values, -1, 1)


def minibatches(distinct: Tensor, size: int | None, estimator: Estimator) -> list[Tensor]:
    """Which images of a shard are compared with each other, one tensor of places for each minibatch
    that is large enough. Copies of an earlier image are left out: the pair of an image with itself
    is what the unbiased estimator does without, and a copy would bring it back."""
    places = torch.arange(len(distinct)).split(size or max(len(distinct), 1))
    kept = [part[distinct[part]] for part in places]
    return [part for part in kept if len(part) >= LEAST[estimator]]


def columns(values: Tensor, places: Tensor, dim: int = 1) -> Tensor:
    """Those of some images; places in a row are not sent to a GPU, which would wait for them."""
    first, count = int(places[0]), len(places)
    if int(places[-1]) - first + 1 == count:
        return values.narrow(dim, first, count)
    return values.index_select(dim, places.to(values.device))


class Grams:
    """The centred Gram matrices of a shard's minibatches, by name. Where a shard passes in parts,
    an image of the last part is compared with one of the first: then the features wait, in main
    memory, until all parts have come."""

    def __init__(self, estimator: Estimator, minibatch: int | None = None) -> None:
        self.estimator = estimator
        self.minibatch = minibatch
        """Images that are compared with each other; the whole shard if not given."""
        self.whole: dict[str, list[Tensor]] = {}
        self.parts: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def add(self, name: str, features: Tensor, whole: bool, distinct: Tensor | None = None) -> None:
        """Features (…, b, d) of a whole shard or of its next part, and which of its images are no
        copies (b,)."""
        if distinct is None:
            distinct = torch.ones(features.shape[-2], dtype=torch.bool)
        if whole:
            self.whole[name] = self._grams(features, distinct)
        else:
            self.parts.setdefault(name, []).append(
                (features.detach().to("cpu", copy=True), distinct)
            )

    def _grams(self, features: Tensor, distinct: Tensor) -> list[Tensor]:
        """Minibatches of full size together: a GPU would start many small operations for each."""
        if not bool(distinct.all()) or len(distinct) < LEAST[self.estimator]:
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
        if count - full >= LEAST[self.estimator]:
            grams.append(centred_gram(features[..., full:, :], self.estimator))
        return grams

    def take(self, name: str) -> list[Tensor]:
        """The matrices under the name, one for each minibatch that is large enough, which are then
        forgotten."""
        if parts := self.parts.pop(name, None):
            features, distinct = zip(*parts, strict=True)
            return self._grams(torch.cat(features, -2), torch.cat(distinct))
        return self.whole.pop(name, [])
