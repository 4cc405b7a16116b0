"""`vitreous list`: the models, probes, analyses and recipes that have names."""

from __future__ import annotations

from cyclopts import App

from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes

listing = App(name="list", help="What there is to choose from.")


@listing.command(name="models")
def list_models(*, filter: str = "*", pretrained: bool = False) -> None:
    """List the models that can be opened by name.

    Example: vitreous list models --filter '*convnext*' --pretrained

    Parameters
    ----------
    filter
        A pattern with * and ?.
    pretrained
        Only those with published weights, each with its tag.
    """
    from vitreous.models import loading

    found = loading.list_models(filter, pretrained)
    if not found:
        raise VitreousError(
            f"No model is called anything like {filter!r}; a pattern with stars, '*vit*', finds parts."
        )
    print("\n".join(found))


@listing.command(name="probes")
def list_probes() -> None:
    """List the questions that `inspect` asks.

    Example: vitreous list probes
    """
    wide = max(map(len, probes.names()))
    print("\n".join(f"{name:{wide}}  {probes.summary(name)}" for name in probes.names()))


@listing.command(name="analyses")
def list_analyses() -> None:
    """List the questions that need many passes, each a command of its own; `inspect --deep` asks them all.

    Example: vitreous list analyses
    """
    wide = max(map(len, analyses.names()))
    print("\n".join(f"{name:{wide}}  {analyses.summary(name)}" for name in analyses.names()))


@listing.command(name="recipes")
def list_recipes() -> None:
    """List the recipes that a model can be trained by, with the row of the catalogue each follows.

    Example: vitreous list recipes
    """
    from vitreous.training import recipes

    wide = max(map(len, recipes.names()))
    print("\n".join(f"{name:{wide}}  {recipes.summary(name)}" for name in recipes.names()))
