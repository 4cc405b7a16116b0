"""`vitreous inspect`, and one command for each analysis: options, checks, measuring, the report.

The options are checked before torch is imported, so a mistake is reported within a second.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.inspect_options import (
    AnalysisOptions,
    InspectOptions,
    MeasureOptions,
    ModelOptions,
)
from vitreous.commands.output_files import (
    OutputFile,
    check_writable,
    choose_output,
    mark_of_command,
    reserve,
)
from vitreous.commands.terminal import console, default_file_name
from vitreous.config import assignment
from vitreous.data.dataset_names import check_dataset
from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.plugins import BOOK_PROBES
from vitreous.report.path import check_report_path
from vitreous.storage.file_names import checkpoint_words, shorten_name
from vitreous.validation import check_ranges

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection
    from vitreous.measure.preprocessing import PreprocessingChoice
    from vitreous.report.guard import Guard

NANO = Path(__file__).parents[1] / "report" / "nano"
"""Results of the bundled models that take too long to compute on the fly."""
Settings = dict[str, dict[str, Any]]
"""The options of each measurement, by its name."""


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

    The name is that of an analysis, or the place of a plugin, `file.py:Class`.

    Reading these options parses the file of the analysis, so only the command given pays for it.
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
    """Return the probes and the analyses to run, each with the options that `--set` gives it.

    `analysis` is the one that a command of its own runs. Files of plugins are run here.
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


def parse_preprocessing(options: ModelOptions) -> PreprocessingChoice:
    """Return what is set of the preprocessing; raises for what no model could take."""
    from vitreous.measure.preprocessing import choose_preprocessing  # Pillow comes with it

    return choose_preprocessing({
        "mean": options.mean or None, "std": options.std or None, "crop": options.crop,
        "interpolation": options.interpolation,
    })  # fmt: skip


def default_report_name(options: MeasureOptions, models: Sequence[str], analysis: str = "") -> str:
    """Return the name of a report: the command, the models, and the checkpoints of one model."""
    ending = ".html"
    if len(models) == 1 and options.weights:
        pairs = model_names.pair_weights(models, options.weights)
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
    # of the processes that torchrun started, one writes
    with reserve(output) if _is_first() else nullcontext(output.partial) as keep:
        _run(models, options, *settings, output, keep)


def _is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def check_inputs(models: Sequence[str], options: ModelOptions) -> None:
    """Raise for models, weights, images or preprocessing that cannot be, before torch is there."""
    check_ranges(**vars(options))
    model_names.check_models(models)
    model_names.check_weights(model_names.pair_weights(models, options.weights))
    check_dataset(options.data, options.split)
    parse_preprocessing(options)
    if options.classes is not None and not options.classes.expanduser().is_file():
        raise NoSuchPath("file", str(options.classes), "of class names")


def _run(
    models: Sequence[str],
    options: MeasureOptions,
    probe_settings: Settings,
    analysis_settings: Settings,
    output: OutputFile,
    keep: Path,
) -> None:
    """Measure, also what is left of an interrupted run, and write the report."""
    # torch comes with these, which takes seconds
    from vitreous.measure.partial import Interrupted
    from vitreous.measure.summary import nothing_measured
    from vitreous.report.guard import Guard

    stored = [load_inspection(folder) for folder in options.also]
    _check_roles(options, models, stored)
    guard = Guard()
    try:
        inspection = _measure(models, options, probe_settings, analysis_settings, keep)
    except Interrupted as stop:
        if _is_first() and stop.inspection:
            _write(stop.inspection, output, options, guard)
            failures = "\n".join(guard.sentences())
            console().print(failures, style="red", highlight=False, markup=False, soft_wrap=True)
        raise
    if _is_first():
        if not inspection:
            raise nothing_measured(inspection)
        for other in stored:
            inspection = add_stored(inspection, other)
        _write(inspection, output, options, guard)
        shutil.rmtree(keep, ignore_errors=True)
        guard.check()


def _measure(
    models: Sequence[str],
    options: MeasureOptions,
    probe_settings: Settings,
    analysis_settings: Settings,
    keep: Path,
) -> Inspection:
    """Run the probes, then the analyses; `Interrupted` has what both have found so far."""
    from vitreous.measure.engine import analyse, inspect  # torch comes with them
    from vitreous.measure.inspection import Inspection
    from vitreous.measure.partial import Interrupted

    inspection, shared = Inspection({}), _shared_settings(options)
    try:
        if probe_settings:
            given = {"limit": options.limit or 512, "batch": options.batch, **shared}
            inspection = inspect(list(models), options.data, probe_settings, keep=keep, **given)
            inspection.control = _measure_before_training(
                models, options, probe_settings, given, keep
            )
        if analysis_settings and _is_first():
            if options.batch:
                shared["batch"] = options.batch
            inspection |= analyse(
                list(models), options.data, analysis_settings, limit=options.limit,
                keep=keep / "analyses", **shared,
            )  # fmt: skip
    except Interrupted as stop:
        stop.inspection = inspection | (stop.inspection or Inspection({}))
        raise
    return inspection


