"""`vitreous inspect`, and one command for each analysis: options, checks, measuring, the report.

The options are checked before torch is imported, so a mistake is reported within a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Annotated

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.inspect_options import (
    AnalysisOptions,
    InspectOptions,
    MeasureOptions,
    ModelOptions,
    Settings,
    parse_preprocessing,
)
from vitreous.commands.inspect_run import is_first_process, measure_and_write
from vitreous.commands.output_files import (
    check_writable,
    choose_output,
    mark_of_command,
    reserve,
)
from vitreous.commands.terminal import default_file_name
from vitreous.config import assignment
from vitreous.data.dataset_names import check_dataset
from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.report.report_path import check_report_path
from vitreous.storage.file_names import checkpoint_words, shorten_name
from vitreous.validation import check_ranges
from vitreous.weight_pairs import check_weights, pair_weights


def inspect_models(
    models: list[str],
    /,
    *,
    options: Annotated[InspectOptions | None, Parameter(name="*", consume_multiple=True)] = None,
) -> None:
    """Run probes on models in one pass over the images, and write a report.

    Example: vitreous inspect nano:vit nano:resnet --data world:shapes --limit 256 --out report.html

    Your own: vitreous inspect vit_small_patch16_224 --weights last.pth --data photos

    With --deep it also runs the analyses, which need many passes: lesions, curvature, robustness.
    Each of them is also a command.

    Interrupted? It reports what is measured so far; run the same command again and it resumes. On
    several GPUs:
    torchrun --nproc-per-node 4 -m vitreous inspect resnet50 --pretrained --data photos

    Parameters
    ----------
    models
        Names: a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or your own
        as FILE.py:FUNCTION or MODULE:FUNCTION.
    """
    _check_and_run(models, options or InspectOptions())


def analysis_command(name: str) -> Callable[..., None]:
    """Return the command that runs one analysis."""

    def command(
        models: list[str],
        /,
        *,
        options: Annotated[
            AnalysisOptions | None, Parameter(name="*", consume_multiple=True)
        ] = None,
    ) -> None:
        """Run one analysis.

        Parameters
        ----------
        models
            Names: a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or your
            own as FILE.py:FUNCTION or MODULE:FUNCTION.
        """
        _check_and_run(models, options or AnalysisOptions(), name)

    return command


def analysis_help(name: str) -> str:
    """Return the help text of an analysis' command, with the options that `--set` takes.

    The name is that of an analysis, or a reference to a plugin, `file.py:Class`. Its file is
    parsed, so this is called only for the command that is run.
    """
    choices = [
        f"    {option}={default}\n        {says}"
        for option, (default, says) in analyses.analysis_options(name).items()
    ]
    return "\n\n".join([
        analyses.summary(name),
        f"Example: vitreous {name} nano:vit nano:resnet --data world:shapes --out report.html",
        "Interrupted? Run the same command again: it resumes.",
        *(["Options, given with --set NAME=VALUE:", *choices] if choices else []),
    ])  # fmt: skip


def parse_settings(
    options: InspectOptions | AnalysisOptions, analysis: str = ""
) -> tuple[Settings, Settings]:
    """Return the probes and the analyses to run, each with its options from `--set`.

    `analysis` is the name of the command if it is that of one analysis. Looking plugins up runs
    their files.
    """
    probe_names: Sequence[str] = ()
    analysis_names: Sequence[str] = (analysis,)
    if isinstance(options, InspectOptions):
        probe_names = options.probes or probes.own_names()
        analysis_names = options.analyses or (analyses.own_names() if options.deep else ())
    probe_settings: Settings = {probes.REGISTRY.resolve(name): {} for name in probe_names}
    analysis_settings: Settings = {analyses.REGISTRY.resolve(name): {} for name in analysis_names}
    if analysis:
        [analysis] = analysis_settings
    for text in options.set:
        key, value = assignment(text)
        name, dot, option = key.rpartition(".")
        name = name if dot else analysis
        if name in probe_settings:
            target = probe_settings[name]
        elif name in analysis_settings:
            target = analysis_settings[name]
        elif name in analyses.names():
            raise VitreousError(
                f"--set gives an option of {name}, which is not run; add --deep, or "
                f"--analyses {name}."
            )
        else:
            hint = "--set takes MEASUREMENT.OPTION=VALUE, for example lesion.what=skips."
            chosen = [*probe_settings, *analysis_settings]
            raise UnknownName("measurement", name or key, chosen, hint)
        target[option] = tuple(value) if isinstance(value, list) else value
    return probe_settings, analysis_settings


def default_report_name(options: MeasureOptions, models: Sequence[str], analysis: str = "") -> str:
    """Return the name of a report: the command, the models, and the checkpoints of one model."""
    ending = ".html"
    if len(models) == 1 and options.weights:
        pairs = pair_weights(models, options.weights)
        stems = [checkpoint_words(each.weights or "") for each in pairs]
        shown = stems if len(stems) <= 3 else [stems[0], f"and-{len(stems) - 1}-more"]
        ending = f"-{shorten_name('-'.join(shown), 80)}.html"
    return default_file_name(analysis or "inspect", models, ending)


def _check_and_run(
    models: Sequence[str], options: InspectOptions | AnalysisOptions, analysis: str = ""
) -> None:
    """Check everything that needs no model, then measure and write the report."""
    check_inputs(models, options)
    if options.book:
        from vitreous.claims import use_books  # numpy comes with it

        use_books(options.book)
    settings = parse_settings(options, analysis)
    analysis = next(iter(settings[1])) if analysis else ""
    default = default_report_name(options, models, analysis)
    mark = mark_of_command(analysis or "inspect", models, vars(options))
    output = choose_output(options.out, default, mark)
    check_report_path(output.path)
    check_writable(output.path, options.figures, options.results)
    # Of the processes that torchrun started, only the first writes.
    with reserve(output) if is_first_process() else nullcontext(output.partial) as keep:
        measure_and_write(models, options, *settings, output, keep)


def check_inputs(models: Sequence[str], options: ModelOptions) -> None:
    """Raise for wrong models, weights, images or preprocessing, before torch is imported."""
    check_ranges(**vars(options))
    model_names.check_models(models)
    check_weights(pair_weights(models, options.weights))
    check_dataset(options.data, options.split)
    parse_preprocessing(options)
    if options.classes is not None and not options.classes.expanduser().is_file():
        raise NoSuchPath("file", str(options.classes), "of class names")
