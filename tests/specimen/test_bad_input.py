"""What users get wrong: each has one sentence that says what was found and what to do, or simply
works."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from specimen.toys import (
    Block,
    Choosy,
    Convolutional,
    Residual,
    Transformer,
    open_toy,
    part,
    pictures,
    settled,
)
from specimen.zoo import images, opened
from vitreous.errors import BadImages, NotExportable, UnknownName, VitreousError


def sentence(caught: pytest.ExceptionInfo[VitreousError], *words: str) -> None:
    """The message is short, one line, ends like a sentence, and has all the words."""
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500
    assert text.rstrip().endswith((".", "?"))
    for word in words:
        assert word in text, text


def test_a_wrong_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        vitreous.open("vit_smal_patch16_224")
    sentence(caught, "vit_smal_patch16_224", "Did you mean", "vit_small_patch16_224")


def test_an_object_that_is_not_a_model_is_refused() -> None:
    with pytest.raises(VitreousError) as caught:
        vitreous.open(3)  # type: ignore[arg-type]
    sentence(caught, "nn.Module or a name", "int")
    with pytest.raises(VitreousError) as caught:
        vitreous.open(nn.Linear)  # type: ignore[arg-type]
    sentence(caught, "nn.Module or a name", "type")


@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 32, 32),
        (2, 1, 16, 16),
        (2, 4, 16, 16),
        (3, 16, 16),
        (2, 3, 16, 17),
        (1, 2, 3, 16, 16),
    ],
)
def test_images_of_another_shape(shape: tuple[int, ...]) -> None:
    specimen = open_toy(Convolutional(Residual()))
    for call in (specimen, specimen.observe, specimen.without("blocks.0")):
        with pytest.raises(BadImages) as caught:
            call(torch.zeros(shape))
        sentence(caught, "3x16x16", str(shape), "resize", "image=(height, width)")


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(2, 3, 16, 16, device="meta"),
        torch.zeros(2, 3, 16, 16).double(),
        pictures().half(),
    ],
)
def test_images_of_another_device_or_type(batch: Tensor) -> None:
    specimen = open_toy(Convolutional(Residual()))
    for call in (specimen, specimen.observe):
        with pytest.raises(BadImages) as caught:
            call(batch)
        sentence(caught, str(batch.dtype), batch.device.type, "images.to('cpu', torch.float32)")


def test_images_that_are_not_a_tensor_are_refused() -> None:
    specimen = open_toy(Convolutional(Residual()))
    for call in (specimen, specimen.observe):
        with pytest.raises(BadImages) as caught:
            call([[1, 2], [3, 4]])  # type: ignore[arg-type]
        sentence(caught, "list", "one tensor", "(batch, 3, 16, 16)")


def test_images_that_are_not_square() -> None:
    model = settled(Transformer(Block(), cls=True))
    specimen = vitreous.open(model, image=(32, 48))
    assert specimen.anatomy.image == (3, 32, 48)
    assert [unit.grid for unit in specimen.units] == [(8, 12), (8, 12), (8, 12), None]
    batch = torch.randn(3, 3, 32, 48)
    with torch.no_grad():
        torch.testing.assert_close(specimen(batch), model(batch))
        stem = part(model, "stem.proj")(batch)
    seen = specimen.observe(batch, ["before", "attention"])["blocks.0.attn"]
    assert seen.before is not None
    torch.testing.assert_close(seen.before.map, stem)
    assert seen.attention is not None
    assert (seen.attention.query_grid, seen.attention.prefix) == ((8, 12), 1)
    model, _ = opened("resnet18")
    specimen = vitreous.open(model, image=(64, 96))
    assert [unit.grid for unit in specimen.units if unit.kind == "conv"][::2] == [
        (16, 24),
        (8, 12),
        (4, 6),
        (2, 3),
    ]


class Several(nn.Module):
    """Answers with a structure of tensors around a small model."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.kind = Convolutional(Residual()), kind

    def forward(self, x: Tensor) -> Any:
        value = self.body(x)
        named = {"logits": value, "twice": [value * 2, None]}
        answers = {
            "tuple": (value, value * 2),
            "list": [value],
            "dict": named,
            "ordered": OrderedDict(named),
        }
        return answers[self.kind]


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "ordered"])
def test_outputs_keep_their_structure(kind: str) -> None:
    model = settled(Several(kind))
    specimen = vitreous.open(model, image=16)
    with torch.no_grad():
        wanted = model(pictures(3))
        for given in (specimen(pictures(3)), specimen.observe(pictures(3)).output):
            assert type(given) is type(wanted)
            torch.testing.assert_close(given, wanted)
        lesion = specimen.without("body.blocks.0")(pictures(3))
    assert type(lesion) is type(wanted)


