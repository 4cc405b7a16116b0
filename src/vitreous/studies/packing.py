"""Pack a study into archives: its results and the records of its trainings, without weights.

    packed.json             what the archive is, and the SHA-256 of every file in it
    trainings.csv           accuracy, loss, minutes and throughput of every training
    study.json, exhibits/   as in the study's folder
    trainings/KEY           recipe, environment and metrics of a run, and no weights

A study that runs in a folder with unpacked evidence neither trains nor measures that again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from vitreous.claims.facts import describe_facts
from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.errors import NoSuchPath, VitreousError
from vitreous.results.files import is_intact
from vitreous.storage.atomic_files import (
    Damaged,
    explain_write_errors,
    read_json,
    write_bytes,
    write_json,
)
from vitreous.storage.fingerprints import checksum
from vitreous.storage.run_folder import Run
from vitreous.studies.measuring import STUDY, TRAININGS
from vitreous.studies.run_cells import PACKED, is_trained
from vitreous.studies.run_study import check_settings

ENVIRONMENT = "environment.json"
RECORDS = ("recipe.json", ENVIRONMENT, "metrics.jsonl")
TABLE = "trainings.csv"
LIMIT = 16_000_000
"""Bytes of one archive."""
OVERHEAD = 256
"""Upper estimate of the bytes that an archive takes for each file besides its content."""
COPY = "copy it anew"


@dataclass(frozen=True)
class Packed:
    """The archives, the number of results and trainings in them, and what was left out."""

    archives: tuple[Path, ...]
    results: int
    trainings: int
    dropped: Mapping[str, str]
    """Why something was left out, by its name."""


def pack_evidence(root: Path, out: Path, limit: int = LIMIT) -> Packed:
    """Write the results and records of a study into one archive, or several if it is large.

    Parameters
    ----------
    root
        The study's folder.
    out
        The archive, `evidence.zip`. Where one would be larger than `limit` bytes, there are
        `evidence-1.zip`, `evidence-2.zip` and so on; each can be unpacked by itself.
    """
    dropped: dict[str, str] = {}
    study = {STUDY: root / STUDY} if (root / STUDY).is_file() else {}
    # The files of one unit go into the same archive: those shared with other units, and its own.
    units: list[tuple[dict[str, bytes], dict[str, bytes]]] = []
    results = 0
    for home in sorted(path.parent for path in (root / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            index = read_exhibit(home)
        except VitreousError as error:
            dropped[f"{EXHIBITS}/{home.name}"] = str(error)
            continue
        shared = _contents(root, [*study.values(), home / INDEX])
        for name in index["results"]:
            if _intact(home, name, index):
                units.append((shared, _contents(root, _files_of(home, name))))
                results += 1
            else:
                dropped[f"{EXHIBITS}/{home.name}/{name}"] = "damaged"
    runs = []
    for home in sorted(path.parent for path in (root / TRAININGS).glob("*/recipe.json")):
        if not Run(home).records():
            dropped[f"{TRAININGS}/{home.name}"] = "nothing recorded yet"
            continue
        runs.append(Run(home))
        files = [home / name for name in RECORDS if (home / name).is_file()]
        record = _contents(root, files)
        for name in record:
            if name.endswith(ENVIRONMENT):
                record[name] = _without_folders(root / name)
        units.append(({}, record))
    if not units:
        if not root.exists():
            raise NoSuchPath("folder", str(root), "of a study")
        raise VitreousError(f"There is no evidence to pack in {str(root)!r}.")
    weights = sum(path.stat().st_size for path in (root / TRAININGS).glob("*/**/*.safetensors"))
    if weights:
        dropped["weights and saved states"] = f"{weights / 1e6:,.0f} MB"
    units.append(({}, {TABLE: _table(runs, root).encode()}))
    return Packed(_write_archives(units, out, limit), results, len(runs), dropped)


def _contents(root: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    """The contents of files by their names within the study's folder."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def _without_folders(environment: Path) -> bytes:
    """The environment of a training, with the folders removed from the paths in its command."""
    known = read_json(environment)
    if "command" in known:
        known["command"] = re.sub(r"(?:/[^/\s]+)*/([^/\s]+)", r"\1", known["command"])
    return _json(known)


def _intact(home: Path, name: str, index: Mapping[str, Any]) -> bool:
    return is_intact(home / f"{name}.json", index.get("checksums", {}).get(name))


def _files_of(home: Path, name: str) -> list[Path]:
    """The files of a result."""
    facts = home / f"{name}.json"
    return [facts, *(home / file["name"] for file in read_json(facts)["files"].values())]


