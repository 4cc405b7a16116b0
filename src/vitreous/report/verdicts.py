"""The card of verdicts on the papers' findings: summary, forest plot, then every verdict by paper.

Claims that could not be judged are listed at the end of their paper, with what is missing. All
verdicts are in the page; the script that filters them only hides some."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from vitreous.claims.book import Paper
from vitreous.claims.conflicts import concerning
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Need, Scale
from vitreous.claims.facts import describe_facts, read_older_words, same_facts
from vitreous.claims.verdicts import (
    ENOUGH_SEEDS,
    OUTCOMES,
    Outcome,
    Verdict,
    by_paper,
    count_outcomes,
    sentences_on_chance,
)
from vitreous.measure import analyses
from vitreous.report import effect as drawing
from vitreous.report.forest import forest
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement, summary_sentences
from vitreous.report.papers import arxiv_link
from vitreous.results.words import escape, join_words, plural

SIGNS: dict[Outcome, str] = {
    "reproduced": "✓",
    "weaker": "◐",
    "mixed": "±",
    "no effect": "○",
    "opposite": "✗",
    "holds untrained": "◇",
    "undecided": "?",
    "not testable here": "–",
    "identity": "=",
}
MEANINGS: dict[Outcome, str] = {
    "reproduced": "the paper's direction for certain, at least half of its size, not there before "
    "training",
    "weaker": "the paper's direction for certain, less than half of its size",
    "mixed": "as the paper has it, but a supporting effect is certainly the other way",
    "no effect": "the interval holds no effect and excludes half of the paper's",
    "opposite": "certainly the other way",
    "holds untrained": "untrained networks show it, and training adds nothing certain",
    "undecided": "too few images or trainings to tell",
    "not testable here": "a precondition is not met",
    "identity": "exact, and computed",
}
SCALES: dict[Scale, str] = {
    "sanity": "synthetic images",
    "ten": "few classes",
    "hundred": "many classes",
}


def verdicts_section(judgement: Judgement, guard: Guard) -> list[str]:
    """Return the card of the verdicts: counts and forest plot, then every finding, folded by paper.

    A page of verdicts alone begins with all papers open.
    """
    html = ['<section id="verdicts" class="card"><h2>Findings of the papers</h2>']
    html += guard.lines("The counts of the verdicts", _counts, judgement)
    html += guard.lines("The forest plot", _forest, judgement)
    html += guard.lines("The paragraph on the verdicts", _paragraph, judgement)
    html += guard.lines("The models of the verdicts", _models_and_data, judgement)
    html += guard.lines("The filters of the verdicts", _filters, judgement)
    for paper, verdicts in by_paper(judgement.verdicts).items():
        what = f"The verdicts on {paper.key}"
        html += guard.lines(what, _paper_section, paper, verdicts, judgement, guard)
    return [*html, "</section>"]


def _counts(judgement: Judgement) -> list[str]:
    """Return the number of findings with each outcome, and caveats."""
    counts = "".join(
        f'<span title="{MEANINGS[outcome]}">{badge(outcome, str(count))}</span>'
        for outcome, count in count_outcomes(judgement.measured).items()
    )
    caveats = []
    if any(verdict.scale == "sanity" for verdict in judgement.measured):
        caveats.append(
            "Small models on generated images show that a mechanism works, not that a finding of a "
            "paper holds or fails."
        )
    if any(verdict.seen_once for verdict in judgement.measured):
        caveats.append(f"Fewer than {ENOUGH_SEEDS} trainings (“seen once”) refute nothing.")
    return [
        f'<p class="counts">{counts}</p>',
        f'<p class="quiet">{" ".join(caveats)}</p>' if caveats else "",
    ]


def _paragraph(judgement: Judgement) -> list[str]:
    """Return how the plot is read, and how many effects are certain or would be by chance."""
    sentences = [*summary_sentences(judgement), *sentences_on_chance(judgement.measured)]
    return [
        "<details><summary>How to read the plot</summary>",
        "<p>Each row is the main effect of a finding with its 95 % interval: 0 is no effect, 1 the "
        "paper's value, or the size that matters where the paper has no number. Open marks have "
        "neither; only their direction counts. Squares are of findings that say there is hardly a "
        "difference: 0 is none, and 1 and −1 are the most that counts as none. Click a row to see "
        "the finding.</p>",
        f"<p>{escape(' '.join(sentences))}</p></details>",
    ]


def _forest(judgement: Judgement) -> list[str]:
    plot = forest(judgement.measured)
    region = '<div class="scroll" tabindex="0" role="region" aria-label="Forest plot">'
    return [f"{region}{plot}</div>"] if plot else []


def _models_and_data(judgement: Judgement) -> list[str]:
    """Return the models that have the roles of the claims, and the images they were judged on."""
    roles: dict[str, list[str]] = {}
    for item in judgement.items:
        if judgement.inspected and "beside" in item.facts:
            continue  # a pair of models that are named alone
        left_out = ("seed", "data", "checkpoint")
        facts = {name: value for name, value in item.facts.items() if name not in left_out}
        names = roles.setdefault(describe_facts(facts), [])
        name = item.name.partition("@")[0]
        left_out = ("seed", "data", "beside")  # studies name models by their other facts
        others = {name: value for name, value in item.facts.items() if name not in left_out}
        is_named_by_facts = read_older_words(name) == describe_facts(others)
        if name and name not in names and not is_named_by_facts:
            names.append(name)
    known = [
        f"<b>{escape(role)}</b>" + _named(role, names)
        for role, names in roles.items()
        if role != "identities"
    ]
    data = dict.fromkeys(str(i.facts["data"]) for i in judgement.items if i.facts.get("data"))
    images = f"Judged on {escape(join_words(list(data)))}." if data else ""
    if len(known) > 8:
        summary = f"{images} {len(known)} kinds of models"
        return [f"<details><summary>{summary}</summary><p>{', '.join(known)}</p></details>"]
    return [f'<p class="quiet">{images} Models: {join_words(known)}.</p>'] if known else []


def _named(role: str, names: Sequence[str]) -> str:
    others = [name for name in names if name != role]
    return f" is {escape(join_words(others))}" if others else ""


def _filters(judgement: Judgement) -> list[str]:
    """Return the filters, which are hidden until their script runs."""
    options = "".join(
        f'<option value="{paper.key}">{escape(paper.authors)} ({paper.year})</option>'
        for paper in by_paper(judgement.verdicts)
    )
    chips = "".join(
        f'<button type="button" class="chip" data-outcome="{outcome}" aria-pressed="false" '
        f'title="{MEANINGS[outcome]}">{badge(outcome)}</button>'
        for outcome in OUTCOMES
    )
    chips += (
        '<button type="button" class="chip" data-outcome="lacking" aria-pressed="false">'
        "not measured</button>"
    )
    return [
        '<div class="filters" role="search" aria-label="Filter verdicts" hidden>',
        f'<label>Paper <select id="verdict-paper"><option value="">all</option>{options}</select>'
        "</label>",
        '<label>Text <input type="search" id="verdict-text" placeholder="attention, HDV-26 …">'
        "</label>",
        f'<div class="chips" role="group" aria-label="Only these verdicts">{chips}</div>',
        '<output id="verdict-count" aria-live="polite"></output></div>',
    ]


def _paper_section(
    paper: Paper, verdicts: Sequence[Verdict], judgement: Judgement, guard: Guard
) -> list[str]:
    known = [verdict for verdict in verdicts if verdict.measured]
    rest = [verdict for verdict in verdicts if not verdict.measured]
    counts = " ".join(badge(each, str(count)) for each, count in count_outcomes(known).items())
    is_open = "" if judgement.inspected else " open"
    html = [
        f'<details class="verdicts" id="verdicts-{paper.key}" data-paper="{paper.key}"{is_open}>',
        f"<summary><b>{escape(paper.authors)} ({paper.year})</b> {counts}</summary>",
        f'<p class="quiet">{arxiv_link(paper, paper.title)}. The dot is the measured effect and '
        "the bar its 95 % interval. The dotted line is no effect, ◇ the paper's number; the shaded "
        "side counts as reproduced.</p>",
    ]
    for verdict in known:
        html += guard.lines(f"The verdict on {verdict.claim.id}", _verdict, verdict)
    if rest:
        words = f"{plural(len(rest), 'finding')} not measured here"
        html.append(f'<details class="lacking"><summary>{words}</summary><ul>')
        for verdict in rest:
            what = f"The verdict on {verdict.claim.id}"
            html.append(guard.text(what, _unmeasured, verdict, judgement))
        html.append("</ul></details>")
    return [*html, "</details>"]


def badge(outcome: Outcome, count: str = "") -> str:
    """Return symbol, word and colour of an outcome as HTML, after a count if it is given."""
    kind, sign = outcome.replace(" ", "-"), SIGNS[outcome]
    words = f"{count} {outcome}".strip()
    return f'<span class="outcome outcome-{kind}"><i aria-hidden="true">{sign}</i>{words}</span>'


def _verdict(verdict: Verdict) -> list[str]:
    """Return the article of a claim whose main effect was measured."""
    claim, main = verdict.claim, verdict.main
    html = [
        f'<article class="verdict" id="{claim.id}" data-outcome="{verdict.outcome}" '
        f'aria-label="{claim.id}: {verdict.outcome}">',
        f'<p class="line">{badge(verdict.outcome)}<a class="id" href="#{claim.id}">{claim.id}</a>'
        f"{_tags(verdict)}</p>",
        f"<h3>{escape(claim.sentence)}</h3>",
    ]
    if main is not None and isfinite(main.measured.value):
        words = drawing.in_words(main, "<b>{}</b>")
        html += [drawing.picture(main), f'<p class="told">{words}</p>']
    html += [f'<p class="told warned">{escape(note)}</p>' for note in verdict.notes]
    html.append(f'<p class="quiet measured">{_basis(verdict)}</p>')
    return [*html, *_more(verdict), "</article>"]


def _tags(verdict: Verdict) -> str:
    """Return the caveats of a verdict as tags."""
    claim = verdict.claim
    tags = ["withdrawn"] if claim.withdrawn else []
    tags += ["seen once"] if verdict.seen_once else []
    tags += [] if verdict.survives is not False else ["not certain among all findings (Holm)"]
    tags += ["disputed"] if concerning(claim.id) else []
    tags += ["large scale in the paper"] if claim.large else []
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in tags)


def _basis(verdict: Verdict) -> str:
    """Return what the verdict rests on: measurements, models, trainings and images."""
    needs = verdict.claim.needs(verdict.scale)
    if all(need.result == "identities" for need in needs):
        return "Computed exactly; no images, no training."
    models = list(dict.fromkeys(describe_facts(need.facts) for need in needs))
    results = list(dict.fromkeys(need.result.replace("_", " ") for need in needs))
    shown = join_words(models)
    if len(models) > 4:
        shown = f"{models[0]}, {models[1]} and {len(models) - 2} more models"
    seeds = f"{plural(verdict.seeds, 'training')} of each" if verdict.seeds else ""
    where = f"{verdict.data} ({SCALES[verdict.scale]})" if verdict.data else ""
    parts = [f"{join_words(results)} of {shown}", seeds, where]
    return escape(" · ".join(filter(None, parts)))


def _more(verdict: Verdict) -> list[str]:
    """Return the fold with all effects, the place in the paper, and contradictions."""
    claim = verdict.claim
    supporting = verdict.supporting
    words = "The numbers, and the paper"
    if supporting:
        agree = f"{verdict.agreeing} of {len(supporting)} supporting effects agree"
        words = f"{agree}; the numbers, the paper"
    html = [f"<details><summary>{words}</summary>{_effects(verdict)}<dl>"]
    html.append(f"<dt>in the paper</dt><dd>{escape(claim.place)}: {escape(claim.reported)}</dd>")
    if claim.requires:
        requires = "; ".join(map(str, claim.requires))
        html.append(f"<dt>only if</dt><dd>{escape(requires)}</dd>")
    if claim.withdrawn:
        html.append(f"<dt>withdrawn</dt><dd>{escape(claim.withdrawn)}</dd>")
    html += [
        f"<dt>disputed</dt><dd>{escape(each.sentence)} <b>Here:</b> {escape(each.treated)}</dd>"
        for each in concerning(claim.id)
    ]
    if claim.large:
        html.append(
            "<dt>scale</dt><dd>The paper speaks of ImageNet or more; small data have an analogue "
            "only.</dd>"
        )
    if verdict.missing:
        missing = _needs(verdict.missing)
        html.append(f"<dt>not measured</dt><dd>{missing}; it decides nothing.</dd>")
    return [*html, "</dl></details>"]


def _effects(verdict: Verdict) -> str:
    """A table with a row for each effect."""
    heads = ("effect", "measured", "reproduced if", "paper", "untrained", "trainings", "outcome")
    row = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(_effect_row(verdict, effect) for effect in verdict.effects)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Effects of '
        f'{verdict.claim.id}">'
        f"<table><thead><tr>{row}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _effect_row(verdict: Verdict, effect: Effect) -> str:
    control = effect.control
    cells = [
        drawing.measured(effect),
        escape(effect.criterion),
        "" if effect.paper is None else drawing.format_given(effect.paper),
        "" if control is None else drawing.format_given(control.value),
        str(effect.seeds or ""),
    ]
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    outcome = badge(effect.outcome) if effect.outcome else ""
    label = escape(effect.label)
    label = f"<b>{label}</b>" if effect is verdict.main else label
    return f'<tr><td class="says">{label}</td>{numbers}<td>{outcome}</td></tr>'


def _unmeasured(verdict: Verdict, judgement: Judgement) -> str:
    """Return a claim that was not measured: what is missing, and the command that measures it."""
    claim = verdict.claim
    why = escape("; ".join(verdict.notes[:2]))
    if verdict.missing:
        command = escape(_command(verdict, judgement))
        why += f" Missing: {_needs(verdict.missing)}. <code>{command}</code> measures it."
    return (
        f'<li class="verdict" id="{claim.id}" data-outcome="lacking"><b class="id">{claim.id}</b> '
        f'{escape(claim.sentence)}{_tags(verdict)} <span class="quiet">{why.strip()}</span></li>'
    )


def _command(verdict: Verdict, judgement: Judgement) -> str:
    """Return the command that measures what is missing.

    It is an inspection if the report has all models and lacks only analyses, else a study.
    """
    results = dict.fromkeys(need.result for need in verdict.missing)
    has_all_models = all(
        any(same_facts(item.facts, need.facts) for item in judgement.items)
        for need in verdict.missing
    )
    if judgement.inspected and has_all_models and set(results) <= set(analyses.names()):
        return f"vitreous inspect … --analyses {' '.join(results)}"
    return verdict.command


def _needs(missing: Sequence[Need]) -> str:
    """Return missing results as text: `accuracy of vit pool=gap and of 3 more`."""
    by_result: dict[str, list[str]] = {}
    for need in missing:
        by_result.setdefault(need.result, []).append(describe_facts(need.facts))
    texts = []
    for result, models in by_result.items():
        if result == "identities":
            texts.append("exact properties")
            continue
        more = f" and of {len(models) - 1} more" if len(models) > 1 else ""
        texts.append(f"{result.replace('_', ' ')} of {escape(models[0])}{more}")
    return join_words(texts)
