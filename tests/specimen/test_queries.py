"""Attention whose queries are pooled or reordered on the way."""

from __future__ import annotations

from torch import Tensor

from specimen.toys import (
    Attention,
    Block,
    Transformer,
    open_toy,
    unfused,
)


def test_queries_pooled_inside_windows_are_on_a_coarser_grid() -> None:
    """Hiera's way: the largest of four neighbours asks, and its index is thrown away."""

    class Pooled(Attention):
        def forward(self, tokens: Tensor) -> Tensor:
            query, key, value = self.split(tokens)
            cells = query.unflatten(2, (2, 2, 2, 2)).transpose(3, 4).flatten(4, 5)
            return self.proj(
                unfused(cells.max(4).values.flatten(2, 3), key, value).transpose(1, 2).flatten(2)
            )

    class Shrinking(Block):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.attn(self.norm1(tokens))

    specimen = open_toy(Transformer(Shrinking(Pooled()), Block()))
    unit = next(unit for unit in specimen.units if "attn" in unit.name)
    found = specimen._wiring[unit.name].attention
    assert unit.kind in ("attention", "downsample")
    assert unit.grid == (2, 2)
    assert [site.reach for site in found] == ["reduced"] * len(found)


def test_queries_with_unknown_positions_are_not_taken_for_learned_ones() -> None:
    """Tokens sorted by their own norm: no rule can follow them."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        order = q.norm(dim=-1).argsort(-1)[..., None].expand_as(q)
        return unfused(q.gather(2, order), k, v)

    unit = open_toy(Transformer(Block(Attention(attend)))).anatomy["blocks.0.attn"]
    assert (unit.kind, unit.reach, unit.weights) == ("attention", "unknown", None)
    assert "gather" in unit.reason
