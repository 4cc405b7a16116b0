"""Write `gallery/index.md` and its figures, drawn from the evidence of the reproduction.

    python docs/generate_gallery.py
    python docs/generate_gallery.py cka hessian

The figures show seed 0 of ViT-Ti/4 and ResNet-18, which are `zoo:vit_ti_4` and `zoo:resnet_18`. The
numbers are in `results/`, so nothing is measured here and no images are needed; the command under
each figure measures them again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from generate_verdicts import archives
from PIL import Image

from vitreous import claims
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import judge
from vitreous.palette import PAPERS
from vitreous.report.forest import forest
from vitreous.results import Result
from vitreous.results.charts import chart_png

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "gallery"
LARGEST = 150_000
"""Bytes of a figure."""
NAMES = {"vit": "zoo:vit_ti_4", "resnet": "zoo:resnet_18"}
BOTH = ("vit", "resnet")
DATA = "--data tv:CIFAR10"


@dataclass(frozen=True)
class Figure:
    """A figure of the gallery: which view of which result, what it shows, how it is made."""

    result: str
    title: str
    text: str
    page: str
    models: tuple[str, ...] = BOTH
    view: int = 0
    checkpoint: str = ""
    command: str = ""


FIGURES = (
    Figure(
        "cka",
        "Which layers are similar",
        "CKA of all pairs of layers. The layers of the ViT change gradually and resemble each "
        "other; the ResNet falls into groups of layers, its stages.",
        "reference/probes/cka",
    ),
    Figure(
        "attention_distance",
        "How far heads attend",
        "Each point is one of the 36 heads. In the first four blocks some heads attend over 8 "
        "pixels and others over the whole image; from the middle on nearly all attend to the "
        "whole image.",
        "reference/probes/attention_distance",
        models=("vit",),
    ),
    Figure(
        "fourier",
        "Which frequencies feature maps have",
        "Amplitude by frequency, relative to that of the mean; each line is a unit. The deeper "
        "the unit of the ViT, the smoother its map. The early maps of the ResNet are finer and "
        "steeper.",
        "reference/probes/fourier",
    ),
    Figure(
        "variance",
        "What units do to the variance",
        "Variance of feature maps, by depth. It grows through the whole ViT. In the ResNet it "
        "grows within stages; of the three sub-samplings between stages two lower it again.",
        "reference/probes/variance",
    ),
    Figure(
        "position_similarity",
        "What position embeddings have learned",
        "Each tile compares one learned position embedding with all others. Rows, columns and "
        "the distance on the grid are learned: nothing in the architecture says that patches "
        "form a grid.",
        "reference/probes/position_similarity",
        models=("vit",),
    ),
    Figure(
        "filters",
        "First-layer filters",
        "The leading principal components of the patch embedding (4×4 pixels) and of the first "
        "convolution (3×3).",
        "reference/probes/filters",
    ),
    Figure(
        "skip_ratio",
        "Skip or branch",
        "Norm of the skip relative to that of the branch. The first attention unit of the ViT "
        "writes the class token; later units change tokens little, less than those of the "
        "ResNet do.",
        "reference/probes/skip_ratio",
    ),
    Figure(
        "erf",
        "Effective receptive fields",
        "Mean gradient of the centre position with respect to the image. In the ViT it covers "
        "the whole image after the first block.",
        "reference/analyses/erf",
        view=1,
        command="vitreous erf {models} {data} --limit 64",
    ),
    Figure(
        "lesion",
        "Which units matter",
        "Drop in accuracy when one convolution is removed from the trained ResNet: up to 82 "
        "points in the first three stages, at most 8 in the last.",
        "reference/analyses/lesion",
        models=("resnet",),
        command="vitreous lesion {models} {data} --set what=convolutions",
    ),
    Figure(
        "linear_probe",
        "Where the class becomes linearly readable",
        "Test accuracy of a linear classifier on the features of every unit. In the second half "
        "of the ViT the class token knows more than the mean over positions.",
        "reference/analyses/linear_probe",
        command="vitreous linear_probe {models} {data}",
    ),
    Figure(
        "hessian",
        "Curvature after warm-up",
        "Density of the five largest Hessian eigenvalues (by size) of 40 batches. The ViT has "
        "many negative ones; those of the ResNet are all positive and several times as large. The "
        "weights after warm-up are not in the repository: train both first, with `--recipe "
        "hdv_cifar --out runs/vit` and `--out runs/resnet`.",
        "reference/analyses/hessian",
        checkpoint="warmup",
        command="vitreous hessian run:runs/vit@warmup run:runs/resnet@warmup {data} "
        "--set stream=augmented --set recipe=hdv_cifar",
    ),
    Figure(
        "landscape",
        "The loss around the trained weights",
        "Training loss on a plane through the trained weights, along two random "
        "filter-normalised directions. The ViT's rises less.",
        "reference/analyses/landscape",
        command="vitreous landscape {models} {data} --set stream=augmented --set recipe=hdv_cifar",
    ),
    Figure(
        "corruption",
        "Robustness to corruptions",
        "Accuracy under nineteen corruptions, by kind and severity. Noise harms both models most.",
        "reference/analyses/corruption",
        command="vitreous corruption {models} {data}",
    ),
    Figure(
        "occlusion",
        "How much of the image can be missing",
        "Accuracy with a share of the patches masked at random, for three patch sizes. With "
        "large patches missing, the ViT keeps more of its accuracy.",
        "reference/analyses/occlusion",
        command="vitreous occlusion {models} {data}",
    ),
)

HEAD = """# Gallery

