"""`vitreous live`: a local page where models are clicked, edited and compared."""

from __future__ import annotations

import gc
import os
import webbrowser
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from time import sleep
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vitreous.commands.inspect import check_inputs
from vitreous.commands.inspect_options import LiveOptions, parse_preprocessing
from vitreous.commands.terminal import console
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.weight_pairs import pair_weights

if TYPE_CHECKING:
    from vitreous.explorer.views import Explorer

NEEDED = ("starlette", "uvicorn")
MOST_MODELS = 2


def explore_models(
    models: list[str],
    /,
    *,
    options: Annotated[LiveOptions | None, Parameter(name="*", consume_multiple=True)] = None,
) -> None:
    """Explore one model or two in your browser: click a patch, switch off a block, add noise.

    Example: vitreous live nano:vit nano:resnet --open

    Your own: vitreous live vit_small_patch16_224 --weights last.pth --data photos

    The server listens on this machine only, and its address contains a random token. Ctrl-C stops
    it.

    Parameters
    ----------
    models
        One name or two: a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or
        your own as FILE.py:FUNCTION or MODULE:FUNCTION.
    """
    chosen = options or LiveOptions()
    for package in NEEDED:
        if find_spec(package) is None:
            raise VitreousError(
                f"`vitreous live` needs {package}, which is not installed; "
                "pip install 'vitreous[live]'."
            )
    check_inputs(models, chosen)
    opened = len(pair_weights(models, chosen.weights))
    if opened > MOST_MODELS:
        raise VitreousError(
            f"{opened} models were given; the page has room for {MOST_MODELS}, and `vitreous "
            "inspect` compares more."
        )
    folder = chosen.out.expanduser()
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    from vitreous.explorer.server import bind  # Starlette and uvicorn come with it

    with closing(bind(chosen.port)) as listener:  # first, because models take long to open
        _serve(_open(models, chosen), listener, chosen, folder)


def _open(models: list[str], options: LiveOptions) -> Explorer:
    from vitreous.explorer.opening import open_explorer  # torch comes with it

    same = (
        "split", "skip_corrupt", "image", "pretrained", "weights", "classes", "device", "seed",
    )  # fmt: skip
    return open_explorer(
        models,
        options.data,
        limit=options.limit or 512,
        preprocessing=parse_preprocessing(options),
        **{name: getattr(options, name) for name in same},
    )


def _serve(explorer: Explorer, listener: socket, options: LiveOptions, folder: Path) -> None:
    """Serve the page until Ctrl-C."""
    from vitreous.explorer.server import start  # Starlette and uvicorn come with it

    running = start(explorer, listener, folder=folder)
    gc.collect()
    gc.freeze()  # a collection would walk torch's objects, too, and take a quarter of a second
    screen = console()
    names = " and ".join(each.subject.name for each in explorer.models)
    try:
        screen.print(f"Explore {names} at", highlight=False, markup=False, soft_wrap=True)
        screen.print(running.url, highlight=False, markup=False, soft_wrap=True)
        screen.print(
            "Keep the address to yourself: anyone who knows it can use this page. Ctrl-C stops it.",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
        if options.open:
            webbrowser.open(running.url)
        while running.alive:
            # Not Thread.join: Ctrl-C in it makes Python 3.11 believe that the thread has ended.
            sleep(0.5)
    except KeyboardInterrupt:
        if running.jobs.reporting:
            screen.print("Stopping the report …", markup=False)
        raise KeyboardInterrupt("Stopped.") from None
    finally:
        try:
            running.stop()
        except KeyboardInterrupt:
            # Ctrl-C again: exit at once, because a thread is still computing.
            os._exit(130)
        gc.unfreeze()
