"""Images are prepared as a model was trained: tensors equal timm's, torchvision's and Hugging
Face's own, and so do predictions, image by image."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from PIL import Image
from torch import Tensor, nn

import vitreous
from measure.preparing import by_timm, files, prepared, write_photos
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.measure.preprocessing import choose_preprocessing, model_framing
from vitreous.measure.subject import logits, subjects
from vitreous.model_names import bundled
from vitreous.models.declared import crop_share, declared_training, processor_training
from vitreous.models.loading import load_model


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


def evaluated_by_timm(
    model: nn.Module, top: Path, size: tuple[int, ...], **config: Any
) -> tuple[Tensor, Tensor]:
    """Scores and labels of all files, by timm's dataset and loader, as its validate.py has it."""
    labels = {"a": 0, "b": 1}
    data = timm.data.create_dataset("", root=str(top), class_map=labels)
    loader = timm.data.create_loader(
        data, (3, *size), batch_size=7, use_prefetcher=False, num_workers=0, **config
    )
    with torch.no_grad(), catch_warnings(action="ignore", category=ResourceWarning):
        # timm leaves its files to be closed by the garbage collector
        batches = [(model.eval()(images), labels) for images, labels in loader]
    return torch.cat([scores for scores, _ in batches]), torch.cat([each for _, each in batches])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("vit_tiny_patch16_224", (3, 64, 96)),  # crop 0.9, bicubic, mean 0.5
        ("test_resnet", (3, 224, 160)),  # bilinear, crop 0.95, not square
        ("mobilenetv3_small_050", (3, 96, 128)),  # crop 0.875, not square
        ("convnext_atto", (3, 64, 64)),
    ],
)
def test_tensors_and_predictions_equal_timms(
    name: str, size: tuple[int, ...], photos: Path
) -> None:
    """Image by image, by timm's transform and by its dataset and loader."""
    torch.manual_seed(0)
    more = {"img_size": size[1:], "depth": 2} if name.startswith("vit") else {}
    model = timm.create_model(name, num_classes=2, **more).eval()
    config = timm.data.resolve_data_config({"input_size": size}, model=model)
    assert config["crop_pct"] < 1
    expected = by_timm(model, photos, input_size=size)
    [ours], setting = prepared({"m": model}, photos, image=size)
    assert torch.equal(ours, expected)
    config = {key: config[key] for key in ("mean", "std", "crop_pct", "interpolation")}
    scores, _ = evaluated_by_timm(model, photos, size[1:], **config)
    with torch.no_grad():
        found = logits(setting.subjects[0].specimen(ours))
    assert found is not None
    torch.testing.assert_close(found, scores, rtol=1e-4, atol=1e-5)
    assert torch.equal(found.argmax(1), scores.argmax(1))


def test_your_crop_of_a_model_of_timm(photos: Path) -> None:
    model = timm.create_model("mobilenetv3_small_050", num_classes=2)
    model.trained_with = {"crop_pct": 0.7}
    [ours], _ = prepared({"m": model}, photos, image=224)
    assert torch.equal(ours, by_timm(model, photos, input_size=(3, 224, 224), crop_pct=0.7))


def test_accuracy_equals_timms_on_the_same_files(photos: Path) -> None:
    """Through the whole command, in one inspection with a model of other preprocessing."""
    torch.manual_seed(0)
    models = {
        "vit": timm.create_model("vit_tiny_patch16_224", num_classes=2, img_size=(64, 96), depth=2),
        "cnn": timm.create_model("mobilenetv3_small_050", num_classes=2),
    }
    found = vitreous.inspect(models, f"folder:{photos}", ["accuracy"], image=(64, 96))["accuracy"]
    labels = torch.tensor([int(file.parent.name == "b") for file in files(photos)])
    for name, model in models.items():
        with torch.no_grad():
            scores = model.eval()(by_timm(model, photos, input_size=(3, 64, 96)))
        row = found.table[found.table["overall"] & (found.table["model"] == name)]
        assert row["value"].item() == pytest.approx((scores.argmax(1) == labels).float().mean())
    said = {name: found.about["models"][name]["preprocessing"] for name in models}
    assert said == {
        "vit": "resized to cover 71x106 (bilinear), middle 64x96; mean 0.5 0.5 0.5, "
        "std 0.5 0.5 0.5 (timm)",
        "cnn": "resized to cover 73x109 (bilinear), middle 64x96; mean 0.485 0.456 0.406, "
        "std 0.229 0.224 0.225 (timm)",
    }


