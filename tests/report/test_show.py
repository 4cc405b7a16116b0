"""One call from a photo to a picture: maps and predictions are those computed another way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers
from matplotlib import pyplot as plt
from PIL import Image
from timm.data import ImageNetInfo, create_transform, resolve_data_config
from timm.models.swin_transformer import SwinTransformer, WindowAttention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

import vitreous
from data.pictures import noise
from specimen.toys import Block, Convolutional, Residual, Transformer, settled
from vitreous.data.framing import Framing
from vitreous.errors import VitreousError
from vitreous.report.show import _sharper

Vit = VisionTransformer


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    return Image.fromarray(noise(1, 90, 120, 5)[0])


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    """timm's, small, with normalisation of its own and attention far from uniform."""
    torch.manual_seed(0)
    model = Vit(img_size=(48, 64), patch_size=16, embed_dim=24, depth=3, num_heads=3, num_classes=7)
    return sharpened(model)


def sharpened(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name and parameter.ndim == 2:
                parameter.mul_(12)
    model.pretrained_cfg = {"mean": (0.4, 0.5, 0.6), "std": (0.3, 0.2, 0.1)}  # type: ignore[assignment]
    return model.eval()


def prepared(photo: Image.Image, model: nn.Module, size: tuple[int, int]) -> Tensor:
    """The tensor that timm itself makes of a photo."""
    config = resolve_data_config({"input_size": (3, *size)}, model=model)
    return create_transform(**config)(photo)[None]


@contextmanager
def probabilities(model: nn.Module) -> Iterator[list[Tensor]]:
    """What goes into every dropout of attention, which is the softmax, with timm's own code."""
    seen: list[Tensor] = []
    handles = []
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            attention: Any = module
            attention.fused_attn = False
            drop = attention.attn_drop
            handles.append(drop.register_forward_hook(lambda _, args, out: seen.append(args[0])))
    yield seen
    for handle in handles:
        handle.remove()


@torch.no_grad()
def test_attention_and_prediction_are_those_of_timm(vit: nn.Module, photo: Image.Image) -> None:
    shown = [
        vitreous.show(vit, photo, image=(48, 64)),
        vitreous.show(vit, photo, image=(48, 64), unit="blocks.1.attn", head=2, query=(2, 1)),
        vitreous.show(vit, photo, image=(48, 64), unit="blocks.0.attn", head=1, query="mean"),
    ]
    with probabilities(vit) as seen:
        scores = vit(prepared(photo, vit, (48, 64)))[0].double().softmax(0)
    [first, second, third] = [each[0].double() for each in seen]  # (heads, tokens, tokens)
    expected = [
        third.mean(0)[0, 1:],
        second[2, 1 + 2 * 4 + 1, 1:],
        first[1, 1:, 1:].mean(0),
    ]
    for each, row in zip(shown, expected, strict=True):
        assert each.map is not None
        assert each.map.measure == "attention"
        assert each.map.values.shape == (3, 4)
        assert np.ptp(each.map.values) > 0.02, "uniform attention would test nothing"
        np.testing.assert_allclose(each.map.values, row.reshape(3, 4), atol=1e-6)
        assert each.map.elsewhere == pytest.approx(1 - float(row.sum()), abs=1e-6)
    order = scores.argsort(descending=True)[:5].tolist()
    assert shown[0].predictions["index"].tolist() == order
    np.testing.assert_allclose(shown[0].predictions["probability"], scores[order], atol=1e-6)


@torch.no_grad()
def test_rollout_is_the_product_of_layers(vit: nn.Module, photo: Image.Image) -> None:
    shown = vitreous.show(vit, photo, image=(48, 64), rollout=True)
    part = vitreous.show(
        vit, photo, image=(48, 64), rollout=True, unit="blocks.1.attn", query=(1, 1)
    )
    with probabilities(vit) as seen:
        vit(prepared(photo, vit, (48, 64)))
    product = np.eye(13)
    products = []
    for attention in seen:
        mean = attention[0].double().mean(0).numpy() + np.eye(13)
        product = mean / mean.sum(1, keepdims=True) @ product
        products.append(product)
    assert shown.map is not None
    assert part.map is not None
    np.testing.assert_allclose(shown.map.values.ravel(), products[2][0, 1:], atol=1e-6)
    np.testing.assert_allclose(part.map.values.ravel(), products[1][1 + 5, 1:], atol=1e-6)
    assert "rollout of 3 layers" in shown.map.says


def window_of(rows: int, columns: int, side: int, shift: int) -> np.ndarray:
    """(windows, side², 2) row and column of every position in every window of Swin."""
    places = []
    for top in range(0, rows, side):
        for left in range(0, columns, side):
            corner = np.array([top + shift, left + shift])
            inside = np.indices((side, side)).reshape(2, -1).T + corner
            places.append(inside % (rows, columns))
    return np.array(places)


@pytest.mark.parametrize("block", [0, 1], ids=["windows", "shifted windows"])
@torch.no_grad()
def test_windows_are_put_back_in_their_place(block: int, photo: Image.Image) -> None:
    torch.manual_seed(0)
    model = sharpened(
        SwinTransformer(
            img_size=(32, 48), patch_size=4, window_size=4, embed_dim=12, depths=(2, 2),
            num_heads=(2, 3), num_classes=3,
        )
    )  # fmt: skip
    unit = f"layers.0.blocks.{block}.attn"
    how: dict[str, Any] = {"image": (32, 48), "unit": unit}
    mean = vitreous.show(model, photo, **how).map
    one = vitreous.show(model, photo, head=1, query=(6, 11), **how).map
    with probabilities(model) as seen:
        model(prepared(photo, model, (32, 48)))
    attention = seen[block].double().numpy()  # (windows, heads, 16, 16)
    module = model.get_submodule(unit)
    assert isinstance(module, WindowAttention)
    places = window_of(8, 12, 4, 2 * block)
    expected, got = np.zeros((8, 12)), np.zeros((8, 12))
    for window, inside in zip(attention, places, strict=True):
        np.add.at(expected, (inside[:, 0], inside[:, 1]), window.mean(0).sum(0) / 96)
        for looking in np.flatnonzero((inside == (6, 11)).all(1)):
            np.add.at(got, (inside[:, 0], inside[:, 1]), window[1, looking])
    assert mean is not None
    assert one is not None
    np.testing.assert_allclose(mean.values, expected, atol=1e-6)
    np.testing.assert_allclose(one.values, got, atol=1e-6)
    assert one.values.sum() == pytest.approx(1)
    assert (one.query_cell, one.query_grid) == ((6, 11), (8, 12))


@torch.no_grad()
def test_a_model_of_your_own_without_a_class_token(photo: Image.Image) -> None:
    """Attention written out in NumPy, from the weights."""
    model = settled(Transformer(Block()))
    declared = {"mean": (0.5,), "std": (0.25,)}
    shown = vitreous.show(model, photo, image=16, preprocessing=declared)
    pixels = shown.pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255
    assert shown.pixels.shape == (16, 16, 3)
    tokens = model.stem((torch.from_numpy(pixels) - 0.5) / 0.25)  # type: ignore[operator]
    block: Any = model.blocks[0]  # type: ignore[index]
    parts = block.attn.split(block.norm1(tokens))
    query, key, _ = (part[0].double().numpy() for part in parts)
    logits = query @ key.transpose(0, 2, 1) / 2.0  # heads of four channels
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert shown.map is not None
    np.testing.assert_allclose(shown.map.values.ravel(), shares.mean((0, 1)), atol=1e-6)
    assert "mean over patches" in shown.map.says
    assert shown.predictions["class"].str.fullmatch(r"class \d").all()


@torch.no_grad()
def test_a_network_without_attention_shows_the_norm_of_its_features(photo: Image.Image) -> None:
    model = settled(Convolutional(Residual(), Residual(stride=2)))
    declared = {"mean": (0.5,), "std": (0.25,)}
    shown = vitreous.show(model, photo, image=16, preprocessing=declared)
    pixels = torch.from_numpy(shown.pixels.transpose(2, 0, 1)[None].copy()).float() / 255
    features = model.blocks(model.stem((pixels - 0.5) / 0.25))  # type: ignore[operator]
    assert shown.map is not None
    assert shown.map.measure == "feature norm"
    np.testing.assert_allclose(shown.map.values, features[0].pow(2).sum(0).sqrt(), rtol=1e-5)
    assert any("No attention" in ax.get_title(loc="left") for ax in shown.figure.axes)
    assert shown.predictions["probability"].sum() == pytest.approx(1)


def test_a_unit_without_attention_is_shown_by_its_features(
    vit: nn.Module, photo: Image.Image
) -> None:
    shown = vitreous.show(vit, photo, image=(48, 64), unit="blocks.1.mlp")
    assert shown.map is not None
    assert shown.map.measure == "feature norm"
    assert shown.map.values.shape == (3, 4)


def test_the_picture_is_sharper_than_what_the_model_gets(photo: Image.Image) -> None:
    """Reduced to the model's size it is the same part of the picture, whatever the framing."""
    smooth = photo.resize((24, 18), Image.Resampling.BICUBIC)
    large = smooth.resize((800, 600), Image.Resampling.BICUBIC)
    for framing in (
        Framing((64, 64)),
        Framing((64, 64), crop=0.8, mode="center"),
        Framing((64, 48), crop=0.8, mode="center"),
        Framing((64, 64), mode="squash"),
        Framing((64, 64), resize=72),
        Framing((64, 64), mode="border", fill=(0.0, 0.0, 0.0)),
    ):
        sharp = _sharper(framing, large)
        times = sharp.shape[1] // framing.size[0]
        assert times > 1, framing
        blocks = sharp.reshape(3, framing.size[0], times, framing.size[1], times).mean((2, 4))
        own = framing(large).astype(np.float64)
        shifted = np.abs(np.roll(own, 4, 2) - own).mean()
        assert np.abs(blocks - own).mean() < 0.15 * shifted, framing


def test_names_of_classes(photo: Image.Image, tmp_path: Path) -> None:
    nano = vitreous.show("nano:vit", photo)
    assert set(nano.predictions["class"]) < {
        "disc", "square", "triangle", "star", "cross", "ring", "heart", "crescent", "arrow",
        "flower",
    }  # fmt: skip
    resnet = vitreous.show("resnet10t", photo, image=32, top=3)
    info = ImageNetInfo("imagenet-1k")
    for row in resnet.predictions.to_dict("records"):
        assert info.index_to_description(row["index"]).startswith(row["class"].split(" (")[0])
    own = [f"kind {number}" for number in range(10)]
    named = vitreous.show("nano:vit", photo, classes=own, top=20)
    assert named.predictions["class"].tolist() == [own[i] for i in named.predictions["index"]]
    assert len(named.predictions) == 10
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=8, id2label={0: "left", 1: "right"}, label2id={"left": 0},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "hf")
    found = vitreous.show(f"hf:{tmp_path / 'hf'}", photo)
    assert set(found.predictions["class"]) == {"left", "right"}


