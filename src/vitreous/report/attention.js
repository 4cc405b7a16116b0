// The attention explorer: an image, a patch, a layer and a head, of one model or of two beside each other.

let explorers = 0;

/** One explorer on the page: compact, or full with two panes and all layers. */
class AttentionView {
  constructor(home, choice) {
    this.choice = choice;
    this.compact = home.dataset.size === "compact";
    this.strength = 0.85;
    this.home = home;
    this.number = explorers++;
    this.panes = [];
    this.row = make("div", { class: "panes" });
    home.replaceChildren(this.toolbar(), this.row);
    choice.views.add(this);
    addEventListener("painted", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(home);
  }

  toolbar() {
    const { images, models } = this.choice.provider;
    this.thumbnails = images.map(({ label, width, height }, image) => {
      const canvas = make("canvas", { "aria-hidden": true });
      const side = 40 / Math.max(width, height);
      Object.assign(canvas.style, { width: `${width * side}px`, height: `${height * side}px` }); // before it is drawn: nothing moves
      const onclick = () => this.choice.change({ image });
      return make("button", { type: "button", class: "thumbnail", "aria-label": `image ${image + 1}: ${label}`, title: label, onclick }, canvas);
    });
    const bar = make("div", { class: "toolbar" }, make("div", { class: "images", role: "group", "aria-label": "Image" }, ...this.thumbnails));
    if (this.compact) {
      bar.append(this.more());
      return bar;
    }
    const mix = make("input", { type: "range", min: 0, max: 100, value: 100 * this.strength });
    mix.addEventListener("input", () => ((this.strength = mix.value / 100), this.draw()));
    const options = [make("option", { value: "" }, "nothing"), ...models.map(({ shown }, i) => make("option", { value: i }, shown))];
    this.other = make("select", {}, ...options);
    this.other.addEventListener("change", () => this.choice.compare(this.other.value === "" ? null : Number(this.other.value)));
    this.lock = make("input", { type: "checkbox" });
    this.lock.addEventListener("change", () => this.choice.lock(this.lock.checked));
    this.locking = make("label", { title: "Moving one slider moves the other to the same relative depth" }, this.lock, "lock layers");
    bar.append(make("label", {}, "overlay", mix), make("label", { class: "compare" }, "compare with", this.other), this.locking);
    return bar;
  }

  /** A button that opens the full explorer and all folds around it. */
  more() {
    const full = $('.attention[data-size="full"]');
    const onclick = () => {
      for (let at = full; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
      dispatchEvent(new CustomEvent("reveal", { detail: full }));
      full.scrollIntoView({ block: "start" });
      $(".map", full)?.focus({ preventScroll: true });
    };
    return make("button", { type: "button", class: "more", hidden: !full, onclick }, "All layers and heads");
  }

  /** Create or drop panes to match the choice, and update the controls. */
  arrange() {
    const count = this.compact ? 1 : this.choice.panes.length;
    while (this.panes.length < count) this.panes.push(new AttentionPane(this, this.panes.length));
    this.panes.length = count;
    if (this.row.children.length !== count) this.row.replaceChildren(...this.panes.map((pane) => pane.home));
    this.row.dataset.count = count;
    const narrowed = (option) => option.value !== "" && !this.choice.offered.includes(Number(option.value));
    for (const option of $$("select option", this.home)) option.hidden = option.disabled = narrowed(option);
    if (this.compact) return;
    this.other.value = this.choice.panes[1]?.model ?? "";
    this.locking.hidden = count < 2;
    this.lock.checked = this.choice.locked;
  }

  /** Draw at the next animation frame, at most once per frame. */
  draw() {
    this.frame ??= requestAnimationFrame(async () => {
      this.frame = null;
      this.arrange();
      const { provider, image } = this.choice;
      this.thumbnails.forEach((button, i) => button.setAttribute("aria-pressed", String(i === image)));
      await Promise.all([...this.panes.map((pane) => pane.draw()), this.thumbs(provider)]);
      this.home.dataset.state = JSON.stringify({ text: String(this.choice), panes: this.panes.map((pane) => pane.shown) });
    });
  }

  async thumbs(provider) {
    if (this.pasted) return;
    this.pasted = true;
    for (const [i, button] of this.thumbnails.entries()) {
      const picture = await provider.picture(i);
      const canvas = button.firstChild;
      const size = [canvas.clientWidth, canvas.clientHeight];
      paste(sharpen(canvas, ...size), picture, ...size);
    }
  }
}

/** One model in an explorer. */
class AttentionPane {
  constructor(view, index) {
    Object.assign(this, { view, index, choice: view.choice, turn: 0 });
    const { models } = this.choice.provider;
    this.model = make("select", { "aria-label": index ? "second model" : "model" }, ...models.map(({ shown }, i) => make("option", { value: i }, shown)));
    this.model.addEventListener("change", () => this.set({ model: Number(this.model.value) }));
    this.slider = make("input", { type: "range", min: 0, "aria-label": "layer" });
    this.slider.addEventListener("input", () => this.set({ layer: Number(this.slider.value) }));
    this.named = make("output", { class: "unit" });
    this.picture = make("canvas", { class: "map", tabindex: 0, role: "application" });
    const [{ width, height }] = this.choice.provider.images;
    this.picture.style.aspectRatio = `${width} / ${height}`;
    this.tokens = make("div", { class: "tokens", role: "group", "aria-label": "Ask a token that has no place in the image" });
    this.scale = make("canvas", { width: 128, height: 1, "aria-hidden": true });
    this.ends = ["low", "middle", "high"].map((name) => make("span", { class: name }));
    this.readout = make("output", { class: "readout" });
    this.sentence = make("p", { class: "said" });
    this.prediction = make("div", { class: "prediction" });
    this.multiples = make("canvas", { tabindex: 0, role: "application" });
    drawScale(this.scale);
    const legend = make("div", { class: "legend" }, this.scale, make("div", { class: "ends" }, ...this.ends));
    const beside = make("div", { class: "beside" }, this.prediction, this.tokens, this.sentence);
    const layer = make("label", { class: "layer" }, "layer", this.slider, this.named);
    const seen = make("div", { class: "seen" }, make("div", { class: "plate" }, this.picture, this.readout, legend), beside);
    this.home = make("div", { class: "pane" }, make("div", { class: "which" }, this.model, layer), seen, make("div", { class: "multiples" }, this.multiples));
    this.listen();
  }

  get chosen() {
    return this.choice.panes[this.index];
  }

  get unit() {
    return this.choice.unit(this.chosen);
  }

  set(changes) {
    this.choice.choose(this.index, changes);
  }

  listen() {
    const place = (event) => {
      const box = this.picture.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((share) => Math.min(Math.max(share, 0), 0.9999));
    };
    const ask = (event) => this.choice.change({ spot: place(event), token: null });
    this.picture.addEventListener("click", ask);
    this.picture.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse" && event.buttons === 1) ask(event);
      this.point(cellOf(place(event), this.unit.keys));
    });
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("keydown", (event) => this.press(event));
    this.multiples.addEventListener("click", (event) => {
      const at = this.layout?.at(event.offsetX, event.offsetY);
      if (at) this.pick(...at);
    });
    this.multiples.addEventListener("keydown", (event) => this.walk(event));
    // many layers are unpacked only when somebody can see them
    new IntersectionObserver((seen) => {
      this.visible = seen.at(-1).isIntersecting;
      if (this.visible) this.view.draw();
    }).observe(this.multiples);
  }