def _table(runs: Sequence[Run], root: Path) -> str:
    """One row for each training."""
    facts = {}
    for index in sorted((root / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            known = read_exhibit(index.parent)
            facts[known["training"]] = known["facts"]
        except (VitreousError, KeyError):
            continue
    rows = []
    for run in runs:
        epochs = run.records()
        last, identity = epochs[-1], run.identity
        environment = read_json(run.folder / "environment.json")
        seconds = sum(each.get("seconds", 0.0) for each in epochs)
        images = sum(
            each.get("images_per_second", 0.0) * each.get("seconds", 0.0) for each in epochs
        )
        model = {
            name: value
            for name, value in facts.get(run.folder.name, {}).items()
            if name not in ("checkpoint", "measured", "beside", "seed", "data")
        }
        rows.append(
            {
                "key": run.folder.name,
                "model": describe_facts(model) if model else "",
                "network": (identity["model"].get("build") or {}).get("name", ""),
                "data": identity["data"]["name"],
                "recipe": identity["recipe"]["name"],
                "seed": identity["seed"],
                "epochs": last["epoch"],
                "accuracy": 1 - last["test_error"] if "test_error" in last else "",
                "test_nll": last.get("test_nll", ""),
                "train_nll": last.get("train_nll", ""),
                "minutes": round(seconds / 60, 2),
                "images_per_second": round(images / seconds) if seconds else "",
                "seeds_per_step": len(environment.get("stacked_seeds", [0])),
                "device": environment.get("device", ""),
                "vitreous": environment.get("vitreous", ""),
            }
        )
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _write_archives(
    units: Sequence[tuple[dict[str, bytes], dict[str, bytes]]], out: Path, limit: int
) -> tuple[Path, ...]:
    """Write units to archives in their order, and begin a new archive when the limit is reached."""
    parts: list[dict[str, bytes]] = [{}]
    room = limit
    for shared, own in units:
        size = _size({**shared, **own})
        if size > limit - OVERHEAD:
            raise VitreousError(
                f"{next(iter(own))!r} alone takes {size:,} bytes, and an archive has at most "
                f"{limit:,}."
            )
        if size > room:
            parts.append({})
            room = limit
        room -= size
        parts[-1] |= shared | own
    paths = []
    for number, part in enumerate(parts, 1):
        path = out if len(parts) == 1 else out.with_name(f"{out.stem}-{number}{out.suffix}")
        manifest = {
            "part": number,
            "parts": len(parts),
            "files": {name: hashlib.sha256(each).hexdigest() for name, each in part.items()},
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            _store(archive, PACKED, _json(manifest))
            for name, content in part.items():
                _store(archive, name, content)
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, buffer.getvalue())
        paths.append(path)
    return tuple(paths)


def _size(contents: Mapping[str, bytes]) -> int:
    """Upper estimate of the bytes of files in an archive; each name is stored three times."""
    return sum(len(zlib.compress(c)) + 3 * len(n) + OVERHEAD for n, c in contents.items())


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps({**value, "sha256": checksum(value)}, indent=1) + "\n").encode()


def _store(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file without a time stamp, so that the same evidence gives the same bytes."""
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def unpack_evidence(archives: Sequence[Path], root: Path) -> int:
    """Unpack archives of `pack_evidence` into a study's folder; returns the number of new results.

    Intact results in the folder are kept, and so are trainings that have their weights.
    """
    added = 0
    for archive in archives:
        contents = _read_archive(archive)
        if STUDY in contents:
            settings = _from_json(contents[STUDY], archive)
            check_settings(root, settings)
        exhibits: dict[str, dict[str, bytes]] = {}
        for name, content in contents.items():
            kind, _, rest = name.partition("/")
            key, _, file = rest.partition("/")
            if kind == EXHIBITS:
                exhibits.setdefault(key, {})[file] = content
            elif kind == TRAININGS and not is_trained(key, root):
                _restore_record(root / TRAININGS / key, file, content)
        for key, files in exhibits.items():
            added += _restore_exhibit(root / EXHIBITS / key, files, archive)
    return added


def _read_archive(path: Path) -> dict[str, bytes]:
    """The files of an archive by name, checked against the list of checksums in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError:
        raise NoSuchPath("file", str(path)) from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise Damaged(path, f"{type(error).__name__}: {error}", COPY) from None
    if PACKED not in contents:
        raise VitreousError(f"{str(path)!r} is no archive of `vitreous pack`: no {PACKED} in it.")
    listed = _from_json(contents.pop(PACKED), path)["files"]
    if listed.keys() != contents.keys():
        raise Damaged(path, "it does not hold the files that it lists", COPY)
    for name, content in contents.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name:
            raise Damaged(path, f"{name!r} would be written outside of the folder", COPY)
        if hashlib.sha256(content).hexdigest() != listed[name]:
            raise Damaged(path, f"the checksum of {name!r} does not match", COPY)
    return contents


def _from_json(content: bytes, path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(content)
    expected = value.pop("sha256", None)
    if expected != checksum(value):
        raise Damaged(path, "a checksum in it does not match", COPY)
    return value


def _restore_record(home: Path, name: str, content: bytes) -> None:
    """Write a file of a training's record, unless this folder holds a training of its own."""
    if home.exists() and not (home / PACKED).exists():
        return
    with explain_write_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    write_json(home / PACKED, {"weights": "left behind"})
    write_bytes(home / name, content)


def _restore_exhibit(home: Path, files: Mapping[str, bytes], archive: Path) -> int:
    """Add the results that are missing or damaged in a folder; returns their number."""
    index = _from_json(files[INDEX], archive)
    try:
        known = read_exhibit(home)
    except VitreousError:
        known = {**index, "results": {}, "checksums": {}, "left_out": {}, "seconds": {}}
    kept = {name for name in known["results"] if _intact(home, name, known)}
    new = [name for name in index["results"] if name not in kept and f"{name}.json" in files]
    with explain_write_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    for name in new:
        facts = _from_json(files[f"{name}.json"], archive)
        for file in facts["files"].values():
            write_bytes(home / file["name"], files[file["name"]])
        write_bytes(home / f"{name}.json", files[f"{name}.json"])
    for part in ("results", "checksums", "seconds"):
        added = {name: index[part][name] for name in new if name in index.get(part, {})}
        known[part] = {name: v for name, v in known[part].items() if name in kept} | added
    known["left_out"] = index.get("left_out", {}) | known.get("left_out", {})
    write_json(home / INDEX, known)
    return len(new)
