"""Every intervention against the same surgery done by hand on a copy of the model."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specimen.surgery import attention_by, check, forward, operated, same
from specimen.toys import (
    WIDTH,
    Attention,
    Block,
    Convolutional,
    Parallel,
    Residual,
    Transformer,
    open_toy,
    part,
    pictures,
)
from specimen.zoo import first_tensor, images, opened
from vitreous.errors import UnknownName, VitreousError


def vit_without_attention(block: Any, x: Tensor) -> Tensor:
    return x + block.mlp(block.norm2(x))


def vit_without_skip(block: Any, x: Tensor) -> Tensor:
    x = block.attn(block.norm1(x))
    return x + block.mlp(block.norm2(x))


def swin_without_mlp_skip(block: Any, x: Tensor) -> Tensor:
    x = x + block._attn(block.norm1(x))
    return block.mlp(block.norm2(x))


def basic_branch(block: Any, x: Tensor) -> Tensor:
    return block.bn2(block.conv2(block.act1(block.bn1(block.conv1(x)))))


def bottleneck_branch(block: Any, x: Tensor) -> Tensor:
    x = block.act2(block.bn2(block.conv2(block.act1(block.bn1(block.conv1(x))))))
    return block.bn3(block.conv3(x))


LESIONS = {
    "vit": ("blocks.1.attn", "blocks.1", vit_without_attention),
    "swin": (
        "layers.0.blocks.1.attn",
        "layers.0.blocks.1",
        lambda block, x: x + block.mlp(block.norm2(x)),
    ),
    "resnet18": ("layer1.1", "layer1.1", lambda block, x: block.act2(x)),
    "resnet50": ("layer2.0", "layer2.0", lambda block, x: block.act3(block.downsample(x))),
}
SKIPS = {
    "vit": ("blocks.0.attn", "blocks.0", vit_without_skip),
    "swin": ("layers.0.blocks.1.mlp", "layers.0.blocks.1", swin_without_mlp_skip),
    "resnet18": ("layer1.0", "layer1.0", lambda block, x: block.act2(basic_branch(block, x))),
    "resnet50": ("layer3.0", "layer3.0", lambda block, x: block.act3(bottleneck_branch(block, x))),
}


@pytest.mark.parametrize("name", LESIONS)
def test_a_lesion_equals_a_model_without_the_branch(name: str) -> None:
    model, specimen = opened(name)
    unit, path, instead = LESIONS[name]
    check(specimen.without(unit), operated(model, path, forward(instead)), images(specimen), model)


@pytest.mark.parametrize("name", SKIPS)
def test_a_removed_skip_equals_a_model_without_the_skip(name: str) -> None:
    model, specimen = opened(name)
    unit, path, instead = SKIPS[name]
    check(
        specimen.without_skip(unit),
        operated(model, path, forward(instead)),
        images(specimen),
        model,
    )


def test_an_edit_keeps_what_is_filled_in_place() -> None:
    """timm's ConViT fills its relative positions in place, which nothing reads directly."""
    model, specimen = opened("convit")
    by_hand = operated(model, "blocks.1.mlp", forward(lambda _, x: torch.zeros_like(x)))
    check(specimen.without("blocks.1.mlp"), by_hand, images(specimen), model)


@pytest.mark.parametrize("name", ["vit", "swin", "resnet18"])
def test_a_compiled_model_cannot_miss_an_edit(name: str) -> None:
    model, specimen = opened(name)
    batch = images(specimen)
    for edited, (_, path, instead) in (
        (specimen.without(LESIONS[name][0]), LESIONS[name]),
        (specimen.without_skip(SKIPS[name][0]), SKIPS[name]),
    ):
        compiled = torch.compile(edited, backend="aot_eager")
        torch._dynamo.reset()
        check(compiled, operated(model, path, forward(instead)), batch, model)


def test_compiled_for_real() -> None:
    edited = open_toy(Transformer(Block())).without("blocks.0.attn").without_skip("blocks.0.mlp")
    torch._dynamo.reset()
    with torch.no_grad():
        same(torch.compile(edited)(pictures()), edited(pictures()))


