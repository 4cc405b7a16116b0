"""`vitreous study`: train and measure what a set of findings needs, and judge them."""

from __future__ import annotations

import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from vitreous.commands.terminal import ImageOption, console
from vitreous.data.dataset_names import check_dataset
from vitreous.errors import VitreousError
from vitreous.image_size import square_side
from vitreous.storage.file_names import file_words
from vitreous.validation import check_ranges


def run_study(
    name: str | None = None,
    /,
    *,
    data: str = "world:shapes",
    scale: str = "sanity",
    seeds: int = 1,
    out: Path = Path("study"),
    image: ImageOption | None = None,
    workers: int | None = None,
    device: str = "auto",
    executor: Literal["processes", "ray"] = "processes",
    address: str | None = None,
    until: float | None = None,
    dry_run: bool = False,
    book: tuple[str, ...] = (),
) -> None:
    """Train and measure what a set of findings needs, and judge them.

    Example: vitreous study zoo --data tv:CIFAR10 --scale small --out studies/cifar10

    Interrupted? Run the same command again: it resumes. A second terminal with the same command
    shares the work.

    Parameters
    ----------
    name
        zoo, data, hessian-sweeps, sweeps, alternet, convit, skips, masked or identities; sanity
        runs all findings that have a small version, all runs every finding. build-up searches
        where attention belongs in a ResNet, and judges nothing. The key of a paper, for example
        HDV, runs all findings of that paper (default: sanity, or with --book the findings of that
        book).
    data
        Images, as in `vitreous train`; findings with a small version have their own at scale sanity
        (default: world:shapes).
    scale
        sanity (two cores), small (one GPU), reproduction (one GPU, the recipes of the papers) or
        paper (many GPUs) (default: sanity).
    seeds
        Number of trainings of each model (default: 1).
    out
        Folder of the study; several studies may share one (default: study).
    image
        Side of the images in pixels (default: that of the scale).
    workers
        Processes on this machine (default: one per GPU, or one per core without GPUs).
    device
        auto, cpu or cuda (default: auto).
    executor
        processes on this machine, or ray for many machines that share the folder (default:
        processes).
    address
        Address of a Ray cluster, HOST:PORT or auto (default: one on this machine).
    until
        Time limit in minutes: nothing that is expected to finish later is started (default: no
        limit).
    dry_run
        Only list the trainings, the findings that each serves, and an estimate of the time.
    book
        Also use this book of findings: FILE.py:NAME or MODULE:NAME; may be repeated.
    """
    name = _choose_study(name, book)
    _check_study(
        name, out, executor, data=data, seeds=seeds, workers=workers, image=image, until=until
    )
    # torch and pandas come with these
    from vitreous.commands.judge import judge_folder
    from vitreous.studies import run_study

    ids, failed = run_study.conduct_study(
        name, data, scale, seeds, out, image=square_side(image), workers=workers, device=device,
        executor=executor, address=address, dry_run=dry_run, console=console(), until=until,
    )  # fmt: skip
    if ids:
        files = (out / "verdicts.html", out / "verdicts.csv")
        judge_folder(out, ",".join(ids), (), files, False, console())
    if failed:
        raise run_study.CellsFailed(failed, out)


def _choose_study(name: str | None, books: tuple[str, ...]) -> str:
    """Register the books, and return the study to run: `name`, else the book's own, else sanity.

    The study of a book has the key of its paper as its name.
    """
    from vitreous.claims import use_books  # numpy comes with it

    keys = [book.paper.key for book in use_books(books)]
    if name is None and len(keys) > 1:
        raise VitreousError(
            f"{len(keys)} books were given: say which study to run, for example {keys[0]}."
        )
    return name or next(iter(keys), "sanity")


def _check_study(name: str, out: Path, executor: str, *, data: str, **numbers: Any) -> None:
    """Raise for options that are wrong, also in a dry run."""
    from vitreous.claims import claims_of_study  # numpy comes with it

    check_ranges(**numbers)
    check_dataset(data)
    if name != "build-up":
        claims_of_study(name)
    if any(part.is_file() for part in (out.expanduser(), *out.expanduser().parents)):
        raise VitreousError(
            f"out={str(out)!r} has to be a folder, and a part of it is a file; choose another."
        )
    if executor == "ray" and find_spec("ray") is None:
        raise VitreousError(
            "The executor ray needs Ray, which is not installed: pip install 'vitreous[ray]'."
        )


def pack_study(folder: Path, /, *, out: Path | None = None) -> None:
    """Pack the results of a study, without weights, into files of at most 16 MB.

    Example: vitreous pack studies/cifar10 --out evidence.zip

    Parameters
    ----------
    folder
        Folder of the study.
    out
        Archive to write; evidence-FOLDER-1.zip, evidence-FOLDER-2.zip and so on if one is not
        enough (default: evidence-FOLDER.zip).
    """
    from vitreous.studies.packing import pack_evidence  # torch comes with it

    default = Path(f"evidence-{file_words(folder.resolve())}.zip")
    target = (out or default).expanduser()
    before = set(target.parent.glob(f"{glob.escape(target.stem)}*.zip"))
    packed = pack_evidence(folder.expanduser(), target)
    for archive in packed.archives:
        size = archive.stat().st_size / 1e6
        replaced = " (replaced)" if archive in before else ""
        console().print(f"{archive}: {size:.1f} MB{replaced}", highlight=False)
    console().print(
        f"{packed.results} results and the records of {packed.trainings} trainings.",
        highlight=False,
    )
    for name, why in packed.dropped.items():
        console().print(f"Left out: {name} ({why}).", highlight=False)


def unpack_study(*archives: Path, out: Path = Path("study")) -> None:
    """Add results packed by `vitreous pack` to the folder of a study.

    Example: vitreous unpack evidence.zip --out studies/cifar10

    Parameters
    ----------
    archives
        Archives of `vitreous pack`: all parts.
    out
        Folder of the study, new or existing (default: study).
    """
    from vitreous.studies.packing import unpack_evidence  # torch comes with it

    if not archives:
        raise VitreousError("Name the archives to unpack, for example evidence.zip.")
    added = unpack_evidence([path.expanduser() for path in archives], out.expanduser())
    console().print(f"{added} results are new in {str(out)!r}.", highlight=False)
