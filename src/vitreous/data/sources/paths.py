"""Paths of users (a folder, a file or a pattern), and the source that reads them.

Patterns have stars (`photos/*/*.jpg`, `**` for any depth) or braces (`shards-{000..004}.tar`,
`{train,val}.tar`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob, has_magic
from itertools import product
from pathlib import Path

from vitreous.errors import NoSuchPath, VitreousError

PICTURES = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm",
    ".avif", ".jp2",
)  # fmt: skip
ZIPS = (".zip",)
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
PARQUETS = (".parquet",)

READERS = {
    "picture_files": PICTURES,
    "archives": (*ZIPS, *TARS),
    "parquet": PARQUETS,
    "npz": (".npz",),
}
"""Modules that read files, and the suffixes of these files."""

MOST = 100_000
"""Maximum number of files that braces may expand to; more is a typo."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def reader_of(where: str) -> str:
    """The module of `vitreous.data.sources` that reads a path; raises if none does."""
    path = Path(where).expanduser()
    if path.is_dir():
        return _reader_of_folder(path)
    for reader, endings in READERS.items():
        if where.lower().endswith(endings):
            return reader
    if is_pattern(where):
        matches = matching_files(where)
        files = [file for file in matches if not file.is_dir()]
        return "picture_files" if len(files) < len(matches) else reader_of(str(files[0]))
    if path.exists():
        known = ", ".join(ending for endings in READERS.values() for ending in endings)
        raise VitreousError(f"{where!r} is no source of images; a file ends in one of {known}.")
    raise NoSuchPath("file or folder", where)


def check_picture(source: str | Path) -> None:
    """Raise if a path is not that of one picture."""
    if "://" in str(source):
        raise VitreousError(f"{str(source)!r} is an address; download the picture and give a path.")
    path = Path(source).expanduser()
    if path.is_dir():
        inside = files_in(path, PICTURES)
        below = inside or [next((each for each in path.rglob("*") if _is_picture(each)), path)]
        such_as = f", such as {str(below[0])!r}" if below[0] != path else ""
        raise VitreousError(f"{str(source)!r} is a folder; give one picture{such_as}.")
    if not path.exists():
        raise NoSuchPath("picture", str(source))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES and not path.name.startswith(".")


def _reader_of_folder(folder: Path) -> str:
    """The module for a folder: that of its shards if it has nothing else, otherwise `folder`."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    if any(entry.is_dir() for entry in entries):
        return "folder"
    for reader in ("archives", "parquet"):
        if files_in(folder, READERS[reader]) and not files_in(folder, PICTURES):
            return reader
    return "folder"


def files_in(folder: Path, endings: Sequence[str]) -> list[Path]:
    """Visible files directly in a folder with one of these suffixes, by name."""
    entries = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path for path in entries if path.name.lower().endswith(tuple(endings)))


def is_pattern(where: str) -> bool:
    """Whether a path has stars, question marks, brackets or braces that mean several files."""
    return has_magic(where) or _BRACES.search(where) is not None


def matching_files(where: str, endings: Sequence[str] = ()) -> list[Path]:
    """The files of a path or pattern, in the order of braces and then by name.

    For a folder these are the files in it with one of the suffixes `endings`. Raises if nothing
    matches, or if a file named by braces is missing.
    """
    files: list[Path] = []
    missing: list[str] = []
    for name in expand_braces(where):
        path = Path(name).expanduser()
        if path.exists():
            files += files_in(path, endings) if path.is_dir() and endings else [path]
        elif has_magic(name):
            files += sorted(map(Path, glob(str(path), recursive=True)))
        else:
            missing.append(name)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        if missing == [where]:  # do not suggest other shards for a missing shard
            raise NoSuchPath("file", where)
        raise VitreousError(f"There is no file {missing[0]!r}{more}.")
    if not files:
        raise VitreousError(
            f"No file matches {where!r}; compare the pattern with the names of your files."
        )
    return files


def expand_braces(where: str) -> list[str]:
    """Expand braces: `a{00..02}` to a00, a01, a02; `{a,b}` to a, b.

    Braces without a range or a comma are part of the name.
    """
    if Path(where).expanduser().exists():
        return [where]
    pieces: list[list[str]] = []
    end = 0
    for braces in _BRACES.finditer(where):
        pieces += [[where[end : braces.start()]], _choices(braces[1])]
        end = braces.end()
    pieces.append([where[end:]])
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > MOST:
        raise VitreousError(f"{where!r} stands for {count:,} files, more than {MOST:,}.")
    return ["".join(chosen) for chosen in product(*pieces)]


def _choices(inside: str) -> list[str]:
    """Expand the text between two braces."""
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",") if "," in inside else [f"{{{inside}}}"]
    first, last = int(numbers[1]), int(numbers[2])
    if abs(last - first) >= MOST:
        raise VitreousError(f"{{{inside}}} stands for more than {MOST:,} files.")
    step = 1 if first <= last else -1
    width = len(numbers[1]) if numbers[1].startswith("0") else 0
    return [f"{number:0{width}}" for number in range(first, last + step, step)]