@pytest.mark.parametrize("gone", ["attn", "mlp"])
def test_parallel_branches_are_removed_one_at_a_time(gone: str) -> None:
    model = Transformer(Parallel(), Parallel())
    specimen = open_toy(model)
    stays = "mlp" if gone == "attn" else "attn"
    by_hand = operated(
        model, "blocks.1", forward(lambda block, x: x + part(block, stays)(block.norm(x)))
    )
    check(specimen.without(f"blocks.1.{gone}"), by_hand, pictures(), model)
    for order in ((gone, stays), (stays, gone)):
        both = operated(model, "blocks.1", forward(lambda block, x: x))
        check(specimen.without(*(f"blocks.1.{name}" for name in order)), both, pictures(), model)
    no_skip = operated(
        model, "blocks.0", forward(lambda b, x: b.attn(b.norm(x)) + b.mlp(b.norm(x)))
    )
    check(specimen.without_skip("blocks.0.attn"), no_skip, pictures(), model)


def test_removed_branches_are_not_computed() -> None:
    _, specimen = opened("vit")
    for edited in (
        specimen.without("blocks.0.attn"),
        specimen.with_attention("blocks.0.attn", "uniform"),
    ):
        assert edited.module.code.count("aten.scaled_dot_product_attention") == 1


def test_three_branches_beside_a_skip() -> None:
    class Three(Parallel):
        def __init__(self) -> None:
            super().__init__()
            self.other = Attention()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.attn(self.norm(x)) + self.mlp(self.norm(x)) + self.other(self.norm(x))

    model = Transformer(Three())
    specimen = open_toy(model)
    skipless = forward(lambda b, x: b.attn(b.norm(x)) + b.mlp(b.norm(x)) + b.other(b.norm(x)))
    check(
        specimen.without_skip("blocks.0.mlp"),
        operated(model, "blocks.0", skipless),
        pictures(),
        model,
    )
    middle = forward(lambda b, x: x + b.attn(b.norm(x)) + b.other(b.norm(x)))
    check(specimen.without("blocks.0.mlp"), operated(model, "blocks.0", middle), pictures(), model)


def test_edits_compose_and_take_globs() -> None:
    model = Transformer(Block(), Block(), Block())
    specimen = open_toy(model)
    edited = (
        specimen.without("blocks.0.*")
        .without_skip("blocks.2.attn")
        .with_branch("blocks.1.mlp", torch.tanh)
    )
    other = copy.deepcopy(model)
    forward(lambda block, x: x)(part(other, "blocks.0"))
    forward(lambda block, x: (y := x + block.attn(block.norm1(x))) + torch.tanh(y))(
        part(other, "blocks.1")
    )
    forward(vit_without_skip)(part(other, "blocks.2"))
    check(edited, other, pictures(), model)
    assert edited.edits == (
        "without blocks.0.*",
        "without skip blocks.2.attn",
        "with branch blocks.1.mlp",
    )
    assert specimen.edits == ()
    with torch.no_grad():
        same(specimen(pictures()), model(pictures()))


def test_edits_of_one_unit_add_up() -> None:
    """Twice the same lesion is one lesion; with neither skip nor branch nothing is left, in either
    order."""
    model = Transformer(Block(), Block())
    specimen = open_toy(model)
    once = specimen.without("blocks.0.attn")
    with torch.no_grad():
        same(once.without("blocks.0.attn")(pictures()), once(pictures()))
    nothing = operated(model, "blocks.1", forward(lambda block, x: torch.zeros_like(x)))
    check(specimen.without("blocks.1.mlp").without_skip("blocks.1.mlp"), nothing, pictures(), model)
    check(specimen.without_skip("blocks.1.mlp").without("blocks.1.mlp"), nothing, pictures(), model)
    with pytest.raises(
        VitreousError, match=r"earlier edit removed .*blocks\.0\.attn.*before that one"
    ):
        once.with_branch("blocks.0.attn", torch.tanh)
    with pytest.raises(VitreousError, match=r"earlier edit removed .*blocks\.0\.attn"):
        once.with_attention("blocks.0.attn", "uniform")


