// The stream after the chosen unit: norm of each position, principal components as colours, spectrum; before and after.
import { chart } from "./chart.js";
import { make, sharpen, veil } from "./drawing.js";

const NORM = "Norm of the features at each position";
const COMPONENTS = "First three principal components as red, green and blue";
const SPECTRUM = "Amplitude by frequency, in natural logarithms, relative to frequency zero";

/** Bytes from base64. */
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const format = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(2));

/** An image with one pixel per position, from three bytes each. */
function coloured({ grid: [rows, columns], rgb }) {
  const pixels = new ImageData(columns, rows);
  const data = bytes(rgb);
  for (let i = 0; i < rows * columns; i++) {
    pixels.data.set(data.subarray(3 * i, 3 * i + 3), 4 * i);
    pixels.data[4 * i + 3] = 255;
  }
  const canvas = new OffscreenCanvas(columns, rows);
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

/** Norms as an image, scaled to the range of both before and after. */
function normed({ grid: [rows, columns], values }, [low, high]) {
  const shares = Float32Array.from(values, (value) => ((value - low) / (high - low || 1)) ** 2); // `veil` takes square roots
  return veil(shares, { rows, columns }, 1);
}

/** The smallest and the largest number. */
const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);

function figure(title, when, drawn, [rows, columns], label) {
  const canvas = make("canvas", { role: "img", "aria-label": `${label} ${when}` });
  const home = make("figure", {}, make("figcaption", {}, `${title} ${when}`), make("div", { class: "fill" }, canvas));
  const paint = () => {
    const { clientWidth: width, clientHeight: height } = canvas.parentElement;
    const scale = Math.min(width / columns, height / rows);
    if (!scale) return;
    Object.assign(canvas.style, { width: `${columns * scale}px`, height: `${rows * scale}px` });
    const pen = sharpen(canvas, columns * scale, rows * scale);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(drawn, 0, 0, columns * scale, rows * scale);
  };
  return { home, paint };
}

class StreamPane {
  constructor(panel, index) {
    Object.assign(this, { panel, index, figures: [] });
    this.title = make("div", { class: "caption" });
    this.row = make("div", { class: "figures" });
    this.home = make("div", { class: "pane stream" }, this.title, this.row);
    new ResizeObserver(() => this.paint()).observe(this.row);
  }

  show(found) {
    const { name } = this.panel.session.models[this.index];
    this.title.textContent = found.unit ? `${name} after ${found.unit}` : name;
    this.home.dataset.unit = found.unit ?? "";
    if (found.why) {
      this.figures = [];
      return this.row.replaceChildren(make("p", { class: "reason quiet" }, found.why));
    }
    const { before } = found;
    const changed = String(before.norm.values) !== String(found.norm.values) || before.colours.rgb !== found.colours.rgb;
    const range = ends([...before.norm.values, ...found.norm.values]);
    const unchanged = this.panel.edited && !changed ? " · not changed by the edits" : "";
    this.title.append(make("span", { class: "quiet" }, ` norm ${range.map(format).join(" to ")}${unchanged}`));
    const when = changed ? [[before, "before"], [found, "after"]] : [[found, ""]];
    const norms = when.map(([{ norm }, word]) => figure("Norm", word, normed(norm, range), norm.grid, NORM));
    const colours = when.map(([each, word]) => figure("Components", word, coloured(each.colours), each.colours.grid, COMPONENTS));
    this.figures = [...norms, ...colours];
    const lines = [{ ...before.spectrum, kind: "before" }, { ...found.spectrum, kind: `line-${this.index}` }];
    const keys = changed ? [make("span", { class: "key before" }, "before"), make("span", { class: `key key-${this.index}` }, "after")] : [];
    const spectrum = make("figure", { class: "spectrum" }, make("figcaption", {}, "Spectrum", ...keys), make("div", { class: "fill" }));
    this.spectrum = { place: spectrum.lastChild, lines: changed ? lines : lines.slice(1) };
    this.row.replaceChildren(...this.figures.map(({ home }) => home), spectrum);
    this.row.dataset.count = this.figures.length;
    this.paint();
  }

  paint() {
    for (const { paint } of this.figures) paint();
    if (!this.spectrum?.place.isConnected) return;
    const { place, lines } = this.spectrum;
    const { clientWidth: width, clientHeight: height } = place;
    if (width && height) place.replaceChildren(chart(lines, width, height, SPECTRUM));
  }
}

export class StreamPanel {
  constructor(session, state) {
    Object.assign(this, { session, state });
    this.panes = session.models.map((_, index) => new StreamPane(this, index));
    this.home = make("div", { class: "panes", "data-count": this.panes.length }, ...this.panes.map((pane) => pane.home));
  }

  get edited() {
    return this.state.now.edits.length > 0;
  }

  show(models) {
    models.forEach((model, index) => this.panes[index].show(model));
  }
}
