"""Results on disk: `NAME.json` is the header, a parquet file has the table, safetensors files the
arrays and the bootstrap replicates.

The names of these data files contain a digest of their content, and they are written first.
Replacing the header, which names them, is the step at which a new result replaces an old one. All
files can be read without Vitreous. The header has its own checksum and those of the data files.

`Result` saves and loads itself with these functions, so they do not import it: functions that build
one are given the class.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vitreous.errors import VitreousError
from vitreous.results.column import Column
from vitreous.results.replicates import Replicates
from vitreous.results.view import View
from vitreous.storage.atomic_files import (
    Damaged,
    explain_write_errors,
    read_json,
    read_json_and_checksum,
    write_bytes,
    write_json,
)

if TYPE_CHECKING:
    import pandas as pd

    from vitreous.results.result import Result

FORMAT = 1
REMEDY = "measure it again or copy it anew"
PLAIN = frozenset({"float64", "float32", "int64", "bool", "str"})
"""Types of columns that parquet preserves without pandas' metadata."""
INDEX_NAME = "inspection.json"
CONTROL_FOLDER = "before-training"
"""Within the folder of an inspection: the same networks before training."""
"""File name of the index of results that were saved together."""
Header = dict[str, Any]
"""A result without its numbers, and the names and checksums of the files that have them."""
R = TypeVar("R", bound="Result")

# pyarrow and safetensors are imported where they are used: both take long to import


def save_result(result: Result, path: Path) -> Path:
    """Save a result to a folder or to a `.json`; return the path of the `.json`."""
    path = path.expanduser()
    target = path if path.suffix == ".json" else path / f"{result.name}.json"
    header, contents = encode_result(result, target.stem)
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_bytes(target.with_name(name), content)
    write_json(target, header)
    index = target.with_name(INDEX_NAME)
    index_text = index.read_text(encoding="utf-8", errors="replace") if index.is_file() else ""
    indexed = {name for name in _data_files(target) if name in index_text}
    with explain_write_errors(target):
        remove_old_data(target.parent, [target.stem], indexed | set(contents))
    return target


def encode_result(result: Result, stem: str) -> tuple[Header, dict[str, bytes]]:
    """Return the header of a result, and the content of its data files by file name."""
    from safetensors.numpy import save

    parts = {"table": (".parquet", _table_bytes(result))}
    if result.arrays:
        parts["arrays"] = (".safetensors", save(dict(result.arrays)))
    if result.replicates:
        tensors: dict[str, Any] = {}
        for name, each in result.replicates.items():
            tensors[f"{name}/deviations"] = each.deviations
            tensors[f"{name}/spread"] = each.spread
        parts["replicates"] = (".safetensors", save(tensors))
    files, contents = {}, {}
    for part, (suffix, content) in parts.items():
        digest = hashlib.sha256(content).hexdigest()
        name = f"{stem}.{digest[:8]}{suffix}"
        files[part] = {"name": name, "sha256": digest}
        contents[name] = content
    header = {
        "format": FORMAT,
        "name": result.name,
        "columns": [asdict(column) for column in result.columns],
        "views": [asdict(view) for view in result.views],
        "about": result.about,
        "files": files,
    }
    return header, contents


def _table_bytes(result: Result) -> bytes:
    buffer = BytesIO()
    try:
        result.table.to_parquet(buffer)
    except (ValueError, TypeError) as error:
        raise VitreousError(
            f"The table of result {result.name!r} does not fit into parquet: {error}."
        ) from None
    return buffer.getvalue()


def load_result(kind: type[R], path: Path, expected: str | None = None) -> R:
    """Load a result from its `.json` or a folder with one; `expected` is the header's checksum."""
    path = find_header(path.expanduser())
    return decode_result(kind, read_header(path, expected), path)


def is_intact(path: Path, expected: str | None) -> bool:
    """Whether a result exists and all its files are undamaged."""
    try:
        for file in read_header(path, expected)["files"].values():
            read_data(path, **file)
    except (VitreousError, KeyError, TypeError, AttributeError):
        return False
    return True


def find_header(path: Path) -> Path:
    """Return the path of a header: the path itself, or that of the only one in a folder."""
    if path.is_file():
        return path
    headers = sorted(path.glob("*.json"))
    if len(headers) == 1:
        return headers[0]
    if not headers:
        raise VitreousError(
            f"There is no result in {str(path)!r}; give the .json that save returned."
        )
    names = ", ".join(each.name for each in headers[:4]) + (" …" if len(headers) > 4 else "")
    raise VitreousError(f"{str(path)!r} holds {len(headers)} results; choose one of {names}.")


def read_header(path: Path, expected: str | None) -> Header:
    """Read a header; `expected` is its checksum, where that is known."""
    try:
        header, found = read_json_and_checksum(path)
    except Damaged as error:
        raise _damaged(path, error.why) from None
    if expected is not None and found != expected:
        raise _damaged(path, "it is not the result that the index beside it names")
    return header


