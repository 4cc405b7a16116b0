"""The routes of the explorer: what a page asks and what it gets."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from live.running import Page, page
from vitreous.explorer.session import block_of
from vitreous.explorer.state import Changes, parse_state

__all__ = ["page"]


def unpacked(content: bytes) -> tuple[dict[str, Any], list[NDArray[np.float32]]]:
    """The header of maps, and the numbers of each of them."""
    (length,) = struct.unpack("<I", content[:4])
    header = json.loads(content[4 : 4 + length])
    numbers = np.frombuffer(content, "<f4", offset=4 + length)
    arrays = []
    for each in [*header["models"], *header.get("before", [])]:
        for entry in each:
            rows = entry["prefix"] + entry["keys"][0] * entry["keys"][1]
            arrays.append(numbers[: entry["heads"] * rows].reshape(entry["heads"], rows))
            numbers = numbers[entry["heads"] * rows :]
    assert len(numbers) == 0
    return header, arrays


def test_the_session_describes_models_and_images(page: Page) -> None:
    session = page.get("api/session").json()
    assert [model["name"] for model in session["models"]] == ["nano:vit", "nano:resnet"]
    vit = session["models"][0]
    assert vit["about"] == "0.683 M parameters, 32x32 pixels, weights: trained"
    assert (vit["image"], vit["classes"], vit["tokens"]) == ([32, 32], 10, ["class"])
    attention = vit["units"][3]
    assert attention["name"] == "blocks.1.attn"
    assert attention["block"] == "blocks.1"
    assert attention["edits"] == ["off", "skip", "uniform", "mean", "box"]
    assert len(session["images"]) == 64
    label = page.explorer.data.classes[int(page.explorer.data.labels[5])]
    assert session["images"][5] == {"id": "d5", "label": label, "width": 32, "height": 32}
    assert session["of"] == 70
    assert session["demo"] is True
    assert "fog" in session["corruptions"]


def test_units_of_one_block_share_a_row(page: Page) -> None:
    """Names as timm, torchvision and transformers give them."""
    unit = page.explorer.models[0].subject.specimen.units[0]
    for name, block in (
        ("vit.layers.3.attention", "vit.layers.3"),
        ("encoder.layers.encoder_layer_3.mlp", "encoder.layers.encoder_layer_3"),
        ("features.1.0", "features.1.0"),
        ("features.1.0.block", "features.1.0"),
        ("layers.1.downsample", "layers.1"),
        ("features.denseblock1.denselayer2", "features.denseblock1.denselayer2"),
        ("patch_embed", "patch_embed"),
    ):
        assert block_of(replace(unit, name=name)) == block


def test_images_are_those_of_the_data_set(page: Page) -> None:
    answer = page.get("api/images/d7")
    assert answer.headers["content-type"] == "image/png"
    pixels = np.asarray(Image.open(BytesIO(answer.content)))
    expected = page.explorer.data.images[7].permute(1, 2, 0).numpy()
    assert np.array_equal(pixels, expected)


def test_the_picture_is_what_the_first_model_gets(page: Page) -> None:
    changes = {
        "noise": {"frequency": 0.5, "width": 0.2, "strength": 0.3},
        "boxes": [[0, 0, 1, 0.5]],
    }
    answer = page.post("api/picture", {"image": "d7", "changes": changes})
    pixels = np.asarray(Image.open(BytesIO(answer.content)))
    state = parse_state({"image": "d7", "changes": changes})
    model = page.explorer.models[0]
    wanted = model.pixels(page.explorer.pictures["d7"], state.changes)
    assert np.array_equal(pixels, wanted[0].permute(1, 2, 0).numpy())
    plain = model.pixels(page.explorer.pictures["d7"], Changes())
    assert not torch.equal(wanted, plain)


def test_a_view_has_predictions_before_and_after(page: Page) -> None:
    edits = [{"model": 0, "unit": "blocks.1.attn", "what": "off"}]
    answer = page.post("api/view", {"image": "d3", "edits": edits, "mirror": True}).json()
    vit, resnet = answer["models"]
    images = page.explorer.data.images[3][None]
    for model, found in zip(page.explorer.models, (vit, resnet), strict=True):
        specimen = model.subject.specimen
        before = specimen(model.subject.prepare(images))[0].double().softmax(0)
        assert [row["share"] for row in found["before"]] == before.topk(5).values.tolist()
    edited = page.explorer.models[0].subject.specimen.without("blocks.1.attn")
    after = edited(page.explorer.models[0].subject.prepare(images))[0].double().softmax(0)
    assert [row["share"] for row in vit["after"]] == after.topk(5).values.tolist()
    assert vit["edits"] == [{**edits[0], "mirrored": False}]
    [mirrored] = resnet["edits"]
    assert mirrored["mirrored"] is True
    assert vit["label"]["index"] == page.explorer.data.labels[3]
    assert vit["label"]["after"] == after[vit["label"]["index"]]
    assert [row["after"] for row in vit["classes"]] == sorted(
        (row["after"] for row in vit["classes"]), reverse=True
    )


def test_attention_of_all_layers_and_heads(page: Page) -> None:
    header, arrays = unpacked(
        page.post("api/attention", {"image": "d3", "query": [0.3, 0.9]}).content
    )
    assert [entry["unit"] for entry in header["models"][0]] == [
        f"blocks.{i}.attn" for i in range(6)
    ]
    assert header["models"][1] == []
    model = page.explorer.models[0]
    images = model.subject.prepare(page.explorer.data.images[3][None])
    seen = model.subject.specimen.observe(images, ("attention",))
    for entry, found in zip(header["models"][0], arrays, strict=True):
        attention = seen[entry["unit"]].attention
        assert attention is not None
        assert entry["query"] == [2, 7]
        expected = attention.dense()[0, :, 1 + 2 * 8 + 7]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
        assert entry["scale"] == pytest.approx(float(expected.max()))


def test_an_upload_is_an_image_like_any_other(page: Page) -> None:
    content = page.get("api/images/d4").content
    answer = page.client.post(
        page.url("api/upload"), content=content, headers={"X-Name": "a%20%3Cb%3E.png"}
    ).json()
    assert answer["label"] == "a <b>.png"
    assert (answer["width"], answer["height"]) == (32, 32)
    views = [page.post("api/view", {"image": each}).json() for each in (answer["id"], "d4")]
    assert views[0]["models"][0]["after"] == views[1]["models"][0]["after"]
    assert views[0]["models"][0]["label"] is None
    assert page.get(f"api/images/{answer['id']}").content[:4] == b"\x89PNG"


def test_errors_are_sentences(page: Page) -> None:
    for body, status, words in (
        ({"image": "d99999"}, 404, "There is no image 'd99999'"),
        ({"image": "d3", "edits": [{"unit": "nowhere", "what": "off"}]}, 404, "no unit 'nowhere'"),
        ({"image": "d3", "edits": [{"unit": "head", "what": "on"}]}, 422, "An edit is one of"),
        ({"image": "d3", "query": [2, 0]}, 422, "numbers from 0 to 1"),
        ({}, 422, "name of image"),
    ):
        answer = page.post("api/view", body)
        assert answer.status_code == status
        assert words in answer.json()["error"]
    assert page.post("api/stream", {"image": "d3"}).status_code == 422
