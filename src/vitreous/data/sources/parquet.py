"""Parquet files as the `datasets` package writes them: a column of encoded pictures, and one of
labels.

A picture is `{bytes, path}` or bytes alone; a path is relative to the file. File names tell the
split: `train-00000-of-00002.parquet`. Row groups are read one at a time, so that only a few of them
and never a whole file are in memory.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vitreous.data.sources.folder_layout import files_of_split, hold_out_labelled
from vitreous.data.sources.labels import number_labels
from vitreous.data.sources.listing import (
    LazyPictures,
    Listing,
    cache_key,
    enumerate_few,
    file_stamps,
    list_all,
)
from vitreous.data.sources.paths import PARQUETS, matching_files
from vitreous.errors import VitreousError

LABELS = ("label", "labels", "fine_label", "class", "target")
"""Columns of labels that are preferred to others."""

LABEL_TYPES = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)

KEPT = 4
"""Maximum number of row groups in memory; decoding threads work on neighbouring rows."""


def list_parquet(where: str, split: str, root: Path) -> Listing:
    """The images of one split, in the order of the files."""
    chosen, by_name = files_of_split(parquet_paths(where), split, where)
    tables = [_open(file) for file in chosen]
    first = tables[0]
    for table in tables[1:]:
        if (table.image, table.label) != (first.image, first.label):
            raise VitreousError(f"{str(table.file)!r} has other columns than {str(first.file)!r}.")
    labels, classes = _labels(tables, where)
    rows = _Rows(tables)
    key = cache_key(file_stamps(chosen))
    listing = list_all(LazyPictures(len(labels), rows.read), labels, classes, rows.describe, key)
    return listing if by_name else hold_out_labelled(listing, split, where)


def parquet_paths(where: str) -> list[Path]:
    """The files of a path or pattern; for a folder those in it."""
    files = matching_files(where, PARQUETS)
    odd = [file for file in files if not file.name.lower().endswith(PARQUETS)]
    if odd:
        raise VitreousError(f"{str(odd[0])!r} is no parquet file.")
    return list(dict.fromkeys(files))


@dataclass(frozen=True)
class _Table:
    """A file, and its columns of pictures and labels."""

    file: Path
    parquet: pq.ParquetFile
    image: str
    label: str | None
    names: tuple[str, ...] | None  # of the classes, where the file has them


def _open(file: Path) -> _Table:
    try:
        parquet = pq.ParquetFile(file)
        schema = parquet.schema_arrow
    except (pa.ArrowException, OSError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise VitreousError(
            f"Cannot read the parquet file {str(file)!r}: {why}; if it is damaged, fetch it again."
        ) from error
    features = _features(schema)
    kinds = {name: facts.get("_type") for name, facts in features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    images = images or [field.name for field in schema if _holds_pictures(field.type)]
    if len(images) != 1:
        raise VitreousError(
            f"{str(file)!r} has {len(images)} columns of images and should have one; its columns "
            f"are {enumerate_few(schema.names, most=8)}."
        )
    marked = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    label = next((name for name in (*LABELS, *marked) if name in schema.names), None)
    names = features.get(label or "", {}).get("names")
    return _Table(file, parquet, images[0], label, tuple(names) if names else None)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Metadata of the columns that `datasets` stores in a file."""
    try:
        notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = notes["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: facts for name, facts in features.items() if isinstance(facts, dict)}


def _holds_pictures(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return {field.name for field in kind} >= {"bytes", "path"}
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _labels(tables: Sequence[_Table], where: str) -> tuple[Any, tuple[str, ...] | None]:
    entries: list[int | str | None] = []
    for table in tables:
        if table.label is None:
            entries += [None] * table.parquet.metadata.num_rows
            continue
        column = table.parquet.read(columns=[table.label]).column(0)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not any(check(column.type) for check in LABEL_TYPES):
            raise VitreousError(
                f"The column {table.label!r} of {str(table.file)!r} is {column.type}; labels are "
                "whole numbers or words."
            )
        entries += column.to_pylist()
    labels, classes = number_labels(entries, f"The labels of {where!r}")
    return labels, tables[0].names if classes is None else classes


class _Rows:
    """The rows of several files, with a cache of row groups."""

    def __init__(self, tables: Sequence[_Table]) -> None:
        self._tables = tables
        groups = [
            (number, group, table.parquet.metadata.row_group(group).num_rows)
            for number, table in enumerate(tables)
            for group in range(table.parquet.metadata.num_row_groups)
        ]
        self._groups = [(number, group) for number, group, _ in groups]
        self._starts = np.cumsum([0, *(rows for _, _, rows in groups)])
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()

    def _place(self, row: int) -> tuple[int, int]:
        """The row group of a row, and the index in it."""
        which = int(np.searchsorted(self._starts, row, side="right")) - 1
        return which, row - int(self._starts[which])

    def describe(self, row: int) -> str:
        number, _ = self._groups[self._place(row)[0]]
        before = sum(table.parquet.metadata.num_rows for table in self._tables[:number])
        return f"{self._tables[number].file}, row {row - before}"

    def read(self, row: int) -> bytes | Path:
        which, place = self._place(row)
        number, group = self._groups[which]
        table = self._tables[number]
        with self._lock:
            if which not in self._kept:
                read = table.parquet.read_row_group(group, columns=[table.image])
                self._kept[which] = read.column(0)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(which)
            cell = self._kept[which][place].as_py()
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if content is not None:
            return bytes(content)
        if isinstance(cell, dict) and cell.get("path"):
            return Path(table.file.parent, cell["path"])
        raise ValueError("no picture in this row")
