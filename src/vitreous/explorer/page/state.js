// The state of the page, kept in the URL, with undo and redo of edits and image changes.

export const EDITS = ["off", "skip", "uniform", "mean", "box"];
export const PANELS = ["attention", "stream", "rollout"];
const INTERVENTIONS = ["edits", "changes"]; // the members that undo reverts
const FEWER = 1e4; // shares in the URL have four decimals

/** The state for the server: without the head, which only the page needs. */
export function requestBody({ image, changes, edits, mirror, query, unit, panel }) {
  return { image, changes, edits, mirror, query, panel, ...(unit && { unit }) };
}

const round = (share) => Math.round(FEWER * share) / FEWER;
const clamp = (share) => Math.min(Math.max(share, 0), 1);
const interventions = ({ edits, changes }) => ({ edits, changes });
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Encode the state as the fragment of a URL. */
export function format(state) {
  const query = new URLSearchParams();
  const { changes } = state;
  query.set("image", state.image);
  query.set("query", Array.isArray(state.query) ? state.query.map(round).join(",") : state.query);
  query.set("panel", state.panel);
  if (state.unit) query.set("unit", `${state.unit.model}:${state.unit.name}`);
  if (state.head >= 0) query.set("head", state.head);
  for (const { model, what, unit } of state.edits) query.append("edit", `${model}:${what}:${unit}`);
  if (!state.mirror) query.set("mirror", "0");
  if (changes.noise) {
    const { frequency, width, strength } = changes.noise;
    query.set("noise", [frequency, width, strength].map(round).join(","));
  }
  for (const name of ["low_pass", "high_pass"]) if (name in changes) query.set(name, round(changes[name]));
  for (const box of changes.boxes ?? []) query.append("box", box.map(round).join(","));
  if (changes.corruption) query.set("corruption", `${changes.corruption.name},${changes.corruption.severity}`);
  return query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}

// Each of these reads one value of the URL, and returns undefined for a value that does not fit.

/** Numbers between 0 and 1. */
function readShares(text, count) {
  const numbers = text.split(",").map((each) => (each.trim() === "" ? NaN : Number(each)));
  const fit = numbers.length === count && numbers.every((each) => each >= 0 && each <= 1);
  return fit ? numbers : undefined;
}

function readQuery(text, session) {
  const asks = text === "class" && session.models.some((model) => model.tokens.includes(text));
  return asks ? text : readShares(text, 2);
}

function readUnit(text, session) {
  const [, model, name] = /^(\d+):(.*)$/s.exec(text) ?? [];
  const known = session.models[model]?.units.some((unit) => unit.name === name);
  return known ? { model: Number(model), name } : undefined;
}

function readEdit(text, session) {
  const [, model, what, name] = /^(\d+):(\w+):(.*)$/s.exec(text) ?? [];
  const unit = session.models[model]?.units.find((each) => each.name === name);
  return unit?.edits.includes(what) ? { model: Number(model), unit: name, what } : undefined;
}

function readNoise(text) {
  const [frequency, width, strength] = readShares(text, 3) ?? [];
  return strength === undefined ? undefined : { frequency, width, strength };
}

function readBox(text) {
  const box = readShares(text, 4);
  return box && box[0] < box[2] && box[1] < box[3] ? box : undefined;
}

function readCorruption(text, session) {
  const [, name, severity] = /^(\w+),([1-5])$/.exec(text) ?? [];
  return session.corruptions.includes(name) ? { name, severity: Number(severity) } : undefined;
}

/** Decode what `format` wrote. Parts that do not fit the session are left out and counted (`unfit`). */
export function parse(text, session) {
  const state = initial(session);
  const query = new URLSearchParams(text);
  let unfit = 0;
  const all = (name, read) => {
    const values = query.getAll(name).map((value) => read(value, session));
    unfit += values.filter((value) => value === undefined).length;
    return values.filter((value) => value !== undefined);
  };
  const last = (name, read, otherwise) => all(name, read).at(-1) ?? otherwise;
  state.image = last("image", (id) => session.images.find((each) => each.id === id)?.id, state.image);
  state.query = last("query", readQuery, state.query);
  state.panel = last("panel", (name) => PANELS.find((each) => each === name), state.panel);
  state.unit = last("unit", readUnit, state.unit);
  state.head = last("head", (number) => (/^\d{1,4}$/.test(number) ? Number(number) : undefined), state.head);
  state.edits = all("edit", readEdit);
  state.mirror = last("mirror", (value) => value !== "0", state.mirror);
  const changes = {
    noise: last("noise", readNoise),
    low_pass: last("low_pass", (value) => readShares(value, 1)?.[0]),
    high_pass: last("high_pass", (value) => readShares(value, 1)?.[0]),
    boxes: all("box", readBox),
    corruption: last("corruption", readCorruption),
  };
  if (!changes.boxes.length) delete changes.boxes;
  for (const [name, value] of Object.entries(changes)) if (value !== undefined) state.changes[name] = value;
  return { state, unfit };
}