def test_two_models_get_the_same_images_as_each_alone(photos: Path) -> None:
    names = ["test_vit", "mobilenetv3_small_050"]
    together, _ = prepared(names, photos, image=64)
    for name, tensor in zip(names, together, strict=True):
        [alone], _ = prepared(name, photos, image=64)
        assert torch.equal(tensor, alone)
    assert not torch.equal(*together)


@pytest.mark.parametrize("name", ["nano:vit", "nano:resnet", "nano:swin"])
def test_bundled_models_get_what_they_were_trained_on(name: str, photos: Path) -> None:
    """Their images are loaded as those of a training."""
    data = vitreous.data.load(f"folder:{photos}", split="all", image=32)
    [ours], setting = prepared(name, photos)
    subject = setting.subjects[0]
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (subject.mean, subject.std))
    assert torch.equal(ours, (data.images.float() / 255 - mean) / std)


BUNDLED = [f"nano:{name}" for name in bundled() if name != "mixer"]


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, (48, 32)) for name in BUNDLED] + [("nano:vit", (32, 32)), ("nano:resnet", (32, 64))],
)
def test_bundled_models_are_evaluated_as_by_timm(
    name: str, size: tuple[int, int], photos: Path
) -> None:
    """Tensors to the last bit and answers image by image, with a crop and at other shapes."""
    [ours], setting = prepared(name, photos, image=size, preprocessing={"crop": 0.8})
    subject = setting.subjects[0]
    levels = {"mean": subject.mean, "std": subject.std}
    config = {"crop_pct": 0.8, "interpolation": "bicubic", **levels}
    transform = timm.data.create_transform((3, *size), **config)
    theirs = torch.stack([transform(Image.open(file).convert("RGB")) for file in files(photos)])
    assert torch.equal(ours, theirs)
    scores, labels = evaluated_by_timm(load_model(name, image=size), photos, size, **config)
    assert labels.tolist() == [int(file.parent.name == "b") for file in files(photos)]
    with torch.no_grad():
        found = logits(subject.specimen(ours))
    assert found is not None
    torch.testing.assert_close(found, scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.argmax(1), scores.argmax(1))


def test_a_bundled_model_that_is_tied_to_its_size() -> None:
    with pytest.raises(VitreousError, match=r"MlpMixer does not run on images of 3x48x32 .*32x32"):
        subjects("nano:mixer", image=(48, 32))


def test_user_settings_have_priority(photos: Path) -> None:
    model = timm.create_model("mobilenetv3_small_050", num_classes=2)
    choice = {"mean": (0.1, 0.2, 0.3), "std": (0.5,), "crop": 0.7, "interpolation": "lanczos"}
    [ours], setting = prepared({"m": model}, photos, image=64, preprocessing=choice)
    theirs = {"mean": (0.1, 0.2, 0.3), "std": (0.5,), "crop_pct": 0.7, "interpolation": "lanczos"}
    assert torch.equal(ours, by_timm(model, photos, input_size=(3, 64, 64), **theirs))
    assert setting.subjects[0].normalised == "you"