  /** Arrow keys move the query; with Shift they move the place that is read; Page Up and Page Down change the layer. */
  press(event) {
    const by = STEPS[event.key];
    const layer = { PageUp: -1, PageDown: 1 }[event.key];
    if (!by && !layer) return;
    event.preventDefault();
    if (layer) return this.set({ layer: this.chosen.layer + layer });
    const side = event.shiftKey ? this.unit.keys : this.unit.queries;
    const now = event.shiftKey && this.pointed ? this.pointed : cellOf(this.choice.spot, side);
    const next = now.map((value, i) => Math.min(Math.max(value + by[i], 0), [side.columns, side.rows][i] - 1));
    this.point(event.shiftKey ? next : null);
    if (!event.shiftKey) this.choice.change({ spot: [(next[0] + 0.5) / side.columns, (next[1] + 0.5) / side.rows], token: null });
  }

  /** Arrow keys choose layer and head. */
  walk(event) {
    const by = STEPS[event.key];
    if (!by) return;
    event.preventDefault();
    const { layer, head } = this.chosen;
    if (this.layout?.across) this.pick(layer + by[0] + by[1], 0);
    else this.pick(layer + by[1], head + 1 + by[0]);
  }

  pick(row, column) {
    const layer = this.view.compact ? this.chosen.layer : row;
    if (row >= 0 && column >= 0) this.set({ layer, head: column - 1 });
  }