/** The state at first: the first image, the patch in its middle, and a unit halfway through the first model. */
export function initial(session) {
  const [model] = session.models;
  const attending = model.units.filter((unit) => unit.attention);
  const mapped = model.units.filter((unit) => unit.grid);
  const choice = attending.length ? attending : mapped;
  const unit = choice[Math.floor(choice.length / 2)] ?? model.units[0];
  return {
    image: session.images[0]?.id ?? null,
    changes: {},
    edits: [],
    mirror: true,
    query: [0.5, 0.5],
    unit: { model: 0, name: unit.name },
    head: -1, // the mean of all heads
    panel: session.models.some((each) => each.units.some((one) => one.attention)) ? "attention" : "stream",
  };
}

/** The state of the page. Listeners of `change` get what it was before, and whether a slider is still moving. */
export class State extends EventTarget {
  constructor(session) {
    super();
    this.session = session;
    this.past = [];
    this.future = [];
    this.now = initial(session);
    this.moving = false;
    this.begun = null; // interventions before a slider began to move
    addEventListener("popstate", () => this.read());
  }

  /** Restore the state in the URL. Returns the number of parts that do not fit. */
  read() {
    const { state, unfit } = parse(location.hash.slice(1), this.session);
    this.replace(state, { keep: false });
    return unfit;
  }

  /**
   * Change some members. `step` makes it a step of the browser's history; `moving` says that more will follow at once,
   * as from a slider, and is undone together with what follows.
   */
  set(changes, { step = false, moving = false } = {}) {
    const before = this.now;
    const next = { ...before, ...changes };
    if (same(before, next) && moving === this.moving) return;
    if (INTERVENTIONS.some((name) => name in changes)) this.remember(before, next, moving);
    this.moving = moving;
    this.now = next;
    this.write(step && !moving);
    this.announce(before, moving);
  }

  /** Record the previous edits and changes for undo, unless nothing has changed, as after a slider that moved back. */
  remember(before, next, moving) {
    if (moving) return void (this.begun ??= interventions(before));
    const from = this.begun ?? interventions(before);
    this.begun = null;
    if (same(from, interventions(next))) return;
    this.past.push(from);
    this.future = [];
  }

  undo() {
    this.swap(this.past, this.future);
  }

  redo() {
    this.swap(this.future, this.past);
  }

  swap(from, to) {
    if (!from.length) return;
    to.push(interventions(this.now));
    this.replace({ ...this.now, ...from.pop() }, { keep: true, step: true });
  }

  /** Replace the state. With `keep` this is no new step for undo; otherwise it is one. */
  replace(state, { keep, step = false }) {
    const before = this.now;
    if (!keep) this.remember(before, state, false);
    this.now = state;
    if (keep) this.write(step);
    this.announce(before, false);
  }

  write(step) {
    const wanted = `#${format(this.now)}`;
    if (wanted === location.hash) return;
    history[step ? "pushState" : "replaceState"](null, "", wanted);
  }

  announce(before, moving) {
    this.dispatchEvent(new CustomEvent("change", { detail: { before, moving } }));
  }

  // --- edits of units ---

  editsOf(model, unit) {
    return this.now.edits.filter((edit) => edit.model === model && edit.unit === unit);
  }

  /** Make an edit, or revert it. The attention of a unit can only be replaced in one way at a time. */
  toggle(model, unit, what) {
    const { edits } = this.now;
    const is = (edit) => edit.model === model && edit.unit === unit && edit.what === what;
    if (edits.some(is)) return this.set({ edits: edits.filter((edit) => !is(edit)) }, { step: true });
    const replacing = (name) => ["uniform", "mean", "box"].includes(name);
    const rest = edits.filter(
      (edit) => edit.model !== model || edit.unit !== unit || !(replacing(what) && replacing(edit.what)),
    );
    this.set({ edits: [...rest, { model, unit, what }] }, { step: true });
  }

  /** Set one change of the image; null reverts it. */
  change(name, value, moving = false) {
    const changes = { ...this.now.changes };
    if (value === null) delete changes[name];
    else changes[name] = value;
    this.set({ changes }, { step: true, moving });
  }

  reset() {
    this.set({ edits: [], changes: {} }, { step: true });
  }

  /** Shares are those of the URL: on a finer grid a little more or less is another patch. */
  ask(query) {
    this.set({ query: Array.isArray(query) ? query.map(clamp).map(round) : query });
  }

  occlude(box) {
    this.change("boxes", [...(this.now.changes.boxes ?? []), box.map(round)]);
  }
}