def test_a_backbone_has_no_prediction(photo: Image.Image) -> None:
    """Pooled features are no scores, although they look like some."""
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, depth=1)
    shown = vitreous.show(model, photo, image=32)
    assert len(shown.predictions) == 0
    assert "no prediction" in shown.figure.texts[-1].get_text()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"head": 3}, "head=3 was asked for, and blocks.2.attn has 3 heads, counted from 0"),
        ({"head": "first"}, "head=first was asked for"),
        ({"query": (3, 0)}, "query=3,0 was asked for, and blocks.2.attn has 3 rows and 4 columns"),
        ({"query": (-1, 0)}, "query=-1,0"),
        ({"query": "clas"}, "query=clas was asked for, and blocks.2.attn has no clas token"),
        ({"query": 5}, "query=5 was asked for; it is 'class', 'mean', or row and column"),
        ({"query": (1, 2, 3)}, "it is 'class', 'mean', or row and column of a patch"),
        ({"unit": "blocks.1.atn"}, "There is no unit 'blocks.1.atn'. Did you mean"),
        ({"unit": 3}, "unit=3 was asked for; units go by their names"),
        ({"unit": "head"}, "has neither attention nor a feature map"),
        ({"unit": "blocks.1.mlp", "head": 0}, "has no attention to show. To see it all the same"),
        ({"rollout": True, "head": 1}, "A rollout averages over heads, and head=1"),
        ({"top": 0}, "top=0 was asked for; it is at least one class"),
        ({"preprocessing": {"crop": 2}}, "crop=2 was set"),
    ],
)
def test_what_cannot_be_shown(
    vit: nn.Module, photo: Image.Image, how: dict[str, Any], says: str
) -> None:
    with pytest.raises(VitreousError) as error:
        vitreous.show(vit, photo, image=(48, 64), **how)
    assert says in str(error.value)


