"""`vitreous list`: names of models, probes, analyses and recipes."""

from __future__ import annotations

from typing import Protocol

from cyclopts import App

from vitreous import model_listing
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.training import recipes

list_app = App(
    name="list", help="List models, probes, analyses or recipes.", group_parameters="Options"
)


@list_app.command(name="models")
def print_models(*, filter: str = "*", pretrained: bool = False) -> None:
    """List the models that can be opened by name.

    Example: vitreous list models --filter '*convnext*' --pretrained

    Parameters
    ----------
    filter
        A pattern with * and ? (default: *).
    pretrained
        Only those with published weights, each with its tag.
    """
    models = model_listing.list_names(filter, pretrained)
    if not models:
        raise VitreousError(
            f"No model name matches {filter!r}; use stars to match a part of it: '*vit*'."
        )
    print("\n".join(models))


@list_app.command(name="probes")
def print_probes() -> None:
    """List the probes: measurements that `inspect` makes in one pass over the images.

    Example: vitreous list probes
    """
    _print_summaries({name: _line(probes.REGISTRY, name) for name in probes.names()})


@list_app.command(name="analyses")
def print_analyses() -> None:
    """List the analyses: measurements that need many passes. `inspect --deep` runs them all.

    Example: vitreous list analyses
    """
    _print_summaries({name: _line(analyses.REGISTRY, name) for name in analyses.names()})


@list_app.command(name="recipes")
def print_recipes() -> None:
    """List the recipes that a model can be trained with.

    Example: vitreous list recipes
    """
    _print_summaries({name: _line(recipes, name) for name in recipes.names()})


class Listed(Protocol):
    """A registry that can be listed: it has a summary and the origin of each name."""

    def summary(self, name: str, /) -> str: ...

    def origin(self, name: str, /) -> str: ...


def _line(listed: Listed, name: str) -> str:
    origin = listed.origin(name)
    return f"{listed.summary(name)}{f' [{origin}]' if origin else ''}".strip()


def _print_summaries(summaries: dict[str, str]) -> None:
    width = max(map(len, summaries))
    for name, summary in summaries.items():
        print(f"{name:{width}}  {summary}")