  /** Read the share of one cell. */
  point(cell) {
    this.pointed = cell;
    if (!cell || !this.row) return void (this.readout.textContent = "");
    const { keys, tokens } = this.unit;
    const share = this.row[tokens.length + cell[1] * keys.columns + cell[0]];
    this.readout.textContent = `row ${cell[1] + 1}, column ${cell[0] + 1}: ${percent(share)}`;
  }

  async draw() {
    const turn = ++this.turn;
    const { chosen, unit, choice } = this;
    const { provider, image } = choice;
    const [picture, prediction, asked] = await Promise.all([
      provider.picture(image), provider.predictions(chosen.model, image), this.ask(chosen.model, chosen.layer),
    ]);
    if (turn !== this.turn) return; // something else has been chosen meanwhile
    this.fill();
    showPrediction(this.prediction, prediction, provider.images[image], this.view.compact);
    const { rows, query, cell, asking } = asked;
    const row = chosen.head < 0 ? mean(rows) : rows[chosen.head];
    const grid = row.subarray(unit.tokens.length);
    const { at, most, onGrid } = summarise(row, unit, cell);
    const marks = onGrid ? [{ cell: at, side: unit.keys, kind: "most" }] : [];
    if (cell) marks.push({ cell, side: unit.queries, kind: "query" });
    drawMap(this.picture, picture, { grid, keys: unit.keys, most, strength: this.view.strength, marks });
    this.ends.forEach((end, i) => (end.textContent = percent([0, most / 4, most][i])));
    this.row = row;
    this.point(this.pointed ?? null);
    const note = choice.token && asking === null ? `There is no ${choice.token} in this layer. ` : "";
    const instead = asking !== null && !choice.token ? "Patches ask nothing in this layer. " : "";
    // both explorers of a page show this sentence: only the one in use is read aloud
    this.sentence.setAttribute("aria-live", this.home.contains(document.activeElement) ? "polite" : "off");
    this.sentence.textContent = note + instead + describe(row, unit, cell, asking);
    this.shown = { model: provider.models[chosen.model].name, unit: unit.name, head: chosen.head, query, most };
    await this.drawMultiples(turn, picture);
  }

  /** The attention of the query in a layer, for all heads; of the first prefix token if patches have no attention there. */
  async ask(model, layer) {
    const { provider, image } = this.choice;
    const unit = provider.models[model].units[layer];
    const asked = this.choice.query(unit);
    const rows = await provider.maps(model, layer, image, asked.query);
    const silent = rows.every((row) => row.every((share) => share === 0));
    if (!silent || !unit.tokens.length || asked.asking === 0) return { ...asked, rows };
    return { rows: await provider.maps(model, layer, image, 0), query: 0, cell: null, asking: 0 };
  }

  /** Controls that depend on the model and the layer. */
  fill() {
    const { chosen, unit, choice } = this;
    const { name, units } = choice.provider.models[chosen.model];
    this.model.value = chosen.model;
    this.model.title = name;
    this.slider.max = units.length - 1;
    this.slider.value = chosen.layer;
    this.slider.setAttribute("aria-valuetext", `${chosen.layer + 1} of ${units.length}, ${unit.name}`);
    this.named.textContent = `${chosen.layer + 1} of ${units.length} · ${unit.name}`;
    this.named.title = unit.name;
    const head = chosen.head < 0 ? "mean of the heads" : `head ${chosen.head}`;
    this.picture.setAttribute("aria-label", `Attention of ${name}, ${unit.name}, ${head}. Arrow keys move the patch, with Shift they read a share, Page Up and Page Down change the layer.`);
    const names = tokenNames(unit.tokens);
    if (this.tokens.dataset.names !== String(names)) {
      this.tokens.dataset.names = String(names);
      const onclick = (token) => () => choice.change({ token: choice.token === token ? null : token });
      this.tokens.replaceChildren(...names.map((token) => make("button", { type: "button", onclick: onclick(token) }, capital(token))));
    }
    this.tokens.hidden = !names.length;
    names.forEach((token, i) => this.tokens.children[i].setAttribute("aria-pressed", String(choice.token === token)));
  }

