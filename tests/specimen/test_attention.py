"""Attention probabilities against computations of their own: from the weights, or by the library's
own unfused code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from specimen.toys import (
    HEADS,
    Attend,
    Attention,
    Block,
    Transformer,
    open_toy,
    part,
    pictures,
    unfused,
)
from specimen.zoo import images, opened
from vitreous.specimen.observe import AttentionMap, Observation

Seen = dict[str, Tensor]


@cache
def look(name: str) -> tuple[nn.Module, Tensor, Observation]:
    model, specimen = opened(name)
    batch = images(specimen)
    return model, batch, specimen.observe(batch, ["attention"], "attention")


def inputs(model: nn.Module, batch: Tensor, *paths: str) -> list[Tensor]:
    """What the modules at `paths` are given, by plain hooks."""
    seen: Seen = {}

    def note(path: str) -> Callable[..., None]:
        return lambda module, args: seen.__setitem__(path, args[0])

    handles = [part(model, path).register_forward_pre_hook(note(path)) for path in paths]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    return [seen[path] for path in paths]


def attention(seen: Observation, unit: str) -> AttentionMap:
    found = seen[unit].attention
    assert found is not None
    return found


def qk(weight: Tensor, bias: Tensor | None, tokens: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Queries and keys (b, heads, n, d) from the joint projection of queries, keys and values."""
    query, key, _ = F.linear(tokens, weight, bias).chunk(3, -1)
    return split(query, heads), split(key, heads)


def split(tokens: Tensor, heads: int) -> Tensor:
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def logits(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5


def check(found: AttentionMap, wanted: Tensor) -> None:
    """Equal over tokens, and every query's probabilities sum to one."""
    torch.testing.assert_close(found.dense(), wanted, rtol=0, atol=1e-5)
    sums = found.values.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "units"),
    [("vit", ["blocks.0.attn", "blocks.1.attn"]), ("pit", ["transformers.1.blocks.0.attn"])],
)
def test_plain_attention_of_a_class_token_and_a_grid(name: str, units: list[str]) -> None:
    model, batch, seen = look(name)
    for unit, tokens in zip(units, inputs(model, batch, *units), strict=True):
        module = part(model, unit)
        scores = logits(*qk(module.qkv.weight, module.qkv.bias, tokens, module.num_heads))
        check(attention(seen, unit), scores.softmax(-1))
    assert attention(seen, units[0]).prefix == 1


