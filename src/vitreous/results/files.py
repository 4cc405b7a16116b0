"""Results on disk: `NAME.json` says everything but the numbers; a parquet file has the table, a safetensors file the
arrays.

The numbers' files carry a digest of their content in their name and are written first; replacing the JSON, which names
them, is the one moment at which a new result takes the place of an old one. All three can be read without Vitreous.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from vitreous.errors import VitreousError
from vitreous.results.column import Column
from vitreous.results.result import Result
from vitreous.results.view import View

FORMAT = 1


def save(result: Result, path: Path) -> Path:
    """Write a result; `Result.save` says the rest."""
    path = path.expanduser()
    target = path if path.suffix == ".json" else path / f"{result.name}.json"
    contents = {"table": (".parquet", _parquet(result))}
    if result.arrays:
        from safetensors.numpy import save as pack

        contents["arrays"] = (".safetensors", pack(dict(result.arrays)))
    files = {}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for part, (suffix, content) in contents.items():
            digest = hashlib.sha256(content).hexdigest()
            files[part] = {"name": f"{target.stem}.{digest[:8]}{suffix}", "sha256": digest}
            _write(target.with_name(files[part]["name"]), content)
        facts = {
            "format": FORMAT,
            "name": result.name,
            "columns": [asdict(column) for column in result.columns],
            "views": [asdict(view) for view in result.views],
            "about": result.about,
            "files": files,
        }
        _write(target, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
        _forget(target, {file["name"] for file in files.values()})
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise VitreousError(f"Cannot write result {result.name!r} to {str(target)!r}: {reason}.") from error
    return target


def load(path: Path) -> Result:
    """Read a result; `Result.load` says the rest."""
    from pyarrow import BufferReader  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    path = _found(path.expanduser())
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts["format"]
        columns, views = facts["columns"], facts["views"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None
    if not isinstance(version, int) or version > FORMAT:
        raise VitreousError(
            f"{str(path)!r} has format {version} and this Vitreous reads up to {FORMAT}; install a newer Vitreous."
        )
    try:
        parts = {part: _read(path, **file) for part, file in facts["files"].items()}
        arrays = {}
        if "arrays" in parts:
            from safetensors.numpy import load as unpack

            arrays = unpack(parts["arrays"])
        # what pandas would do, at half the time: tables are small, and a study has hundreds
        table = ParquetFile(BufferReader(parts["table"])).read(use_threads=False).to_pandas(use_threads=False)
        declared = tuple(Column(**column) for column in columns)
        seen = tuple(View.from_dict(view) for view in views)
        return Result(facts["name"], table, declared, seen, arrays, facts["about"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None


def _parquet(result: Result) -> bytes:
    buffer = BytesIO()
    try:
        result.table.to_parquet(buffer)
    except (ValueError, TypeError) as error:
        raise VitreousError(f"The table of result {result.name!r} does not fit into parquet: {error}.") from None
    return buffer.getvalue()


def _found(path: Path) -> Path:
    if path.is_file():
        return path
    inside = sorted(path.glob("*.json"))
    if len(inside) == 1:
        return inside[0]
    if not inside:
        raise VitreousError(f"There is no result in {str(path)!r}; give the .json that save returned.")
    names = ", ".join(each.name for each in inside[:4]) + (" …" if len(inside) > 4 else "")
    raise VitreousError(f"{str(path)!r} holds {len(inside)} results; choose one of {names}.")


def _read(path: Path, name: str, sha256: str) -> bytes:
    file = path.with_name(Path(name).name)
    if not file.is_file():
        raise VitreousError(f"{str(path)!r} needs {file.name!r} beside it, which is not there; copy both.")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged(file, "its content is not what was saved")
    return content


def _damaged(path: Path, why: Any) -> VitreousError:
    return VitreousError(
        f"{str(path)!r} is no result of Vitreous or is damaged ({why}); measure it again or copy it anew."
    )


def _write(path: Path, content: bytes) -> None:
    """A file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _forget(target: Path, kept: set[str]) -> None:
    """Remove the numbers of the result that was here before."""
    for pattern in (".????????.parquet", ".????????.safetensors"):
        for old in target.parent.glob(glob.escape(target.stem) + pattern):
            if old.name not in kept:
                old.unlink(missing_ok=True)
