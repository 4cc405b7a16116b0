"""Images have the size that a model was trained or is evaluated at, as its library has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
import torchvision
import transformers
from PIL import Image

import vitreous
from measure.preparing import files, prepared, write_photos
from vitreous.measure.subject import logits
from vitreous.models.weights import mark


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", (288, 288)),  # trained at 224 with crop 0.95, evaluated at 288 with crop 1
        ("resnet18", (224, 224)),
        ("fasternet_t0", (224, 224)),  # evaluated at its own size with another crop
    ],
)
def test_tensors_equal_timms_evaluation(name: str, size: tuple[int, int], photos: Path) -> None:
    """At the size that timm evaluates at, its crop is that of timm's evaluation."""
    model = timm.create_model(name, num_classes=2)
    config = timm.data.resolve_model_data_config(model, use_test_size=True)
    if size != config["input_size"][1:]:
        config = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**config)
    theirs = [transform(Image.open(file).convert("RGB")) for file in files(photos)]
    [ours], setting = prepared({"m": mark(model, "pretrained")}, photos, image=size)
    assert torch.equal(ours, torch.stack(theirs))
    said = setting.subjects[0].describe_preprocessing(setting.data)
    larger = (name, *size) == ("resnet18", 224, 224)
    assert ("(timm, which evaluates these weights at 288x288)" in said) == larger


def test_torchvisions_size_is_that_of_its_transform(tmp_path: Path, photos: Path) -> None:
    """Sixteen of its models are evaluated at other sizes than 224."""
    model = torchvision.models.efficientnet_b1(num_classes=2).eval()
    torch.save(model.state_dict(), tmp_path / "b1.pth")
    transform = torchvision.models.EfficientNet_B1_Weights.DEFAULT.transforms()
    theirs = [transform(Image.open(file).convert("RGB")) for file in files(photos)]
    [ours], setting = prepared("tv:efficientnet_b1", photos, weights=tmp_path / "b1.pth")
    assert setting.subjects[0].specimen.anatomy.image == (3, 240, 240)
    assert torch.equal(ours, torch.stack(theirs))
    tied = torchvision.models.VisionTransformer(64, 16, 1, 2, 32, 64, num_classes=2)
    declared = {"crop_size": 224}  # which it does not take
    tied.trained_with = declared
    assert vitreous.open(tied).anatomy.image == (3, 64, 64)


def test_the_size_of_a_processor_comes_before_the_configurations(
    tmp_path: Path, photos: Path
) -> None:
    """DINOv2's positions are for 518 pixels, and its processor cuts out 224."""
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=70, patch_size=14,
        num_labels=2,
    )  # fmt: skip
    model = transformers.Dinov2ForImageClassification(config).eval()
    crop = {"height": 56, "width": 42}
    processor = transformers.BitImageProcessor(size={"shortest_edge": 64}, crop_size=crop)
    for part in (model, processor):
        part.save_pretrained(tmp_path)
    [ours], setting = prepared(f"hf:{tmp_path}", photos)
    images = [Image.open(file).convert("RGB") for file in files(photos)]
    theirs = torch.stack([processor(i, return_tensors="pt")["pixel_values"][0] for i in images])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        found, scores = setting.subjects[0].specimen(ours), model(theirs).logits
    torch.testing.assert_close(logits(found), scores, rtol=1e-4, atol=1e-5)
