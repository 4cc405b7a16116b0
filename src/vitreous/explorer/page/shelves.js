// The layout of small maps: layers from left to right, each with the mean of its heads, and below it the heads, half as large.
import { veil } from "./drawing.js";

const SMALLEST = 9; // pixels of a head's map; beyond that the panel scrolls
const LARGEST = 62;
const TOP = 16; // for the number of the layer
const GAP = 2;
const NARROW = 0.75; // two columns a layer are easier to read, if maps get no smaller than this share

/** The layout for a given size of a head's map: columns of each layer, and the total width. */
function arrange(heads, height, size) {
  const between = heads.length > 16 ? 4 : 7; // layers
  const large = 2 * size + GAP;
  const rows = Math.floor((height - TOP - large) / (size + GAP));
  const columns = heads.map((count) => Math.max(2, Math.ceil(count / Math.max(1, rows))));
  const width = columns.reduce((total, count) => total + count * (size + GAP) - GAP + between, -between);
  const fits = rows > 0 || Math.max(...heads) === 0;
  return { size, large, between, columns, width, fits: fits && TOP + large <= height };
}

export class Shelves {
  /** `heads` is their number in each layer, or 0 for a single map. */
  constructor(heads, width, height) {
    const fitting = (most) => {
      for (let size = LARGEST; size > SMALLEST; size--) {
        const found = arrange(heads, height, size);
        if (found.fits && found.width <= width && Math.max(...found.columns) <= most) return found;
      }
      return arrange(heads, height, SMALLEST);
    };
    const [narrow, wide] = [fitting(2), fitting(Infinity)];
    Object.assign(this, { heads, ...(narrow.size >= NARROW * wide.size ? narrow : wide) });
    const { size } = this;
    let left = 0;
    this.lefts = this.columns.map((count) => {
      const here = left;
      left += count * (size + GAP) - GAP + this.between;
      return here;
    });
    const rows = Math.max(...heads.map((count, layer) => Math.ceil(count / this.columns[layer])));
    this.height = TOP + this.large + rows * (size + GAP) + 2;
  }

  /** Left, top and side of a map; 0 is the mean, then come the heads. */
  place(layer, number) {
    if (number === 0) return [this.lefts[layer], TOP, this.large];
    const [row, column] = [Math.floor((number - 1) / this.columns[layer]), (number - 1) % this.columns[layer]];
    const step = this.size + GAP;
    return [this.lefts[layer] + column * step, TOP + this.large + GAP + row * step, this.size];
  }

  /** Layer and number of the map under a point, or null. */
  at(x, y) {
    const layer = this.lefts.findLastIndex((left) => x >= left);
    if (layer < 0) return null;
    for (let number = 0; number <= this.heads[layer]; number++) {
      const [left, top, side] = this.place(layer, number);
      if (x >= left && x < left + side + GAP && y >= top && y < top + side + GAP) return [layer, number];
    }
    return null;
  }

  paint(pen, layer, number, grid, [rows, columns]) {
    const [x, y, side] = this.place(layer, number);
    const most = grid.reduce((top, value) => Math.max(top, value), 0);
    const scale = side / Math.max(rows, columns);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(veil(grid, { rows, columns }, most), x, y, columns * scale, rows * scale);
  }

  /** An empty place, for a layer that has no attention left. */
  leave(pen, layer, style, words) {
    const [x, y, side] = this.place(layer, 0);
    pen.strokeStyle = pen.fillStyle = style;
    pen.setLineDash([3, 3]);
    pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    pen.setLineDash([]);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    if (side > 26) pen.fillText(words, x + side / 2, y + side / 2);
  }

  /** Numbers of the layers; the chosen one in bold. */
  label(pen, { color, fontFamily }, chosen) {
    pen.fillStyle = color;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    const step = Math.ceil(20 / (this.large + this.between));
    for (let layer = 0; layer < this.heads.length; layer += step) {
      pen.font = `${layer === chosen ? "700 " : ""}11px ${fontFamily}`;
      pen.fillText(String(layer + 1), this.lefts[layer] + this.large / 2, TOP / 2);
    }
  }

  frame(pen, layer, number, [rows, columns], style, line = 2) {
    const [x, y, side] = this.place(layer, number);
    const scale = side / Math.max(rows, columns);
    pen.strokeStyle = style;
    pen.lineWidth = line;
    pen.strokeRect(x - 0.5, y - 0.5, columns * scale + 1, rows * scale + 1);
  }
}