  /** Small maps of all layers and heads, or of the heads of one layer in the compact form. */
  async drawMultiples(turn, picture) {
    const { chosen, view, choice } = this;
    const { name, units } = choice.provider.models[chosen.model];
    const layers = view.compact ? [chosen.layer] : units.map((_, layer) => layer);
    const room = this.multiples.parentElement.clientWidth;
    this.layout = new Multiples(layers.map((layer) => units[layer]), room, picture.height / picture.width, view.compact);
    const { layout } = this;
    const label = `Attention of ${name} by layer and head; chosen: layer ${chosen.layer + 1}, ${chosen.head < 0 ? "mean of the heads" : `head ${chosen.head}`}. Arrow keys choose another.`;
    this.multiples.setAttribute("aria-label", label);
    this.multiples.hidden = view.compact && layout.across; // a single map, which is above
    if (!this.visible) return;
    const key = JSON.stringify([chosen.model, layers, choice.image, choice.spot, choice.token, layout.width, layout.w, devicePixelRatio]);
    if (this.painted !== key) {
      // drawn aside, so that nothing flickers while layers are unpacked
      const aside = new OffscreenCanvas(1, 1);
      const pen = sharpen(aside, layout.width, layout.height);
      for (const [row, layer] of layers.entries()) {
        const { rows } = await this.ask(chosen.model, layer);
        if (turn !== this.turn) return;
        const { tokens, keys, averaged } = units[layer];
        [mean(rows), ...(averaged ? [] : rows)].forEach((each, column) => layout.place(pen, row, column, each.subarray(tokens.length), keys));
      }
      [this.painted, this.aside] = [key, aside];
    }
    this.multiples.dataset.painted = turn;
    Object.assign(this.multiples.style, { width: `${layout.width}px`, height: `${layout.height}px` });
    const pen = sharpen(this.multiples, layout.width, layout.height);
    pen.drawImage(this.aside, 0, 0, layout.width, layout.height);
    layout.label(pen, this.multiples);
    layout.frame(pen, view.compact ? 0 : chosen.layer, chosen.head + 1, getComputedStyle(this.multiples).outlineColor);
  }
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const cellOf = ([across, down], { rows, columns }) => [Math.min(Math.floor(across * columns), columns - 1), Math.min(Math.floor(down * rows), rows - 1)];
const mean = (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);

/** The most probable classes with bars, and the true one marked; or the label, and why it cannot be compared. */
function showPrediction(place, prediction, { label, labelled }, compact) {
  place.hidden = !prediction;
  if (!prediction) return;
  const { top, label: truth, unmarked } = prediction;
  const line = ([name, share], mark = "") =>
    make("li", { class: mark ? "true" : null },
      make("span", { class: "class", title: name }, name),
      make("span", { class: "share" }, percent(share)),
      make("meter", { min: 0, max: 1, value: share, "aria-label": `probability of ${name}` }),
      ...(mark ? [make("span", { class: "mark" }, mark)] : []));
  const lines = top.map((each, i) => line(each, truth?.[2] === i + 1 ? "true label" : ""));
  if (truth && truth[2] > top.length) lines.push(line(truth, `true label, rank ${truth[2]}`));
  place.replaceChildren(make("p", { class: "head" }, "Prediction"), make("ol", {}, ...lines));
  if (truth || !labelled) return;
  place.append(make("p", { class: "quiet class", title: label }, `Label: ${label}`));
  if (!compact) place.append(make("details", { class: "quiet" }, make("summary", {}, "Why is it not compared?"), unmarked));
}

for (const place of attention ? $$(".attention[data-size]") : []) {
  const begin = new IntersectionObserver((seen) => {
    if (!seen.some((each) => each.isIntersecting)) return;
    begin.disconnect();
    new AttentionView(place, attention).draw();
  }, { rootMargin: "300px" });
  begin.observe(place);
}