def test_with_branch_takes_one_argument_two_or_a_module() -> None:
    model = Transformer(Block(), Block())
    specimen = open_toy(model)

    def halved(block: Any, x: Tensor) -> Tensor:
        x = x + 0.5 * block.attn(block.norm1(x)) - x.mean(1, keepdim=True)
        return x + block.mlp(block.norm2(x))

    edited = specimen.with_branch(
        "blocks.1.attn", lambda x, branch: 0.5 * branch - x.mean(1, keepdim=True)
    )
    check(edited, operated(model, "blocks.1", forward(halved)), pictures(), model)

    mine = nn.Linear(WIDTH, WIDTH)
    edited = specimen.with_branch("blocks.1.mlp", mine)
    by_hand = forward(lambda block, x: (y := x + block.attn(block.norm1(x))) + mine(y))
    check(edited, operated(model, "blocks.1", by_hand), pictures(), model)
    assert mine.weight in set(edited.parameters())
    edited(pictures()).sum().backward()
    assert mine.weight.grad is not None

    check(
        specimen.with_branch("blocks.0.mlp", torch.zeros_like),
        operated(model, "blocks.0", forward(lambda block, x: x + block.attn(block.norm1(x)))),
        pictures(),
        model,
    )


def test_branches_replaced_twice() -> None:
    """The second function is given what the first one made."""
    model = Transformer(Block(), Block())
    edited = (
        open_toy(model)
        .with_branch("blocks.0.mlp", lambda x, b: 2 * b)
        .with_branch("blocks.0.mlp", lambda x, b: b + 1)
    )
    by_hand = forward(
        lambda block, x: (y := x + block.attn(block.norm1(x))) + 2 * block.mlp(block.norm2(y)) + 1
    )
    check(edited, operated(model, "blocks.0", by_hand), pictures(), model)


@pytest.mark.parametrize("conv", ["layer1.0.conv1", "layer1.1.conv2"])
def test_one_convolution_becomes_the_identity(conv: str) -> None:
    model, specimen = opened("resnet18")
    block, _, name = conv.rpartition(".")
    by_hand = operated(model, block, lambda module: setattr(module, name, nn.Identity()))
    check(specimen.without(conv), by_hand, images(specimen), model)


def test_a_strided_convolution_becomes_a_sampling() -> None:
    model, specimen = opened("resnet50")

    class Every(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, ::2, ::2]

    by_hand = operated(model, "layer2.0", lambda module: setattr(module, "conv2", Every()))
    check(specimen.without("layer2.0.conv2"), by_hand, images(specimen), model)


def test_convolutions_that_cannot_be_the_identity_say_so() -> None:
    _, specimen = opened("resnet50")
    with pytest.raises(VitreousError, match=r"layer1\.0\.conv3.* identity.*64.*256.*unit instead"):
        specimen.without("layer1.0.conv3")
    block = Residual()
    block.conv1.padding, block.conv2.padding = (0, 0), (2, 2)
    with pytest.raises(VitreousError, match=r"blocks\.0\.conv1.* identity.*16, 16.*14, 14"):
        open_toy(Convolutional(block)).without("blocks.0.conv1")
    with pytest.raises(UnknownName, match=r"layer1\.0\.conv9.*layer1\.0\.conv"):
        specimen.without("layer1.0.conv9")


def test_gradients_of_an_edit_equal_those_of_the_edited_model() -> None:
    model = Transformer(Block(), Block(), cls=True)
    specimen = open_toy(model).without("blocks.0.mlp").with_attention("blocks.1.attn", "uniform")
    other = copy.deepcopy(model)
    forward(lambda block, x: x + block.attn(block.norm1(x)))(part(other, "blocks.0"))
    attention_by(lambda value: torch.full((17, 17), 1 / 17))(part(other, "blocks.1.attn"))
    given, wanted = pictures().requires_grad_(), pictures().requires_grad_()
    specimen(given).square().sum().backward()
    other(wanted).square().sum().backward()
    assert given.grad is not None
    assert wanted.grad is not None
    same(given.grad, wanted.grad)
    used = 0
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), (
            name
        )  # the specimen shares the weights of the model
        if ours.grad is not None and theirs.grad is not None:
            same(ours.grad, theirs.grad)
            used += 1
    assert used > 10


