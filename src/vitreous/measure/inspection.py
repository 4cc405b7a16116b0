"""The results of one inspection, by name, and how they are saved."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.results import Result
from vitreous.results.files import (
    CONTROL_FOLDER,
    INDEX_NAME,
    REMEDY,
    encode_result,
    load_indexed,
    read_index,
    remove_old_data,
)
from vitreous.specimen.anatomy import Anatomy
from vitreous.storage.atomic_files import (
    Damaged,
    explain_write_errors,
    remove_partial_files,
    write_bytes,
    write_json,
)
from vitreous.storage.locks import hold_lock

if TYPE_CHECKING:
    from vitreous.data.dataset import Dataset
    from vitreous.measure.probe import Setting
    from vitreous.measure.subject import Subject
    from vitreous.results.latex import IntervalStyle
    from vitreous.specimen.specimen import Specimen


class Inspection(Mapping[str, Result]):
    """Results by the name of their measurement.

    `left_out` has the measurements that suited no model, with the reason for each model. Stored
    inspections can be loaded without torch.

    Examples
    --------
    >>> inspection = vitreous.inspect("nano:vit", "world:shapes", ["variance"], limit=16)
    >>> list(inspection), len(inspection["variance"].table)
    (['variance'], 13)
    >>> folder = inspection.save("numbers")
    >>> vitreous.Inspection.load(folder)
    Inspection of nano:vit: variance
    """

    def __init__(
        self,
        results: Mapping[str, Result],
        left_out: Mapping[str, Mapping[str, str]] | None = None,
        anatomies: Mapping[str, Anatomy] | None = None,
    ) -> None:
        self._results = dict(results)
        self.left_out = {probe: dict(why) for probe, why in (left_out or {}).items()}
        """Why a model was left out of a measurement, by measurement and model."""
        self.anatomies = dict(anatomies or {})
        self.control: Inspection | None = None
        """An inspection of the untrained networks for verdicts to compare with; not in reports."""
        self.roles: dict[str, str] = {}
        """What you said the models are, by name, for verdicts: "vit pool=gap"."""
        self._html: str | None = None

    def __getitem__(self, name: str) -> Result:
        if name in self._results:
            return self._results[name]
        if name in self.left_out:
            reasons = "; ".join(f"{model}: {why}" for model, why in self.left_out[name].items())
            raise VitreousError(f"{name!r} could not be measured. {reasons}")
        raise UnknownName("result", name, self._results)

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, name: object) -> bool:
        return name in self._results

    def __repr__(self) -> str:
        return f"Inspection of {', '.join(self.anatomies)}: {', '.join(self._results)}"

    def __or__(self, other: Inspection) -> Inspection:
        """Join two inspections; if both have a result of a name, the other's is used."""
        if not isinstance(other, Inspection):
            return NotImplemented
        left_out = {name: why for name, why in self.left_out.items() if name not in other}
        anatomies = {**self.anatomies, **other.anatomies}
        results = {**self._results, **other._results}
        both = Inspection(
            {name: beside(result, anatomies) for name, result in results.items()},
            {**left_out, **other.left_out},
            anatomies,
        )
        both.control = other.control or self.control
        both.roles = {**self.roles, **other.roles}
        return both

    def _repr_html_(self) -> str:
        # imported here because it imports Altair; cached, because drawing charts takes seconds
        from vitreous.measure.notebook_view import inspection_html

        if self._html is None:
            self._html = inspection_html(self)
        return self._html

    def summary(self) -> Result:
        """Return a row for each model: size, cost, accuracy and calibration, as far as measured.

        Examples
        --------
        >>> inspection.summary().table[["model", "parameters", "accuracy"]]
        """
        from vitreous.measure.summary import summary_result  # pandas comes with it

        return summary_result(self)

    def to_latex(
        self,
        columns: Sequence[str] | None = None,
        *,
        interval: IntervalStyle = "brackets",
        caption: str = "",
        label: str = "",
    ) -> str:
        """Return the summary as a LaTeX table; `inspection[name].to_latex()` returns a result's.

        Parameters are those of `Result.to_latex`.

        Examples
        --------
        >>> print(inspection.to_latex(["model", "parameters", "accuracy"], interval="pm"))
        """
        return self.summary().to_latex(columns, interval=interval, caption=caption, label=label)

    def save(self, folder: Path | str) -> Path:
        """Write every result and an index of them into a folder; returns its path."""
        home = Path(folder).expanduser()
        with explain_write_errors(home):
            home.mkdir(parents=True, exist_ok=True)
        with hold_lock(home / ".lock", "saving results"):
            remove_partial_files(home)
            self._save(home)
        if self.control is not None:
            self.control.save(home / CONTROL_FOLDER)
        elif (home / CONTROL_FOLDER / INDEX_NAME).is_file():
            shutil.rmtree(home / CONTROL_FOLDER)  # of other results, which these replace
        return home

    def _save(self, home: Path) -> None:
        """Write all files. Data files get new names, and the index is replaced after them, so that
        an interrupted save leaves the old results."""
        packed = {name: encode_result(result, name) for name, result in self._results.items()}
        contents: dict[str, bytes] = {}
        for _, parts in packed.values():
            contents |= parts
        before = _names(home)
        for name, content in contents.items():
            write_bytes(home / name, content)
        index = {
            "results": {name: facts for name, (facts, _) in packed.items()},
            "left_out": self.left_out,
            "anatomies": {
                name: json.loads(anatomy.to_json()) for name, anatomy in self.anatomies.items()
            },
            "roles": self.roles,
        }
        write_json(home / INDEX_NAME, index)
        for name, (facts, _) in packed.items():  # so that each result can be loaded alone
            write_json(home / f"{name}.json", facts)
        with explain_write_errors(home):
            remove_old_data(home, {*before, *packed}, set(contents))
            for name in before - packed.keys():
                (home / f"{name}.json").unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path | str) -> Inspection:
        """Read what `save` wrote."""
        home = Path(folder).expanduser()
        if not home.exists():
            raise NoSuchPath("folder", str(folder), "of saved results")
        if not (home / INDEX_NAME).is_file():
            raise VitreousError(f"There is no inspection in {str(home)!r}: it has no {INDEX_NAME}.")
        index = read_index(home)
        results = {
            name: load_indexed(Result, home, name, facts)
            for name, facts in index["results"].items()
        }
        try:
            anatomies = {
                name: Anatomy.from_json(json.dumps(raw)) for name, raw in index["anatomies"].items()
            }
            inspection = cls(results, index["left_out"], anatomies)
            inspection.roles = dict(index.get("roles", {}))  # version 0.1 kept none
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(home / INDEX_NAME, f"{type(error).__name__} {error}", REMEDY) from None
        if (home / CONTROL_FOLDER / INDEX_NAME).is_file():
            inspection.control = cls.load(home / CONTROL_FOLDER)
        return inspection


