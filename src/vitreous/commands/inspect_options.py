"""The options of `vitreous inspect`, of the commands of single analyses, and of `vitreous live`.

They share a file because the command line looks up inherited types where a class is defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.commands.terminal import ImageOption, LimitOption

if TYPE_CHECKING:
    from vitreous.measure.preprocessing import PreprocessingChoice

Settings = dict[str, dict[str, Any]]
"""The options of each measurement, by its name."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of all commands that show images to models.

    Parameters
    ----------
    data
        Images: a folder, a file, a pattern ('photos/*.jpg'), a .zip or .tar, shards
        ('train-{000..004}.tar'), a .parquet, npz:PATH, tv:NAME, hf:NAME or world:TASK (default:
        world:shapes).
    limit
        Maximum number of images, class-balanced, or all (default: 512).
    split
        train, test, val or all (default: test, or all images of data without splits).
    skip_corrupt
        Leave out files that cannot be decoded.
    image
        Size of the models' images: a side (224), 224x160 or 3x224x160 (default: each model's own).
    pretrained
        Load the published weights (default: random weights).
    weights
        Checkpoints to load (.safetensors, .pth, .pt, .bin, .ckpt, a Hugging Face folder): one for
        each model, in order; several for one model, to compare them; or MODEL=FILE. FILE@KEY
        takes what is nested under KEY. Pickled code is never run.
    mean
        Mean of the channels in [0, 1], one number or one per channel (default: as each model was
        trained).
    std
        Standard deviation of the channels (default: as each model was trained).
    crop
        Share of the resized image that is kept, as timm's crop_pct (default: as each model was
        trained).
    interpolation
        bilinear, bicubic, nearest, lanczos, box or hamming (default: as each model was trained).
    classes
        File with the names of the models' classes, one per line or JSON, in the order of their
        scores (default: labels are matched by class name, ImageNet id or index).
    device
        auto, cpu, cuda or cuda:1 (default: auto).
    seed
        Random seed (default: 0).
    """

    data: str = "world:shapes"
    limit: LimitOption | None = None
    split: str | None = None
    skip_corrupt: bool = False
    image: ImageOption | None = None
    pretrained: bool = False
    weights: tuple[str, ...] = ()
    mean: tuple[str, ...] = ()
    std: tuple[str, ...] = ()
    crop: float | None = None
    interpolation: str | None = None
    classes: Path | None = None
    device: str = "auto"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(ModelOptions):
    """The options that `inspect` and the commands of single analyses share.

    Parameters
    ----------
    limit
        Maximum number of images, class-balanced, or all (default: 512; analyses have their own).
    split
        train, test, val or all (default: test, or all images of data without splits; analyses
        have their own).
    batch
        Batch size (default: as many images as there is memory for).
    out
        The report (default: named after the command and the models, inspect-resnet18.html).
    figures
        Also write every figure (SVG, PDF, PNG) and table (CSV, parquet, LaTeX) to this folder.
    results
        Also save the results to this folder, for `vitreous.Inspection.load`.
    also
        Also show the results saved in these folders; `nano` comes with the package and has the
        curvature, landscapes and lesions of the bundled models.
    role
        Role of a model, so that findings can be judged on it: NAME='vit pool=gap'; may be repeated
        (default: what its run records).
    book
        Also use this book of findings and its probes: FILE.py:NAME or MODULE:NAME; may be repeated.
    """

    batch: int | None = None
    out: Path | None = None
    figures: Path | None = None
    results: Path | None = None
    also: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    book: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InspectOptions(MeasureOptions):
    """The options of `inspect`.

    Parameters
    ----------
    probes
        Probes to run, by name, or your own as FILE.py:NAME or MODULE:NAME (default: all probes of
        Vitreous).
    deep
        Also run all analyses of Vitreous: minutes to hours.
    analyses
        Also run these analyses, by name, or your own as FILE.py:NAME or MODULE:NAME.
    set
        Option of a measurement, MEASUREMENT.OPTION=VALUE; may be repeated.
    """

    probes: tuple[str, ...] = ()
    deep: bool = False
    analyses: tuple[str, ...] = ()
    set: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(MeasureOptions):
    """The options of the command of one analysis.

    Parameters
    ----------
    set
        Option of the analysis, OPTION=VALUE; may be repeated.
    """

    set: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LiveOptions(ModelOptions):
    """The options of `live`.

    Parameters
    ----------
    port
        Port of the page on this machine (default: a free one).
    open
        Open the page in your browser.
    out
        Folder for the reports that you save from the page (default: the current one).
    """

    port: int = 0
    open: bool = False
    out: Path = Path()


def parse_preprocessing(options: ModelOptions) -> PreprocessingChoice:
    """Return the preprocessing that options override; raises for values that no model takes."""
    from vitreous.measure.preprocessing import choose_preprocessing  # Pillow comes with it

    return choose_preprocessing({
        "mean": options.mean or None, "std": options.std or None, "crop": options.crop,
        "interpolation": options.interpolation,
    })  # fmt: skip
