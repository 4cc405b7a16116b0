"""One picture, or all that a pattern matches: `photo.jpg`, `photos/*.jpg`, `photos/*/*.png`.

Folders matched by a wildcard are classes: in `photos/*/*.jpg` those under `photos`. Pictures that
match `photos/*.jpg` have no labels.
"""

from __future__ import annotations

import os
from glob import has_magic
from pathlib import Path

from vitreous.data.sources.folder import legible, walk_pictures
from vitreous.data.sources.folder_layout import list_by_path
from vitreous.data.sources.listing import Listing, cache_key, file_stamps
from vitreous.data.sources.paths import PICTURES, is_pattern, matching_files
from vitreous.errors import VitreousError


def list_picture_files(where: str, split: str, root: Path) -> Listing:
    """The pictures of one split, by their paths."""
    files = picture_paths(where)
    base = _fixed_part(where) if is_pattern(where) else files[0].parent
    paths = [_below(file, base) for file in files]
    key = cache_key(file_stamps(files))
    return list_by_path(files, paths, split, where, lambda row: legible(str(files[row])), key)


def picture_paths(where: str) -> list[Path]:
    """The pictures of a path or pattern; for a folder that matches those in it."""
    files: list[Path] = []
    for path in matching_files(where):
        if path.is_dir():
            files += walk_pictures(path)
        elif path.name.lower().endswith(PICTURES):
            files.append(path)
    if not files:
        raise VitreousError(
            f"Nothing that matches {where!r} is a picture; Vitreous looks for "
            f"{', '.join(PICTURES)}."
        )
    return list(dict.fromkeys(files))


def _fixed_part(where: str) -> Path:
    """The folder before the first component with a wildcard."""
    parts = Path(where).expanduser().parts
    open_parts = (place for place, part in enumerate(parts) if "{" in part or has_magic(part))
    return Path(*parts[: next(open_parts)])


def _below(file: Path, folder: Path) -> str:
    """A path relative to a folder, with slashes on every system."""
    return legible(os.path.relpath(file, folder).replace(os.sep, "/"))