def beside(result: Result, models: Iterable[str]) -> Result:
    """The result in a report about these models, in which each model has one colour."""
    before = result.about.get("beside", [])
    together = list(dict.fromkeys([*models, *before]))
    if together == before:
        return result
    return replace(result, about={**result.about, "beside": together})


def _names(home: Path) -> set[str]:
    """Names of the results in a folder; none if its index cannot be read."""
    try:
        return set(read_index(home)["results"])
    except VitreousError:
        return set()


def _recorded_build(specimen: Specimen) -> dict[str, Any] | None:
    """Name and options of a network of ours, from which claims derive its facts."""
    if specimen.build is None or specimen.edits:
        return None
    options: dict[str, Any] = json.loads(json.dumps(dict(specimen.build)))  # as in a stored result
    return options


def _recorded_checkpoint(specimen: Specimen) -> dict[str, Any] | None:
    """Which tensors were loaded from a checkpoint, and which were not."""
    loaded = specimen.checkpoint
    if loaded is None:
        return None
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(loaded).items()}
    return {**values, "sentence": loaded.describe()}


def provenance(
    setting: Setting, suited: Sequence[Subject], images: int, further: Sequence[Subject] = ()
) -> dict[str, Any]:
    """The provenance of a result, for its `about`: models, data, seed, versions and date.

    `further` are models that the result depends on without being about them.
    """
    data = setting.data
    measured = {each.name for each in suited}
    others = {each.name: each for each in (*setting.subjects, *further)}
    return {
        "models": {each.name: _recorded_model(each, data) for each in suited},
        "others": {
            name: _recorded_model(each, data)
            for name, each in others.items()
            if name not in measured
        },
        "beside": [each.name for each in setting.subjects],
        "units": {
            each.name: [[unit.name, unit.kind, unit.depth] for unit in each.specimen.units]
            for each in suited
        },
        "data": {
            "name": data.name, "split": data.split, "images": images, "of": len(data),
            "available": data.total or len(data), "image": list(data.image),
            "classes": len(data.classes), "fingerprint": data.fingerprint,
            "labels": data.matched_by,
        },
        "seed": setting.seed,
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _recorded_model(subject: Subject, data: Dataset) -> dict[str, Any]:
    """Weights, size and preprocessing of a model."""
    specimen = subject.specimen
    return {
        "fingerprint": subject.fingerprint,
        "weights": specimen.weights,
        "checkpoint": _recorded_checkpoint(specimen),
        "build": _recorded_build(specimen),
        "image": list(specimen.anatomy.image),
        "parameters": specimen.anatomy.parameters,
        "edits": list(specimen.edits),
        "mean": list(subject.mean),
        "std": list(subject.std),
        "normalised": subject.normalised,
        "framing": subject.preprocessing.get("framing"),
        "preprocessing": subject.describe_preprocessing(data),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of installed packages that numbers may depend on."""
    packages = ("vitreous", "torch", "torchvision", "timm", "transformers", "numpy")
    installed = {name: found for name in packages if (found := _version(name))}
    return {"python": platform.python_version(), **installed}


@cache
def _version(package: str) -> str | None:
    """A version, read once: finding and parsing it takes milliseconds, and every result has six."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
