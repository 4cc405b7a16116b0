"""Pictures in archives: `photos.zip`, `photos.tar.gz`, and shards such as `train-{000..004}.tar`.

Folders within an archive are classes and splits, as on disk. In shards in the webdataset format,
files that share a name up to its first dot are one sample: `0001.jpg` and its label `0001.cls`, a
number or a word (or `0001.json` with a "label").
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitreous.data.sources.archive_files import Archive, Member, open_archives
from vitreous.data.sources.folder_layout import (
    files_of_split,
    has_split_folders,
    hold_out_labelled,
    list_by_path,
)
from vitreous.data.sources.labels import number_labels
from vitreous.data.sources.listing import (
    ALL_SPLIT_NAMES,
    LazyPictures,
    Listing,
    cache_key,
    file_stamps,
    list_all,
)
from vitreous.data.sources.paths import PICTURES, TARS, ZIPS, matching_files
from vitreous.errors import VitreousError

LABEL_ENDINGS = ("cls", "json")
"""Endings of the files that hold the label of a sample, best first."""

LABEL_KEYS = ("label", "cls", "class", "class_id", "class_name")
"""Keys of a sample's JSON that can hold its label, best first."""

Label = int | str | None


@dataclass(frozen=True)
class _Pictures:
    """Some pictures of some archives."""

    where: str
    files: list[Path]
    archives: list[Archive]
    members: list[Member]

    def of(self, files: Sequence[Path]) -> _Pictures:
        """Those in some of the archives."""
        numbers = {self.files.index(file) for file in files}
        members = [member for member in self.members if member.archive in numbers]
        return _Pictures(self.where, self.files, self.archives, members)

    def lazily(self) -> LazyPictures:
        return LazyPictures(len(self.members), self._read)

    def _read(self, row: int) -> bytes:
        member = self.members[row]
        return self.archives[member.archive].read(member.place, member.size)

    def describe(self, row: int) -> str:
        member = self.members[row]
        return f"{self.files[member.archive]}, {member.path}"

    @property
    def key(self) -> str:
        used = sorted({member.archive for member in self.members})
        return cache_key(file_stamps(self.files[number] for number in used), len(self.members))


def list_archives(where: str, split: str, root: Path) -> Listing:
    """The pictures of one split in one archive or in several."""
    files = archive_paths(where)
    archives, members = open_archives(files, _is_label)
    samples = _samples(members)
    if any(label is not None for label in samples.values()):
        pictures = _Pictures(where, files, archives, list(samples))
        return _list_samples(pictures, samples, split)
    chosen = [member for member in members if _is_picture(member.path)]
    if not chosen:
        raise VitreousError(
            f"There are no pictures in {where!r}; Vitreous looks for {', '.join(PICTURES)}."
        )
    # in the order of a folder, so that an archive of a folder is the same dataset
    chosen.sort(key=lambda member: (member.archive, member.path.split("/")))
    return _list_folders(_Pictures(where, files, archives, chosen), split)


def archive_paths(where: str) -> list[Path]:
    """The archives of a path or pattern; for a folder those in it."""
    endings = (*ZIPS, *TARS)
    files = matching_files(where, endings)
    odd = [file for file in files if not file.name.lower().endswith(endings)]
    if odd:
        raise VitreousError(f"{str(odd[0])!r} is no archive; one ends in {', '.join(endings)}.")
    return list(dict.fromkeys(files))


def _list_samples(pictures: _Pictures, samples: dict[Member, Label], split: str) -> Listing:
    """The split of webdataset samples."""
    chosen, by_name = files_of_split(pictures.files, split, pictures.where)
    pictures = pictures.of(chosen)
    entries = [samples[member] for member in pictures.members]
    labels, classes = number_labels(entries, f"The labels of {pictures.where!r}")
    listing = list_all(pictures.lazily(), labels, classes, pictures.describe, pictures.key)
    return listing if by_name else hold_out_labelled(listing, split, pictures.where)


def _list_folders(pictures: _Pictures, split: str) -> Listing:
    """The split of pictures in folders."""
    paths = _without_common_folders(pictures.members)
    chosen, by_name = files_of_split(pictures.files, "all", pictures.where)
    if by_name and not has_split_folders(paths):
        chosen, _ = files_of_split(pictures.files, split, pictures.where)
        pictures, split = pictures.of(chosen), "all"
        paths = _without_common_folders(pictures.members)
    return list_by_path(
        pictures.lazily(), paths, split, pictures.where, pictures.describe, pictures.key
    )


def _without_common_folders(members: Sequence[Member]) -> list[str]:
    """Paths without their common parent folders, except split folders."""
    paths = [member.path for member in members]
    while True:
        first, slash, _ = paths[0].partition("/")
        shared = slash and all(path.startswith(f"{first}/") for path in paths)
        if not shared or first.lower() in ALL_SPLIT_NAMES:
            return paths
        paths = [path.removeprefix(f"{first}/") for path in paths]


def _samples(members: Sequence[Member]) -> dict[Member, Label]:
    """The picture of each sample, and its label."""
    pictures: dict[tuple[int, str], Member] = {}
    labels: dict[tuple[int, str], dict[str, Member]] = {}
    for member in members:
        name, ending = _key(member.path)
        sample = member.archive, name
        if ending in LABEL_ENDINGS:
            labels.setdefault(sample, {})[ending] = member
        elif _is_picture(member.path):
            # of `0001.jpg` and `0001.mask.png` the image has the shorter suffix
            before = pictures.get(sample)
            if before is None or len(ending) < len(_key(before.path)[1]):
                pictures[sample] = member
    return {picture: _label(labels.get(sample, {})) for sample, picture in pictures.items()}


def _label(files: dict[str, Member]) -> Label:
    """The label in the files of a sample; None if they have none."""
    for ending in LABEL_ENDINGS:
        if ending not in files:
            continue
        content = (files[ending].note or b"").decode("utf-8", "replace").strip()
        label = _label_in_json(content, files[ending].path) if ending == "json" else content
        if isinstance(label, str) and label.lstrip("-").isdecimal():
            return int(label)
        if label not in (None, ""):
            return label
    return None


def _label_in_json(content: str, path: str) -> Label:
    try:
        facts = json.loads(content)
    except ValueError as error:
        raise VitreousError(f"The label {path!r} is no JSON: {error}.") from error
    labels = [facts[key] for key in LABEL_KEYS if key in facts] if isinstance(facts, dict) else []
    return labels[0] if labels and type(labels[0]) in (int, str) else None


def _key(path: str) -> tuple[str, str]:
    """The name of a sample, which goes to the first dot of a file's name, and the ending."""
    folder, slash, name = path.rpartition("/")
    stem, _, ending = name.partition(".")
    return f"{folder}{slash}{stem}", ending.lower()


def _is_label(path: str) -> bool:
    return _key(path)[1] in LABEL_ENDINGS


def _is_picture(path: str) -> bool:
    return path.lower().endswith(PICTURES)
