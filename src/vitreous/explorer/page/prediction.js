// The prediction of each model before and after, with bars, and the list of edits and changes.
import { $, make, percent } from "./drawing.js";
import { ACTIONS, describeChanges, points } from "./words.js";

const SHOWN = 5; // classes of a model

/** The classes to show: the most probable ones after the edits, and always the top class before them and the label. */
function chosenClasses({ classes, before, label }) {
  const wanted = new Set([before[0], label].filter(Boolean).map(({ index }) => index));
  const rest = classes.filter(({ index }) => !wanted.has(index)).slice(0, Math.max(0, SHOWN - wanted.size));
  const kept = classes.filter((each) => wanted.has(each.index) || rest.includes(each));
  if (label && !classes.some(({ index }) => index === label.index)) kept.push(label);
  return kept.sort((one, other) => other.after - one.after).slice(0, SHOWN);
}

class Card {
  constructor(model, index) {
    this.rows = new Map();
    this.verdict = make("p", { class: "verdict", "aria-live": "polite" });
    this.list = make("ol", {});
    this.cost = make("span", { class: "quiet cost" });
    const name = make("h3", {}, make("span", { class: `dot model-${index}` }), make("span", { class: "name" }, model.name), this.cost);
    this.home = make("article", { class: "card", "data-model": index, "aria-label": `Prediction of ${model.name}` }, name, this.verdict, this.list);
    this.index = index;
  }

  draw(found) {
    const { classes, label, before, after, why } = found;
    this.cost.textContent = `${Math.max(1, Math.round(found.milliseconds))} ms`;
    this.cost.title = `${percent(found.computed)} of the model was computed`;
    this.home.classList.toggle("changed", Boolean(found.changed));
    if (!classes?.length) {
      this.list.replaceChildren();
      return void (this.verdict.textContent = why ?? "This model has no score for each class.");
    }
    this.say(before[0], after[0], label);
    const tops = new Map([...this.rows].map(([index, { home }]) => [index, home.offsetTop]));
    const shown = chosenClasses(found);
    const moved = shown.some((each) => each.before !== each.after);
    this.list.classList.toggle("moved", moved);
    const rows = shown.map((each) => this.row(each, label, moved));
    this.list.replaceChildren(...rows.map(({ home }) => home));
    for (const index of [...this.rows.keys()]) if (!shown.some((each) => each.index === index)) this.rows.delete(index);
    slide(this.rows, tops);
  }

  /** The class that wins, in one line. */
  say(before, after, label) {
    const was = before.index === after.index ? [] : [make("s", {}, before.class), "→"];
    this.verdict.replaceChildren(make("span", { class: "says" }, ...was, make("b", {}, after.class)));
    if (label?.index === after.index) this.verdict.append(make("span", { class: "right" }, "✓ correct"));
    else if (label) this.verdict.append(make("span", { class: "wrong" }, `✗ it is ${label.class}`));
    this.verdict.title = this.verdict.innerText;
  }

  row(each, label, moved) {
    const known = this.rows.get(each.index) ?? this.make(each);
    this.rows.set(each.index, known);
    const { home, share, was, bar, tick, change } = known;
    Object.assign(home.dataset, { index: each.index, before: each.before, clean: each.clean, after: each.after });
    home.classList.toggle("true", label?.index === each.index);
    const difference = each.after - each.before;
    was.textContent = moved ? percent(each.before) : "";
    share.textContent = percent(each.after);
    change.textContent = moved ? points(difference) : "";
    change.dataset.sign = Math.abs(difference) < 5e-4 ? "0" : String(Math.sign(difference));
    bar.style.width = `${100 * each.after}%`;
    tick.style.left = `${100 * each.before}%`;
    tick.hidden = !moved;
    const all = [`${percent(each.before)} before`, `${percent(each.clean)} with the changed image`, `${percent(each.after)} with the edits`];
    home.title = `${each.class}: ${all.join(", ")}`;
    return known;
  }

