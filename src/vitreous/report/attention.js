// Attention, patch by patch: an image, a layer and a head of one model, or of two beside each other.

/** A colour of the ramp for a value between 0 and 1, as three bytes. */
function shade(ramp, value) {
  const place = Math.min(Math.max(value, 0), 1) * (ramp.length - 1);
  const left = Math.min(Math.floor(place), ramp.length - 2);
  const channel = (colour, i) => parseInt(colour.slice(i, i + 2), 16);
  return [1, 3, 5].map((i) => channel(ramp[left], i) + (channel(ramp[left + 1], i) - channel(ramp[left], i)) * (place - left));
}

class Attention {
  constructor(home, meta) {
    this.home = home;
    this.meta = meta;
    this.image = 0;
    this.spot = [0.5, 0.5]; // the query's place in the image, across and down; null is the first token before the grid
    this.strength = 0.75;
    this.panes = meta.models.slice(0, 2).map((_, i) => new Pane(this, i));
    home.replaceChildren(this.controls(), make("div", { class: "panes" }, ...this.panes.map((pane) => pane.home)));
    addEventListener("painted", () => this.draw());
  }

  controls() {
    const images = this.meta.images.labels.map((label, i) => {
      const picture = make("canvas", { width: 52, height: 52, "aria-hidden": true });
      const choose = () => ((this.image = i), this.draw());
      return make("button", { type: "button", "aria-label": `image ${i + 1}: ${label}`, title: label, onclick: choose }, picture);
    });
    this.thumbnails = images;
    const mix = make("input", { type: "range", min: 0, max: 100, value: 75, "aria-label": "strength of the overlay" });
    mix.addEventListener("input", () => ((this.strength = mix.value / 100), this.draw()));
    this.scale = make("canvas", { class: "scale", width: 130, height: 1, "aria-hidden": true });
    const row = make("div", { class: "row" }, make("label", {}, "overlay", mix), make("span", {}, "none"), this.scale, make("span", {}, "most"));
    const token = make("button", { type: "button", onclick: () => this.ask(null) }, "Ask the class token");
    if (this.meta.prefixed) row.append(token);
    row.append(make("span", { class: "quiet" }, "Click a patch, or focus a picture and use the arrow keys."));
    return make("div", {}, make("div", { class: "strip", role: "group", "aria-label": "Image" }, ...images), row);
  }

  ask(spot) {
    this.spot = spot;
    this.draw();
  }

  async draw() {
    const pixels = await bytes("attention-images");
    const { height, width } = this.meta.images;
    const size = height * width * 3;
    this.ramp = settings.ramps.dark;
    const stripe = this.scale.getContext("2d");
    for (let i = 0; i < 130; i++) {
      stripe.fillStyle = `rgb(${shade(this.ramp, i / 129).map(Math.round)})`;
      stripe.fillRect(i, 0, 1, 1);
    }
    this.thumbnails.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === this.image));
      paste(button.firstChild, pixels.subarray(i * size, (i + 1) * size), width, height);
    });
    const shown = pixels.subarray(this.image * size, (this.image + 1) * size);
    await Promise.all(this.panes.map((pane) => pane.draw(shown)));
    this.home.dataset.state = JSON.stringify({ image: this.image, spot: this.spot, panes: this.panes.map((p) => p.state) });
  }
}