Figures of two models trained for [the reproduction](../explanation/reproduction.md) with the recipe
of Park & Kim (2022): ViT-Ti/4 and ResNet-18 on CIFAR-10, seed 0 of three. Both models are in the
repository, as `zoo:vit_ti_4` and `zoo:resnet_18` (install with `pip install -e .`). Each figure
comes with the command that makes it; click a figure for its definition, options and pitfalls.

"""
FOREST = """## The reproduction in one picture

```{{figure}} verdicts.svg
:alt: Forest plot of {count} main effects, grouped by verdict
:class: on-paper
:target: ../explanation/reproduction.html

The main effect of each of {count} findings with its 95 % interval: 0 is no effect, 1 is the paper's
value or, where the paper has none, the smallest effect that matters. Open marks have neither.
```

```text
$ vitreous study zoo --data tv:CIFAR10 --scale reproduction --seeds 3 --out study
$ vitreous claims judge study --out verdicts.html
```
"""


def evidence(folder: Path) -> dict[tuple[str, str, str], Path]:
    """Model, checkpoint and name of each result of seed 0: the file it is in."""
    found: dict[tuple[str, str, str], Path] = {}
    for index in sorted(folder.glob("exhibits/*/exhibit.json")):
        facts = json.loads(index.read_text(encoding="utf-8"))["facts"]
        checkpoint = facts.get("checkpoint", facts.get("moment", ""))  # the older word
        if facts["seed"] == 0 and "measured" not in facts:
            for path in index.parent.glob("*.json"):
                found[facts["model"], checkpoint, path.stem] = path
    return found


def under_name(result: Result, name: str) -> Result:
    """The result with its model under another name."""
    (old,) = set(result.table["model"])
    table = result.table.assign(model=name)
    for column in ("other_model", "pair"):
        if column in table:
            table[column] = table[column].str.replace(old, name, regex=False)
    about = {key: _renamed(value, old, name) for key, value in result.about.items()}
    return replace(result, table=table, about=about)


def _renamed(value: Any, old: str, name: str) -> Any:
    if isinstance(value, Mapping):
        return {name if key == old else key: each for key, each in value.items()}
    return value


def load(figure: Figure, files: dict[tuple[str, str, str], Path]) -> Result:
    """The results of the figure's models as one."""
    suffix = f"@{figure.checkpoint}" if figure.checkpoint else ""
    results = []
    for model in figure.models:
        stored = Result.load(files[model, figure.checkpoint, figure.result])
        results.append(under_name(stored, NAMES[model] + suffix))
    first = results[0]  # versions of a day apart describe the same columns in other words
    return Result.join([replace(each, columns=first.columns) for each in results])