def test_an_edited_specimen_can_be_copied_saved_and_observed() -> None:
    """An edited specimen is a specimen: it can be copied, saved as weights, and observed at every
    unit."""
    model = Transformer(Block(), Block())
    edited = (
        open_toy(model).without("blocks.0.attn").with_branch("blocks.1.mlp", lambda x, b: b + 3)
    )
    twin = copy.deepcopy(edited)
    with torch.no_grad():
        wanted = edited(pictures())
        assert torch.equal(twin(pictures()), wanted)
        next(iter(twin.parameters())).add_(1)
        assert torch.equal(edited(pictures()), wanted)
        stream = part(model, "stem")(pictures())
        one, two = part(model, "blocks.0"), part(model, "blocks.1")
        second = stream + one.mlp(one.norm2(stream))
        third = second + two.attn(two.norm1(second))
        branch = two.mlp(two.norm2(third)) + 3
    seen = edited.observe(pictures())
    assert torch.equal(seen.output, wanted)
    for unit, site, value in (
        ("blocks.0.attn", "before", stream),
        ("blocks.0.attn", "after", stream),
        ("blocks.0.mlp", "before", stream),
        ("blocks.1.attn", "before", second),
        ("blocks.1.mlp", "before", third),
        ("blocks.1.mlp", "branch", branch),
        ("blocks.1.mlp", "after", third + branch),
    ):
        feature = getattr(seen[unit], site)
        assert feature is not None, (unit, site)
        same(feature.tokens, value)
    assert seen["blocks.0.attn"].branch is None


def test_a_lesion_without_a_skip_passes_the_input_on_or_gives_zeros() -> None:
    widths = [WIDTH, WIDTH, 2 * WIDTH, 2 * WIDTH]
    blocks = [
        nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.ReLU()) for a, b in itertools.pairwise(widths)
    ]
    model = Convolutional(*blocks)
    specimen = open_toy(model)
    names = [unit.name for unit in specimen.units]
    assert [u.skip for u in specimen.units] == [False] * len(names)
    passed = operated(model, "blocks.2", forward(lambda block, x: x))
    last = names[-2]
    check(specimen.without(last), passed, pictures(), model)
    wider = operated(
        model, "blocks.1", forward(lambda block, x: torch.zeros_like(x).repeat(1, 2, 1, 1))
    )
    check(specimen.without(names[-3]), wider, pictures(), model)
    with pytest.raises(VitreousError, match=r"no skip to remove"):
        specimen.without_skip(last)


def test_the_head_and_the_stem_can_be_removed_too() -> None:
    model = Transformer(Block())
    specimen = open_toy(model)
    with torch.no_grad():
        assert not specimen.without("head")(pictures()).any()
        blind = specimen.without("stem")(pictures())
    same(blind[0], blind[1])


def test_a_specimen_stays_in_evaluation_mode() -> None:
    specimen = open_toy(Transformer(Block()))
    assert specimen.eval() is specimen
    with pytest.raises(VitreousError, match="evaluation mode"):
        specimen.train()


@pytest.mark.parametrize("name", ["convnext", "swin", "vit", "resnet18", "poolformer"])
def test_a_replaced_branch_gets_and_returns_the_models_layout(name: str) -> None:
    """A lesion, written as a branch of zeros, for every unit with a skip and no projection on
    it."""
    _, specimen = opened(name)
    batch = images(specimen)
    with torch.no_grad():
        for unit in specimen.units:
            if unit.skip and unit.channels == specimen.units[max(unit.index - 1, 0)].channels:
                edited = specimen.with_branch(unit.name, torch.zeros_like)
                same(first_tensor(edited(batch)), first_tensor(specimen.without(unit.name)(batch)))