/** One model. */
class Pane {
  constructor(whole, index) {
    this.whole = whole;
    this.model = whole.meta.models[index];
    this.layer = Math.floor(this.model.units.length / 2);
    this.head = -1; // the mean of all
    const choose = make("select", { "aria-label": "model" }, ...whole.meta.models.map((each, i) => make("option", { value: i, selected: i === index }, each.name)));
    choose.addEventListener("change", () => {
      this.model = whole.meta.models[choose.value];
      this.layer = Math.min(this.layer, this.model.units.length - 1);
      this.head = -1;
      this.fill();
      whole.draw();
    });
    this.slider = make("input", { type: "range", min: 0, "aria-label": "layer" });
    this.slider.addEventListener("input", () => {
      this.layer = Number(this.slider.value);
      this.head = Math.min(this.head, this.unit.heads - 1);
      this.fill();
      whole.draw();
    });
    this.named = make("output");
    this.picture = make("canvas", { class: "picture", width: 440, height: 440, tabindex: 0, role: "application" });
    this.picture.addEventListener("click", (event) => {
      const box = this.picture.getBoundingClientRect();
      whole.ask([(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
    });
    this.picture.addEventListener("keydown", (event) => this.step(event));
    this.heads = make("div", { class: "strip", role: "group", "aria-label": "Head" });
    this.said = make("p", { class: "said", "aria-live": "polite" });
    const row = make("div", { class: "row" }, choose, make("label", {}, "layer", this.slider, this.named));
    this.home = make("div", { class: "pane" }, row, this.picture, this.heads, this.said);
    this.fill();
  }

  get unit() {
    return this.model.units[this.layer];
  }

  get state() {
    return { model: this.model.name, unit: this.unit.name, head: this.head, query: this.query };
  }

  /** Controls that depend on the model and the layer. */
  fill() {
    this.slider.max = this.model.units.length - 1;
    this.slider.value = this.layer;
    this.named.textContent = this.unit.name;
    const single = this.unit.mean ? 0 : this.unit.heads; // where heads were averaged there is only their mean
    const names = ["mean", ...Array.from({ length: single }, (_, i) => String(i))];
    const buttons = names.map((name, i) => {
      const label = i ? `head ${name}` : "mean of all heads";
      const onclick = () => ((this.head = i - 1), this.whole.draw());
      return make("button", { type: "button", "aria-label": label, title: label, onclick }, make("canvas", { width: 52, height: 52, "aria-hidden": true }), name);
    });
    this.heads.replaceChildren(...buttons);
    this.picture.setAttribute("aria-label", `Attention of ${this.model.name}, ${this.unit.name}; arrow keys move the patch`);
  }

  step(event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const { rows, columns } = this.unit.queries;
    const now = this.whole.spot ? cell(this.whole.spot, rows, columns) : [Math.floor(columns / 2), Math.floor(rows / 2)];
    const [x, y] = now.map((value, i) => Math.min(Math.max(value + by[i], 0), [columns, rows][i] - 1));
    this.whole.ask([(x + 0.5) / columns, (y + 0.5) / rows]);
  }

  /** One row of attention for each head, as shares. */
  async rows() {
    const { heads, queries, keys, block, scales } = this.unit;
    const [count, size] = [queries.count, keys.count];
    const maps = await bytes(block);
    const start = this.whole.image * heads * count * size;
    return Array.from({ length: heads }, (_, head) => {
      const from = start + (head * count + this.query) * size;
      const top = scales[(this.whole.image * heads + head) * count + this.query] / 255;
      return Float32Array.from(maps.subarray(from, from + size), (value) => value * top);
    });
  }

  async draw(pixels) {
    const { queries, keys, heads } = this.unit;
    const [x, y] = this.whole.spot ? cell(this.whole.spot, queries.rows, queries.columns) : [-1, -1];
    const token = !this.whole.spot && queries.prefix > 0;
    this.query = token ? 0 : queries.prefix + Math.max(y, 0) * queries.columns + Math.max(x, 0);
    const each = await this.rows();
    const mean = each[0].map((_, i) => each.reduce((sum, row) => sum + row[i], 0) / heads);
    [mean, ...each].slice(0, this.heads.children.length).forEach((row, i) => {
      const button = this.heads.children[i];
      button.setAttribute("aria-pressed", String(i - 1 === this.head));
      this.overlay(button.firstChild, null, row, 1);
    });
    const chosen = this.head < 0 ? mean : each[this.head];
    const { height, width } = this.whole.meta.images;
    this.picture.height = Math.round((440 * height) / width);
    paste(this.picture, pixels, width, height);
    this.overlay(this.picture, pixels, chosen, this.whole.strength);
    if (!token) this.frame(Math.max(x, 0), Math.max(y, 0));
    this.said.textContent = this.sentence(chosen, token, Math.max(x, 0), Math.max(y, 0));
  }

  /** The cells of the key grid: alone, or as light that falls on a picture, which is dark where nobody looks. */
  overlay(canvas, under, row, strength) {
    const { prefix, rows, columns } = this.unit.keys;
    const pen = canvas.getContext("2d");
    if (under) {
      pen.fillStyle = `rgba(10,10,30,${0.62 * strength})`;
      pen.fillRect(0, 0, canvas.width, canvas.height);
    }
    const most = row.subarray(prefix).reduce((a, b) => Math.max(a, b), 1e-9);
    const [w, h] = [canvas.width / columns, canvas.height / rows];
    if (!under) pen.clearRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < rows * columns; i++) {
      const value = row[prefix + i] / most;
      const alpha = under ? 0.85 * strength * value ** 0.7 : 1;
      pen.fillStyle = `rgba(${shade(this.whole.ramp, value).map(Math.round)},${alpha})`;
      const [left, top] = [Math.round((i % columns) * w), Math.round(Math.floor(i / columns) * h)];
      pen.fillRect(left, top, Math.round(((i % columns) + 1) * w) - left, Math.round((Math.floor(i / columns) + 1) * h) - top);
    }
  }

  frame(x, y) {
    const { rows, columns } = this.unit.queries;
    const pen = this.picture.getContext("2d");
    const [w, h] = [this.picture.width / columns, this.picture.height / rows];
    for (const [colour, width] of [["#000A", 5], ["#39F3FF", 2.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.strokeRect(x * w + 1.5, y * h + 1.5, w - 3, h - 3);
    }
  }

  sentence(row, token, x, y) {
    const { prefix, rows, columns } = this.unit.keys;
    const who = token ? "the class token" : `the patch in row ${y + 1}, column ${x + 1}`;
    const grid = row.subarray(prefix);
    const total = grid.reduce((a, b) => a + b, 0);
    if (!total) return `${who[0].toUpperCase()}${who.slice(1)} looks at no patch in this layer.`;
    const at = grid.indexOf(grid.reduce((a, b) => Math.max(a, b), 0));
    const most = `looks most at row ${Math.floor(at / columns) + 1}, column ${(at % columns) + 1} (${(100 * grid[at]).toFixed(1)} %)`;
    const whose = this.head < 0 ? "heads on average" : `head ${this.head}`;
    const { queries } = this.unit;
    let far = "";
    if (!token) {
      const [qx, qy] = [(x + 0.5) / queries.columns, (y + 0.5) / queries.rows];
      const distance = grid.reduce((sum, v, i) => {
        const dx = ((i % columns) + 0.5) / columns - qx;
        const dy = (Math.floor(i / columns) + 0.5) / rows - qy;
        return sum + (v / total) * Math.hypot(dx * queries.columns, dy * queries.rows);
      }, 0);
      far = `, ${distance.toFixed(1)} patches away in the mean`;
    }
    const spoken = `${who[0].toUpperCase()}${who.slice(1)} ${most}${far}`;
    return `${spoken} (${whose}).`;
  }
}

const cell = ([across, down], rows, columns) => [
  Math.min(Math.floor(across * columns), columns - 1),
  Math.min(Math.floor(down * rows), rows - 1),
];

/** An image of the page's own bytes onto a canvas, its pixels as they are. */
function paste(canvas, pixels, width, height) {
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = pixels[3 * i + c];
    image.data[4 * i + 3] = 255;
  }
  const small = new OffscreenCanvas(width, height);
  small.getContext("2d").putImageData(image, 0, 0);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = width >= canvas.width;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
}

for (const stage of $$(".attention")) {
  const begin = new IntersectionObserver(async (seen) => {
    if (!seen.some((each) => each.isIntersecting)) return;
    begin.disconnect();
    const maps = new Attention(stage, await json("attention-meta"));
    await maps.draw();
  }, { rootMargin: "300px" });
  begin.observe(stage);
}
