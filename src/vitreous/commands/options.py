"""What can be chosen about looking inside. Plain values, no torch: the command line is quick to answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitreous.commands.terminal import ImageOption


@dataclass(frozen=True, kw_only=True)
class Looking:
    """On what, how, and where to: everything but the models and the questions.

    Parameters
    ----------
    data
        folder:PATH, npz:PATH, tv:NAME, hf:NAME or world:TASK; world:shapes if not given.
    limit
        Maximum number of images, class-balanced, or all (default: 512; analyses have their own).
    split
        train, test, val or all. Default: test (an analysis may have its own), and all images of data without splits.
    skip_corrupt
        Leave out files that cannot be decoded.
    image
        Size of the models' images: a side (224), 224x160 or 3x224x160 (default: each model's own).
    pretrained
        Load the published weights; without it they are random.
    batch
        Images at a time; as many as there is memory for if not given.
    device
        auto, cpu, cuda or cuda:1.
    seed
        Random seed (default: 0).
    out
        The report. Default: report.html for inspect, and the name of the command for others: lesion.html.
    figures
        Also every figure (SVG, PDF, PNG) and table (CSV, parquet), into this folder.
    results
        Also the results as `vitreous.Inspection.load` reads them, into this folder.
    also
        Show results of another time, too, of these folders; `nano` comes with the package and has the curvature,
        landscapes and lesions of bundled models.
    role
        What a model is in the words of claims, where its units do not tell: --role run:mine='vit pool=gap'
    """

    data: str = "world:shapes"
    limit: int | Literal["all"] | None = None
    split: str | None = None
    skip_corrupt: bool = False
    image: ImageOption | None = None
    pretrained: bool = False
    batch: int | None = None
    device: str = "auto"
    seed: int = 0
    out: Path | None = None
    figures: Path | None = None
    results: Path | None = None
    also: tuple[str, ...] = ()
    role: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Options(Looking):
    """Also what to ask.

    Parameters
    ----------
    probes
        What to ask, of `vitreous list probes`; everything if not given.
    deep
        Also ask what needs many passes, `vitreous list analyses`: minutes to hours.
    analyses
        Of those only these.
    set
        Options of a question: --set cka.estimator=biased --set lesion.what=skips
    """

    probes: tuple[str, ...] = ()
    deep: bool = False
    analyses: tuple[str, ...] = ()
    set: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Alone(Looking):
    """One question that needs many passes.

    Parameters
    ----------
    set
        Its options: --set NAME=VALUE, as above.
    """

    set: tuple[str, ...] = ()
