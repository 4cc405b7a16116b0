"""Results on disk: `NAME.json` says everything but the numbers; a parquet file has the table, safetensors files
the arrays and the bootstrap replicates.

The numbers' files carry a digest of their content in their name and are written first; replacing the JSON, which names
them, is the one moment at which a new result takes the place of an old one. All three can be read without Vitreous.
The JSON carries a checksum of itself and the checksums of the others.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from vitreous.errors import VitreousError
from vitreous.results.column import Column
from vitreous.results.replicates import Replicates
from vitreous.results.result import Result
from vitreous.results.view import View
from vitreous.storage.atomic_files import (
    Damaged,
    explain_write_errors,
    read_json,
    write_bytes,
    write_json,
)
from vitreous.storage.fingerprints import checksum

FORMAT = 1
AGAIN = "measure it again or copy it anew"
INSPECTION = "inspection.json"
"""The index of results that were saved together."""
Facts = dict[str, Any]
"""All of a result but its numbers, and the names and checksums of the files that have those."""


def save(result: Result, path: Path) -> Path:
    """Write a result; `Result.save` says the rest."""
    path = path.expanduser()
    target = path if path.suffix == ".json" else path / f"{result.name}.json"
    facts, contents = pack(result, target.stem)
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_bytes(target.with_name(name), content)
    write_json(target, facts)
    index = target.with_name(INSPECTION)
    used = index.read_text(encoding="utf-8", errors="replace") if index.is_file() else ""
    with explain_write_errors(target):
        forget(
            target.parent,
            [target.stem],
            {name for name in data_files(target) if name in used} | set(contents),
        )
    return target


def pack(result: Result, stem: str) -> tuple[Facts, dict[str, bytes]]:
    """A result as facts, and the content of its files by name."""
    parts = {"table": (".parquet", _parquet(result))}
    if result.arrays:
        from safetensors.numpy import save as as_safetensors

        parts["arrays"] = (".safetensors", as_safetensors(dict(result.arrays)))
    if result.replicates:
        from safetensors.numpy import save as as_safetensors

        drawn: dict[str, Any] = {
            f"{name}/deviations": each.deviations for name, each in result.replicates.items()
        }
        drawn |= {f"{name}/spread": each.spread for name, each in result.replicates.items()}
        parts["replicates"] = (".safetensors", as_safetensors(drawn))
    files, contents = {}, {}
    for part, (suffix, content) in parts.items():
        digest = hashlib.sha256(content).hexdigest()
        name = f"{stem}.{digest[:8]}{suffix}"
        files[part], contents[name] = {"name": name, "sha256": digest}, content
    facts = {
        "format": FORMAT,
        "name": result.name,
        "columns": [asdict(column) for column in result.columns],
        "views": [asdict(view) for view in result.views],
        "about": result.about,
        "files": files,
    }
    return facts, contents


def load(path: Path, expected: str | None = None) -> Result:
    """Read a result; `Result.load` says the rest. `expected` is the checksum that the JSON should have."""
    path = _found(path.expanduser())
    return unpack(_facts(path, expected), path)


def intact(path: Path, expected: str | None) -> bool:
    """Whether a result is there and as it was saved."""
    try:
        for file in _facts(path, expected)["files"].values():
            _read(path, **file)
    except (VitreousError, KeyError, TypeError, AttributeError):
        return False
    return True


def _facts(path: Path, expected: str | None) -> Facts:
    try:
        facts = read_json(path)
    except Damaged as error:
        raise _damaged(path, error.why) from None
    if expected is not None and checksum(facts) != expected:
        raise _damaged(path, "it is not the result that the index beside it names")
    return facts


def unpack(facts: Mapping[str, Any], path: Path) -> Result:
    """What `pack` took apart; `path` is the file that has the facts, and the others are beside it."""
    from pyarrow import BufferReader  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        version = facts["format"]
        columns, views = facts["columns"], facts["views"]
    except (KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None
    if not isinstance(version, int) or version > FORMAT:
        raise VitreousError(
            f"{str(path)!r} has format {version} and this Vitreous reads up to {FORMAT}; install a newer Vitreous."
        )
    try:
        parts = {part: _read(path, **file) for part, file in facts["files"].items()}
        arrays = {}
        if "arrays" in parts:
            from safetensors.numpy import load as from_safetensors

            arrays = from_safetensors(parts["arrays"])
        replicates = _replicates(parts["replicates"]) if "replicates" in parts else {}
        # what pandas would do, at half the time: tables are small, and a study has hundreds
        table = (
            ParquetFile(BufferReader(parts["table"]))
            .read(use_threads=False)
            .to_pandas(use_threads=False)
        )
        declared = tuple(Column(**column) for column in columns)
        seen = tuple(View.from_dict(view) for view in views)
        return Result(facts["name"], table, declared, seen, arrays, facts["about"], replicates)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None


def _replicates(content: bytes) -> dict[str, Replicates]:
    from safetensors.numpy import load as from_safetensors

    found = from_safetensors(content)
    names = [name.removesuffix("/spread") for name in found if name.endswith("/spread")]
    return {
        name: Replicates(found[f"{name}/deviations"], found[f"{name}/spread"]) for name in names
    }


def read_index(folder: Path) -> dict[str, Any]:
    """The index of results that were saved together; that of Vitreous 0.1 has names instead of facts."""
    path = folder / INSPECTION
    try:
        index = read_json(path)
        names = index["results"]
        index["results"] = names if isinstance(names, dict) else {str(name): None for name in names}
    except Damaged as error:
        raise Damaged(path, error.why, AGAIN) from None
    except (KeyError, TypeError) as error:
        raise Damaged(path, f"{type(error).__name__} {error}", AGAIN) from None
    return index


def stored(folder: Path, name: str, facts: Mapping[str, Any] | None) -> Result:
    """A result of an index."""
    return load(folder / f"{name}.json") if facts is None else unpack(facts, folder / INSPECTION)


def _parquet(result: Result) -> bytes:
    buffer = BytesIO()
    try:
        result.table.to_parquet(buffer)
    except (ValueError, TypeError) as error:
        raise VitreousError(
            f"The table of result {result.name!r} does not fit into parquet: {error}."
        ) from None
    return buffer.getvalue()


def _found(path: Path) -> Path:
    if path.is_file():
        return path
    inside = sorted(path.glob("*.json"))
    if len(inside) == 1:
        return inside[0]
    if not inside:
        raise VitreousError(
            f"There is no result in {str(path)!r}; give the .json that save returned."
        )
    names = ", ".join(each.name for each in inside[:4]) + (" …" if len(inside) > 4 else "")
    raise VitreousError(f"{str(path)!r} holds {len(inside)} results; choose one of {names}.")


def _read(path: Path, name: str, sha256: str) -> bytes:
    file = path.with_name(Path(name).name)
    if not file.is_file():
        raise VitreousError(
            f"{str(path)!r} needs {file.name!r} beside it, which is not there; copy both."
        )
    try:
        content = file.read_bytes()
    except OSError as error:
        raise _damaged(file, error.strerror or str(error)) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged(file, "its content is not what was saved")
    return content


def _damaged(path: Path, why: str) -> VitreousError:
    return VitreousError(f"{str(path)!r} is no result of Vitreous or is damaged ({why}); {AGAIN}.")


def data_files(target: Path) -> list[str]:
    """Names of the files of numbers that belong, or belonged, to a result."""
    patterns = (".????????.parquet", ".????????.safetensors")
    return [
        path.name for end in patterns for path in target.parent.glob(glob.escape(target.stem) + end)
    ]


def forget(folder: Path, stems: Iterable[str], kept: set[str]) -> None:
    """Remove the numbers of results that were here before."""
    for stem in stems:
        for name in data_files(folder / f"{stem}.json"):
            if name not in kept:
                (folder / name).unlink(missing_ok=True)
