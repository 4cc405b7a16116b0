// What the attention explorers of a page show: one choice for all of them, which fits into a URL.

class AttentionChoice {
  constructor(provider) {
    this.provider = provider;
    this.views = new Set();
    this.offered = provider.models.map((_, model) => model);
    this.reset();
    this.initial = String(this);
    this.announced = this.initial;
  }

  reset() {
    const { models } = this.provider;
    const pane = (model) => ({ model, layer: Math.floor(models[model].units.length / 2), head: -1 }); // -1 is the mean of all heads
    this.image = 0;
    this.spot = [0.5, 0.5]; // of the query in the image, across and down
    this.token = null; // a prefix token as the query instead of a patch: "class token" or "register 2"
    this.locked = true; // two models at the same relative depth
    this.panes = models.length > 1 ? [pane(0), pane(1)] : [pane(0)];
    if (this.panes[1]) this.follow(0);
  }

  unit(pane) {
    return this.provider.models[pane.model].units[pane.layer];
  }

  /** The index of the query in a layer, its cell on the grid, and the index of the prefix token if that is the query. */
  query(unit) {
    const { rows, columns } = unit.queries;
    const asking = unit.tokens.length ? tokenNames(unit.tokens).indexOf(this.token) : -1;
    if (asking >= 0) return { query: asking, cell: null, asking };
    const [x, y] = [columns, rows].map((count, i) => Math.min(Math.floor(this.spot[i] * count), count - 1));
    return { query: unit.tokens.length + y * columns + x, cell: [x, y], asking: null };
  }

  change(changes) {
    Object.assign(this, changes);
    this.announce();
  }

  /** Change the model, layer or head of a pane; the other pane follows if layers are locked. */
  choose(index, changes) {
    const pane = this.panes[index];
    const { models } = this.provider;
    const before = this.unit(pane);
    Object.assign(pane, changes);
    if ("model" in changes) pane.layer = nearest(models[pane.model].units, before.depth);
    this.settle(pane);
    if (this.locked && this.panes[1] && ("layer" in changes || "model" in changes)) this.follow(index);
    this.announce();
  }

  /** Move the other pane to the layer at the relative depth of this one. */
  follow(index) {
    const other = this.panes[1 - index];
    other.layer = nearest(this.provider.models[other.model].units, this.unit(this.panes[index]).depth);
    this.settle(other);
  }

  /** Compare with another model, or with none. */
  compare(model) {
    this.panes = [this.panes[0], ...(model === null ? [] : [{ model, layer: 0, head: -1 }])];
    if (this.panes[1]) this.follow(0);
    this.announce();
  }

  lock(locked) {
    this.locked = locked;
    if (locked && this.panes[1]) this.follow(0);
    this.announce();
  }

  /** Offer only the models with these names, or all if none has one. Panes of other models show an offered one meanwhile. */
  offer(names) {
    const all = this.provider.models.map((_, model) => model);
    const some = all.filter((model) => names.includes(this.provider.models[model].name));
    const narrowed = some.length > 0 && some.length < all.length;
    this.offered = narrowed ? some : all;
    const { depth } = this.unit(this.panes[0]);
    this.unnarrowed ??= this.panes;
    const panes = this.unnarrowed.filter(({ model }) => this.offered.includes(model));
    const others = this.offered.filter((model) => panes.every((pane) => pane.model !== model));
    for (const model of others.slice(0, this.unnarrowed.length - panes.length)) {
      panes.push({ model, layer: nearest(this.provider.models[model].units, depth), head: -1 });
    }
    this.panes = panes;
    if (!narrowed) this.unnarrowed = null;
    this.announce();
  }

  settle(pane) {
    const units = this.provider.models[pane.model].units;
    pane.layer = Math.min(Math.max(pane.layer, 0), units.length - 1);
    const { heads, averaged } = units[pane.layer];
    pane.head = averaged ? -1 : Math.min(Math.max(pane.head, -1), heads - 1);
  }

  /** Draw everything, and tell the page if something has changed. */
  announce() {
    for (const view of this.views) view.draw();
    if (String(this) === this.announced) return;
    this.announced = String(this);
    dispatchEvent(new CustomEvent("statechange", { detail: { attention: attentionState() } }));
  }

  /** The state as text of letters, digits, "-", "." and "_", which a URL does not escape. */
  toString() {
    const panes = this.panes.map(({ model, layer, head }) => `m${model}.${layer}.${head < 0 ? "m" : head}`);
    const token = this.token ? [`t${this.token.replaceAll(" ", "-")}`] : [];
    const spot = this.spot.map((share) => Math.round(1000 * share)).join("-");
    return [`i${this.image}`, `q${spot}`, ...token, ...panes, ...(this.locked ? [] : ["u"])].join("_");
  }

  /** Restore the state that `toString` wrote; parts that do not fit keep their defaults. */
  read(text) {
    this.reset();
    this.unnarrowed = null;
    const { models, images } = this.provider;
    const panes = [];
    for (const part of String(text).split("_")) {
      const [kind, rest] = [part[0], part.slice(1)];
      if (kind === "i" && Number(rest) < images.length && /^\d+$/.test(rest)) this.image = Number(rest);
      if (kind === "q" && /^\d{1,4}-\d{1,4}$/.test(rest)) this.spot = rest.split("-").map((each) => Math.min(each / 1000, 1));
      if (kind === "t") this.token = rest.replaceAll("-", " ");
      if (kind === "u" && !rest) this.locked = false;
      const [, model, layer, head] = (kind === "m" && /^(\d+)\.(\d+)\.(m|\d+)$/.exec(rest)) || [];
      if (model in models && panes.length < 2) panes.push({ model: Number(model), layer: Number(layer), head: head === "m" ? -1 : Number(head) });
    }
    if (panes.length) this.panes = panes;
    this.panes.forEach((pane) => this.settle(pane));
  }
}

/** The number of the layer whose depth is nearest. */
function nearest(units, depth) {
  const gaps = units.map((unit) => Math.abs(unit.depth - depth));
  return gaps.indexOf(Math.min(...gaps));
}

const attention = document.getElementById("attention-meta") ? new AttentionChoice(new PageMaps(await json("attention-meta"))) : null;

/** The state of the explorers as text for the URL; empty for the initial state. Every change dispatches the event
 * `statechange` on the window. */
function attentionState() {
  return attention && String(attention) !== attention.initial ? String(attention) : "";
}

/** Show models with these names only, all if there are none. */
function showAttentionModels(names) {
  attention?.offer(names);
}

/** Restore what `attentionState` returned; an empty string is the initial state. */
function setAttentionState(text) {
  attention?.read(text);
  attention?.announce();
}
