"""`vitreous claims`: list findings, show one, judge them."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from vitreous.commands.terminal import console

claims_app = App(
    name="claims", help="Findings of papers, and how each is judged.", group_parameters="Options"
)


@claims_app.command(name="list")
def list_claims(
    *, paper: str | None = None, study: str | None = None, book: tuple[str, ...] = ()
) -> None:
    """List the findings that can be judged.

    Example: vitreous claims list --paper VIT

    Parameters
    ----------
    paper
        HDV (Park and Kim), SLC (Raghu et al.), VIT (Dosovitskiy et al.), CVT (d'Ascoli et al.), or
        the key of a book (default: all papers).
    study
        Only the findings of this study (default: all studies).
    book
        Also use this book of findings: FILE.py:NAME or MODULE:NAME; may be repeated.
    """
    from vitreous.claims import use_books  # numpy comes with it
    from vitreous.commands.claim_tables import print_claims

    use_books(book)
    print_claims(paper, study, console())


@claims_app.command(name="show")
def show_claim(id: str, /, *, book: tuple[str, ...] = ()) -> None:
    """Show one finding: its place in the paper, what was reported, what it needs, when it is
    reproduced.

    Example: vitreous claims show VIT-13

    Parameters
    ----------
    id
        Id of the finding, as in `vitreous claims list`.
    book
        Also use this book of findings: FILE.py:NAME or MODULE:NAME; may be repeated.
    """
    from vitreous.claims import use_books  # numpy comes with it
    from vitreous.commands.claim_tables import print_claim

    use_books(book)
    print_claim(id, console())


@claims_app.command(name="judge")
def judge_claims(
    folder: Path,
    /,
    *,
    only: str | None = None,
    role: tuple[str, ...] = (),
    all: bool = False,
    out: tuple[Path, ...] = (),
    book: tuple[str, ...] = (),
    approximate: bool = False,
) -> None:
    """Judge findings on saved results: of a study, or of `vitreous inspect --results`.

    Example: vitreous claims judge studies/cifar10 --out verdicts.html --out verdicts.csv

    Parameters
    ----------
    folder
        Folder of a study or of an inspection.
    only
        Ids of findings, or keys of papers and books (HDV, MINE), separated by commas (default:
        all).
    role
        Role of a model of an inspection: NAME='vit pool=gap'; may be repeated (default: what its
        run records).
    all
        Print every finding with its notes, not only those that were decided.
    out
        Also write a page (.html), all effects (.csv, .json) or the main effects (.tex); may be
        repeated.
    book
        Also use this book of findings: FILE.py:NAME or MODULE:NAME; may be repeated.
    approximate
        Accept results of older versions, which have intervals but no bootstrap replicates; models
        are then compared as if they had seen different images.
    """
    from vitreous.claims import use_books  # numpy comes with it
    from vitreous.commands.judge import judge_folder  # pandas comes with it

    use_books(book)
    judge_folder(folder, only, role, out, all, console(), approximate=approximate)