@pytest.mark.parametrize(("block", "shift"), [(0, 0), (1, 3)])
def test_swin_windows_have_their_image_positions(block: int, shift: int) -> None:
    """All pairs of the 14 x 14 positions, one by one: who shares a window after the roll, and a
    region of the mask."""
    model, batch, seen = look("swin")
    unit, side, window = f"layers.0.blocks.{block}.attn", 14, 7
    module = part(model, unit)
    (stream,) = inputs(model, batch, f"layers.0.blocks.{block}.norm1")
    with torch.no_grad():
        tokens = part(model, f"layers.0.blocks.{block}.norm1")(stream).flatten(1, 2)
        plain = logits(*qk(module.qkv.weight, module.qkv.bias, tokens, module.num_heads))
    place = torch.arange(side * side)
    row, column = (place // side - shift) % side, (place % side - shift) % side

    def region(line: Tensor) -> Tensor:
        return (
            (line >= side - window).long() + (line >= side - shift).long()
            if shift
            else torch.zeros_like(line)
        )

    def same(line: Tensor) -> Tensor:
        return line[:, None] == line[None, :]

    together = (
        same(row // window) & same(column // window) & same(region(row)) & same(region(column))
    )
    down, right = row[:, None] - row[None, :], column[:, None] - column[None, :]
    width = 2 * window - 1
    index = ((down + window - 1) * width + right + window - 1).clamp(0, width**2 - 1)
    bias = module.relative_position_bias_table.detach()[index].permute(2, 0, 1)
    wanted = (plain + bias).masked_fill(~together, -torch.inf).softmax(-1)
    assert (together.sum(1).unique().numel() > 1) == bool(shift)
    check(attention(seen, unit), wanted)


def test_cait_mixes_heads_before_and_after_the_softmax() -> None:
    model, batch, seen = look("cait")
    (tokens,) = inputs(model, batch, "blocks.1.attn")
    module = part(model, "blocks.1.attn")
    with torch.no_grad():
        plain = logits(*qk(module.qkv.weight, module.qkv.bias, tokens, module.num_heads))
        mixed = (
            torch.einsum("gh,bhqk->bgqk", module.proj_l.weight, plain)
            + module.proj_l.bias[:, None, None]
        )
    found = attention(seen, "blocks.1.attn")
    check(found.probabilities, mixed.softmax(-1))
    with torch.no_grad():
        applied = torch.einsum("gh,bhqk->bgqk", module.proj_w.weight, mixed.softmax(-1))
    torch.testing.assert_close(
        found.dense(), applied + module.proj_w.bias[:, None, None].detach(), rtol=0, atol=1e-5
    )
    assert not found.normalised


def test_cait_class_attention_has_one_query() -> None:
    model, batch, seen = look("cait")
    unit = "blocks_token_only.1.attn"
    (tokens,) = inputs(model, batch, unit)
    module = part(model, unit)
    with torch.no_grad():
        query, key = (
            split(module.q(tokens[:, :1]), module.num_heads),
            split(module.k(tokens), module.num_heads),
        )
    found = attention(seen, unit)
    assert (found.prefix, found.key_grid, found.queries.tolist()) == (1, (4, 4), [[0]])
    torch.testing.assert_close(found.keys, torch.arange(17)[None])
    torch.testing.assert_close(
        found.values[:, 0], logits(query, key).softmax(-1), rtol=0, atol=1e-5
    )


def test_beit_bias_by_offset_and_its_three_entries_for_the_class_token() -> None:
    model, batch, seen = look("beit")
    (tokens,) = inputs(model, batch, "blocks.0.attn")
    module = part(model, "blocks.0.attn")
    side = 4
    table = module.relative_position_bias_table.detach()
    with torch.no_grad():
        bias = torch.cat([module.q_bias, torch.zeros_like(module.q_bias), module.v_bias])
        scores = logits(*qk(module.qkv.weight, bias, tokens, module.num_heads))
    width = 2 * side - 1
    for i in range(side * side + 1):
        for j in range(side * side + 1):
            (a, b), (c, d) = divmod(i - 1, side), divmod(j - 1, side)
            to_class, from_class = width**2 + 1, width**2
            entry = (a - c + side - 1) * width + b - d + side - 1
            entry = (
                width**2 + 2
                if i == j == 0
                else from_class
                if i == 0
                else to_class
                if j == 0
                else entry
            )
            scores[:, :, i, j] += table[entry]
    check(attention(seen, "blocks.0.attn"), scores.softmax(-1))


def test_convit_mixes_content_and_position_by_its_gate() -> None:
    model, batch, seen = look("convit")
    (tokens,) = inputs(model, batch, "blocks.1.attn")
    module = part(model, "blocks.1.attn")
    place = torch.arange(16)
    down = (place // 4)[None, :] - (place // 4)[:, None]
    right = (place % 4)[None, :] - (place % 4)[:, None]
    offsets = torch.stack([right, down, right**2 + down**2], -1).float()
    with torch.no_grad():
        query, key = (split(part, module.num_heads) for part in module.qk(tokens).chunk(2, -1))
        content = logits(query, key).softmax(-1)
        position = (
            (offsets @ module.pos_proj.weight.T + module.pos_proj.bias).permute(2, 0, 1).softmax(-1)
        )
        gate = module.gating_param.sigmoid()[:, None, None]
    check(attention(seen, "blocks.1.attn"), (1 - gate) * content + gate * position)


def test_twins_keys_lie_on_a_coarser_grid() -> None:
    model, batch, seen = look("twins")
    unit = "blocks.1.1.attn"
    (tokens,) = inputs(model, batch, unit)
    module = part(model, unit)
    with torch.no_grad():
        grid = module.sr(tokens.transpose(1, 2).unflatten(2, (28, 28)))
        key = module.kv(module.norm(grid.flatten(2).transpose(1, 2))).chunk(2, -1)[0]
        wanted = logits(
            split(module.q(tokens), module.num_heads), split(key, module.num_heads)
        ).softmax(-1)
    found = attention(seen, unit)
    assert (found.query_grid, found.key_grid, found.prefix) == ((28, 28), (7, 7), 0)
    check(found, wanted)


def test_twins_local_windows() -> None:
    """Windows of 7 x 7 without a shift: attention inside each, by cutting the map."""
    model, batch, seen = look("twins")
    unit = "blocks.2.0.attn"
    (tokens,) = inputs(model, batch, unit)
    module = part(model, unit)
    with torch.no_grad():
        scores = logits(*qk(module.qkv.weight, module.qkv.bias, tokens, module.num_heads))
    window = torch.arange(196) // 14 // 7 * 2 + torch.arange(196) % 14 // 7
    check(
        attention(seen, unit),
        scores.masked_fill(window[:, None] != window[None, :], -torch.inf).softmax(-1),
    )


def test_torchvision_vit_against_its_own_weights() -> None:
    model, batch, seen = look("tv vit")
    for i in range(2):
        layer = f"encoder.layers.encoder_layer_{i}"
        (tokens,) = inputs(model, batch, f"{layer}.ln_1")
        with torch.no_grad():
            tokens = part(model, f"{layer}.ln_1")(tokens)
            module = part(model, f"{layer}.self_attention")
            _, wanted = module(
                tokens, tokens, tokens, need_weights=True, average_attn_weights=False
            )
        check(attention(seen, f"{layer}.self_attention"), wanted)


def test_hugging_face_vit_against_its_own_eager_code() -> None:
    model, batch, seen = look("hf vit")
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")  # type: ignore[operator]
    with torch.no_grad():
        wanted = eager(batch, output_attentions=True).attentions
    assert len(wanted) == 2
    for i, weights in enumerate(wanted):
        check(attention(seen, f"vit.layers.{i}.attention"), weights)


def test_fused_and_unfused_attention_have_equal_probabilities() -> None:
    model, batch, seen = look("vit")
    plain = copy.deepcopy(model)
    for i in range(2):
        part(plain, f"blocks.{i}.attn").fused_attn = False
    specimen = vitreous.open(plain)
    assert not any(site.fused for wiring in specimen._wiring.values() for site in wiring.attention)
    other = specimen.observe(batch, ["attention"], "attention")
    assert list(other) == list(seen) == ["blocks.0.attn", "blocks.1.attn"]
    for unit in seen:
        check(attention(other, unit), attention(seen, unit).dense())


TOKENS = 16
LOWER = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
SLOPE = -0.3 * (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)[None, :]).abs().float()
FEW = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
FEW[:, 3:9] = False


def fused(**options: object) -> Attend:
    return partial(F.scaled_dot_product_attention, **options)  # type: ignore[arg-type]


def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Unfused, with a mask after the product, as many write it."""
    scores = (query @ key.transpose(-1, -2)).masked_fill(~FEW, -torch.inf)
    return F.softmax(scores, -1) @ value


@pytest.mark.parametrize(
    ("attend", "key_heads", "mask", "scale"),
    [
        pytest.param(fused(), HEADS, None, None, id="plain"),
        pytest.param(fused(attn_mask=FEW), HEADS, FEW, None, id="boolean mask"),
        pytest.param(fused(attn_mask=SLOPE), HEADS, SLOPE, None, id="additive mask"),
        pytest.param(fused(is_causal=True), HEADS, LOWER, None, id="causal"),
        pytest.param(fused(scale=1.7), HEADS, None, 1.7, id="scale"),
        pytest.param(fused(enable_gqa=True), 1, None, None, id="grouped queries"),
        pytest.param(masked, HEADS, FEW, 1.0, id="unfused with a mask"),
        pytest.param(unfused, HEADS, None, None, id="unfused"),
    ],
)
def test_masks_scales_and_grouped_heads(
    attend: Attend, key_heads: int, mask: Tensor | None, scale: float | None
) -> None:
    model = Transformer(Block(Attention(attend, key_heads)))
    seen = open_toy(model).observe(pictures(), ["attention"])
    (tokens,) = inputs(model, pictures(), "blocks.0.attn")
    with torch.no_grad():
        query, key, _ = part(model, "blocks.0.attn").split(tokens)
    scores = torch.empty(2, HEADS, TOKENS, TOKENS)
    for head in range(HEADS):
        product = query[:, head] @ key[:, head * key_heads // HEADS].mT
        scores[:, head] = product * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    check(attention(seen, "blocks.0.attn"), scores.softmax(-1))


def test_four_heads_on_two_keys() -> None:
    """Grouped queries where neighbouring heads share a key."""

    class Grouped(Attention):
        def __init__(self) -> None:
            super().__init__(fused(enable_gqa=True))
            self.kv = nn.Linear(8, 8)

        def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
            query = self.qkv(tokens)[..., :8].unflatten(-1, (4, 2)).transpose(1, 2)
            return query, *(
                p.unflatten(-1, (2, 2)).transpose(1, 2) for p in self.kv(tokens).chunk(2, -1)
            )

    model = Transformer(Block(Grouped()))
    specimen = open_toy(model)
    (tokens,) = inputs(model, pictures(), "blocks.0.attn")
    with torch.no_grad():
        query, key, _ = part(model, "blocks.0.attn").split(tokens)
    wanted = logits(query, key[:, [0, 0, 1, 1]]).softmax(-1)
    assert specimen.anatomy["attention"].heads == 4
    check(attention(specimen.observe(pictures(), ["attention"]), "blocks.0.attn"), wanted)


def test_a_fully_masked_query_has_zero_probabilities_and_no_nan() -> None:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[5] = False
    seen = open_toy(Transformer(Block(Attention(fused(attn_mask=mask))))).observe(
        pictures(), ["attention"]
    )
    sums = attention(seen, "blocks.0.attn").values.sum(-1)
    wanted = torch.ones_like(sums)
    wanted[..., 5] = 0
    torch.testing.assert_close(sums, wanted)


def test_padding_has_no_position() -> None:
    """Windows of 3 on a grid of 4: the padded positions are marked, and take their share of the
    probabilities."""

    class Windows(Attention):
        def forward(self, tokens: Tensor) -> Tensor:
            grid = F.pad(tokens.unflatten(1, (4, 4)), (0, 0, 0, 2, 0, 2))
            cells = grid.unflatten(2, (2, 3)).unflatten(1, (2, 3)).transpose(2, 3)
            inside = super().forward(cells.flatten(0, 2).flatten(1, 2))
            tiles = inside.reshape(-1, 2, 2, 3, 3, 8).transpose(2, 3)
            return tiles.flatten(3, 4).flatten(1, 2)[:, :4, :4].flatten(1, 2)

    model = Transformer(Block(Windows()))
    found = attention(open_toy(model).observe(pictures(), ["attention"]), "blocks.0.attn")
    assert found.values.shape == (2, 4, HEADS, 9, 9)
    assert found.keys.tolist()[0] == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert found.keys.tolist()[1] == [3, -1, -1, 7, -1, -1, 11, -1, -1]
    assert sorted(i for group in found.queries.tolist() for i in group if i >= 0) == list(range(16))
    torch.testing.assert_close(found.values.sum(-1), torch.ones(2, 4, HEADS, 9))
    padded = found.values[:, 1][..., [1, 2, 4, 5, 7, 8]].sum(-1)[..., [0, 3, 6]]
    missing = 1 - found.dense()[:, :, [3, 7, 11]].sum(-1)
    torch.testing.assert_close(missing, padded)
    assert (missing > 0.01).all()
