"""`vitreous claims`: list findings, show one, judge them."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from vitreous.commands.terminal import console

claiming = App(name="claims", help="Findings of four papers, and how each is judged.")


@claiming.command(name="list")
def list_claims(*, paper: str | None = None, study: str | None = None) -> None:
    """List the findings that can be judged.

    Example: vitreous claims list --paper VIT

    Parameters
    ----------
    paper
        HDV (Park and Kim), SLC (Raghu et al.), VIT (Dosovitskiy et al.) or CVT (d'Ascoli et al.).
    study
        Only those that a study is to decide, such as zoo.
    """
    from vitreous.commands import claim_tables

    claim_tables.list_claims(paper, study, console())


@claiming.command(name="show")
def show_claim(id: str, /) -> None:
    """Show one finding: where it stands, what the paper measured, what it needs and when it counts as supported.

    Example: vitreous claims show VIT-13

    Parameters
    ----------
    id
        As `vitreous claims list` has it.
    """
    from vitreous.commands import claim_tables

    claim_tables.show_claim(id, console())


@claiming.command(name="judge")
def judge_claims(
    folder: Path,
    /,
    *,
    only: str | None = None,
    role: tuple[str, ...] = (),
    out: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Judge findings on what was measured: in the folder of a study, or in what `vitreous inspect --results` wrote.

    Example: vitreous claims judge studies/cifar10 --only HDV-26,SLC-03 --out verdicts.html

    Parameters
    ----------
    folder
        Of a study or of an inspection.
    only
        Ids of findings (default: all).
    role
        What a model of an inspection is in the words of claims: --role run:mine='vit pool=gap'
    out
        Also a page of them, verdicts.html.
    csv
        Also a table, a row for each effect.
    """
    from vitreous.commands.judge import judge_folder

    judge_folder(folder, only, role, out, csv, console())
