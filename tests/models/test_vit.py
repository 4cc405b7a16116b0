"""What a ViT must be whatever its weights: sizes, symmetries, costs, and what its options do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import vitreous.models
from vitreous.models import BadModel
from vitreous.models.vit import mean_attention

build: Any = vitreous.models.build  # what a model is made of has no static type

TINY = {"image": 32, "classes": 5, "depth": 2, "width": 24, "heads": 3}


def tiny(**options: object) -> Any:
    """A small model with nothing at its initial value."""
    model = build("vit_ti/8", **{**TINY, "init": "timm", **options}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# Sizes


@pytest.mark.parametrize(("name", "millions"), [("b/16", 86.6), ("l/32", 307), ("h/14", 632)])
def test_published_parameter_counts(name: str, millions: float) -> None:
    """A1.02. The 307 million of L are those of patch 32; patch 16 has 304."""
    with torch.device("meta"):
        assert parameters(build(f"vit_{name}")) / 1e6 == pytest.approx(millions, abs=0.5)


@pytest.mark.parametrize(
    ("size", "millions"), [("ti", 6), ("ti+", 10), ("s", 22), ("s+", 48), ("b", 86), ("b+", 152)]
)
def test_published_parameter_counts_of_deit(size: str, millions: int) -> None:
    """Table C1, whose counts leave the classifier out: with its 1000 classes S+ has 49.0 and B+
    153.2 million."""
    with torch.device("meta"):
        assert round(parameters(build(f"deit_{size}", classes=0)) / 1e6) == millions


@pytest.mark.parametrize(
    ("name", "millions"), [("ti/2", 5.40), ("ti/4", 5.37), ("ti/8", 5.39), ("s/2", 21.4)]
)
def test_parameter_counts_at_32_pixels(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = build(f"vit_{name}", image=32, classes=100, qkv_bias=False)
    assert parameters(model) / 1e6 == pytest.approx(millions, abs=0.005 if millions < 10 else 0.05)


def test_parameters_by_formula() -> None:
    """Patches, class token, positions, blocks, norm and head, counted by hand."""
    d, hidden, n, k = 24, 96, 16, 5
    block = (3 * d * d + 3 * d) + (d * d + d) + (d * hidden + hidden) + (hidden * d + d) + 4 * d
    assert parameters(tiny()) == (8 * 8 * 3 * d + d) + d + (n + 1) * d + 2 * block + 2 * d + (
        d * k + k
    )


def test_heads_and_their_width_are_free() -> None:
    """A3.19: more heads at a fixed 8 channels each leave the width of the tokens alone."""
    widths = {
        heads: tiny(heads=heads, head_dim=8).blocks[0].attn.qkv.weight.shape for heads in (1, 2, 4)
    }
    assert widths == {1: (24, 24), 2: (48, 24), 4: (96, 24)}


# Costs


def flops(patch: int) -> dict[str, int]:
    """Of the blocks: dense layers ("addmm") and attention ("bmm")."""
    model = build(f"vit_ti/{patch}", image=32, classes=0, depth=1, pool="gap")
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(torch.randn(1, 3, 32, 32))
    return {
        str(op).split(".")[-1]: count for op, count in counter.get_flop_counts()["Global"].items()
    }


def test_cost_of_smaller_patches() -> None:
    """VIT-21: tokens and dense layers grow as 1 / P^2, attention as 1 / P^4, the patch embedding
    not at all."""
    fine, coarse = flops(4), flops(8)
    assert fine["addmm"] == 4 * coarse["addmm"] > 0
    assert fine["bmm"] == 16 * coarse["bmm"] > 0
    assert fine["convolution"] == coarse["convolution"] > 0


# Blocks and heads


class Nothing(nn.Module):
    """A branch that adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def test_skipless_block_passes_on_the_branch_alone() -> None:
    """A2.24: dead branches leave nothing behind where there is no skip."""
    images = torch.randn(2, 3, 32, 32)
    model, skipless = tiny(), tiny(skipless=(1,))
    for each in (model, skipless):
        each.blocks[1].mlp = Nothing()
        each.norm = nn.Identity()
    with torch.no_grad():
        assert model.forward_features(images).abs().max() > 0.1
        assert skipless.forward_features(images).abs().max() == 0
        intact = tiny(skipless=(0,))
        x = intact.embed(images)
        block = intact.blocks[0]
        torch.testing.assert_close(block(x), block.mlp(block.norm2(block.attn(block.norm1(x)))))


