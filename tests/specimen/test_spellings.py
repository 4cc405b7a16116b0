"""Attention in every spelling: the weights seen are those of a reference written another way,
whatever the code.

Every toy has one attention unit; the reference computes its weights from queries and keys with
plain matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from specimen.test_attention import attention, inputs
from specimen.toys import (
    HEADS,
    WIDTH,
    Attend,
    Attention,
    Block,
    Transformer,
    open_toy,
    part,
    pictures,
    settled,
)
from specimen.zoo import MODELS, images, opened
from vitreous.errors import VitreousError
from vitreous.specimen.attention import AttentionSite
from vitreous.specimen.proof import Finding, Findings, with_checks, with_finding
from vitreous.specimen.specimen import Specimen

Scores = Callable[[Tensor, Tensor], Tensor]


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * q.shape[-1] ** -0.5


def softmax(q: Tensor, k: Tensor) -> Tensor:
    return scores(q, k).softmax(-1)


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("b h i d, b h j d -> b h i j", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("b h i j, b h j d -> b h i d", weights, v)


def by_ellipsis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("...id,...jd->...ij", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("...ij,...jd->...id", weights, v)


def swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhjd,bhid->bhji", k, q).mul(q.shape[-1] ** -0.5).softmax(2)
    return torch.einsum("bhjd,bhji->bhid", v, weights)


def keys_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax over the second to last dimension, and a product from the left."""
    weights = (k @ q.mT * q.shape[-1] ** -0.5).softmax(-2)
    return (v.mT @ weights).mT


def batched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    flat = [part.flatten(0, 1) for part in (q, k, v)]
    logits = torch.baddbmm(
        torch.zeros(1, 1, 1), flat[0], flat[1].mT, beta=0, alpha=q.shape[-1] ** -0.5
    )
    return torch.bmm(logits.softmax(-1), flat[2]).unflatten(0, q.shape[:2])


