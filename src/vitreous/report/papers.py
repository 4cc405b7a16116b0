"""Papers that a text names, as links to arXiv."""

from __future__ import annotations

import re
from functools import lru_cache

from vitreous.claims import every_claim
from vitreous.claims.book import Paper
from vitreous.results.words import escape


def arxiv_link(paper: Paper, words: str) -> str:
    """Return words as a link to the paper on arXiv, or the words alone if it is not on arXiv."""
    if not paper.arxiv:
        return escape(words)
    return f'<a href="https://arxiv.org/abs/{escape(paper.arxiv)}">{escape(words)}</a>'


def link_papers(text: str) -> str:
    """Return a text as HTML in which authors and year of a known paper are links.

    Examples
    --------
    >>> link_papers("Attention is local (Raghu et al. 2021, Fig. 3).")
    """
    known = _citations()
    if not known:
        return escape(text)
    pattern = re.compile("|".join(re.escape(words) for words in known))
    parts, end = [], 0
    for found in pattern.finditer(text):
        parts += [escape(text[end : found.start()]), arxiv_link(known[found[0]], found[0])]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


@lru_cache(maxsize=1)
def _citations() -> dict[str, Paper]:
    """Return the paper of each citation: `Park & Kim 2022`, `Park and Kim (2022)` and so on."""
    known = {}
    for paper in dict.fromkeys(claim.paper for claim in every_claim()):
        for authors in (paper.authors, paper.authors.replace(" and ", " & ")):
            known[f"{authors} {paper.year}"] = known[f"{authors} ({paper.year})"] = paper
    return known