@pytest.mark.parametrize("mode", ["squash", "border", "center"])
def test_crop_modes_are_timms(mode: str, photos: Path) -> None:
    model = timm.create_model("mobilenetv3_small_050", num_classes=2)
    [ours], _ = prepared({"m": model}, photos, image=64, preprocessing={"crop_mode": mode})
    assert torch.equal(ours, by_timm(model, photos, input_size=(3, 64, 64), crop_mode=mode))


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "swin_t", "efficientnet_b1"])
def test_torchvisions_weights_declare_their_transform(name: str, photos: Path) -> None:
    from vitreous.models.declared import torchvision_training

    weights = torchvision.models.get_model_weights(name).DEFAULT
    transform = weights.transforms()
    side = transform.crop_size[0]
    framing = model_framing(torchvision_training(weights), (side, side), choose_preprocessing(None))
    for file in files(photos)[::3]:
        image = Image.open(file).convert("RGB")
        levels = torch.from_numpy(framing(image)).float() / 255
        mean, std = (torch.tensor(each).view(3, 1, 1) for each in (transform.mean, transform.std))
        assert torch.equal((levels - mean) / std, transform(image))


PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {},
    "CLIPImageProcessor": {},
    "DeiTImageProcessor": {"image_mean": [0.1, 0.2, 0.3]},
    "BitImageProcessor": {"size": {"shortest_edge": 61}, "crop_size": {"height": 56, "width": 48}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 224}, "crop_pct": 0.875},
    "MobileViTImageProcessor": {"size": {"shortest_edge": 288}},  # blue, green, red
    "SiglipImageProcessor": {"rescale_factor": 1 / 127.5},
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_processors_of_hugging_face(kind: str, photos: Path) -> None:
    processor = getattr(transformers, kind)(**PROCESSORS[kind])
    declared = processor_training(processor)
    for file in files(photos)[::3]:
        image = Image.open(file).convert("RGB")
        theirs = processor(image, return_tensors="pt")["pixel_values"][0]
        framing = model_framing(declared, tuple(theirs.shape[1:]), choose_preprocessing(None))
        levels = torch.from_numpy(framing(image)).float() / 255
        if declared.get("channel_order") == "bgr":
            levels = levels.flip(0)
        mean, std = (torch.tensor(declared[key]).view(3, 1, 1) for key in ("mean", "std"))
        torch.testing.assert_close((levels - mean) / std, theirs, rtol=1e-5, atol=1e-5)


def test_a_processor_that_leaves_many_shapes(photos: Path) -> None:
    processor = transformers.BitImageProcessor(size={"shortest_edge": 64}, do_center_crop=False)
    framing = model_framing(processor_training(processor), (64, 64), choose_preprocessing(None))
    assert framing.describe() == "shorter side to 64 (bicubic), middle 64x64"
    for file in files(photos)[::3]:
        assert framing(Image.open(file).convert("RGB")).shape == (3, 64, 64)


def test_another_size_than_the_processors(photos: Path) -> None:
    """The same share of the picture, by timm's transform."""
    processor = transformers.BitImageProcessor(
        size={"shortest_edge": 256}, crop_size={"height": 224, "width": 224}
    )
    framing = model_framing(processor_training(processor), (112, 112), choose_preprocessing(None))
    assert framing.describe() == "shorter side to 128 (bicubic), middle 112x112"
    for file in files(photos)[::3]:
        assert framing(Image.open(file).convert("RGB")).shape == (3, 112, 112)


def test_a_share_that_timm_turns_back_into_pixels() -> None:
    for resized in range(32, 600, 7):
        for crop in range(16, resized, 5):
            assert int(np.floor(crop / crop_share(crop, resized))) == resized