def read_data(path: Path, name: str, sha256: str) -> bytes:
    """Return the content of a data file beside the header `path`, checked."""
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


def decode_result(kind: type[R], header: Mapping[str, Any], path: Path) -> R:
    """Return the result of a header that is in the file `path`; the data files are beside it."""
    from safetensors.numpy import load

    check_format(header, path)
    with explain_damage(path):
        files = header["files"]
        return kind(
            name=header["name"],
            table=to_pandas(read_arrow_table(header, path)),
            columns=tuple(Column(**column) for column in header["columns"]),
            views=tuple(View.from_dict(view) for view in header["views"]),
            arrays=load(read_data(path, **files["arrays"])) if "arrays" in files else {},
            about=header["about"],
            replicates=read_replicates(header, path),
        )


def check_format(header: Mapping[str, Any], path: Path) -> None:
    """Refuse a header of a newer version."""
    with explain_damage(path):
        version = header["format"]
    if not isinstance(version, int) or version > FORMAT:
        raise VitreousError(
            f"{str(path)!r} has format {version} and this Vitreous reads up to {FORMAT}; install a "
            "newer Vitreous."
        )


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn exceptions caused by a damaged header into an error that says so."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None


def read_arrow_table(header: Mapping[str, Any], path: Path) -> Any:
    """Return the table of a result as pyarrow reads it."""
    from pyarrow import BufferReader  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    with explain_damage(path):
        # pandas.read_parquet takes twice as long: tables are small, and a study has hundreds
        content = read_data(path, **header["files"]["table"])
        return ParquetFile(BufferReader(content)).read(use_threads=False)


def to_pandas(table: Any) -> pd.DataFrame:
    """Return a pyarrow table as the pandas table that was saved."""
    plain = _is_plain(table.schema.pandas_metadata)
    converted: pd.DataFrame = table.to_pandas(use_threads=False, ignore_metadata=plain)
    return converted


def read_replicates(header: Mapping[str, Any], path: Path) -> dict[str, Replicates]:
    """Return the replicates of a result by column."""
    from safetensors.numpy import load

    with explain_damage(path):
        files = header["files"]
        if "replicates" not in files:
            return {}
        tensors = load(read_data(path, **files["replicates"]))
        names = [name.removesuffix("/spread") for name in tensors if name.endswith("/spread")]
        return {
            name: Replicates(tensors[f"{name}/deviations"], tensors[f"{name}/spread"])
            for name in names
        }


def _is_plain(metadata: Mapping[str, Any] | None) -> bool:
    """Whether a table is read correctly without pandas' metadata.

    That is so if its index is 0, 1, 2, … and its columns have plain numbers and strings. Reading
    the metadata takes half the time of reading a small table.
    """
    if metadata is None:
        return True
    index = metadata["index_columns"]
    if len(index) != 1 or not isinstance(index[0], dict):
        return False
    counts = (index[0]["kind"], index[0]["start"], index[0]["step"]) == ("range", 0, 1)
    return counts and all(column["numpy_type"] in PLAIN for column in metadata["columns"])


def _damaged(path: Path, why: str) -> VitreousError:
    return VitreousError(f"{str(path)!r} is no result of Vitreous or is damaged ({why}); {REMEDY}.")


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of results saved together: `results` maps names to headers.

    The index of Vitreous 0.1 has names only; their header is None here.
    """
    path = folder / INDEX_NAME
    try:
        index = read_json(path)
        results = index["results"]
        if not isinstance(results, dict):
            index["results"] = {str(name): None for name in results}
    except Damaged as error:
        raise Damaged(path, error.why, REMEDY) from None
    except (KeyError, TypeError) as error:
        raise Damaged(path, f"{type(error).__name__} {error}", REMEDY) from None
    return index


def load_indexed(kind: type[R], folder: Path, name: str, header: Mapping[str, Any] | None) -> R:
    """Load one of the results that `read_index` lists."""
    if header is None:
        return load_result(kind, folder / f"{name}.json")
    return decode_result(kind, header, folder / INDEX_NAME)


def _data_files(target: Path) -> list[str]:
    """Return the names of all data files, current or old, of the result with this header."""
    patterns = (".????????.parquet", ".????????.safetensors")
    return [
        path.name for end in patterns for path in target.parent.glob(glob.escape(target.stem) + end)
    ]


def remove_old_data(folder: Path, stems: Iterable[str], kept: set[str]) -> None:
    """Delete the data files of some results, except those to keep."""
    for stem in stems:
        for name in _data_files(folder / f"{stem}.json"):
            if name not in kept:
                (folder / name).unlink(missing_ok=True)
