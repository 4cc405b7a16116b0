"""Checkpoints between timm's VisionTransformer (ViT, DeiT, hybrids) and ours.

Our modules carry timm's names, so little changes: absolute positions are a module here and a bare parameter there, and
the tanh layer of the pre-training head is numbered here and called `fc` there.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vitreous.models.registry import BadModel

TIMM_TO_OURS = {
    "pos_embed": "positions.0.table",
    "pre_logits.fc.weight": "pre_logits.0.weight",
    "pre_logits.fc.bias": "pre_logits.0.bias",
}
OURS_TO_TIMM = {ours: timm for timm, ours in TIMM_TO_OURS.items()}
OURS_ALONE = ("positions.", ".relative.", ".pattern", ".attn.v.", ".attn.fc")
"""Parts of names that exist only in models timm has no class for."""


def from_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of timm's VisionTransformer under our names, for `vit_*` and `deit_*`."""
    return {TIMM_TO_OURS.get(name, name): value for name, value in state.items()}


def to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under timm's names; refuses what timm's VisionTransformer has no place for."""
    moved = {OURS_TO_TIMM.get(name, name): value for name, value in state.items()}
    foreign = [name for name in moved if any(part in name for part in OURS_ALONE)]
    if foreign:
        raise BadModel(
            f"timm's VisionTransformer has no place for {foreign[0]} ({len(foreign)} such tensors): only pos '1d' or "
            "'none', inject 'stem' and attention as the mixer can be converted."
        )
    return moved