def _shared_settings(options: MeasureOptions) -> dict[str, Any]:
    """Return what probes and analyses are both given."""
    same = (
        "split", "skip_corrupt", "image", "pretrained", "weights", "classes", "device", "seed",
    )  # fmt: skip
    shared = {name: getattr(options, name) for name in same}
    return {**shared, "preprocessing": parse_preprocessing(options)}


def _measure_before_training(
    models: Sequence[str],
    options: MeasureOptions,
    probe_settings: Settings,
    given: Mapping[str, Any],
    keep: Path,
) -> Inspection | None:
    """Measure the runs among the models before training, as far as verdicts compare with it.

    What an untrained network shows as well is no finding about training. None if there is nothing
    to measure.
    """
    # numpy and torch come with these
    from vitreous.claims.book import REPRESENTATION
    from vitreous.measure.engine import inspect
    from vitreous.measure.partial import Interrupted

    names = [] if options.weights else model_names.before_training(models)
    compared = REPRESENTATION | BOOK_PROBES.keys()
    settings = {name: value for name, value in probe_settings.items() if name in compared}
    if not names or not settings:
        return None
    try:
        return inspect(names, options.data, settings, keep=keep / "control", **given)
    except Interrupted as stop:
        stop.inspection = None  # it is no part of the report
        raise


def load_inspection(folder: str) -> Inspection:
    """Load saved results from a folder; `nano` is the one that comes with the package."""
    from vitreous.measure.inspection import Inspection  # pandas comes with it

    return Inspection.load(NANO if folder == "nano" else folder)


def _check_roles(
    options: MeasureOptions, models: Sequence[str], stored: Sequence[Inspection]
) -> None:
    """Raise if `--role` names a model that is not in the report, before anything is measured."""
    from vitreous.claims import every_book  # numpy comes with it
    from vitreous.claims.facts import parse_roles
    from vitreous.report.models import inspected_models

    every_book()  # whose words roles may be told in

    labels = [each.label for each in model_names.pair_weights(models, options.weights)]
    known = [*labels, *(name for inspection in stored for name in inspected_models(inspection))]
    for name in parse_roles(options.role):
        if name not in known:
            raise UnknownName("model to inspect", name, known, "--role takes NAME=FACTS.")


def add_stored(inspection: Inspection, stored: Inspection) -> Inspection:
    """Return an inspection with the results that only `stored` has.

    The anatomies are those of the first. The models of the second follow in `about["beside"]`, so
    that each model has one colour in the whole report.
    """
    results = dict(inspection)
    for name, result in stored.items():
        if name not in inspection:
            beside = dict.fromkeys([*inspection.anatomies, *result.about.get("beside", [])])
            results[name] = replace(result, about={**result.about, "beside": list(beside)})
    joined = type(inspection)(results, inspection.left_out, inspection.anatomies)
    joined.control = inspection.control
    return joined


def _write(
    inspection: Inspection, output: OutputFile, options: MeasureOptions, guard: Guard
) -> None:
    """Save the results, judge the claims, print the summary and write the report, in this order.

    The results took the time, so they come first. `guard` notes what fails, and the rest is done.
    """
    from rich.text import Text

    # numpy, pandas and Altair come with these
    from vitreous.claims.facts import parse_roles
    from vitreous.commands.judge import judge_inspection, note_failures
    from vitreous.report import write
    from vitreous.report.judgement import summary_text
    from vitreous.report.terminal_summary import terminal_summary

    out, others = output.path, []
    if options.results is not None:
        others.append(inspection.save(options.results))
    judgement = guard.run(
        "The verdicts",
        lambda: judge_inspection(inspection, parse_roles(options.role)),
        lambda _: None,
    )
    if judgement is not None:
        note_failures(judgement.verdicts, guard)
    screen = console()
    screen.print(terminal_summary(inspection, guard))
    if judgement is not None:
        what = "The verdicts on the terminal"
        screen.print(guard.run(what, lambda: Text(summary_text(judgement)), Text))
    write(
        inspection, out, figures=options.figures, judgement=judgement, guard=guard,
        mark=output.mark,
    )  # fmt: skip
    if options.figures is not None:
        others.append(options.figures)
    if (guard.failures or guard.not_judged) and options.results is None:
        # so that the report can be written again without measuring again
        others.append(inspection.save(out.with_name(f"{out.stem}-results")))
    screen.print(output.sentence(*others), highlight=False, markup=False, soft_wrap=True)
