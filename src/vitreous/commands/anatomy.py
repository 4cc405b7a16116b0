"""`vitreous anatomy`: open models and show what they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.output_files import named_outputs
from vitreous.commands.terminal import ImageOption, console
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.validation import check_ranges
from vitreous.weight_pairs import check_weights, pair_weights


def show_anatomy(
    models: list[str],
    /,
    *,
    image: ImageOption | None = None,
    pretrained: bool = False,
    weights: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    out: list[Path] | None = None,
    seed: int = 0,
) -> None:
    """Show what models are made of: units, stages, attention, parameters.

    Example: vitreous anatomy vit_tiny_patch16_224 tv:resnet50 --out anatomy.svg

    Parameters
    ----------
    models
        Names: a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or your own
        as FILE.py:FUNCTION or MODULE:FUNCTION.
    image
        Size of the images: a side (224), 224x160 or 3x224x160 (default: the model's own).
    pretrained
        Load the published weights (default: random weights).
    weights
        Checkpoints to load: one for each model, in order; several for one model; or MODEL=FILE.
    out
        Also write a drawing (.svg, .pdf, .png, .html) or the data (.json); may be repeated.
    seed
        Random seed of random weights (default: 0).
    """
    from vitreous.specimen import drawing  # 20 ms that other commands need not spend

    for path in out or ():
        drawing.check_ending(path)
    check_ranges(seed=seed)
    model_names.check_models(models)
    pairs = pair_weights(models, weights)
    check_weights(pairs)
    import torch

    from vitreous.specimen.opening import open as open_model  # torch comes with it

    # A graph is read with thousands of tiny tensors: a second thread made it 17 s, not 3.
    torch.set_num_threads(1)
    screen = console()
    anatomies = []
    for pair in pairs:
        with console(stderr=True).status(f"Opening {pair.label} …"):
            torch.manual_seed(seed)
            specimen = open_model(
                models[pair.index], image=image, pretrained=pretrained, weights=pair.weights
            )
        anatomies.append(replace(specimen.anatomy, model=pair.label))
        screen.print(drawing.table(anatomies[-1], fold=len(pairs) > 1), "")
        if specimen.checkpoint is not None:
            line = f"Weights: {specimen.checkpoint.describe()}"
            screen.print(line, "", highlight=False, markup=False, soft_wrap=True)
    for output in named_outputs(out or ()):
        with explain_write_errors(output.path):
            drawing.save(anatomies, output.path)
        screen.print(output.sentence(), highlight=False, markup=False, soft_wrap=True)
