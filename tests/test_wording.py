"""Texts that users read have the field's own words: no catalogue ids, no private vocabulary.

These are the documents, the docstrings of the Python API's page and of the claims' checks, the
messages and sentences in the source, what `--help` prints, the texts of findings, and the
explorer's page. Ids of claims (`HDV-26`) are names that users type.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from vitreous import claims

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vitreous"
IDS = re.compile(r"\b(?:[A-E]\d{1,2}\.\d{1,2}|X-\d{2}|[A-E]\d{1,2})\b(?![/.\w-])")
"""Of the catalogue and of conflicts between papers: `A4.17`, `D1`, `X-05`."""
WORDS = re.compile(
    r"\bquestions?\b(?! mark)|asked of a|goes on (?:where|with)|\bexhibits?\b|\bresamplings?\b"
    r"|(?<!a )(?<!second )\bmoments?\b|\bpass together|(?:asks?|needs?) no network"
    r"|at most so many|\btak(?:es?|ing) turns|everything random|too close to tell"
    r"|the way (?:up|down)\b|\bput off\b|with nothing at hand|the embedded world"
    r"|\bdata[ -]sets?\b"
    r"|^#+ (?:many passes|looking inside|images in|trained models out)",
    re.MULTILINE,
)
"""What a reader would have to learn first: say probe, checkpoint, resumes, offline, dataset."""
NAMES = {"question", "moment", "moments", "exhibits", "exhibit.json", "data set"}
"""Of files, attributes and recorded values that stay readable to older versions."""


def documents() -> Iterator[tuple[str, str]]:
    """Prose of every document: blocks of code and inline code are left out."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if path.name != "LOG.md" and "_build" not in path.parts:
            text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
            yield str(path.relative_to(ROOT)), re.sub(r"`[^`\n]*`", "", text)


def texts_of(path: Path) -> Iterator[str]:
    """Strings of a module but those that are an id as a whole; docstrings only of commands."""
    source = path.read_text("utf-8")
    if not found(source):
        return  # the usual case, and quick
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and "commands" not in path.parts:
            docstrings.add(id(node.value))  # of attributes
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            hidden = id(node) in docstrings and "commands" not in path.parts
            if not hidden and node.value not in NAMES and not IDS.fullmatch(node.value):
                yield re.sub(r"`[^`\n]*`|<[^>]*", "", node.value)


def docstrings() -> Iterator[tuple[str, str]]:
    """Those of the names on the page of the Python API and of their public members."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    for name in re.findall(r"^\.\. auto\w+:: ([\w.]+)", page, re.MULTILINE):
        documented = pkgutil.resolve_name(name)
        members = getattr(documented, "__dict__", {})
        public = [each for key, each in members.items() if not key.startswith("_")]
        for each in (documented, *public):
            if isinstance(each, property) or callable(each) or each is documented:
                yield name, re.sub(r"`[^`\n]*`|>>> .*", "", inspect.getdoc(each) or "")


def checks() -> Iterator[tuple[str, str]]:
    """Docstrings of the claims' checks, which `vitreous claims show` prints."""
    for claim in claims.every_claim():
        yield claim.id, re.sub(r"`[^`\n]*`", "", claim.check.__doc__ or "")


def found(text: str) -> list[str]:
    return [hit[0] for hit in (*IDS.finditer(text), *WORDS.finditer(text.lower()))]


def test_the_rule_itself() -> None:
    assert found("see (A4.17) and X-05; D1") == ["A4.17", "X-05", "D1"]
    assert found("at the moment @warmup every question goes on where it stopped") == [
        "moment", "question", "goes on where",
    ]  # fmt: skip
    assert not found("HDV-26 of ViT-B/16, Fig. D.1 and B.1.2; in a moment; second moments")


def test_texts_use_the_fields_words() -> None:
    texts = [*documents(), *docstrings(), *checks()]
    assert sum(bool(text) for name, text in texts if name == "vitreous.Specimen") > 5
    wrong = [f"{name}: {hit}" for name, text in texts for hit in found(text)]
    for path in sorted(SOURCE.rglob("*.py")):
        for text in texts_of(path):
            wrong += [f"{path.relative_to(ROOT)}: {hit} in {text[:60]!r}" for hit in found(text)]
    for path in sorted({*SOURCE.rglob("*.toml"), *SOURCE.rglob("*.js"), *SOURCE.rglob("*.html")}):
        if path.name != "conflicts.toml":  # whose headings are ids that nobody is shown
            text = path.read_text("utf-8").replace(".question", "")  # a class of style sheets
            wrong += [f"{path.name}: {hit}" for hit in found(text)]
    assert not wrong, "\n".join(wrong)
