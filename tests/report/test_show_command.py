"""`vitreous show` on the command line, and what its picture says: names, scale, tiny photos."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous
from data.pictures import noise
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.measure.photo_map import PhotoMap
from vitreous.report.photo_figure import colour_limits, describe_shares


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    return Image.fromarray(noise(1, 90, 120, 5)[0])


@pytest.mark.parametrize(
    ("options", "query", "possible"),
    [
        ({}, "clas", "query=class, query=mean or query=4,4 for one patch"),
        ({"pool": "gap"}, "class", "query=mean or query=4,4 for one patch"),
    ],
)
def test_a_token_that_there_is_not(options: dict[str, str], query: str, possible: str) -> None:
    model = vitreous.build("vit_nano", **options)
    with pytest.raises(VitreousError, match=rf"has no {query} token; it can be {possible}\.$"):
        vitreous.show(model, Image.new("RGB", (32, 32)), query=query)


def test_the_picture_names_checkpoint_and_photo(photo: Image.Image, tmp_path: Path) -> None:
    """In any script, also where no font has its characters: without a warning."""
    torch.save(vitreous.build("vit_nano", classes=3).state_dict(), tmp_path / "epoch=3.ckpt")
    photo.save(tmp_path / "日本 spät.png")
    shown = vitreous.show("vit_nano", tmp_path / "日本 spät.png", weights=tmp_path / "epoch=3.ckpt")
    texts = [text.get_text() for text in shown.figure.texts]
    assert texts[0] == "vit_nano (epoch=3.ckpt)"
    assert shown.figure.axes[0].get_title(loc="left") == "日本 spät.png"
    assert shown.save(tmp_path / "shown.png").is_file()
    assert shown.title == "vit_nano (epoch=3.ckpt)"
    assert vitreous.show("nano:vit", photo).figure.axes[0].get_title(loc="left") == "Picture"


def uniform_map(spread: float, count: int = 12) -> PhotoMap:
    """Shares that differ from uniform by a part, up and down, in a chequered pattern."""
    sign = np.indices((count, count)).sum(0) % 2 * 2 - 1
    return PhotoMap((1 + spread * sign) / count**2, "attention", "blocks.0.attn", "")


@pytest.mark.parametrize("spread", [0.05, 0.14, 0.3, 0.55])
def test_nearly_uniform_attention_shows_its_structure(spread: float) -> None:
    """The colours of the smallest and the largest share are the ends of the ramp, and it is
    said."""
    found = uniform_map(spread)
    scale = colour_limits(found)
    assert scale(found.values.min()) == pytest.approx(0, abs=1e-9)
    assert scale(found.values.max()) == pytest.approx(1)
    if spread < 0.33:  # the largest is less than twice the smallest
        low, high = 100 * (1 - spread) / 144, 100 * (1 + spread) / 144
        assert describe_shares(found.values) == (
            f"Nearly uniform: {low:.3f} to {high:.3f} % a patch; uniform is 0.694 %."
        )


def test_attention_with_a_peak_begins_at_zero() -> None:
    peaked = uniform_map(0.1)
    peaked.values[3, 4] *= 9
    peaked.values[5] *= 7
    assert colour_limits(peaked).vmin == 0
    assert describe_shares(peaked.values).startswith("Largest share of a patch: ")


def test_rounding_errors_span_few_colours() -> None:
    scale = colour_limits(uniform_map(1e-6))
    assert np.abs(scale(uniform_map(1e-6).values) - 0.5).max() < 1e-3
    silent = colour_limits(PhotoMap(np.zeros((3, 3)), "attention", "a", ""))
    assert np.isfinite(silent(np.zeros(3))).all()


@pytest.mark.parametrize(("side", "times"), [(1, 32), (3, 11), (4, 0), (32, 0), (300, 0)])
def test_a_note_says_that_a_tiny_photo_is_enlarged(side: int, times: int) -> None:
    shown = vitreous.show("nano:vit", Image.new("RGB", (side, 2 * side)))
    sentence = (
        f"The photo has {side}×{2 * side} pixels and is enlarged {times} times for the model."
    )
    assert shown.enlarged == (sentence if times else "")
    assert (sentence in shown.figure.texts[1].get_text().replace("\n", " ")) == bool(times)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["show", *words])
    said = capsys.readouterr()
    return int(end.value.code or 0), " ".join((said.out + said.err).split())


def test_the_command(
    photo: Image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    photo.save("my photo.png")
    Path("names.json").write_text(json.dumps([f"kind {number}" for number in range(10)]))
    code, said = run(
        capsys, "nano:vit", "my photo.png", "--unit", "blocks.1.attn", "--head", "1", "--query",
        "3,4", "--mean", "0.5", "--std", "0.25", "--crop", "0.9", "--classes", "names.json",
    )  # fmt: skip
    assert code == 0
    assert "nano:vit: blocks.1.attn, head 1 of 4, from patch 3, 4" in said
    assert "mean 0.5 0.5 0.5, std 0.25 0.25 0.25 (you)" in said
    assert "kind " in said
    assert "Wrote show-nano-vit-my-photo.png" in said
    assert Path("show-nano-vit-my-photo.png").is_file()
    assert "no names" not in said


def test_pictures_of_other_checkpoints_and_photos_have_other_names(
    photo: Image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("epoch=3", "epoch=9"):
        torch.save(vitreous.build("vit_nano", classes=3).state_dict(), f"{name}.ckpt")
    for name in ("東京", "大阪"):
        photo.save(f"{name}.png")
    tokyo = ["vit_nano", "東京.png", "--weights", "epoch=3.ckpt"]
    code, said = run(capsys, *tokyo)
    assert (code, "Wrote show-vit_nano-epoch=3-東京.png" in said) == (0, True)
    assert "Weights: " in said
    assert "The classes have no names; --classes FILE gives them, one a line." in said
    assert "show-vit_nano-epoch=9-東京.png" in run(capsys, *tokyo[:3], "epoch=9.ckpt")[1]
    assert "Wrote show-vit_nano-大阪.png" in run(capsys, "vit_nano", "大阪.png")[1]
    assert "Replaced show-vit_nano-epoch=3-東京.png" in run(capsys, *tokyo)[1]
    assert "Wrote show-vit_nano-epoch=3-東京-2.png" in run(capsys, *tokyo, "--rollout")[1]
    assert len([*tmp_path.glob("show-*")]) == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nano:vti", "photo.png"], "There is no bundled model 'nano:vti'. Did you mean nano:vit"),
        (["nano:vit", "none.png"], "There is no picture 'none.png'."),
        (["nano:vit", "photo.png", "--head", "one"], "--head one was asked for; it is the number"),
        (["nano:vit", "photo.png", "--query", "9,1"], "--query 9,1 was asked for"),
        (["nano:vit", "photo.png", "--out", "a.gif"], "A picture cannot be saved as 'a.gif'"),
        (["nano:vit", "photo.png", "--weights", "no.pth"], "no.pth"),
        (
            ["vit_nano", "photo.png", "--weights", "a.pth", "b.pth"],
            "show takes one checkpoint, and 2 were given: a.pth, b.pth",
        ),
        (["nano:vit", "foto.png"], "There is no picture 'foto.png'. Did you mean photo.png?"),
        (["nano:vit", "."], "'.' is a folder; give one picture, such as 'photo.png'."),
        (["nano:vit", "photo.png", "--weights", "photo.png"], "is a picture and not a checkpoint"),
        (["nano:vit", "photo.png", "--out", "photo.png/a.png"], "'photo.png' is a file, not a"),
    ],
)
def test_mistakes_on_the_command_line(
    words: list[str], says: str, photo: Image.Image, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    photo.save("photo.png")
    code, said = run(capsys, *words)
    assert code == 2
    assert says in said
