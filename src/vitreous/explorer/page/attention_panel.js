// Attention of the followed patch in all layers and heads, or its rollout: small maps, and one of them enlarged.
import { describe, drawMap, drawScale, make, percent, sharpen, summarise } from "./drawing.js";
import { Shelves } from "./shelves.js";

const mean = (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
const side = ([rows, columns]) => ({ rows, columns });
const within = (share) => Math.min(Math.max(share, 0), 0.9999);

/** One model: the enlarged map at the left, all small ones at the right. */
class Pane {
  constructor(panel, index) {
    Object.assign(this, { panel, index, layers: [], hovered: null });
    this.model = panel.session.models[index];
    this.lens = make("canvas", { class: "lens", role: "img" });
    this.readout = make("output", { class: "readout" });
    this.scale = make("canvas", { class: "scale", width: 128, height: 1, "aria-hidden": true });
    this.most = make("span", {});
    this.title = make("div", { class: "caption" });
    this.legend = make("div", { class: "legend" }, make("span", {}, "0"), this.scale, this.most);
    this.plate = make("div", { class: "plate" }, this.title, make("div", { class: "frame" }, this.lens, this.readout), this.legend);
    this.maps = make("canvas", { class: "maps", tabindex: 0, role: "application" });
    this.room = make("div", { class: "room" }, this.maps);
    this.sentence = make("p", { class: "sentence" });
    this.home = make("div", { class: "pane attention", "data-model": index }, this.plate, make("div", { class: "beside" }, this.room, this.sentence));
    drawScale(this.scale);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.home);
  }

  listen() {
    const under = (event) => this.layout?.at(event.offsetX, event.offsetY) ?? null;
    this.maps.addEventListener("pointermove", (event) => this.hover(under(event)));
    this.maps.addEventListener("pointerleave", () => this.hover(null));
    this.maps.addEventListener("click", (event) => under(event) && this.choose(...under(event)));
    this.maps.addEventListener("keydown", (event) => this.press(event));
    const place = (event) => {
      const box = this.lens.getBoundingClientRect();
      return [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map(within);
    };
    this.lens.addEventListener("click", (event) => this.panel.state.ask(place(event)));
    this.lens.addEventListener("pointermove", (event) => this.read(place(event)));
    this.lens.addEventListener("pointerleave", () => (this.readout.textContent = ""));
  }

  /** Layer and number of the chosen map, which is enlarged while the pointer is on no other map. */
  get chosen() {
    const { unit, head } = this.panel.state.now;
    const layer = this.nearest(unit);
    const heads = this.layers[layer]?.rows?.length ?? 0;
    return [layer, unit?.model === this.index && head >= 0 && heads > 1 ? Math.min(head, heads - 1) + 1 : 0];
  }

  /** The layer of a unit, or the one at its relative depth. */
  nearest(unit) {
    if (!unit) return this.layers.length - 1;
    const known = this.layers.findIndex(({ name }) => unit.model === this.index && name === unit.name);
    if (known >= 0) return known;
    const { depth } = this.panel.session.models[unit.model].units.find(({ name }) => name === unit.name);
    const gaps = this.layers.map((layer) => Math.abs(layer.depth - depth));
    return gaps.indexOf(Math.min(...gaps));
  }

  choose(layer, number) {
    this.panel.state.set({ unit: { model: this.index, name: this.layers[layer].name }, head: number - 1 });
  }

  hover(at) {
    if (String(at) === String(this.hovered)) return;
    this.hovered = at;
    this.enlarge();
    this.frames();
  }

  /** Arrow keys: left and right choose the layer, up and down the head. */
  press(event) {
    const [layer, number] = this.chosen;
    const to = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const next = this.layout && to ? layer + to[0] : -1;
    if (!to) return;
    event.preventDefault();
    if (this.layers[next]) this.choose(next, Math.min(Math.max(number + to[1], 0), this.layout.heads[next]));
  }

  /** What the server answered: maps of the units that have attention now, and why others have none. */
  show(units, why = "") {
    this.why = why;
    const found = new Map(units.map((unit) => [unit.unit, unit]));
    const attending = this.model.units.filter((unit) => unit.attention && (found.has(unit.name) || !this.panel.rollout));
    this.layers = attending.map(({ name, depth }) => {
      const unit = found.get(name);
      return unit?.rows.length ? { ...unit, name, depth, mean: mean(unit.rows) } : { name, depth, rows: null };
    });
    this.hovered = null;
    this.draw();
  }

  row({ rows, mean: average }, number) {
    return number === 0 ? average : rows[number - 1];
  }

  /** The enlarged map takes a third of the width, or the height that there is; more if it stands above the others. */
  fit() {
    const { picture } = this.panel;
    if (!picture) return;
    const { clientWidth: width, clientHeight: height } = this.home;
    const above = this.room.getBoundingClientRect().top > this.plate.getBoundingClientRect().bottom;
    const tall = Math.max(80, height - 40); // caption and legend
    const wide = above ? Math.min(width, 300) : Math.min(0.36 * width, (tall * picture.width) / picture.height);
    this.plate.style.width = `${Math.round(wide)}px`;
  }

  draw() {
    if (!this.layers.length || !this.home.clientWidth) return;
    this.fit();
    const heads = this.layers.map(({ rows }) => (rows?.length > 1 ? rows.length : 0));
    this.layout = new Shelves(heads, this.room.clientWidth - 4, this.room.clientHeight - 4);
    const { layout } = this;
    this.aside = new OffscreenCanvas(1, 1);
    const pen = sharpen(this.aside, layout.width, layout.height);
    const style = getComputedStyle(this.maps);
    pen.font = `11px ${style.fontFamily}`;
    this.layers.forEach((layer, index) => {
      if (!layer.rows) return layout.leave(pen, index, style.color, "none");
      for (let number = 0; number <= heads[index]; number++) {
        layout.paint(pen, index, number, this.row(layer, number).subarray(layer.prefix), layer.keys);
      }
    });
    this.frames();
    this.enlarge();
  }

  /** The small maps, with frames around the chosen one and the one pointed at. */
  frames() {
    const { layout, maps } = this;
    if (!layout) return;
    Object.assign(maps.style, { width: `${layout.width}px`, height: `${layout.height}px` });
    const pen = sharpen(maps, layout.width, layout.height);
    pen.drawImage(this.aside, 0, 0, layout.width, layout.height);
    const style = getComputedStyle(maps);
    const [layer, number] = this.chosen;
    layout.label(pen, style, layer);
    const frame = (at, ...line) => layout.frame(pen, ...at, this.layers[at[0]].keys ?? [1, 1], ...line);
    frame(this.chosen, style.outlineColor, 2.5);
    if (this.hovered) frame(this.hovered, style.caretColor, 1.5);
    const label = `${this.panel.word} of ${this.model.name} by layer and head; chosen: ${this.named(layer, number)}.`;
    maps.setAttribute("aria-label", `${label} Left and right choose the layer, up and down the head.`);
  }

  named(layer, number) {
    const { name, rows, averaged } = this.layers[layer];
    if (!rows || (rows.length === 1 && !averaged)) return name;
    return `${name} · ${number === 0 ? "mean" : `head ${number - 1}`}`;
  }

  /** The map pointed at, or the chosen one, over the image. */
  enlarge() {
    const { picture } = this.panel;
    if (!picture || !this.layers.length) return;
    const [index, number] = this.hovered ?? this.chosen;
    const layer = this.layers[index];
    this.title.textContent = this.title.title = this.named(index, number);
    this.legend.hidden = !layer.rows;
    Object.assign(this.home.dataset, { unit: layer.name, head: number - 1 });
    this.now = null;
    if (layer.rows) return this.enlargeMap(layer, this.row(layer, number), picture);
    drawMap(this.lens, picture, { grid: new Float32Array(1), keys: { rows: 1, columns: 1 }, most: 1, strength: 0.85, marks: [] });
    this.say(`${layer.name} attends to nothing: it is switched off, or its attention cannot be observed any more.`);
  }

  enlargeMap(layer, row, picture) {
    const [keys, queries] = [side(layer.keys), side(layer.queries ?? layer.keys)];
    const cell = Array.isArray(layer.query) ? [layer.query[1], layer.query[0]] : null;
    const known = { tokens: layer.tokens ?? [], keys, queries };
    const { at, most, onGrid } = summarise(row, known, cell);
    const marks = onGrid ? [{ cell: at, side: keys, kind: "most" }] : [];
    if (cell) marks.push({ cell, side: queries, kind: "query" });
    drawMap(this.lens, picture, { grid: row.subarray(layer.prefix), keys, most, strength: 0.85, marks });
    this.most.textContent = percent(most);
    const asking = cell ? null : Math.max(0, known.tokens.indexOf(layer.query));
    const words = this.panel.rollout ? rolled(row, layer) : describe(row, known, cell, asking);
    const instead = layer.instead ? " The token you follow does not exist in this layer." : "";
    this.say(words + instead + (this.why ? ` Later layers are left out: ${this.why}` : ""));
    Object.assign(this.home.dataset, { most, query: String(layer.query) });
    this.now = { row, layer };
  }

  say(words) {
    this.sentence.textContent = this.sentence.title = words;
    this.lens.setAttribute("aria-label", `${this.title.textContent}: ${words}`);
  }

  /** The share of the patch under the pointer. */
  read([y, x]) {
    if (!this.now) return;
    const { row, layer: { keys: [rows, columns], prefix } } = this.now;
    const [down, across] = [Math.floor(y * rows), Math.floor(x * columns)];
    this.readout.textContent = `row ${down + 1}, column ${across + 1}: ${percent(row[prefix + down * columns + across])}`;
  }
}

function rolled(row, { prefix }) {
  const onGrid = row.subarray(prefix).reduce((a, b) => a + b, 0);
  const rest = prefix ? ` ${percent(Math.max(0, 1 - onGrid))} rests on tokens without a place.` : "";
  return `How much of each patch has arrived here, if only attention and skips carry it.${rest}`;
}

/** The panel for all models. */
export class AttentionPanel {
  constructor(session, state, rollout) {
    Object.assign(this, { session, state, rollout, word: rollout ? "Rollout" : "Attention" });
    this.panes = session.models.map((_, index) => new Pane(this, index));
    this.reasons = session.models.map(() => make("p", { class: "reason quiet" }));
    this.home = make("div", { class: "panes", "data-count": session.models.length });
  }

  /** Show the server's response: the maps of each model, or why there are none. */
  show(models) {
    const homes = models.map(({ units, why }, index) => {
      if (units.length) return this.panes[index].home;
      this.reasons[index].textContent = why || `${this.session.models[index].name} has no attention to show. Its streams can be shown.`;
      return this.reasons[index];
    });
    if (homes.some((home, i) => this.home.children[i] !== home)) this.home.replaceChildren(...homes);
    models.forEach(({ units, why }, index) => units.length && this.panes[index].show(units, why));
  }

  /** Another unit or head was chosen, or the image has changed. */
  draw(picture = this.picture) {
    const first = !this.picture;
    this.picture = picture;
    for (const pane of this.panes) {
      if (!pane.layers.length || !pane.home.isConnected) continue;
      if (first) pane.draw();
      pane.frames();
      pane.enlarge();
    }
  }
}
