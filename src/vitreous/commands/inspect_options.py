"""The options of `vitreous inspect`, of the commands of single analyses, and what they share with
`vitreous live`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitreous.commands.terminal import ImageOption, LimitOption


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What all commands have in common that show images to models.

    Parameters
    ----------
    data
        A path: a folder, a picture, a pattern ('photos/*.jpg'), a .zip or .tar, shards
        ('train-{000..004}.tar'), a .parquet; or npz:PATH, tv:NAME, hf:NAME, world:TASK (default:
        world:shapes).
    limit
        Maximum number of images, class-balanced, or all (default: 512; analyses have their own).
    split
        train, test, val or all. Default: test (an analysis may have its own), and all images of
        data without splits.
    skip_corrupt
        Leave out files that cannot be decoded.
    image
        Size of the models' images: a side (224), 224x160 or 3x224x160 (default: each model's own).
    pretrained
        Load the published weights; without it they are random.
    weights
        Checkpoints to load (.safetensors, .pth, .pt, .bin, .ckpt, a Hugging Face folder): one for
        each model, in order; several for one model, to compare them; or MODEL=FILE. FILE@KEY
        takes what is nested under KEY. Pickled code is never run.
    mean
        Mean of the channels in [0, 1]: --mean 0.485 0.456 0.406, or one number for all (default:
        as each model was trained; so are std, crop and interpolation).
    std
        Standard deviation of the channels.
    crop
        Share of the resized picture that is kept, timm's crop_pct: 0.875.
    interpolation
        bilinear, bicubic, nearest, lanczos, box or hamming.
    classes
        File with the names of the models' classes, one a line or JSON, in the order of their
        scores, if the names of folders match neither those, nor ImageNet's, nor indices.
    device
        auto, cpu, cuda or cuda:1.
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
    """What `inspect` and the commands of single analyses have in common.

    Parameters
    ----------
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
        What a model is in the words of claims: --role run:mine='vit pool=gap' (default: what its
        run records).
    book
        Also use this book of findings, and its probes: mypkg.module:BOOK or path/file.py:BOOK
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
        Probes to run, by name, or your own as FILE.py:NAME or MODULE:NAME (default: all of
        Vitreous itself; `vitreous list probes` also shows those of installed packages).
    deep
        Also run all analyses of Vitreous itself (`vitreous list analyses`): minutes to hours.
    analyses
        Also run these analyses: names, or your own as FILE.py:NAME or MODULE:NAME.
    set
        Options of a measurement: --set cka.estimator=biased --set lesion.what=skips
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
        Options of the analysis, as listed above: --set NAME=VALUE
    """

    set: tuple[str, ...] = ()
