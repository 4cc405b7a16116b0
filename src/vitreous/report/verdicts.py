"""What the findings of the papers come to on what was measured: a paragraph, then every verdict, paper by paper.

What could be judged stands open; what could not, for want of models or measurements, is a list at the end of its paper
that says what is missing. Everything is in the page, and the script that filters only hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

from vitreous.claims.claim import Claim, Outcome, Paper, Part, Verdict
from vitreous.claims.conflicts import concerning
from vitreous.claims.evidence import EvidenceItem, Need, Scale
from vitreous.claims.facts import same_facts
from vitreous.claims.facts import describe_facts
from vitreous.claims.loading import RANDOM
from vitreous.claims.together import OUTCOMES, of_chance
from vitreous.measure import analyses
from vitreous.report import effect
from vitreous.report.guard import Guard
from vitreous.results.words import escape, join_words, plural

SIGNS: dict[Outcome, str] = {"supported": "✓", "refuted": "✗", "inconclusive": "?"}
SCALES: dict[Scale, str] = {
    "sanity": "the embedded world", "ten": "few classes", "hundred": "many classes",
}  # fmt: skip
STRIKING = 3


@dataclass(frozen=True)
class Judgement:
    """Verdicts, and what they rest on."""

    verdicts: Sequence[Verdict]
    exhibits: Sequence[EvidenceItem]
    inspected: bool = False
    """Whether they are of an inspection, which can be asked more questions."""

    @property
    def measured(self) -> list[Verdict]:
        """Those for which everything was there."""
        return [verdict for verdict in self.verdicts if not verdict.lacking]


def papers(judgement: Judgement) -> dict[Paper, list[Verdict]]:
    """Verdicts by paper, in their order."""
    return {
        paper: list(own)
        for paper, own in groupby(judgement.verdicts, key=lambda verdict: verdict.claim.paper)
    }


def lines(judgement: Judgement, guard: Guard) -> list[str]:
    """The section."""
    found = ['<section id="verdicts" class="card"><h2>What the papers found, judged here</h2>']
    for what, make in (
        ("The paragraph on the verdicts", _paragraph), ("The clearest verdicts", _clearest),
        ("The caveat on the verdicts", _caveat), ("The table of verdicts", _tally),
        ("The models of the verdicts", _who), ("The filters of the verdicts", _filters),
    ):  # fmt: skip
        found += guard.lines(what, make, judgement)
    found.append("</section>")
    for paper, verdicts in papers(judgement).items():
        found += guard.lines(
            f"The verdicts on {paper.key}", _of_paper, paper, verdicts, judgement, guard
        )
    return found


def _paragraph(judgement: Judgement) -> list[str]:
    counted, *rest = sentences(judgement)
    return [f"<p>{' '.join([counted, *map(escape, of_chance(judgement.measured)), *rest])}</p>"]


def _clearest(judgement: Judgement) -> list[str]:
    clearest = [
        f'<li>{badge(verdict.outcome)} <a class="id" href="#{verdict.claim.id}">{verdict.claim.id}</a> '
        f'{escape(verdict.claim.sentence)} <span class="quiet">{effect.told(part)}.</span></li>'
        for verdict, part in striking(judgement.measured)
    ]
    return (
        ['<p class="clearest">The clearest:</p><ul class="clearest">', *clearest, "</ul>"]
        if clearest
        else []
    )


def sentences(judgement: Judgement) -> Iterator[str]:
    """How many could be judged, and which way."""
    measured, total = judgement.measured, len(judgement.verdicts)
    count = {
        outcome: sum(verdict.outcome == outcome for verdict in measured) for outcome in OUTCOMES
    }
    which = join_words(
        [f"{n} {'is' if n == 1 else 'are'} {outcome}" for outcome, n in count.items() if n]
    )
    yield (
        f"{len(measured) or 'None'} of {'the ' if total > 1 else ''}{plural(total, 'finding')} could be judged on "
        f"what was measured{': ' if which else ''}{which}."
    )
    if rest := total - len(measured):
        yield f"The other {rest} need{'s' * (rest == 1)} models or measurements that are not here."


def summary_text(judgement: Judgement) -> str:
    """Return the sentences on all verdicts and the clearest of them, for the terminal."""
    clearest = [
        f"{verdict.claim.id} {verdict.outcome}" for verdict, _ in striking(judgement.measured)
    ]
    return " ".join(
        [*sentences(judgement), *([f"The clearest: {', '.join(clearest)}."] if clearest else [])]
    )


def striking(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, Part]]:
    """The verdicts whose effect is farthest from its threshold, in widths of its interval; one of each kind at least,
    and no withdrawn one."""
    ranked: list[tuple[float, Verdict, Part]] = []
    for verdict in verdicts:
        part = verdict.deciding
        if (
            part is None
            or part.threshold is None
            or verdict.claim.withdrawn
            or verdict.outcome == "inconclusive"
        ):
            continue
        width = part.high - part.low
        if isfinite(width) and width > 0:
            ranked.append((abs(part.effect - part.threshold) / width, verdict, part))
    ranked.sort(key=lambda each: -each[0])
    firsts = [
        next((each for each in ranked if each[1].outcome == outcome), None) for outcome in OUTCOMES
    ]
    chosen = [each for each in firsts if each is not None]
    chosen += [each for each in ranked if each not in chosen][: STRIKING - len(chosen)]
    return [(verdict, part) for _, verdict, part in chosen]


def _caveat(judgement: Judgement) -> list[str]:
    if not any(verdict.scale == "sanity" for verdict in judgement.measured):
        return []
    return [
        '<p class="quiet">These are small models on generated images. A finding that is refuted here does not show at '
        "this scale, which does not make the paper wrong; nor is one that is supported proven beyond it.</p>"
    ]


def _tally(judgement: Judgement) -> list[str]:
    """A row for each paper."""
    heads = "".join(f'<th scope="col" class="number">{badge(outcome)}</th>' for outcome in OUTCOMES)
    rows = ""
    for paper, verdicts in papers(judgement).items():
        known = [verdict for verdict in verdicts if not verdict.lacking]
        cells = "".join(
            f'<td class="number">{sum(verdict.outcome == outcome for verdict in known)}</td>'
            for outcome in OUTCOMES
        )
        rows += (
            f'<tr><th scope="row"><a href="#verdicts-{paper.key}">{escape(paper.authors)} ({paper.year})</a></th>'
            f'{cells}<td class="number quiet">{len(verdicts) - len(known)}</td></tr>'
        )
    return [
        '<div class="scroll" tabindex="0" role="region" aria-label="Verdicts by paper"><table class="tally"><thead><tr>'
        f'<th scope="col">paper</th>{heads}<th scope="col" class="number">not measured</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    ]


def _who(judgement: Judgement) -> list[str]:
    """Which models stand for those that the claims speak of, and on which images."""
    roles: dict[str, list[str]] = {}
    for each in judgement.items:
        facts = {
            name: value
            for name, value in each.facts.items()
            if name not in ("seed", "data", "moment")
        }
        own = roles.setdefault(describe_facts(facts), [])
        name = each.name.partition("@")[0]
        own += [name] if name and name not in own else []
    said = [
        f"<b>{escape(role)}</b>" + _named(role, names)
        for role, names in roles.items()
        if role != "identities"
    ]
    data = list(
        dict.fromkeys(
            str(each.facts["data"]) for each in judgement.items if each.facts.get("data")
        )
    )
    shown = f"Judged on {escape(join_words(data))}." if data else ""
    if len(said) > 8:
        return [
            f"<details><summary>{shown} {len(said)} kinds of models</summary><p>{', '.join(said)}</p></details>"
        ]
    return (
        [f'<p class="quiet">{shown} In the words of the claims: {join_words(said)}.</p>']
        if said
        else []
    )


def _named(role: str, names: Sequence[str]) -> str:
    others = [name for name in names if name != role]
    return f" is {escape(join_words(others))}" if others else ""


def _filters(judgement: Judgement) -> list[str]:
    """Shown by the script, which can use it."""
    options = "".join(
        f'<option value="{paper.key}">{escape(paper.authors)} ({paper.year})</option>'
        for paper in papers(judgement)
    )
    pressed = "".join(
        f'<button type="button" class="chip" data-outcome="{outcome}" aria-pressed="false">{badge(outcome)}</button>'
        for outcome in OUTCOMES
    )
    pressed += '<button type="button" class="chip" data-outcome="lacking" aria-pressed="false">not measured</button>'
    return [
        '<p class="read"><b>How to read the pictures.</b> The dot is what was measured and the bar its 95 % interval; '
        "the upright line is what was wanted, with the side that counts shaded. ◇ is the paper's own number, a dotted "
        "line where there would be no effect.</p>",
        '<div class="filters" role="search" aria-label="Filter verdicts" hidden>',
        f'<label>Paper <select id="verdict-paper"><option value="">all</option>{options}</select></label>',
        f'<div class="chips" role="group" aria-label="Only these verdicts">{pressed}</div>',
        '<label>Text <input type="search" id="verdict-text" placeholder="attention, HDV-26 …"></label>',
        '<output id="verdict-count" aria-live="polite"></output></div>',
    ]


def _of_paper(
    paper: Paper, verdicts: Sequence[Verdict], judgement: Judgement, guard: Guard
) -> list[str]:
    known = [verdict for verdict in verdicts if not verdict.lacking]
    rest = [verdict for verdict in verdicts if verdict.lacking]
    found = [
        f'<section class="card verdicts" id="verdicts-{paper.key}" data-paper="{paper.key}">',
        f"<h3>{escape(paper.authors)} ({paper.year})</h3>",
        f'<p class="quiet">{escape(paper.title)}, arXiv {escape(paper.arxiv)}</p>',
    ]
    for verdict in known:
        found += guard.lines(f"The verdict on {verdict.claim.id}", _verdict, verdict)
    if rest:
        words = f"{plural(len(rest), 'finding')} not measured here"
        found.append(f'<details class="lacking"><summary>{words}</summary><ul>')
        for verdict in rest:
            found.append(
                guard.text(f"The verdict on {verdict.claim.id}", _lack, verdict, judgement)
            )
        found.append("</ul></details>")
    return [*found, "</section>"]


def badge(outcome: Outcome) -> str:
    """Symbol, word and colour."""
    return f'<span class="outcome outcome-{outcome}"><i aria-hidden="true">{SIGNS[outcome]}</i>{outcome}</span>'


def _verdict(verdict: Verdict) -> list[str]:
    """One that was judged."""
    claim, part = verdict.claim, verdict.deciding
    found = [
        f'<article class="verdict" id="{claim.id}" data-outcome="{verdict.outcome}" '
        f'aria-label="{claim.id}: {verdict.outcome}">',
        f'<p class="line">{badge(verdict.outcome)}<a class="id" href="#{claim.id}">{claim.id}</a>{_tags(claim)}</p>',
        f"<h4>{escape(claim.sentence)}</h4>",
    ]
    if part is not None:
        found += [effect.picture(part), f'<p class="told">{effect.told(part, "<b>{}</b>")}</p>']
    found += [f'<p class="told warned">{escape(note)}</p>' for note in verdict.notes]
    found.append(f'<p class="quiet measured">{_basis(verdict)}</p>')
    return [*found, *_more(verdict), "</article>"]


def _tags(claim: Claim) -> str:
    """What a reader should know before believing it."""
    tags = ["withdrawn"] if claim.withdrawn else []
    tags += (
        [f"disputed: {', '.join(each.id for each in found)}"]
        if (found := concerning(claim.id))
        else []
    )
    tags += ["large scale in the paper"] if claim.large else []
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in tags)


def _basis(verdict: Verdict) -> str:
    """What was measured, and at what scale."""
    needs = verdict.claim.needs(verdict.scale)
    computed = all(need.result == "identities" for need in needs)
    if computed:
        return "Computed exactly; no images, no training."
    models = list(dict.fromkeys(describe_facts(need.facts) for need in needs))
    results = list(dict.fromkeys(need.result.replace("_", " ") for need in needs))
    shown = (
        join_words(models)
        if len(models) <= 4
        else f"{models[0]}, {models[1]} and {len(models) - 2} more models"
    )
    seeds = f"{plural(verdict.seeds, 'training')} of each" if verdict.seeds else ""
    where = f"{verdict.data} ({SCALES[verdict.scale]})" if verdict.data else ""
    return escape(" · ".join(filter(None, [f"{join_words(results)} of {shown}", seeds, where])))


def _more(verdict: Verdict) -> list[str]:
    """All parts, where it stands in the paper, and what does not agree with it."""
    claim = verdict.claim
    count = sum(part.threshold is not None for part in verdict.parts)
    words = {1: "The numbers", 2: "Both parts"}.get(count, f"All {count} parts") + ", and the paper"
    found = [f"<details><summary>{words}</summary>{_parts(verdict)}<dl>"]
    found.append(f"<dt>in the paper</dt><dd>{escape(claim.place)}: {escape(claim.reported)}</dd>")
    if claim.withdrawn:
        found.append(f"<dt>withdrawn</dt><dd>{escape(claim.withdrawn)}</dd>")
    found += [
        f"<dt>{each.id}</dt><dd>{escape(each.sentence)} <b>Here:</b> {escape(each.treated)}</dd>"
        for each in concerning(claim.id)
    ]
    if claim.large:
        found.append(
            "<dt>scale</dt><dd>The paper speaks of ImageNet or more; small data have an analogue only.</dd>"
        )
    if verdict.missing:
        found.append(
            f"<dt>not measured</dt><dd>{_needs(verdict.missing)}; it decides nothing.</dd>"
        )
    return [*found, "</dl></details>"]


def _parts(verdict: Verdict) -> str:
    """A row for each effect."""
    heads = (
        ("effect", ""),
        ("measured", "number"),
        ("wanted", "number"),
        ("paper", "number"),
        ("trainings", "number"),
    )
    row = (
        "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in heads)
        + '<th scope="col">so</th>'
    )
    body = ""
    for part in verdict.parts:
        cells = [effect.found(part), wanted if (wanted := effect.wanted(part)) else "noted"]
        cells += ["" if part.paper is None else effect.given(part.paper), str(part.seeds or "")]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        outcome = badge(part.outcome) if part.outcome else ""
        body += f'<tr><td class="says">{escape(part.says)}</td>{numbers}<td>{outcome}</td></tr>'
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Parts of {verdict.claim.id}">'
        f"<table><thead><tr>{row}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _lack(verdict: Verdict, judgement: Judgement) -> str:
    """One that could not be judged: what is missing, and what would supply it."""
    claim = verdict.claim
    known = [part for part in verdict.parts if part.threshold is not None and isfinite(part.effect)]
    so_far = f" So far: {effect.told(known[0])}." if known else ""
    why = (
        f"Missing: {_needs(verdict.missing)}."
        if verdict.missing
        else f"{escape('; '.join(verdict.notes[:2]))}."
    )
    supply = (
        f" <code>{escape(_command(verdict, judgement))}</code> measures it."
        if verdict.missing
        else ""
    )
    return (
        f'<li class="verdict" id="{claim.id}" data-outcome="lacking"><b class="id">{claim.id}</b> '
        f'{escape(claim.sentence)}{_tags(claim)} <span class="quiet">{why}{so_far}{supply}</span></li>'
    )


def _command(verdict: Verdict, judgement: Judgement) -> str:
    """Where all models are there and only questions are missing, an inspection can ask them; else it takes a study."""
    asked = dict.fromkeys(need.result for need in verdict.missing)
    there = all(
        any(same_facts(each.facts, need.facts) for each in judgement.items) for need in verdict.missing
    )
    if judgement.inspected and there and set(asked) <= set(analyses.names()):
        return f"vitreous inspect … --analyses {' '.join(asked)}"
    return verdict.command


def _needs(missing: Sequence[Need]) -> str:
    """By result: `accuracy of vit pool=gap and of 3 more`."""
    by_result: dict[str, list[str]] = {}
    for need in missing:
        by_result.setdefault(need.result, []).append(describe_facts(need.facts))
    said = [
        f"{result.replace('_', ' ')} of {escape(models[0])}"
        + (f" and of {len(models) - 1} more" * (len(models) > 1))
        if result != "identities"
        else "exact properties"
        for result, models in by_result.items()
    ]
    return join_words(said)


def warnings(not_judged: Mapping[str, str]) -> list[str]:
    """A sentence on the models that findings are not judged on, for each reason."""
    models: dict[str, list[str]] = {}
    for name, why in not_judged.items():
        models.setdefault(why, []).append(name)
    found = []
    for why, names in models.items():
        it = "it" if len(names) == 1 else "them"
        untrained = (
            f"What you see is the architecture before training. No finding is judged on {it}."
        )
        rest = untrained if why == RANDOM else f"No finding is judged on {it}."
        found.append(f"{why[0].upper()}{why[1:]}: {join_words(names)}. {rest}")
    return found
