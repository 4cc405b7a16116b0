"""What was asked of `vitreous inspect` and the commands of single analyses, checked before torch is imported."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitreous import model_names
from vitreous.commands.options import Alone, Looking, Options
from vitreous.config import assignment
from vitreous.data import naming
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.report import check_ending
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.validation import check_ranges

Asked = dict[str, dict[str, Any]]
"""Question: its options."""


def chosen(options: Options | Alone, only: str = "") -> tuple[Asked, Asked]:
    """Which probes and which analyses, with what was set."""
    known = probes.names(), analyses.names()
    wanted: tuple[Sequence[str], Sequence[str]] = (), (only,)
    if isinstance(options, Options):
        wanted = options.probes or known[0], options.analyses or (known[1] if options.deep else ())
    for group, registry in zip(wanted, (probes.REGISTRY, analyses.REGISTRY), strict=True):
        for name in group:
            registry.check(name)
    asked: tuple[Asked, Asked] = (
        {name: {} for name in wanted[0]},
        {name: {} for name in wanted[1]},
    )
    for each in options.set:
        setting, value = assignment(each)
        name, dot, option = setting.rpartition(".")
        name = name if dot else only
        home = next((group for group in asked if name in group), None)
        if home is None:
            every = [question for group in asked for question in group]
            if name in known[1]:
                raise VitreousError(
                    f"{name} is set and not asked; add --deep, or --analyses {name}."
                )
            raise UnknownName(
                "question",
                name or setting,
                every,
                "--set takes QUESTION.OPTION=VALUE, lesion.what=skips.",
            )
        home[name][option] = tuple(value) if isinstance(value, list) else value
    return asked


def check_roles(options: Looking, models: Sequence[str]) -> None:
    """Whether the models that are said to be something are there, before anything is measured."""
    from vitreous.claims.facts import (
        parse_roles,
    )  # numpy comes with it: 70 ms that `--help` does not need

    for name in parse_roles(options.role):
        if name not in models:
            raise UnknownName("model to look into", name, models, "--role takes NAME=FACTS.")


def report_file(options: Looking, only: str = "") -> Path:
    """Where the report goes: each command has a file of its own, so that none takes the place of another's."""
    return (options.out or Path(f"{only or 'report'}.html")).expanduser()


def check_places(out: Path, *folders: Path | None) -> None:
    """Whether everything can be written, before an hour is spent on it."""
    check_ending(out)
    if out.is_dir():
        raise VitreousError(
            f"{str(out)!r} is a folder; name a file for the report, {str(out / 'report.html')!r}."
        )
    for folder in (out.parent, *(folder.expanduser() for folder in folders if folder is not None)):
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()


def check(models: Sequence[str], options: Options | Alone, only: str = "") -> None:
    """Everything that can be known to be wrong without opening a model."""
    check_ranges(**vars(options))
    model_names.check_models(models)
    naming.check(options.data, options.split)
    chosen(options, only)
    check_places(report_file(options, only), options.figures, options.results)
