"""Channels and sizes are what the model accepts, whatever order its parts were made in; other
inputs are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from vitreous.errors import VitreousError
from vitreous.specimen.inputs import accepts, image_shape, vision_tower


class InnerFirst(nn.Module):
    """The first convolution by order of attributes sees 24 channels; the first one called sees the
    images."""

    def __init__(
        self, channels: int = 3, side: int | None = None, patch: int = 4, dim: int = 24
    ) -> None:
        super().__init__()
        self.inner = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(channels * patch**2)
        self.embed = nn.Linear(channels * patch**2, dim)
        self.unfold = nn.Unfold(patch, stride=patch)
        self.head = nn.Linear(dim, 5)
        self.patch = patch
        if side is not None:
            self.pos_embedding = nn.Parameter(torch.randn(1, (side // patch) ** 2, dim))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2] // self.patch, x.shape[3] // self.patch
        tokens = self.embed(self.norm(self.unfold(x).transpose(1, 2)))
        if hasattr(self, "pos_embedding"):
            tokens = tokens + self.pos_embedding
        grid = tokens.transpose(1, 2).unflatten(2, (height, width))
        result: Tensor = self.head((grid + self.inner(grid)).mean((2, 3)))
        return result


class Branches(nn.Module):
    """A table of relative positions goes through weights before the images are touched."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.randn(6, 2))
        self.bias = nn.Linear(2, 8)
        self.late = nn.Conv2d(8, 8, 3, padding=1)
        self.first = nn.Conv2d(channels, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        shift = self.bias(self.offsets).mean(0)[:, None, None]
        y = self.first(x) + shift
        result: Tensor = (y + self.late(y)).mean((2, 3))
        return result


class AsksForValues(InnerFirst):
    """Cannot run on fake tensors."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.abs().max()) > 1e6:
            raise ValueError("not normalised")
        return super().forward(x)


@pytest.mark.parametrize("channels", [1, 3, 4, 13])
@pytest.mark.parametrize("side", [16, (16, 24), [16, 24], np.int64(16), torch.Size([16, 24])])
def test_with_a_size_only_the_channels_are_inferred(channels: int, side: Any) -> None:
    sides = (16, 16) if isinstance(side, (int, np.integer)) else (16, 24)
    if channels in (1, 3):
        assert image_shape(InnerFirst(channels), side) == (channels, *sides)
    assert image_shape(Branches(channels), side) == (channels, *sides)


def test_a_complete_size_is_used_without_a_search() -> None:
    assert image_shape(InnerFirst(3), (7, 16, 16)) == (7, 16, 16)
    with pytest.raises(
        VitreousError,
        match=r"does not run on images of 7x16x16 .* runs on 3x\d+x\d+: say image=\(3, ",
    ):
        vitreous.open(InnerFirst(3), image=(7, 16, 16))


@pytest.mark.parametrize("kind", [InnerFirst, AsksForValues])
@pytest.mark.parametrize("side", [32, 48, 100])
def test_the_size_that_fills_the_position_embedding(kind: type[InnerFirst], side: int) -> None:
    """48 and 100 are in no list of usual sizes."""
    assert image_shape(kind(3, side)) == (3, side, side)


def test_only_the_model_itself_declares_the_size() -> None:
    model = nn.Sequential(InnerFirst(1, 52))
    del model[0].pos_embedding
    model[0].img_size = (52, 52)  # type: ignore[assignment]
    with pytest.raises(VitreousError, match=r"several sizes \(1x52x52, .*image=52"):
        image_shape(model)
    model.image_size = 52  # type: ignore[assignment]
    assert image_shape(model) == (1, 52, 52)


def test_several_accepted_sizes_are_an_error() -> None:
    with pytest.raises(
        VitreousError, match=r"InnerFirst runs on images of several sizes .*224.*image=224"
    ):
        vitreous.open(InnerFirst())


def test_the_error_for_a_wrong_size_suggests_one_that_works() -> None:
    with pytest.raises(
        VitreousError, match=r"on images of 3x64x64 .* runs on 3x32x32: say image=\(3, 32, 32\)"
    ):
        vitreous.open(InnerFirst(3, 32), image=64)


def test_trying_sizes_does_not_change_the_model() -> None:
    class Remembers(InnerFirst):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x
            return super().forward(x)

    model = Remembers().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert accepts(model, (3, 16, 16)) is None
    assert accepts(model, (5, 16, 16)) is not None
    assert accepts(model, (3, 16, 16), far=False) is None
    assert model.training
    assert not hasattr(model, "last")
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


BAD = [
    0,
    -5,
    10**9,
    True,
    3.5,
    "224",
    "axb",
    (),
    (1,),
    (3, 0),
    (3, 4, 5, 6),
    (3, 2.5),
    [True, 4],
    {3, 4},
    object(),
    "",
]


@pytest.mark.parametrize("image", BAD, ids=lambda image: type(image).__name__)
def test_no_size_at_all(image: Any) -> None:
    models: list[nn.Module | str] = [InnerFirst(), "resnet18"]
    for model in models:
        with pytest.raises(
            VitreousError, match=r"^image= takes a side, .*, and not .*\.$"
        ) as caught:
            vitreous.open(model, image=image)
        assert len(str(caught.value)) < 250


class Seeing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.Conv2d(3, 4, 3)


class Question(Seeing):
    def forward(self, image: Tensor, question: Tensor) -> Tensor:
        return self.visual(image).mean((2, 3)) + question


class Masked(Seeing):
    def forward(self, image: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
        return self.visual(image * mask) * scale


class ByName(Seeing):
    def forward(self, *, pixel_values: Tensor) -> Tensor:
        result: Tensor = self.visual(pixel_values)
        return result


class Packed(Seeing):
    def forward(self, **inputs: Tensor) -> Tensor:
        result: Tensor = self.visual(inputs["pixel_values"])
        return result


class Batch(Seeing):
    def forward(self, batch: Any) -> Tensor:
        result: Tensor = self.visual(batch["image"])
        return result


class Several(Seeing):
    def forward(self, images: list[Tensor], targets: Any = None) -> list[Tensor]:
        return [self.visual(image[None]) for image in images[0]]


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.embed(x).mean(1))
        return result


class Convolves(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.conv = kind(1, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.conv(x)
        return result


class Frames(nn.Module):
    def forward(self, clips: Tensor) -> Tensor:
        batch, _, _, _, width = clips.shape
        return clips.reshape(batch, -1, width)


OTHERS = [
    (Question(), "takes 2 inputs (image, question)", "model.visual"),
    (Masked(), "takes 2 inputs (image, mask)", "model.visual"),
    (ByName(), "takes its input by name (pixel_values=)", "model.visual"),
    (Packed(), "takes its input by name (**inputs)", "model.visual"),
    (Batch(), "takes a dict", "model.visual"),
    (Several(), "takes a list (images)", "model.visual"),
    (Tokens(), "takes integer tokens", "wrap it"),
    (Convolves(nn.Conv3d), "takes video or volumes", "wrap it"),
    (Convolves(nn.Conv1d), "takes a series", "wrap it"),
    (Frames(), "takes video (clips)", "wrap it"),
    (nn.LSTM(3, 4), "takes a series", "wrap it"),
    (nn.ModuleList([nn.Conv2d(3, 3, 3)]), "has no forward", "put it into a module"),
]


@pytest.mark.parametrize("image", [None, 16, (3, 16, 16)], ids=str)
@pytest.mark.parametrize(
    ("model", "takes", "way_out"), OTHERS, ids=lambda value: type(value).__name__
)
def test_models_that_take_something_else(
    model: nn.Module, takes: str, way_out: str, image: Any
) -> None:
    with pytest.raises(VitreousError) as caught:
        vitreous.open(model, image=image)
    text = str(caught.value)
    assert takes in text
    assert way_out in text
    assert "image=" not in text
    assert "\n" not in text
    assert len(text) < 500


def test_image_and_text_models_of_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    text = {**small, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    vision = {**small, "image_size": 32, "patch_size": 16}
    clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision))
    with pytest.raises(
        VitreousError,
        match=r"takes tokens and images \(input_ids, pixel_values\).*model.vision_model",
    ):
        vitreous.open(clip)
    assert vitreous.open(clip.vision_model).anatomy.image == (3, 32, 32)
    with pytest.raises(VitreousError, match=r"BertModel takes tokens \(input_ids\) .*wrap it"):
        vitreous.open(transformers.BertModel(transformers.BertConfig(**small, vocab_size=50)))


def test_the_path_of_a_vision_tower() -> None:
    inner = nn.ModuleDict(
        {"model": nn.ModuleDict({"text": nn.Identity(), "vision_tower": nn.Identity()})}
    )
    assert vision_tower(inner) == "model.vision_tower"
    assert vision_tower(nn.Sequential(nn.Identity())) is None
