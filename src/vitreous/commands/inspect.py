"""`vitreous inspect`, and one command for each analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from vitreous.commands import request
from vitreous.commands.options import Alone, Options
from vitreous.commands.terminal import console
from vitreous.measure import analyses


def inspect(
    models: list[str],
    /,
    *,
    options: Annotated[Options | None, Parameter(name="*", consume_multiple=True)] = None,
) -> None:
    """Look inside models: ask everything in one pass over images, and write the report.

    Example: vitreous inspect nano:vit nano:resnet --data world:shapes --limit 256 --out report.html

    With --deep also what needs many passes: lesions, curvature, robustness; each is a command of its own, too.

    Interrupted? What was measured is reported; run the same command again and it resumes. On several GPUs:
    torchrun --nproc-per-node 4 -m vitreous inspect vit_base_patch16_224 --pretrained --data folder:photos

    Parameters
    ----------
    models
        Names: timm's as they are, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, or MODULE:FUNCTION of your own.
    """
    chosen = options or Options()
    request.check(models, chosen)
    from vitreous.commands.inspecting import run

    run(models, chosen, console())


def analysis(name: str) -> Callable[..., None]:
    """The command of one analysis."""

    def command(
        models: list[str],
        /,
        *,
        options: Annotated[Alone | None, Parameter(name="*", consume_multiple=True)] = None,
    ) -> None:
        chosen = options or Alone()
        request.check(models, chosen, name)
        from vitreous.commands.inspecting import run

        run(models, chosen, console(), only=name)

    return command


def analysis_help(name: str) -> str:
    """The whole help of such a command; parsing its options takes as long as everything else, so only when asked."""
    choices = [
        f"    {option}={default}\n        {says}"
        for option, (default, says) in analyses.options(name).items()
    ]
    return "\n\n".join([
        analyses.summary(name),
        f"Example: vitreous {name} nano:vit nano:resnet --data world:shapes --out {name}.html",
        "Interrupted? Run the same command again: it resumes.",
        *(["What can be set, with --set NAME=VALUE:", *choices] if choices else []),
    ])  # fmt: skip