def test_what_a_network_without_attention_cannot_show(photo: Image.Image) -> None:
    model = settled(Convolutional(Residual()))
    for how in ({"rollout": True}, {"head": 1}, {"query": "class"}):
        with pytest.raises(VitreousError, match=r"Convolutional has no attention to show\. To see"):
            vitreous.show(model, photo, image=16, **how)
    with pytest.raises(VitreousError, match="2 models were given; show takes one"):
        vitreous.show(["nano:vit", "nano:resnet"], photo)  # type: ignore[arg-type]


def test_a_model_without_any_map(photo: Image.Image) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 4))
    shown = vitreous.show(model, photo, image=8)
    assert shown.map is None
    assert len(shown.figure.axes) == 2
    assert len(shown.predictions) == 4


@pytest.fixture(scope="module")
def shown(photo: Image.Image) -> Any:
    return vitreous.show("nano:vit", photo, query=(1, 2))


@pytest.mark.parametrize(
    ("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_saved_as_its_name_says(shown: Any, tmp_path: Path, ending: str, begins: bytes) -> None:
    path = shown.save(tmp_path / "new" / f"photo.{ending}", theme="dark")
    assert path.read_bytes().startswith(begins)


def test_other_endings_are_refused(shown: Any, tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=r"cannot be saved as 'photo.gif'; its name ends in"):
        shown.save(tmp_path / "photo.gif")


def test_in_a_notebook(shown: Any) -> None:
    before = plt.get_fignums()
    assert shown._repr_png_().startswith(b"\x89PNG")
    assert plt.get_fignums() == before, "a notebook would draw figures of pyplot a second time"
    assert repr(shown).startswith(
        "Shown(nano:vit: blocks.5.attn, mean of 4 heads, from patch 1, 2,"
    )
    figure, axes = shown.plot()
    assert figure is not shown.figure
    assert len(axes) == 3


def test_the_patch_that_looks_is_framed(shown: Any) -> None:
    [frame] = shown.figure.axes[1].patches
    height, width = shown.picture.shape[:2]
    assert frame.get_xy() == (2 * width / 8 - 0.5, height / 8 - 0.5)
    assert (frame.get_width(), frame.get_height()) == (width / 8, height / 8)


def test_names_with_dollar_signs_are_no_formulas(photo: Image.Image) -> None:
    names = [f"$\\frac{{{number}$ <b>" for number in range(10)]
    vitreous.show("nano:vit", photo, classes=names)._repr_png_()