@pytest.mark.parametrize(
    ("pool", "rows"),
    [("class", slice(0, 1)), ("gap", slice(1, None)), ("gap_with_class", slice(None))],
)
def test_the_pooling_of_the_head(pool: str, rows: slice) -> None:
    """A3.01, A3.02, A1.17."""
    model = tiny(pool=pool, class_token=True)
    tokens = model.forward_features(torch.randn(2, 3, 32, 32))
    torch.testing.assert_close(model.forward_head(tokens, pre_logits=True), tokens[:, rows].mean(1))
    torch.testing.assert_close(model.forward_head(tokens), model.head(tokens[:, rows].mean(1)))


def test_gap_without_class_token_is_the_mean_of_all_tokens() -> None:
    model = tiny(pool="gap")
    tokens = model.forward_features(torch.randn(2, 3, 32, 32))
    assert model.cls_token is None
    assert tokens.shape[1] == 16
    torch.testing.assert_close(model.forward_head(tokens), model.head(tokens.mean(1)))


def test_fine_tuning_removes_the_whole_head_and_starts_at_zero() -> None:
    """A3.03, A3.04, VIT-22: the first logits are all zero."""
    model = tiny(head="tanh")
    hidden = model.forward_head(model.forward_features(torch.randn(2, 3, 32, 32)), pre_logits=True)
    assert hidden.abs().max() < 1
    assert model.config["head"] == "tanh"
    model.reset_classifier(11)
    logits = model(torch.randn(2, 3, 32, 32))
    assert torch.equal(logits, torch.zeros(2, 11))
    assert model.config["head"] == "linear"
    assert model.config["classes"] == 11
    model.reset_classifier(0, "avg")
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 24)
    rebuilt = build(**model.config)
    assert rebuilt.state_dict().keys() == model.state_dict().keys()


def test_initial_class_token_and_head_are_zero_in_the_original() -> None:
    model = build("vit_ti/8", **TINY)
    assert not model.cls_token.any()
    assert not model.head.weight.any()
    assert model.positions[0].table.std().item() == pytest.approx(0.02, rel=0.2)


def test_dropout_sits_after_every_dense_layer_but_qkv_and_after_positions() -> None:
    """D3. With everything dropped only the stream is left, and that starts at zero."""
    model = tiny(dropout=0.999999).train()
    assert model.embed(torch.randn(2, 3, 32, 32)).abs().max() == 0
    block = model.blocks[0]
    for module in (block.drop, block.mlp.drop):
        assert module.p == 0.999999
    x = torch.randn(2, 17, 24)
    assert torch.equal(block(x), x)


def test_drop_path_grows_linearly_and_drops_whole_images() -> None:
    model = tiny(depth=3, drop_path=0.4).train()
    assert [getattr(block.drop_path, "drop_prob", 0.0) for block in model.blocks] == pytest.approx(
        [0.0, 0.2, 0.4]
    )
    torch.manual_seed(0)
    x = torch.randn(200, 17, 24)
    kept = (model.blocks[2](x) != x).flatten(1).any(1).float().mean().item()
    assert kept == pytest.approx(1 - 0.4 * 0.4, abs=0.08), (
        "an image survives unless both branches are dropped"
    )


def test_no_weight_decay_on_tables_and_tokens() -> None:
    model = tiny(pos="relative", distilled=False)
    assert model.no_weight_decay() == {
        "cls_token",
        "blocks.0.attn.relative.table",
        "blocks.1.attn.relative.table",
    }
    assert tiny(distilled=True).no_weight_decay() == {
        "cls_token",
        "dist_token",
        "positions.0.table",
    }


# Attention


def test_uniform_attention_has_the_mean_pair_distance() -> None:
    """X-07: rows sum to one, so the mean over queries divides by N; by N^2 it would be N times too
    small."""
    model = tiny(pool="gap")
    attention = model.blocks[0].attn
    nn.init.zeros_(attention.qkv.weight), nn.init.zeros_(attention.qkv.bias)
    weights = attention.weights(torch.randn(1, 16, 24))[0]
    places = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    distances = 8 * torch.cdist(places, places)
    assert torch.allclose((weights * distances).sum(-1).mean(-1), distances.mean().expand(3))


@pytest.mark.parametrize("pos", ["1d", "relative"])
def test_mean_attention_of_one_image_is_that_images_attention(pos: str) -> None:
    """A2.26: fixed to the mean over a single image, the model gives that image the same logits,
    others different."""
    torch.manual_seed(0)
    model = tiny(pos=pos)
    one, other = torch.randn(2, 1, 3, 32, 32)
    fixed = mean_attention(model, [one])
    with torch.no_grad():
        torch.testing.assert_close(fixed(one), model(one), rtol=0, atol=1e-5)
        assert (fixed(other) - model(other)).abs().max() > 1e-3