def draw(figure: Figure, result: Result) -> None:
    """Save as SVG, or as WebP where that is too large."""
    path = result.figure(FOLDER / f"{figure.result}.svg", figure.view)
    if path.stat().st_size > LARGEST:  # marks repeat every number for screen readers
        path.write_text(re.sub(r' aria-[a-z]+="[^"]*"', "", path.read_text()))
    if path.stat().st_size > LARGEST:
        path.unlink()
        path = path.with_suffix(".webp")
        picture = Image.open(BytesIO(chart_png(result.chart(figure.view), 2.0)))
        picture.convert("RGB").save(path, quality=80, method=6)
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} kB{', too large' if size > LARGEST else ''}")


def draw_verdicts(folder: Path) -> None:
    """The forest plot, with colours of its own: the report's style sheet is not there."""
    drawn = forest(judge(load_evidence(folder), claims.every_claim()))
    ink, paper = PAPERS["light"]
    style = (
        f"svg{{background:{paper};font:11px system-ui,sans-serif;fill:{ink}}}"
        ".grid{stroke:#ddd}.nothing{stroke:#555}.paper{stroke:#555;stroke-dasharray:3 3}"
        f".interval{{stroke:{ink};stroke-width:1.5;fill:none}}.point{{fill:#1f5fbf}}"
        f".open{{fill:{paper};stroke:#1f5fbf;stroke-width:1.5}}.group{{font-weight:600}}"
        ".hit{fill:none}.outcome-opposite .point{fill:#b3261e}.outcome-no-effect .point{fill:#777}"
        ".outcome-weaker .point{fill:#b26a00}.outcome-holds-untrained .point{fill:#777}"
    )
    drawn = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    drawn = re.sub(r"(<svg[^>]*>)", rf"\1<style>{style}</style>", drawn, count=1)
    (FOLDER / "verdicts.svg").write_text(drawn, encoding="utf-8")
    print(f"verdicts.svg: {len(drawn) / 1000:.0f} kB")


def command(figure: Figure) -> str:
    """The command that measures what the figure shows."""
    models = " ".join(NAMES[model] for model in figure.models)
    text = figure.command or f"vitreous inspect {{models}} {{data}} --probes {figure.result}"
    text = text.format(models=models, data=DATA)
    words, lines = text.split(" --"), []
    lines.append(words[0])
    for option in words[1:]:
        if len(lines[-1]) + len(option) > 78:
            lines.append(f"    --{option}")
        else:
            lines[-1] += f" --{option}"
    return " \\\n".join(lines)


def section(figure: Figure) -> str:
    """A heading, the figure, and its command."""
    (picture,) = FOLDER.glob(f"{figure.result}.*")
    models = ", ".join(NAMES[model] for model in figure.models)
    return (
        f"## {figure.title}\n\n"
        f"```{{figure}} {picture.name}\n:alt: {figure.title}: {models}\n"
        f":class: on-paper\n:target: ../{figure.page}.html\n\n{figure.text}\n```\n\n"
        f"```text\n$ {command(figure)}\n```\n"
    )


def page() -> str:
    drawn = (FOLDER / "verdicts.svg").read_text(encoding="utf-8")
    count = re.search(r"Main effects of (\d+) claims", drawn)
    assert count is not None
    return HEAD + "\n".join([*map(section, FIGURES), FOREST.format(count=count[1])])


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for archive in archives("cifar10-reproduction"):
            ZipFile(archive).extractall(folder)
        files = evidence(Path(folder))
        for figure in FIGURES:
            if not names or figure.result in names:
                draw(figure, load(figure, files))
        if not names or "verdicts" in names:
            draw_verdicts(Path(folder))
    (FOLDER / "index.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
