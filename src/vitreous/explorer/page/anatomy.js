// The anatomy as the control: one row a block, a chip for each unit. Click to observe, switch off, and more.
import { $, $$, make } from "./drawing.js";
import { typing } from "./keys.js";
import { openMenu } from "./menu.js";
import { ACTIONS, KINDS, SHORT, TITLES, describeUnit } from "./words.js";

const TALLEST = 38; // pixels of a row
const LOWEST = 21;
const LONGEST = 11; // letters of a block's name
const NARROWEST = 176; // pixels of a column of rows
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function powerIcon() {
  const [icon, path] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  icon.setAttribute("viewBox", "0 0 12 12");
  path.setAttribute("d", "M6 1V5.5M3.2 2.8A4.3 4.3 0 1 0 8.8 2.8");
  icon.append(path);
  return icon;
}

/** Shorten a long path to its numbers, or to its end; the tooltip has the full path. */
export function shortened(name) {
  const numbers = name.match(/\d+/g) ?? [];
  if (name.length <= LONGEST) return name;
  if (numbers.length > 1) return numbers.join(".");
  const parts = name.split(".");
  const ends = parts.map((_, i) => parts.slice(i).join(".")).find((end) => end.length <= LONGEST);
  return ends ?? `…${name.slice(1 - LONGEST)}`;
}

/** The edit whose shortcut a key is, if any. */
const actionOf = ({ key }) => Object.keys(ACTIONS).find((what) => ACTIONS[what].key === key.toLowerCase());

/** Group units into rows, one per block. */
function blocks(units) {
  const rows = [];
  for (const unit of units) {
    if (rows.at(-1)?.name === unit.block) rows.at(-1).units.push(unit);
    else rows.push({ name: unit.block, units: [unit] });
  }
  return rows;
}

/** The anatomy of one model. */
class ModelAnatomy {
  constructor(model, index, state) {
    Object.assign(this, { model, index, state, chips: new Map() });
    this.rows = blocks(model.units);
    this.list = make("ol", { class: "blocks", "aria-label": `Units of ${model.name}. Arrow keys move, Enter opens what can be done.` });
    this.list.append(...this.rows.map((row) => this.row(row)));
    this.body = make("div", { class: "body" }, this.list);
    const about = make("span", { class: "quiet about", title: model.about }, model.about);
    this.head = make("div", { class: "title" }, make("span", { class: `dot model-${index}` }), make("b", {}, model.name), about);
    this.home = make("div", { class: "anatomy" }, this.head);
    if (model.warning) this.home.append(make("p", { class: "warning", title: model.warning }, model.warning));
    this.home.append(this.body);
    this.list.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("focusin", (event) => this.rove(event.target.closest(".unit")));
    new ResizeObserver(() => this.fit()).observe(this.body);
  }

  row({ name, units }) {
    const chips = units.map((unit) => this.chip(unit));
    return make("li", {}, make("span", { class: "block", title: name }, shortened(name)), make("span", { class: "chips" }, ...chips));
  }

  chip(unit) {
    const mark = make("span", { class: "mark" });
    const attributes = { type: "button", class: `chip kind-${unit.kind}`, tabindex: -1 };
    const button = make("button", attributes,
      make("span", { class: "kind", "data-short": SHORT[unit.kind] ?? KINDS[unit.kind] }, KINDS[unit.kind]), mark);
    button.addEventListener("click", () => this.observe(unit));
    const off = unit.edits.includes("off");
    // for the pointer only: the keyboard has a letter, and screen readers have the buttons above
    const title = `Switch off ${unit.name} (O)`;
    const power = make("button", { type: "button", class: "power", tabindex: -1, "aria-hidden": true, hidden: !off, title }, powerIcon());
    power.addEventListener("click", () => this.state.toggle(this.index, unit.name, "off"));
    const home = make("span", { class: "unit", "data-unit": unit.name, "data-model": this.index, "data-kind": unit.kind }, button, power);
    home.addEventListener("contextmenu", (event) => {
      event.preventDefault();
      this.menu(unit);
    });
    this.chips.set(unit.name, { unit, home, button, mark, power });
    return home;
  }

  observe(unit) {
    this.state.set({ unit: { model: this.index, name: unit.name }, head: -1 });
  }

  menu(unit) {
    this.observe(unit);
    openMenu(this.chips.get(unit.name).button, this.state, this.index, unit);
  }