def test_mean_attention_averages_over_images_not_batches() -> None:
    torch.manual_seed(0)
    model = tiny()
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        x = model.blocks[0].norm1(model.embed(images))
        expected = model.blocks[0].attn.weights(x).mean(0)
    for batches in ([images], [images[:1], images[1:]]):
        fixed: Any = mean_attention(model, batches)
        torch.testing.assert_close(fixed.blocks[0].attn.pattern.exp(), expected, rtol=0, atol=1e-6)


def test_mean_attention_refuses_what_would_be_wrong() -> None:
    images = torch.randn(1, 3, 32, 32)
    with pytest.raises(BadModel, match=r"call model.eval\(\) first"):
        mean_attention(tiny().train(), [images])
    with pytest.raises(BadModel, match="not 'window'"):
        mean_attention(tiny(mixer="window", pool="gap", window=2), [images])
    with pytest.raises(BadModel, match="at least one batch"):
        mean_attention(tiny(), [])


def test_a_kernel_as_large_as_the_grid_is_global_attention() -> None:
    """A3.22: k = 8 on the 8 x 8 grid of patch 4."""
    torch.manual_seed(0)
    local = tiny(mixer="neighbourhood", pool="gap", kernel=4)
    whole = tiny(pool="gap")
    whole.load_state_dict(local.state_dict())
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(local(images), whole(images))


def test_an_odd_kernel_limits_what_a_token_sees() -> None:
    """After one block, the gradient of a corner token reaches its 2 x 2 neighbours only."""
    model = tiny(mixer="neighbourhood", pool="gap", depth=1)
    images = torch.randn(1, 3, 32, 32, requires_grad=True)
    model.forward_features(images)[0, 0].sum().backward()
    assert images.grad is not None
    seen = images.grad[0].abs().sum(0)
    assert (seen[:16, :16] > 0).all()
    assert seen[16:].max() == 0
    assert seen[:, 16:].max() == 0


# Hybrids


@pytest.mark.parametrize(
    ("patch", "blocks", "stride"),
    [(32, [2, 2, 2, 2], 2), (16, [2, 2, 4], 2), (8, [2, 2, 2, 2], 1), (4, [2, 2, 4], 1)],
)
def test_hybrid_stage_variants(patch: int, blocks: list[int], stride: int) -> None:
    """A1.12 (i) and (ii), and the same for small images."""
    model = build(f"vit_ti/{patch}", image=64, classes=5, depth=1, stem="r26", stem_width=0.25)
    backbone = model.patch_embed.backbone
    assert [len(stage.blocks) for stage in backbone.stages] == blocks
    assert backbone.stem.conv.stride == (stride, stride)
    assert model.forward_features(torch.randn(1, 3, 64, 64)).shape == (
        1,
        1 + (64 // patch) ** 2,
        192,
    )


# Refusals


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"image": 30}, "image 30x30 is not divisible by patch 8"),
        ({"heads": 5}, "5 heads do not divide width 24"),
        (
            {"mixer": "pool"},
            "the mixer 'pool' knows only the grid and has no class token: use pool='gap'",
        ),
        ({"class_token": False}, "pool 'class' needs a class token and class_token is False"),
        (
            {"inject": "every", "pos": "relative"},
            "inject 'every' is for pos '1d' or '2d', not 'relative'",
        ),
        (
            {"pos": "relative", "mixer": "window", "pool": "gap"},
            "pos 'relative' needs the mixer 'attention'",
        ),
        (
            {"mixer": "neighbourhood", "pool": "gap", "kernel": 2},
            "kernel 2 has no centre: it must be odd, or equal",
        ),
        ({"mixer": "window", "pool": "gap", "window": 3}, "window 3 does not tile the grid 4x4"),
        ({"skipless": (2,)}, r"skipless \(2,\) goes beyond blocks 0 to 1"),
        ({"distilled": True, "pool": "gap"}, "a distilled model reads its two tokens"),
        ({"drop_path": 1.5}, r"drop_path 1.5 is not in \[0, 1\)"),
        ({"stem": "r50", "patch": 2}, "the stem 'r50' gives patch 4, 8, 16 or 32, not 2"),
        ({"width": 25, "heads": 5, "pos": "2d"}, "pos '2d' needs an even width, not 25"),
        ({"depth": 0}, "depth 0 is not positive"),
    ],
)
def test_refusals(options: dict[str, object], sentence: str) -> None:
    name = "vit_ti" if "patch" in options else "vit_ti/8"
    with pytest.raises(BadModel, match=sentence):
        build(name, **{**TINY, **options})