def test_a_module_declares_preprocessing_by_an_attribute(photos: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Flatten(), nn.Linear(256, 2))
    model.trained_with = {  # type: ignore[assignment]
        "mean": [0.2] * 3, "std": [0.3] * 3, "crop_pct": 0.8, "interpolation": "bilinear",
        "crop_mode": "squash",
    }  # fmt: skip
    assert declared_training(model)["source"] == "model"
    [ours], _ = prepared({"m": model}, photos, image=64)
    transform = timm.data.create_transform(
        (3, 64, 64), crop_pct=0.8, crop_mode="squash", interpolation="bilinear", mean=(0.2,) * 3,
        std=(0.3,) * 3,
    )  # fmt: skip
    theirs = [transform(Image.open(file).convert("RGB")) for file in files(photos)]
    assert torch.equal(ours, torch.stack(theirs))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"mean": (0.5, 0.5), "std": (1, 1)},
            "mean=0.5,0.5 has 2 numbers, and m takes images of 3",
        ),
        ({"mean": (0.5,) * 3, "std": (1, 1)}, "std=1,1 has 2 numbers, and m takes images of 3"),
        ({"mean": (0.5,) * 4, "std": (0.5,) * 4}, "has 4 numbers, and m takes images of 3"),
        ({"mean": 0.5}, "mean is set without std"),
        ({"std": 0.5}, "std is set without mean"),
        ({"mean": (123.675, 116.28, 103.53), "std": 1}, "divide by 255: mean=0.485,0.456,0.406"),
        ({"mean": 0.5, "std": 0}, "std=0 was set; it takes finite numbers, std above 0"),
        ({"mean": float("nan"), "std": 1}, "mean=nan was set"),
        ({"mean": "half", "std": 1}, "mean takes one number, or one for each channel"),
        ({"mean": (), "std": 1}, "mean takes one number"),
        ({"crop": 87.5}, "crop=87.5 was set; it is the share"),
        ({"crop": 0}, "crop=0 was set"),
        ({"interpolation": "cubic"}, "no interpolation 'cubic'. Did you mean bicubic?"),
        ({"crop_mode": "centre"}, "no crop_mode 'centre'. Did you mean center?"),
        ({"men": 0.5}, "no preprocessing option 'men'. Did you mean mean?"),
        ("bicubic", "preprocessing takes a dict"),
    ],
)
def test_invalid_settings_are_refused(given: Any, sentence: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Flatten(), nn.Linear(256, 2))
    with pytest.raises(VitreousError) as caught:
        subjects({"m": model}, image=64, preprocessing=given)
    assert sentence in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_analyses_use_the_framing_of_each_model(photos: Path) -> None:
    """Two models of other preprocessing get in one analysis what each gets alone."""
    torch.manual_seed(0)
    models = {
        "vit": timm.create_model("vit_tiny_patch16_224", num_classes=2, img_size=64, depth=2),
        "cnn": timm.create_model("mobilenetv3_small_050", num_classes=2),
    }
    how: dict[str, Any] = {"image": 64, "limit": 12, "split": "all"}
    shift = {"frequency_pass": {"cutoffs": (0.5,)}}
    together = vitreous.analyse(models, f"folder:{photos}", shift, **how)["frequency_pass"].table
    for name, model in models.items():
        alone = vitreous.analyse({name: model}, f"folder:{photos}", shift, **how)["frequency_pass"]
        ours = together[together["model"] == name]
        np.testing.assert_array_equal(ours["nll"].to_numpy(), alone.table["nll"].to_numpy())


def test_what_was_done_is_printed_and_in_the_report(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(timm.create_model("test_vit", num_classes=2).state_dict(), "last.pth")
    line = f"inspect test_vit --weights last.pth --data folder:{photos} --probes accuracy"
    line += " --mean 0.5,0.4 0.3 --std 0.2 --crop 0.8 --interpolation bilinear --out report.html"
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert not end.value.code
    said = " ".join(capsys.readouterr().out.split())
    words = (
        "shorter side to 200 (bilinear), middle 160x160; mean 0.5 0.4 0.3, std 0.2 0.2 0.2 (you)"
    )
    assert f"Images: {words}" in said
    assert "tensors (" in said
    page = Path("report.html").read_text()
    assert words in page
    assert "from last.pth" in page


def test_measuring_on_training_images_warns(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All images of a folder without splits include those; --split test takes the others."""
    recipe = vitreous.recipes.named("quick").but(epochs=1, batch=16, warmup=0.0)
    data, test = (
        vitreous.data.load(str(photos), split=split, image=32) for split in ("train", "test")
    )
    vitreous.train("vit_nano", data, recipe, test=test, out=tmp_path / "run", show=False)
    for split, told in (("test", 0), (None, 1)):
        vitreous.inspect(f"run:{tmp_path}/run", str(photos), ["accuracy"], split=split)
        assert caplog.text.count("was trained on images of") == told
