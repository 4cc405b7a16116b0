"""The command line: thin, and quick to answer, because nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from inspect import signature
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from vitreous import __version__, analyses, judging, names
from vitreous.config import FIELDS
from vitreous.data import naming
from vitreous.errors import VitreousError, for_command_line, reason
from vitreous.files import explained
from vitreous.inspection.options import Alone as AloneOptions
from vitreous.inspection.options import Options as InspectOptions
from vitreous.ranges import check_ranges
from vitreous.report import asking
from vitreous.terminal import ImageOption, console
from vitreous.training.options import Options as TrainOptions

UNFORESEEN = 70
"""Exit code of a fault of ours, which `sysexits.h` calls EX_SOFTWARE."""

app = App(
    name="vitreous",
    help="See through any vision model: open it, look inside, intervene.",
    version=__version__,
    help_format="plaintext",  # markdown would take 0.2 s more to import
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
)
listing = App(name="list", help="What there is to choose from.")
app.command(listing)
app.command(judging.claiming)
app.command(judging.study)


@app.command
def anatomy(
    models: list[str],
    /,
    *,
    image: ImageOption | None = None,
    pretrained: bool = False,
    out: list[Path] | None = None,
    seed: int = 0,
) -> None:
    """Open models and show what they are made of.

    Example: vitreous anatomy vit_tiny_patch16_224 tv:resnet50 --out anatomy.svg

    Parameters
    ----------
    models
        Names: timm's as they are, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, or MODULE:FUNCTION of your own.
    image
        Size of the images: a side (224), 224x160 or 3x224x160 (default: the model's own).
    pretrained
        Load the published weights; without it they are random.
    out
        Also write a drawing (.svg, .pdf, .png, .html) or the data (.json); may be repeated.
    seed
        Random seed of random weights (default: 0).
    """
    from vitreous.specimen import drawing

    for path in out or ():
        drawing.check_ending(path)
    check_ranges(seed=seed)
    names.check_models(models)
    import torch

    import vitreous

    torch.set_num_threads(1)  # a graph is read with thousands of tiny tensors; a second thread made it 17 s, not 3
    screen = console()
    anatomies = []
    for name in models:
        with console(stderr=True).status(f"Opening {name} …"):
            torch.manual_seed(seed)
            anatomies.append(vitreous.open(name, image=image, pretrained=pretrained).anatomy)
        screen.print(drawing.table(anatomies[-1], fold=len(models) > 1), "")
    for path in out or ():
        with explained(path):
            drawing.save(anatomies, path)
        screen.print(f"Wrote {path}", highlight=False)


@app.command
def inspect(
    models: list[str],
    /,
    *,
    options: Annotated[InspectOptions | None, Parameter(name="*", consume_multiple=True)] = None,
) -> None:
    """Look inside models: ask everything in one pass over images, and write the report.

    Example: vitreous inspect nano:vit nano:resnet --data world:shapes --limit 256 --out report.html

    With --deep also what needs many passes: lesions, curvature, robustness; each is a command of its own, too.

    Ctrl-C keeps what was seen, reports it, and the same command goes on from there. On several GPUs:
    torchrun --nproc-per-node 4 -m vitreous inspect vit_base_patch16_224 --pretrained --data folder:photos

    Parameters
    ----------
    models
        Names: timm's as they are, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, or MODULE:FUNCTION of your own.
    """
    chosen = options or InspectOptions()
    asking.check(models, chosen)
    from vitreous.report.command import run

    run(models, chosen, console())


def _analysis(name: str) -> None:
    """A command for one question that needs many passes."""

    def command(
        models: list[str],
        /,
        *,
        options: Annotated[AloneOptions | None, Parameter(name="*", consume_multiple=True)] = None,
    ) -> None:
        chosen = options or AloneOptions()
        asking.check(models, chosen, name)
        from vitreous.report.command import run

        run(models, chosen, console(), only=name)

    app.command(command, name=name, group="Questions that need many passes", help=analyses.summary(name))


def _explain(name: str) -> None:
    """All that the help of such a command says; reading what can be set takes as long as everything else."""
    choices = [f"    {option}={default}\n        {says}" for option, (default, says) in analyses.options(name).items()]
    app[name].help = "\n\n".join([
        analyses.summary(name),
        f"Example: vitreous {name} nano:vit nano:resnet --data world:shapes --out {name}.html",
        "Ctrl-C keeps the pieces that are done, and the same command goes on from there.",
        *(["What can be set, with --set NAME=VALUE:", *choices] if choices else []),
    ])  # fmt: skip


for _name in analyses.names():
    _analysis(_name)


@app.command
def data(
    name: str,
    /,
    *,
    split: str | None = None,
    image: ImageOption | None = None,
    size: int | None = None,
    seed: int = 0,
    skip_corrupt: bool = False,
    root: Path | None = None,
    out: Path | None = None,
) -> None:
    """Look at a set of images: how many, of which classes, and what they look like.

    Example: vitreous data folder:photos --split test --out sheet.png

    Parameters
    ----------
    name
        folder:PATH, npz:PATH, tv:NAME, hf:NAME or world:TASK.
    split
        train, test, val or all. Default: train, and all images of data without splits.
    image
        Size of the images: a side (224) or 224x160 (default: their own if they share one, else 224).
    size
        Maximum number of images, class-balanced.
    seed
        Random seed of what is drawn (default: 0).
    skip_corrupt
        Leave out files that cannot be decoded.
    root
        The folder that holds torchvision's files.
    out
        Also draw a contact sheet: a .png, .jpg or .webp.
    """
    if out is not None and out.suffix not in (".png", ".jpg", ".webp"):
        raise VitreousError(f"A contact sheet ends in .png, .jpg or .webp, and {str(out)!r} does not.")
    check_ranges(size=size, seed=seed)
    naming.check(name, split)
    from vitreous.data import load, sheet, summary

    how: dict[str, Any] = {"image": image, "size": size, "seed": seed, "skip_corrupt": skip_corrupt, "root": root}
    found = load(name, split=split or "train", whole=split is None, **how)
    console().print(summary.table(found))
    if out is not None:
        sheet.save(sheet.sheet(found, seed=seed), out)
        console().print(f"Wrote {out}", highlight=False)


@app.command
def train(model: str, /, *, options: Annotated[TrainOptions | None, Parameter(name="*")] = None) -> None:
    """Train a model and keep its record in a folder that `vitreous` opens again.

    Example: vitreous train vit_nano --data world:shapes --recipe quick --set epochs=4

    The same command goes on with a run that was stopped, however that happened. On several GPUs:
    torchrun --nproc-per-node 4 -m vitreous train resnet_18 --data tv:CIFAR10 --recipe fast

    Parameters
    ----------
    model
        A name: ours (vit_ti/4), timm's, tv:NAME, MODULE:FUNCTION of your own; or run:FOLDER, nano:NAME to go on from
        trained weights.
    """
    chosen = options or TrainOptions()
    chosen.check(model)
    from vitreous.training.command import run

    for trained in run(model, chosen):
        last = trained.records[-1]
        accuracy = f": {1 - last['test_error']:.2%} of the test images right" if "test_error" in last else ""
        console().print(f"{trained.run.folder}{accuracy}", highlight=False, soft_wrap=True)


@app.command
def doctor() -> int:
    """Check the installation: versions, torch and torchvision, device, disk.

    Example: vitreous doctor
    """
    from rich.table import Table

    from vitreous.doctor import examine

    checks = examine()
    table = Table(show_header=False, box=None)
    for check in checks:
        table.add_row("[red]✗[/]" if check.problem else "[green]✓[/]", check.name, check.found)
    console().print(table)
    for check in checks:
        if check.problem:
            _complain(check.problem)
    return int(any(check.problem for check in checks))


@listing.command(name="models")
def list_models(*, filter: str = "*", pretrained: bool = False) -> None:
    """List the models that can be opened by name.

    Example: vitreous list models --filter '*convnext*' --pretrained

    Parameters
    ----------
    filter
        A pattern with * and ?.
    pretrained
        Only those with published weights, each with its tag.
    """
    from vitreous.models import loading

    found = loading.list_models(filter, pretrained)
    if not found:
        raise VitreousError(f"No model is called anything like {filter!r}; a pattern with stars, '*vit*', finds parts.")
    print("\n".join(found))


@listing.command(name="probes")
def list_probes() -> None:
    """List the questions that `inspect` asks.

    Example: vitreous list probes
    """
    from vitreous import probes

    wide = max(map(len, probes.names()))
    print("\n".join(f"{name:{wide}}  {probes.summary(name)}" for name in probes.names()))


@listing.command(name="analyses")
def list_analyses() -> None:
    """List the questions that need many passes, each a command of its own; `inspect --deep` asks them all.

    Example: vitreous list analyses
    """
    wide = max(map(len, analyses.names()))
    print("\n".join(f"{name:{wide}}  {analyses.summary(name)}" for name in analyses.names()))


@listing.command(name="recipes")
def list_recipes() -> None:
    """List the recipes that a model can be trained by, with the row of the catalogue each follows.

    Example: vitreous list recipes
    """
    from vitreous import recipes

    wide = max(map(len, recipes.names()))
    print("\n".join(f"{name:{wide}}  {recipes.summary(name)}" for name in recipes.names()))


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False,
) -> int:
    """Every command goes through here, so that errors look alike: one sentence, exit code 2."""
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value") or 0
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "Interrupted.")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        return _explained(error, tokens)


def _explained(error: Exception, tokens: Sequence[str]) -> int:
    """Say what went wrong; the exit code. What nobody foresaw is a fault of ours, and still one sentence."""
    if isinstance(error, VitreousError):
        _complain(for_command_line(str(error), _options(tokens), FIELDS if tokens[:1] == ("train",) else ()))
        return error.code
    if isinstance(error, CycloptsError):
        _complain(" ".join(str(error).split()))
        return 2
    again = f"`vitreous {' '.join(tokens)} --debug` shows where"
    _complain(f"Vitreous failed: {reason(error).rstrip('.')}. This is a fault of ours, please report it; {again}.")
    return UNFORESEEN


def _options(tokens: Sequence[str]) -> list[str]:
    """Names of the options of the command that was given, as Python spells them."""
    command = tokens[0] if tokens else ""
    kinds = {"inspect": InspectOptions, "train": TrainOptions}
    if command in kinds or command in analyses.names():
        return [each.name for each in fields(kinds.get(command, AloneOptions))]
    known: dict[str, Callable[..., Any]] = {"anatomy": anatomy, "data": data, "study": judging.study}
    return list(signature(known[command]).parameters) if command in known else []


def main(arguments: Sequence[str] | None = None) -> None:
    """The `vitreous` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    asked = next((word for word in given if not word.startswith("-")), "")
    if asked in analyses.names():
        _explain(asked)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may be any bytes
    code: int
    try:
        code = app.meta(given, exit_on_error=False, print_error=False, result_action="return_value") or 0
        sys.stdout.flush()
    except CycloptsError as error:
        _complain(" ".join(str(error).split()))
        code = 2
    except (BrokenPipeError, SystemExit) as end:  # `vitreous list models | head` has seen enough; rich exits with 1
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _complain(sentence: str) -> None:
    console(stderr=True).print(sentence, style="red", highlight=False, markup=False, soft_wrap=True)
