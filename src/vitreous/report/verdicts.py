"""The verdicts of a page: a paragraph on all of them, then each verdict, paper by paper.

Claims that could not be judged are a folded list at the end of their paper, which says what is
missing. The script that filters only hides; everything is in the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from vitreous.claims.claim import Claim, Outcome, Paper, Verdict
from vitreous.claims.conflicts import concerning
from vitreous.claims.evidence import Need, Scale
from vitreous.claims.facts import same
from vitreous.claims.facts import told as told_facts
from vitreous.claims.together import OUTCOMES, of_chance
from vitreous.measure import analyses
from vitreous.report import effect
from vitreous.report.guard import Guard
from vitreous.report.judgement import (
    Judgement,
    clearest_verdicts,
    tally_sentences,
    verdicts_by_paper,
)
from vitreous.results.words import escape, join_words, plural

SIGNS: dict[Outcome, str] = {"supported": "✓", "refuted": "✗", "inconclusive": "?"}
SCALES: dict[Scale, str] = {
    "sanity": "the embedded world", "ten": "few classes", "hundred": "many classes",
}  # fmt: skip


def verdicts_section(judgement: Judgement, guard: Guard) -> list[str]:
    """Return the section on all verdicts, and one section for each paper."""
    found = ['<section id="verdicts" class="card"><h2>What the papers found, judged here</h2>']
    for what, make in (
        ("The paragraph on the verdicts", _paragraph), ("The clearest verdicts", _clearest),
        ("The caveat on the verdicts", _caveat), ("The table of verdicts", _tally),
        ("The models of the verdicts", _models_and_data), ("The filters of the verdicts", _filters),
    ):  # fmt: skip
        found += guard.lines(what, make, judgement)
    found.append("</section>")
    for paper, verdicts in verdicts_by_paper(judgement).items():
        found += guard.lines(
            f"The verdicts on {paper.key}", _of_paper, paper, verdicts, judgement, guard
        )
    return found


def _paragraph(judgement: Judgement) -> list[str]:
    counted, *rest = tally_sentences(judgement)
    return [f"<p>{' '.join([counted, *map(escape, of_chance(judgement.measured)), *rest])}</p>"]


def _clearest(judgement: Judgement) -> list[str]:
    items = []
    for verdict, part in clearest_verdicts(judgement.measured):
        claim = verdict.claim
        link = f'<a class="id" href="#{claim.id}">{claim.id}</a>'
        numbers = f'<span class="quiet">{effect.effect_sentence(part)}.</span>'
        badge = outcome_badge(verdict.outcome)
        items.append(f"<li>{badge} {link} {escape(claim.sentence)} {numbers}</li>")
    if not items:
        return []
    return ['<p class="clearest">The clearest:</p><ul class="clearest">', *items, "</ul>"]


def _caveat(judgement: Judgement) -> list[str]:
    if not any(verdict.scale == "sanity" for verdict in judgement.measured):
        return []
    return [
        '<p class="quiet">These are small models on generated images. A finding that is refuted '
        "here does not show at this scale, which does not make the paper wrong; nor is one that is "
        "supported proven beyond it.</p>"
    ]


def _tally(judgement: Judgement) -> list[str]:
    """Return a table of outcomes with a row for each paper."""
    heads = "".join(
        f'<th scope="col" class="number">{outcome_badge(outcome)}</th>' for outcome in OUTCOMES
    )
    rows = ""
    for paper, verdicts in verdicts_by_paper(judgement).items():
        known = [verdict for verdict in verdicts if not verdict.lacking]
        cells = "".join(
            f'<td class="number">{sum(verdict.outcome == outcome for verdict in known)}</td>'
            for outcome in OUTCOMES
        )
        link = f'<a href="#verdicts-{paper.key}">{escape(paper.authors)} ({paper.year})</a>'
        rows += (
            f'<tr><th scope="row">{link}</th>'
            f'{cells}<td class="number quiet">{len(verdicts) - len(known)}</td></tr>'
        )
    return [
        '<div class="scroll" tabindex="0" role="region" aria-label="Verdicts by paper">'
        f'<table class="tally"><thead><tr><th scope="col">paper</th>{heads}'
        '<th scope="col" class="number">not measured</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    ]


def _models_and_data(judgement: Judgement) -> list[str]:
    """Return which models stand for those in the claims, and the data sets."""
    roles: dict[str, list[str]] = {}
    for each in judgement.exhibits:
        facts = {
            name: value
            for name, value in each.facts.items()
            if name not in ("seed", "data", "moment")
        }
        names = roles.setdefault(told_facts(facts), [])
        name = each.name.partition("@")[0]
        if name and name not in names:
            names.append(name)
    roles.pop("identities", None)
    models = []
    for role, names in roles.items():
        others = [name for name in names if name != role]
        is_others = f" is {escape(join_words(others))}" if others else ""
        models.append(f"<b>{escape(role)}</b>{is_others}")
    datasets = dict.fromkeys(
        str(each.facts["data"]) for each in judgement.exhibits if each.facts.get("data")
    )
    on = f"Judged on {escape(join_words(list(datasets)))}." if datasets else ""
    if len(models) > 8:
        summary = f"<summary>{on} {len(models)} kinds of models</summary>"
        return [f"<details>{summary}<p>{', '.join(models)}</p></details>"]
    if not models:
        return []
    return [f'<p class="quiet">{on} In the words of the claims: {join_words(models)}.</p>']


def _filters(judgement: Judgement) -> list[str]:
    """Return how to read the figures, and the filters, which are hidden without a script."""
    options = "".join(
        f'<option value="{paper.key}">{escape(paper.authors)} ({paper.year})</option>'
        for paper in verdicts_by_paper(judgement)
    )
    chips: dict[str, str] = {outcome: outcome_badge(outcome) for outcome in OUTCOMES}
    chips["lacking"] = "not measured"
    buttons = "".join(
        f'<button type="button" class="chip" data-outcome="{outcome}" aria-pressed="false">'
        f"{label}</button>"
        for outcome, label in chips.items()
    )
    return [
        '<p class="read"><b>How to read the figures.</b> The dot is the measured effect and the '
        "bar its 95 % interval; the upright line is the threshold, with the side that counts "
        "shaded. ◇ is the paper's number, a dotted line the null: no effect.</p>",
        '<div class="filters" role="search" aria-label="Filter verdicts" hidden>',
        '<label>Paper <select id="verdict-paper"><option value="">all</option>'
        f"{options}</select></label>",
        f'<div class="chips" role="group" aria-label="Only these verdicts">{buttons}</div>',
        '<label>Text <input type="search" id="verdict-text" placeholder="attention, HDV-26 …">'
        "</label>",
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
                guard.text(f"The verdict on {verdict.claim.id}", _missing_item, verdict, judgement)
            )
        found.append("</ul></details>")
    return [*found, "</section>"]


def outcome_badge(outcome: Outcome) -> str:
    """Return an outcome as symbol and word in its colour."""
    sign = f'<i aria-hidden="true">{SIGNS[outcome]}</i>'
    return f'<span class="outcome outcome-{outcome}">{sign}{outcome}</span>'


def _verdict(verdict: Verdict) -> list[str]:
    """Return a claim that was judged."""
    claim, part = verdict.claim, verdict.deciding
    found = [
        f'<article class="verdict" id="{claim.id}" data-outcome="{verdict.outcome}" '
        f'aria-label="{claim.id}: {verdict.outcome}">',
        f'<p class="line">{outcome_badge(verdict.outcome)}<a class="id" href="#{claim.id}">'
        f"{claim.id}</a>{_tags(claim)}</p>",
        f"<h4>{escape(claim.sentence)}</h4>",
    ]
    if part is not None:
        found += [
            effect.effect_svg(part),
            f'<p class="told">{effect.effect_sentence(part, "<b>{}</b>")}</p>',
        ]
    found += [f'<p class="told warned">{escape(note)}</p>' for note in verdict.notes]
    found.append(f'<p class="quiet measured">{_basis(verdict)}</p>')
    return [*found, *_details(verdict), "</article>"]


def _tags(claim: Claim) -> str:
    """Return the tags of a claim: withdrawn, disputed, large scale."""
    tags = ["withdrawn"] if claim.withdrawn else []
    tags += (
        [f"disputed: {', '.join(each.id for each in found)}"]
        if (found := concerning(claim.id))
        else []
    )
    tags += ["large scale in the paper"] if claim.large else []
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in tags)


def _basis(verdict: Verdict) -> str:
    """Return what was measured, on which models, and at which scale."""
    needs = verdict.claim.needs(verdict.scale)
    computed = all(need.result == "identities" for need in needs)
    if computed:
        return "Computed exactly; no images, no training."
    models = list(dict.fromkeys(told_facts(need.facts) for need in needs))
    results = list(dict.fromkeys(need.result.replace("_", " ") for need in needs))
    shown = (
        join_words(models)
        if len(models) <= 4
        else f"{models[0]}, {models[1]} and {len(models) - 2} more models"
    )
    seeds = f"{plural(verdict.seeds, 'training')} of each" if verdict.seeds else ""
    where = f"{verdict.data} ({SCALES[verdict.scale]})" if verdict.data else ""
    return escape(" · ".join(filter(None, [f"{join_words(results)} of {shown}", seeds, where])))


def _details(verdict: Verdict) -> list[str]:
    """Return all parts, the place in the paper, and conflicting statements, folded."""
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
            "<dt>scale</dt><dd>The paper speaks of ImageNet or more; small data have an analogue "
            "only.</dd>"
        )
    if verdict.missing:
        found.append(
            f"<dt>not measured</dt><dd>{_need_list(verdict.missing)}; it decides nothing.</dd>"
        )
    return [*found, "</dl></details>"]


def _parts(verdict: Verdict) -> str:
    """Return a table with a row for each effect."""
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
        cells = [
            effect.effect_text(part),
            wanted if (wanted := effect.threshold_words(part)) else "noted",
        ]
        cells += [
            "" if part.paper is None else effect.exact_number(part.paper),
            str(part.seeds or ""),
        ]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        outcome = outcome_badge(part.outcome) if part.outcome else ""
        body += f'<tr><td class="says">{escape(part.says)}</td>{numbers}<td>{outcome}</td></tr>'
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Parts of {verdict.claim.id}">'
        f"<table><thead><tr>{row}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _missing_item(verdict: Verdict, judgement: Judgement) -> str:
    """Return a claim that could not be judged: what is missing, and which command measures it."""
    claim = verdict.claim
    known = [part for part in verdict.parts if part.threshold is not None and isfinite(part.effect)]
    so_far = f" So far: {effect.effect_sentence(known[0])}." if known else ""
    why = (
        f"Missing: {_need_list(verdict.missing)}."
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
        f'{escape(claim.sentence)}{_tags(claim)} <span class="quiet">{why}{so_far}{supply}</span>'
        "</li>"
    )


def _command(verdict: Verdict, judgement: Judgement) -> str:
    """Return the command that measures what is missing: `inspect` if only analyses are missing."""
    asked = dict.fromkeys(need.result for need in verdict.missing)
    there = all(
        any(same(each.facts, need.facts) for each in judgement.exhibits) for need in verdict.missing
    )
    if judgement.inspected and there and set(asked) <= set(analyses.names()):
        return f"vitreous inspect … --analyses {' '.join(asked)}"
    return verdict.command


def _need_list(missing: Sequence[Need]) -> str:
    """Return what is missing by result, as `accuracy of vit pool=gap and of 3 more`."""
    by_result: dict[str, list[str]] = {}
    for need in missing:
        by_result.setdefault(need.result, []).append(told_facts(need.facts))
    said = [
        f"{result.replace('_', ' ')} of {escape(models[0])}"
        + (f" and of {len(models) - 1} more" * (len(models) > 1))
        if result != "identities"
        else "exact properties"
        for result, models in by_result.items()
    ]
    return join_words(said)