def one_head_after_the_other(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.stack([softmax(q[:, h], k[:, h]) @ v[:, h] for h in range(HEADS)], 1)


def one_query_after_the_other(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat([softmax(q[:, :, i : i + 1], k) @ v for i in range(q.shape[2])], 2)


def multiplied_and_summed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = (q[:, :, :, None] * k[:, :, None]).sum(-1) * q.shape[-1] ** -0.5
    return (logits.softmax(-1)[..., None] * v[:, :, None]).sum(3)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = scores(q, k)
    large = (logits - logits.amax(-1, keepdim=True)).exp()
    return (large / large.sum(-1, keepdim=True)) @ v


def by_logsumexp(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = scores(q, k)
    return (logits - logits.logsumexp(-1, keepdim=True)).exp() @ v


def by_log_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).log_softmax(-1).exp() @ v


def three_at_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A constant as the third operand."""
    return torch.einsum("bhij,bhjd,d->bhid", softmax(q, k), v, torch.ones(q.shape[-1]))


def with_a_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A column that takes attention and gives nothing."""
    logits = scores(q, k)
    wider = torch.cat([logits, torch.ones(*logits.shape[:-1], 1)], -1)
    return wider.softmax(-1)[..., :-1] @ v


def tensordot(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One image and one head at a time is what tensordot can do: here over the keys of two axes."""
    weights = softmax(q, k).unflatten(-1, (4, 4))
    return torch.einsum("bhixy,bhxyd->bhid", weights, v.unflatten(2, (4, 4)))


def sunk(q: Tensor, k: Tensor) -> Tensor:
    large = scores(q, k).exp()
    return large / (large.sum(-1, keepdim=True) + torch.e)


def sparse(z: Tensor) -> Tensor:
    """Sparsemax (Martins & Astudillo 2016), a projection onto the simplex."""
    ordered = z.sort(-1, descending=True).values
    rank = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    total = ordered.cumsum(-1) - 1
    count = (ordered * rank > total).sum(-1, keepdim=True)
    return (z - total.gather(-1, count - 1) / count).clamp(min=0)


def cosine(q: Tensor, k: Tensor) -> Tensor:
    return (10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1)


def additive(q: Tensor, k: Tensor) -> Tensor:
    return (q[:, :, :, None] + k[:, :, None]).tanh().sum(-1).softmax(-1)


def squared(q: Tensor, k: Tensor) -> Tensor:
    return scores(q, k).relu() ** 2


def weighted(weights: Scores) -> Attend:
    return lambda q, k, v: weights(q, k) @ v


PROBABILITIES: dict[str, tuple[Attend, Scores]] = {
    "einsum": (by_einsum, softmax),
    "ellipsis": (by_ellipsis, softmax),
    "swapped operands": (swapped, softmax),
    "keys first": (keys_first, softmax),
    "baddbmm": (batched, softmax),
    "loop over heads": (one_head_after_the_other, softmax),
    "loop over queries": (one_query_after_the_other, softmax),
    "multiplied and summed": (multiplied_and_summed, softmax),
    "exp and sum": (by_hand, softmax),
    "logsumexp": (by_logsumexp, softmax),
    "log_softmax": (by_log_softmax, softmax),
    "three operands": (three_at_once, softmax),
    "two axes of keys": (tensordot, softmax),
    "sparsemax": (weighted(lambda q, k: sparse(scores(q, k))), lambda q, k: sparse(scores(q, k))),
    "cosine": (weighted(cosine), cosine),
    "additive": (weighted(additive), additive),
}
OTHERS: dict[str, tuple[Attend, Scores, str]] = {
    "sigmoid": (
        weighted(lambda q, k: scores(q, k).sigmoid()),
        lambda q, k: scores(q, k).sigmoid(),
        "positive",
    ),
    "relu": (
        weighted(lambda q, k: scores(q, k).relu() / 16),
        lambda q, k: scores(q, k).relu() / 16,
        "positive",
    ),
    "squared relu": (weighted(squared), squared, "positive"),
    "a sink": (with_a_sink, sunk, "positive"),
    "no softmax": (
        weighted(lambda q, k: scores(q, k) / 16),
        lambda q, k: scores(q, k) / 16,
        "signed",
    ),
}


def wanted(model: nn.Module, weights: Scores) -> Tensor:
    (tokens,) = inputs(model, pictures(), "blocks.0.attn")
    with torch.no_grad():
        query, key, _ = part(model, "blocks.0.attn").split(tokens)
        return weights(query, key)


@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize("spelling", PROBABILITIES)
def test_probabilities_however_attention_is_written(spelling: str, cls: bool) -> None:
    attend, weights = PROBABILITIES[spelling]
    if spelling == "two axes of keys" and cls:
        pytest.skip("seventeen tokens have no two axes")
    model = Transformer(Block(Attention(attend)), cls=cls)
    specimen = open_toy(model)
    unit = specimen.anatomy["blocks.0.attn"]
    assert (unit.kind, unit.reach, unit.heads, unit.weights) == (
        "attention",
        "global",
        HEADS,
        "probabilities",
    )
    found = attention(specimen.observe(pictures(), ["attention"]), "blocks.0.attn")
    assert found.normalised
    torch.testing.assert_close(found.dense(), wanted(model, weights), rtol=0, atol=1e-5)


@pytest.mark.parametrize("spelling", OTHERS)
def test_weights_that_are_not_probabilities_are_the_applied_ones(spelling: str) -> None:
    attend, weights, kind = OTHERS[spelling]
    model = Transformer(Block(Attention(attend)))
    specimen = open_toy(model)
    unit = specimen.anatomy["blocks.0.attn"]
    assert (unit.kind, unit.reach, unit.weights) == ("attention", "global", kind)
    assert unit.reason
    found = attention(specimen.observe(pictures(), ["attention"]), "blocks.0.attn")
    reference = wanted(model, weights)
    torch.testing.assert_close(found.dense(), reference, rtol=0, atol=1e-5)
    assert not found.normalised
    if kind == "positive":
        shares = reference / reference.sum(-1, keepdim=True)
        torch.testing.assert_close(
            found.probabilities.dense(), shares.nan_to_num(0), rtol=0, atol=1e-5
        )
    else:
        with pytest.raises(VitreousError, match="negative"):
            _ = found.probabilities


@pytest.mark.parametrize("spelling", [*PROBABILITIES, *OTHERS])
def test_attention_can_be_replaced_however_it_is_written(spelling: str) -> None:
    attend = (PROBABILITIES | OTHERS)[spelling][0]
    model = Transformer(Block(Attention(attend)))
    specimen = open_toy(model)
    matrix = torch.rand(HEADS, 16, 16).softmax(-1)
    edited = specimen.with_attention("attention", matrix)
    uniform = Transformer(Block(Attention(lambda q, k, v: matrix @ v)))
    uniform.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(
            edited(pictures()), uniform.eval()(pictures()), rtol=0, atol=1e-5
        )
    seen = attention(edited.observe(pictures(), ["attention"]), "blocks.0.attn")
    torch.testing.assert_close(seen.dense(), matrix.expand(2, -1, -1, -1), rtol=0, atol=1e-6)
    mean = specimen.mean_attention([pictures()])
    specimen.with_attention("attention", mean)(pictures())


class Linear(Attention):
    """phi(q) (phi(k)' v), each association of it that never makes a matrix of tokens."""

    def __init__(self, feature: Callable[[Tensor], Tensor], spelling: str) -> None:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k = feature(q), feature(k)
            if spelling == "einsum":
                return torch.einsum(
                    "bhde,bhdn->bhen", torch.einsum("bhnd,bhne->bhde", k, v), q.mT
                ).mT
            return q @ (k.mT @ v)

        super().__init__(attend)


@pytest.mark.parametrize("spelling", ["einsum", "matmul"])
@pytest.mark.parametrize(
    "feature", [F.relu, lambda x: F.elu(x) + 1, torch.exp, lambda x: x.softmax(-2)]
)
def test_linear_attention_stays_linear(feature: Callable[[Tensor], Tensor], spelling: str) -> None:
    specimen = open_toy(Transformer(Block(Linear(feature, spelling))))
    unit = specimen.anatomy["blocks.0.attn"]
    assert (unit.kind, unit.reach, unit.weights) == ("attention", "linear", None)
    assert "blocks.0.attn" not in specimen.observe(pictures(), ["attention"])
    with pytest.raises(VitreousError, match="no attention to replace"):
        specimen.with_attention("attention", "uniform")


@pytest.mark.parametrize("einsum", [False, True])
def test_attention_over_channels_stays_channel(einsum: bool) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if einsum:
            weights = torch.einsum("bhnd,bhne->bhde", q, k).softmax(-1)
            return torch.einsum("bhde,bhne->bhnd", weights, v)
        return ((q.mT @ k).softmax(-1) @ v.mT).mT

    unit = open_toy(Transformer(Block(Attention(attend)))).anatomy["blocks.0.attn"]
    assert (unit.kind, unit.reach) == ("attention", "channel")


class Pooling(nn.Module):
    """Learned queries look at all tokens; the head reads their mean."""

    def __init__(self, queries: int, spelling: str) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = (
            Transformer().stem,
            nn.Sequential(Block()),
            nn.Linear(WIDTH, 5),
        )
        self.query, self.kv = nn.Parameter(torch.randn(queries, WIDTH)), nn.Linear(WIDTH, 2 * WIDTH)
        self.spelling = spelling

    def forward(self, pixels: Tensor) -> Tensor:
        key, value = self.kv(self.blocks(self.stem(pixels))).chunk(2, -1)
        if self.spelling == "fused":
            pooled = F.scaled_dot_product_attention(
                self.query.expand(len(key), -1, -1), key, value, scale=1.0
            )
        elif self.spelling == "einsum":
            pooled = torch.einsum(
                "bqn,bnd->bqd", torch.einsum("qd,bnd->bqn", self.query, key).softmax(-1), value
            )
        elif self.spelling == "summed":
            pooled = ((key @ self.query.T).softmax(1)[..., None] * value[:, :, None]).sum(1)
        else:
            pooled = (self.query @ key.mT).softmax(-1) @ value
        return self.head(pooled.mean(1))


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("spelling", ["matmul", "einsum", "fused", "summed"])
def test_attention_pooling_is_a_unit_with_learned_queries(spelling: str, queries: int) -> None:
    model = settled(Pooling(queries, spelling))
    specimen = vitreous.open(model, image=(3, 16, 16))
    unit = [u for u in specimen.units if u.kind == "attention"][-1]
    assert (unit.reach, unit.weights) == ("class", "probabilities")
    found = specimen.observe(pictures(), ["attention"])[unit.name].attention
    assert found is not None
    (tokens,) = inputs(model, pictures(), "kv")
    with torch.no_grad():
        key = part(model, "kv")(tokens).chunk(2, -1)[0]
        reference = (part(model, "").query @ key.mT).softmax(-1)
    torch.testing.assert_close(found.values[:, 0, 0], reference, rtol=0, atol=1e-5)
    assert found.keys.tolist() == [[*range(queries, queries + 16)]]


@torch.no_grad()
def verify_attention(
    specimen: Specimen, sites: Sequence[AttentionSite], images: Tensor
) -> Findings:
    """What one pass shows of these sites."""
    findings: Findings = {}
    with_checks(specimen.module, sites, findings)(images)
    return findings


def test_attention_that_fails_its_check_is_hidden() -> None:
    """The proof fails if the weights are those of another product."""
    model = Transformer(Block(Attention(by_einsum)), Block(Attention(by_einsum)))
    specimen = open_toy(model)
    one, two = (specimen._wiring[f"blocks.{i}.attn"].attention[0] for i in range(2))
    findings = verify_attention(specimen, [one, two], pictures())
    assert all(found.passed and found.difference < 1e-5 for found in findings.values())
    wrong = replace(two, operands=one.operands, weights=one.weights)
    findings = verify_attention(specimen, [wrong], pictures())
    hidden = with_finding(wrong, findings)
    assert not findings[wrong.product].passed
    assert (hidden.visible, hidden.reach) == (False, "unknown")
    assert "differ from its own product" in hidden.reason
    assert with_finding(two, {two.product: Finding(0.0, 1e-3, "probabilities")}).visible


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("resnet18", "resnet50", "resnext")]
)
def test_weights_times_values_are_the_product_in_every_family(name: str) -> None:
    _, specimen = opened(name)
    sites = [site for unit in specimen.units for site in specimen._wiring[unit.name].attention]
    findings = verify_attention(specimen, sites, images(specimen))
    assert set(findings) == {site.product for site in sites}
    assert all(found.passed and found.difference < 1e-5 for found in findings.values())