  /** Arrow keys move between units, Enter and Space open the menu, letters act on the unit that has the focus. */
  press(event) {
    const home = event.target.closest(".unit");
    if (!home || event.ctrlKey || event.metaKey || event.altKey) return;
    const { unit } = this.chips.get(home.dataset.unit);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.menu(unit);
    }
    const what = actionOf(event);
    if (unit.edits.includes(what)) {
      event.preventDefault();
      this.observe(unit);
      return this.state.toggle(this.index, unit.name, what);
    }
    const ends = { Home: this.model.units[0], End: this.model.units.at(-1) };
    const next = event.key in STEPS ? this.beside(unit, ...STEPS[event.key]) : ends[event.key];
    if (!next) return;
    event.preventDefault();
    this.chips.get(next.name).button.focus();
    this.observe(next);
  }

  beside(unit, down, right) {
    if (right) return this.model.units[unit.index + right];
    const at = this.rows.findIndex((row) => row.units.includes(unit));
    const column = this.rows[at].units.indexOf(unit);
    const { units } = this.rows[at + down] ?? { units: [] };
    return units[Math.min(column, units.length - 1)];
  }

  /** Make one unit of the list the one that Tab reaches (roving tabindex). */
  rove(home) {
    for (const { home: other, button } of this.chips.values()) button.tabIndex = other === home ? 0 : -1;
  }

  /** Use as many columns as are needed for legible rows; if there is no room for them, the list scrolls. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.body;
    if (!width || !height) return;
    const most = matchMedia("(max-width: 640px)").matches ? 1 : Math.max(1, Math.floor(width / NARROWEST));
    let columns = 1;
    while (columns < most && height / Math.ceil(this.rows.length / columns) < LOWEST) columns++;
    const lines = Math.ceil(this.rows.length / columns);
    const row = Math.max(LOWEST, Math.min(TALLEST, Math.floor(height / lines)));
    this.list.style.gridTemplateRows = `repeat(${lines}, ${row}px)`;
    this.list.style.setProperty("--chip", `${Math.min(row - 4, 28)}px`);
    this.list.classList.toggle("dense", columns > 1 || width < 330);
  }

  /** Mark the chosen unit and the edited ones; `edits` are those in force, or those just requested. */
  draw(edits) {
    const { unit: chosen } = this.state.now;
    for (const [name, { unit, home, button, mark, power }] of this.chips) {
      const mine = edits.filter((edit) => edit.unit === name);
      const current = chosen?.model === this.index && chosen.name === name;
      const whats = mine.map(({ what }) => what);
      home.dataset.edits = whats.join(" ");
      home.classList.toggle("mirrored", mine.length > 0 && mine.every((edit) => edit.mirrored));
      home.classList.toggle("refused", mine.some((edit) => edit.why));
      mark.textContent = whats.map((what) => ACTIONS[what].mark).join(", ");
      button.setAttribute("aria-pressed", String(current));
      const marks = mine.map((edit) => ACTIONS[edit.what].mark + (edit.mirrored ? ", mirrored" : "") + (edit.why ? ", refused" : ""));
      const notes = mine.map((edit) => edit.why ?? (edit.mirrored ? "mirrored from the other model" : ""));
      button.setAttribute("aria-label", [`${name}, ${describeUnit(unit)}`, ...marks].join(", "));
      button.title = [`${name}: ${describeUnit(unit)}`, ...notes].filter(Boolean).join("\n");
      power.setAttribute("aria-pressed", String(whats.includes("off")));
      if (current && !this.list.contains(document.activeElement)) this.rove(home);
    }
    if (!$("button.chip[tabindex='0']", this.list)) this.rove($(".unit", this.list));
  }
}

/** All anatomies, and what can be done to the unit that is chosen. */
export class Anatomies {
  constructor(session, state) {
    this.state = state;
    this.session = session;
    this.models = session.models.map((model, index) => new ModelAnatomy(model, index, state));
    $("#anatomies").replaceChildren(...this.models.map((model) => model.home));
    $("#anatomies").dataset.count = this.models.length;
    this.bar = $("#unit");
    this.name = make("b", { class: "name" });
    this.facts = make("span", { class: "quiet facts" });
    this.actions = make("span", { class: "buttons", role: "group", "aria-label": "What to do to this unit" });
    this.bar.replaceChildren(make("span", { class: "which" }, this.name, this.facts), this.actions);
    addEventListener("keydown", (event) => this.press(event));
  }

  /** The unit that is chosen, of its model. */
  get chosen() {
    const { unit } = this.state.now;
    return unit ? this.session.models[unit.model].units.find((each) => each.name === unit.name) : null;
  }

  /** Letters act on the unit that is chosen, wherever the focus is. */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (typing(event) || document.querySelector("dialog[open], .menu")) return;
    const what = actionOf(event);
    if (!what || !this.chosen?.edits.includes(what)) return;
    event.preventDefault();
    this.state.toggle(this.state.now.unit.model, this.chosen.name, what);
  }

  /** `inForce` are the edits of each model as the server made or refused them, or null while it has not answered. */
  draw(inForce) {
    const mine = (edits, index) => edits.filter((edit) => edit.model === index);
    this.models.forEach((model, index) => {
      const known = inForce?.[index];
      model.draw(known ? [...known.edits, ...mine(known.refused, index)] : mine(this.state.now.edits, index));
    });
    const { chosen } = this;
    this.bar.hidden = !chosen;
    if (!chosen) return;
    const { model } = this.state.now.unit;
    const made = this.state.editsOf(model, chosen.name).map(({ what }) => what);
    this.name.textContent = chosen.name;
    this.facts.textContent = describeUnit(chosen);
    if (this.shown !== `${model}:${chosen.name}`) this.offer(model, chosen);
    for (const button of $$("button", this.actions)) button.setAttribute("aria-pressed", String(made.includes(button.dataset.what)));
  }

  offer(model, unit) {
    this.shown = `${model}:${unit.name}`;
    const button = (what) => {
      const { key, button: words } = ACTIONS[what];
      const why = unit.why_not?.[what];
      const made = make("button", { type: "button", "data-what": what, title: why || TITLES[what], disabled: Boolean(why), "aria-keyshortcuts": key },
        `${words} `, make("kbd", {}, key.toUpperCase()));
      made.addEventListener("click", () => this.state.toggle(model, unit.name, what));
      return made;
    };
    // what makes no sense for this kind of unit is not offered, what is impossible says why
    const sensible = (what) => unit.edits.includes(what) || what === "off" || (what !== "skip" && unit.kind === "attention");
    this.actions.replaceChildren(...Object.keys(ACTIONS).filter(sensible).map(button));
  }
}