  make(each) {
    const [name, was, share, change, bar, tick] = ["name", "was", "share", "change", "bar", "tick"].map((kind) => make("span", { class: kind }));
    name.textContent = each.class;
    bar.classList.add(`model-${this.index}`);
    const track = make("span", { class: "track", "aria-hidden": true }, bar, tick);
    return { home: make("li", {}, name, track, was, share, change), share, was, bar, tick, change };
  }
}

/** Animate rows that have moved. */
function slide(rows, tops) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [index, { home }] of rows) {
    const by = (tops.get(index) ?? home.offsetTop) - home.offsetTop;
    if (by) home.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 180, easing: "ease-out" });
  }
}

export class Predictions {
  constructor(session, state) {
    Object.assign(this, { session, state });
    this.cards = session.models.map((model, index) => new Card(model, index));
    $("#predictions").replaceChildren(...this.cards.map((card) => card.home));
    $("#predictions").dataset.count = this.cards.length;
    $("#undo").addEventListener("click", () => state.undo());
    $("#redo").addEventListener("click", () => state.redo());
    $("#reset").addEventListener("click", () => state.reset());
  }

  /** Draw the server's response. */
  draw(view) {
    view.models.forEach((model, index) => this.cards[index].draw(model));
    this.compare(view.models);
    $("#prediction").dataset.serial = view.serial ?? "";
  }

  /** Two models: whether they agree, and on what they differ most. */
  compare(models) {
    const place = $("#together");
    place.hidden = models.length < 2;
    if (models.length < 2) return;
    const [one, other] = models.map((model) => model.after?.[0]);
    const agree = one && other && one.class === other.class;
    place.classList.toggle("differ", Boolean(one && other && !agree));
    const says = ({ class: name }, index) => [make("span", { class: `dot model-${index}` }), make("span", { class: "name" }, name)];
    if (!one || !other) place.replaceChildren();
    else if (agree) place.replaceChildren(make("span", { class: "name" }, `Both say ${one.class}.`));
    else place.replaceChildren(make("span", {}, "They differ:"), ...says(one, 0), ...says(other, 1));
  }

  /** List the edits and changes in words, each with a button that reverts it. */
  drawForce(inForce) {
    const { state } = this;
    const { edits, changes } = state.now;
    const several = this.session.models.length > 1;
    const named = (model, words) => (several ? `${this.session.models[model].name}: ${words}` : words);
    const same = (one, other) => one.model === other.model && one.unit === other.unit && one.what === other.what;
    const words = ({ what, unit }) => ACTIONS[what].words(unit);
    const lines = edits.map((edit) => {
      const why = inForce?.[edit.model].refused.find((each) => same(each, edit))?.why;
      return this.line(named(edit.model, words(edit)), why ? "refused" : "", why, () => state.toggle(edit.model, edit.unit, edit.what));
    });
    for (const [model, { edits: made, refused }] of (inForce ?? []).entries()) {
      for (const edit of made.filter((each) => each.mirrored)) lines.push(this.line(named(model, words(edit)), "mirrored", "mirrored"));
      for (const edit of refused.filter((each) => each.model !== model || each.mirrored)) {
        lines.push(this.line(edit.why, "mirrored", "not mirrored"));
      }
    }
    for (const [name, words] of describeChanges(changes)) lines.push(this.line(`Image: ${words}`, "", "", () => state.change(name, null)));
    if (!lines.length) lines.push(make("li", { class: "quiet" }, "Nothing is changed. Choose a unit and switch it off, or move a slider."));
    $("#edits").replaceChildren(...lines);
    $("#undo").disabled = !state.past.length;
    $("#redo").disabled = !state.future.length;
    $("#reset").disabled = !edits.length && !Object.keys(changes).length;
  }

  line(words, kind, note, remove) {
    const line = make("li", { class: kind, title: words }, make("span", { class: "words" }, words));
    if (note) line.append(make("span", { class: "note" }, note));
    const label = { "aria-label": `Take back: ${words}`, title: "Take back" };
    if (remove) line.append(make("button", { type: "button", class: "remove", ...label, onclick: remove }, "×"));
    return line;
  }
}
