"""Within a unit: what its normalisation hands on and what its last weights read, against hooks on
the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from specimen import zoo
from specimen.toys import (
    WIDTH,
    Block,
    Convolutional,
    Residual,
    Transformer,
    open_toy,
    part,
    pictures,
)
from vitreous.specimen.specimen import Specimen


def check(
    model: nn.Module,
    specimen: Specimen,
    images: Tensor,
    unit: str,
    norm: str | None,
    last: str | None,
) -> None:
    """`norm` is the module whose output is wanted, `last` the one whose input is."""
    caught: dict[str, Tensor] = {}
    hooks = []
    if norm is not None:
        hooks.append(
            part(model, norm).register_forward_hook(
                lambda m, i, o: caught.setdefault("norm", o.clone())
            )
        )
    if last is not None:
        hooks.append(
            part(model, last).register_forward_pre_hook(
                lambda m, i: caught.setdefault("hidden", i[0].clone())
            )
        )
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    seen = specimen.observe(images, ("norm", "hidden"))[unit]
    for site, feature in (("norm", seen.norm), ("hidden", seen.hidden)):
        assert (feature is None) == (site not in caught)
        if feature is not None:
            torch.testing.assert_close(
                feature.raw.reshape(caught[site].shape), caught[site], atol=1e-5, rtol=1e-5
            )


def test_transformer() -> None:
    model = Transformer(Block(), Block(), cls=True)
    specimen = open_toy(model)
    check(model, specimen, pictures(), "blocks.1.attn", "blocks.1.norm1", "blocks.1.attn.proj")
    check(model, specimen, pictures(), "blocks.1.mlp", "blocks.1.norm2", "blocks.1.mlp.2")
    assert "stem" not in specimen.observe(pictures(), ("norm", "hidden"))


def test_convolutions_with_activations_in_place() -> None:
    model = Convolutional(Residual(), Residual())
    specimen = open_toy(model)
    seen = specimen.observe(pictures(), ("norm", "hidden"))["blocks.0"]
    assert seen.norm is not None
    assert seen.hidden is not None
    assert bool((seen.norm.raw < 0).any())
    torch.testing.assert_close(seen.hidden.raw, seen.norm.raw.relu())
    assert seen.hidden.map.shape == (2, WIDTH, 16, 16)


class Gated(nn.Module):
    """A gate that sees no positions comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1), nn.Conv2d(WIDTH, WIDTH, 3, 1, 1)
        self.squeeze, self.expand = nn.Conv2d(WIDTH, 4, 1), nn.Conv2d(4, WIDTH, 1)

    def forward(self, value: Tensor) -> Tensor:
        branch = self.conv2(self.conv1(value).relu())
        gate = self.expand(self.squeeze(branch.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return value + branch * gate


def test_a_gate_does_not_count() -> None:
    model = Convolutional(Gated(), Gated())
    check(model, open_toy(model), pictures(), "blocks.1", None, "blocks.1.conv2")


def test_windows_are_merged_to_the_feature_map() -> None:
    """Tokens in raster order, whichever window they were in: the projection of a token reads that
    token."""
    model, specimen = zoo.opened("swin")
    images = zoo.images(specimen)
    name = "layers.0.blocks.1.attn"
    seen = specimen.observe(images, ("hidden", "branch"))[name]
    assert seen.hidden is not None
    assert seen.branch is not None
    torch.testing.assert_close(
        part(model, f"{name}.proj")(seen.hidden.tokens), seen.branch.tokens, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("edit", ["norm", "hidden"])
def test_inner_sites_of_a_lesioned_unit_are_none(edit: str) -> None:
    specimen = open_toy(Transformer(Block(), Block())).without("blocks.0.mlp")
    seen = specimen.observe(pictures(), ("norm", "hidden", "after"))
    assert getattr(seen["blocks.0.mlp"], edit) is None
    assert getattr(seen["blocks.1.mlp"], edit) is not None
