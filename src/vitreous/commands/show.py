"""`vitreous show`: a photo, what a model attends to in it, and what the model calls it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.output_files import check_writable, choose_output, mark_of_command
from vitreous.commands.terminal import ImageOption, console, default_file_name
from vitreous.data.sources.paths import check_picture
from vitreous.errors import VitreousError
from vitreous.report.report_path import check_figure_path
from vitreous.storage.file_names import checkpoint_words, file_words
from vitreous.validation import check_ranges
from vitreous.weight_pairs import check_weights, pair_weights

if TYPE_CHECKING:
    from vitreous.report.show import Shown


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """The options of `show`.

    Parameters
    ----------
    unit
        The unit to show, as `vitreous anatomy` names it (default: the last with attention, else
        the last with a feature map).
    head
        Number of a head, or mean (default: mean).
    query
        What attends: class, row and column of a patch (3,4), or mean over all patches (default:
        class if the model has a class token, else mean).
    rollout
        Multiply attention through all layers up to the unit, skips included.
    top
        Number of classes to list (default: 5).
    image
        Size of the model's images: a side (224), 224x160 or 3x224x160 (default: the model's own).
    pretrained
        Load the published weights (default: random weights).
    weights
        Checkpoint to load (.safetensors, .pth, .pt, .bin, .ckpt, a Hugging Face folder).
    mean
        Mean of the channels in [0, 1], one number or one per channel (default: as the model was
        trained).
    std
        Standard deviation of the channels (default: as the model was trained).
    crop
        Share of the resized photo that is kept, as timm's crop_pct (default: as the model was
        trained).
    interpolation
        bilinear, bicubic, nearest, lanczos, box or hamming (default: as the model was trained).
    upright
        Turn the photo as its EXIF data say (default: as torchvision and timm read it).
    classes
        File with the names of the model's classes, one per line or JSON, in the order of its scores
        (default: the model's own, or ImageNet's).
    device
        auto, cpu, cuda or cuda:1 (default: auto).
    seed
        Random seed of random weights (default: 0).
    out
        File to write: .png, .pdf or .svg (default: named after model and photo).
    """

    unit: str | None = None
    head: str = "mean"
    query: str | None = None
    rollout: bool = False
    top: int = 5
    image: ImageOption | None = None
    pretrained: bool = False
    weights: tuple[str, ...] = ()
    mean: tuple[str, ...] = ()
    std: tuple[str, ...] = ()
    crop: float | None = None
    interpolation: str | None = None
    upright: bool = False
    classes: Path | None = None
    device: str = "auto"
    seed: int = 0
    out: Path | None = None


def show_photo(
    model: str,
    photo: Path,
    /,
    *,
    options: Annotated[ShowOptions | None, Parameter(name="*", consume_multiple=True)] = None,
) -> None:
    """Show what a model attends to in a photo, and what it predicts.

    Example: vitreous show nano:vit photo.jpg --out photo.png

    One head and one patch: vitreous show vit_small_patch16_224 photo.jpg --pretrained --unit
    blocks.5.attn --head 2 --query 3,4

    A model without attention is shown by the norm of its features.

    Parameters
    ----------
    model
        A name: a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or your own
        as FILE.py:FUNCTION or MODULE:FUNCTION.
    photo
        The photo.
    """
    chosen = options or ShowOptions()
    check_ranges(**vars(chosen))
    model_names.check_models([model])
    weights = _one_checkpoint(model, chosen.weights)
    check_picture(photo)
    mark = mark_of_command("show", [model, str(photo)], vars(chosen))
    output = choose_output(chosen.out, _default_name(model, weights, photo), mark)
    check_figure_path(output.path)
    check_writable(output.path)
    head, query = _parse_head(chosen.head), _parse_query(chosen.query)
    # torch comes with these, which takes seconds
    from vitreous.measure.preprocessing import choose_preprocessing
    from vitreous.report.show import show

    preprocessing = choose_preprocessing({
        "mean": chosen.mean or None, "std": chosen.std or None, "crop": chosen.crop,
        "interpolation": chosen.interpolation, "upright": chosen.upright,
    })  # fmt: skip
    shown = show(
        model, photo, unit=chosen.unit, head=head, query=query, rollout=chosen.rollout,
        top=chosen.top, image=chosen.image, pretrained=chosen.pretrained,
        weights=weights, preprocessing=preprocessing, classes=chosen.classes,
        device=chosen.device, seed=chosen.seed,
    )  # fmt: skip
    _print(shown)
    shown.save(output.path, mark=mark)
    console().print(output.sentence(), highlight=False, markup=False, soft_wrap=True)


def _one_checkpoint(model: str, weights: tuple[str, ...]) -> str | None:
    """The checkpoint to load, if any; raises for several, and if there is no such file."""
    pairs = pair_weights([model], weights)
    if len(pairs) > 1:
        raise VitreousError(
            f"show takes one checkpoint, and {len(pairs)} were given: {', '.join(weights)}; run it "
            "once for each, or compare them with `vitreous inspect`."
        )
    check_weights(pairs)
    return pairs[0].weights


def _print(shown: Shown) -> None:
    """Print what the map shows, the preprocessing, the weights, warnings and the prediction."""
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if shown.map is not None:
        screen.print(Text(f"{shown.model}: {shown.map.says}"), soft_wrap=True)
    screen.print(Text(f"Image: {shown.preprocessing}", style="dim"), soft_wrap=True)
    if shown.checkpoint is not None:
        style = "yellow" if shown.checkpoint.missing else "dim"
        loaded = Text(f"Weights: {shown.checkpoint.describe()}", style=style)
        screen.print(loaded, soft_wrap=True)
    if shown.enlarged:
        screen.print(Text(shown.enlarged, style="yellow"), soft_wrap=True)
    if shown.warning:
        has_own_weights = shown.model.startswith(("run:", "nano:", "zoo:"))
        needs_weights = shown.weights == "random" and not has_own_weights
        advice = "; add --pretrained or --weights FILE." if needs_weights else "."
        warning = shown.warning.removesuffix(".") + advice
        screen.print(Text(warning, style="yellow"), soft_wrap=True)
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in shown.predictions.to_dict("records"):
        table.add_row(Text(str(row["class"])), f"{row['probability']:.1%}")
    if len(shown.predictions):
        screen.print(table)
        if not shown.named:
            hint = "The classes have no names; --classes FILE gives them, one a line."
            screen.print(Text(hint, style="dim"), soft_wrap=True)


def _default_name(model: str, weights: str | None, photo: Path) -> str:
    parts = [checkpoint_words(weights)] if weights is not None else []
    ending = "-".join([*parts, file_words(photo) or "photo"])
    return default_file_name("show", [model], f"-{ending}.png")


def _parse_head(text: str) -> int | Literal["mean"]:
    if text == "mean":
        return "mean"
    if not text.isdecimal():
        raise VitreousError(f"--head {text} was asked for; it is the number of a head, or mean.")
    return int(text)


def _parse_query(text: str | None) -> str | tuple[int, ...] | None:
    """`3,4` (also `3x4` and `3 4`) as row and column; anything else as the name of a token."""
    numbers = re.fullmatch(r"\s*(\d+)\s*[,x ]\s*(\d+)\s*", text or "")
    return text if numbers is None else (int(numbers[1]), int(numbers[2]))