def test_hugging_face_outputs_are_those_of_the_model() -> None:
    model, specimen = opened("hf vit")
    with torch.no_grad():
        torch.testing.assert_close(
            specimen(images(specimen)).logits, model(images(specimen)).logits
        )


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_nan_are_refused(value: float) -> None:
    model = settled(Convolutional(Residual()))
    with torch.no_grad():
        part(model, "blocks.0.conv2").weight[1, 2] = value
    with pytest.raises(VitreousError) as caught:
        vitreous.open(model, image=16)
    sentence(
        caught,
        "9 of 576 values",
        "'blocks.0.conv2.weight'",
        "NaN or infinite",
        "another checkpoint",
    )


@pytest.mark.parametrize("name", ["vit", "swin", "resnet18", "cait"])
def test_a_batch_of_one(name: str) -> None:
    model, specimen = opened(name)
    batch = images(specimen, 1)
    with torch.no_grad():
        torch.testing.assert_close(specimen(batch), model(batch), rtol=1e-4, atol=1e-5)
    seen = specimen.observe(batch, ("before", "branch", "after", "attention"))
    assert all(sites.after.raw.shape[0] == 1 for sites in seen.values() if sites.after is not None)
    lesion = specimen.without(specimen.units[1].name)(batch)
    assert lesion.shape == (1, 10)


def test_a_model_with_nothing_to_learn() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.avg_pool2d(x, 2).relu().mean((2, 3))

    specimen = vitreous.open(Fixed(), image=16)
    assert len(specimen.units) >= 1
    torch.testing.assert_close(specimen(pictures()), Fixed()(pictures()))
    assert specimen.anatomy.parameters == 0
    specimen.observe(pictures())


def test_an_unknown_input_size_is_an_error() -> None:
    with pytest.raises(VitreousError) as caught:
        vitreous.open(settled(Convolutional(Residual())))
    sentence(caught, "Convolutional runs on images of several sizes (3x224x224", "image=224")


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "abc", (3,), (1, 2, 3, 4), (0, 16), (16, "16")])
def test_invalid_sizes_are_refused(size: Any) -> None:
    with pytest.raises(VitreousError) as caught:
        vitreous.open(settled(Convolutional(Residual())), image=size)
    sentence(caught, "a side, (height, width) or (channels, height, width)", repr(size))


def test_a_size_the_model_does_not_run_on() -> None:
    model, _ = opened("vit")
    with pytest.raises(VitreousError) as caught:
        vitreous.open(model, image=65)
    sentence(caught, "65", "image=")


def test_half_precision() -> None:
    model = settled(Transformer(Block(), Block(), cls=True)).bfloat16()
    specimen = vitreous.open(model, image=16)
    batch = pictures().bfloat16()
    with torch.no_grad():
        wanted = model(batch)
        assert torch.equal(specimen(batch), wanted)
        seen = specimen.observe(batch, ("after", "attention"))
        assert torch.equal(seen.output, wanted)
        assert specimen.with_attention("attention", "uniform")(batch).dtype == torch.bfloat16
    found = seen["blocks.1.attn"].attention
    assert found is not None
    assert found.values.dtype == torch.float32
    torch.testing.assert_close(found.values.sum(-1), torch.ones(2, 1, 2, 17))


def test_a_graph_that_cannot_be_read(capfd: pytest.CaptureFixture[str]) -> None:
    """One sentence with the line and the way round, nothing on the terminal; and the way round
    works."""
    model = settled(Choosy())
    with pytest.raises(NotExportable) as caught:
        vitreous.open(model, image=16)
    sentence(caught, "Choosy", "toys.py:", "if value.sum() > 1e6", "units=[")
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == logging.NOTSET
    specimen = vitreous.open(model, image=16, units=["stem", "body", "head"])
    seen = specimen.observe(pictures())
    with torch.no_grad():
        torch.testing.assert_close(seen.output, model(pictures()))
        assert (specimen.without("body")(pictures()) - seen.output).abs().max() > 1e-3


def test_a_model_that_takes_more_than_images() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.stem(x) + y

    with pytest.raises(VitreousError) as caught:
        vitreous.open(Two(), image=16)
    sentence(caught, "Two takes 2 inputs (x, y)", "wrap it")


def test_running_statistics_that_are_nan_are_refused() -> None:
    model = settled(Convolutional(Residual()))
    part(model, "blocks.0.bn1").running_var[0] = torch.nan
    with pytest.raises(VitreousError) as caught:
        vitreous.open(model, image=16)
    sentence(caught, "'blocks.0.bn1.running_var'", "NaN or infinite", "another checkpoint")


def test_a_model_without_weights_of_its_own() -> None:
    """On the meta device there is nothing to compute with; say so before torch does."""
    with torch.device("meta"):
        model = Convolutional(Residual())
        setattr(model, "head", nn.Linear(8, 5))  # noqa: B010
    with pytest.raises(VitreousError) as caught:
        vitreous.open(model, image=16)
    sentence(caught, "meta", "weights", "load")
