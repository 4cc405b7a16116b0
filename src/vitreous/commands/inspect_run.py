"""Measuring for `vitreous inspect` and the commands of analyses, and writing the report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous import model_names
from vitreous.commands.inspect_options import MeasureOptions, Settings, parse_preprocessing
from vitreous.commands.output_files import OutputFile
from vitreous.commands.terminal import console
from vitreous.errors import UnknownName
from vitreous.weight_pairs import pair_weights

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection
    from vitreous.report.guard import Guard

NANO = Path(__file__).parents[1] / "report" / "nano"
"""Results of the bundled models that take too long to compute on the fly."""
BESIDE = ("cka", "local_heads", "localisation")
"""Probes that compare every model with the others."""


def is_first_process() -> bool:
    """Whether this is the process that writes, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def measure_and_write(
    models: Sequence[str],
    options: MeasureOptions,
    probe_settings: Settings,
    analysis_settings: Settings,
    output: OutputFile,
    keep: Path,
) -> None:
    """Measure, resuming an interrupted run, and write the report.

    If it is interrupted again, the report shows what was measured so far.
    """
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
        if is_first_process() and stop.inspection:
            _write(stop.inspection, output, options, guard)
            failures = "\n".join(guard.sentences())
            console().print(failures, style="red", highlight=False, markup=False, soft_wrap=True)
        raise
    if is_first_process():
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
    """Run the probes, then the analyses; `Interrupted` carries the results of both so far."""
    from vitreous.measure.engine import analyse, inspect  # torch comes with them
    from vitreous.measure.inspection import Inspection
    from vitreous.measure.partial import Interrupted

    inspection, shared = Inspection({}), _shared_settings(options)
    try:
        if probe_settings:
            given = {"limit": options.limit or 512, "batch": options.batch, **shared}
            inspection = inspect(list(models), options.data, probe_settings, keep=keep, **given)
            if inspection:
                inspection.control = _measure_before_training(
                    models, options, probe_settings, given, keep
                )
        if analysis_settings and is_first_process():
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
    """Return the options that `inspect` and `analyse` have in common."""
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
    """Run the probes that verdicts use as a control on the initial weights of the runs.

    An effect that the untrained network shows as well is not a finding about training. Where a
    probe compares models, they are measured beside the trained ones, as in a study. None if no
    model is a run, or no such probe is among the settings.
    """
    # numpy and torch come with these
    from vitreous.claims.book import WITHOUT_CONTROL
    from vitreous.measure.engine import inspect
    from vitreous.measure.inspection import Inspection
    from vitreous.measure.partial import Interrupted

    names = [] if options.weights else model_names.before_training(models)
    settings = {n: value for n, value in probe_settings.items() if n not in WITHOUT_CONTROL}
    if not names or not settings:
        return None
    paired = {name: settings.pop(name) for name in BESIDE if name in settings and len(models) > 1}
    control = Inspection({})
    try:
        if settings:
            control |= inspect(names, options.data, settings, keep=keep / "control", **given)
        if paired:
            both = [*names, *models]
            control |= inspect(both, options.data, paired, keep=keep / "control-pairs", **given)
        return control
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

    every_book()  # books may add words that roles can contain

    labels = [each.label for each in pair_weights(models, options.weights)]
    known = [*labels, *(name for inspection in stored for name in inspected_models(inspection))]
    for name in parse_roles(options.role):
        if name not in known:
            raise UnknownName("model to inspect", name, known, "--role takes NAME=FACTS.")


def add_stored(inspection: Inspection, stored: Inspection) -> Inspection:
    """Add to an inspection the results that only `stored` has.

    The anatomies stay those of the inspection.
    """
    from vitreous.measure.inspection import beside  # pandas comes with it

    results = dict(inspection)
    for name, result in stored.items():
        if name not in inspection:
            results[name] = beside(result, inspection.anatomies)
    joined = type(inspection)(results, inspection.left_out, inspection.anatomies)
    joined.control = inspection.control
    joined.roles = {**stored.roles, **inspection.roles}
    return joined


def _write(
    inspection: Inspection, output: OutputFile, options: MeasureOptions, guard: Guard
) -> None:
    """Save the results, judge the claims, print the summary and write the report, in this order.

    The results come first, because they took the time. `guard` records a step that fails, and the
    others are still done.
    """
    from rich.text import Text

    # numpy, pandas and Altair come with these
    from vitreous.claims.facts import parse_roles
    from vitreous.commands.judge import judge_inspection, note_failures, why_not_judged
    from vitreous.report import write
    from vitreous.report.judgement import summary_text
    from vitreous.report.terminal_summary import terminal_summary

    out, others = output.path, []
    measured = {model for each in inspection.values() for model in each.about.get("models", {})}
    inspection.roles |= parse_roles(options.role)
    inspection.roles = {name: role for name, role in inspection.roles.items() if name in measured}
    roles = inspection.roles
    if options.results is not None:
        others.append(inspection.save(options.results))
    judgement = guard.run(
        "The verdicts", lambda: judge_inspection(inspection, roles), lambda _: None
    )
    if judgement is not None:
        note_failures(judgement.verdicts, guard)
    screen = console()
    screen.print(terminal_summary(inspection, guard))
    if judgement is not None:
        what = "The verdicts on the terminal"
        screen.print(guard.run(what, lambda: Text(summary_text(judgement)), Text))
    elif options.book:  # a user who names a book expects verdicts
        why = why_not_judged(inspection, roles)
        screen.print(why, highlight=False, markup=False, soft_wrap=True)
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
