// Attention on canvases: a map over its image, many small maps, the colour scale.

const RAMP = (() => {
  // 256 colours from dark to light, on either theme: like a photograph, a map brings its own background
  const stops = settings.ramps.dark.map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const left = Math.min(Math.floor(place), stops.length - 2);
    return stops[left].map((value, c) => value + (stops[left + 1][c] - value) * (place - left));
  });
})();

/** A share's position on the colour scale, from 0 to 1: its square root relative to the largest, so small shares show. */
const brightness = (share, most) => Math.sqrt(Math.max(share, 0) / (most || 1));
const colour = (t) => RAMP[Math.round(255 * Math.min(t, 1))];

/** A map as an image with one pixel per key; with `strength`, transparent where there is little attention. */
function veil(grid, { rows, columns }, most, strength = null) {
  const pixels = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const t = brightness(grid[i], most);
    pixels.data.set(colour(t), 4 * i);
    pixels.data[4 * i + 3] = strength === null ? 255 : 255 * strength * (0.06 + 0.84 * t);
  }
  const canvas = new OffscreenCanvas(columns, rows);
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

/** Make a canvas as sharp as the screen, and return its pen in CSS pixels. */
function sharpen(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

/** An image, its pixels visible if it is tiny. */
function paste(pen, picture, width, height) {
  pen.imageSmoothingEnabled = Math.max(picture.width, picture.height) > 64;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, 0, 0, width, height);
}

/** An image with the attention of one query; `marks` are cells to frame. */
function drawMap(canvas, picture, { grid, keys, most, strength, marks }) {
  const [width, height] = [canvas.clientWidth, (canvas.clientWidth * picture.height) / picture.width];
  const pen = sharpen(canvas, width, height);
  paste(pen, picture, width, height);
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = `rgba(8, 8, 20, ${0.36 * strength})`; // bright pixels must not look like attention
  pen.fillRect(0, 0, width, height);
  pen.drawImage(veil(grid, keys, most, strength), 0, 0, width, height);
  for (const { cell: [x, y], side: { rows, columns }, kind } of marks) {
    const [w, h] = [width / columns, height / rows];
    for (const [style, line] of [["#000B", 4.5], [kind === "query" ? "#39F3FF" : "#FFF", 2]]) {
      pen.strokeStyle = style;
      pen.lineWidth = line;
      pen.setLineDash(kind === "most" && line < 3 ? [4, 3] : []);
      pen.strokeRect(x * w + 1.5, y * h + 1.5, w - 3, h - 3);
    }
  }
}

/** The colours from none to the most. */
function drawScale(canvas) {
  const pen = canvas.getContext("2d");
  for (let i = 0; i < canvas.width; i++) {
    pen.fillStyle = `rgb(${colour(i / (canvas.width - 1)).map(Math.round)})`;
    pen.fillRect(i, 0, 1, canvas.height);
  }
}

/** The layout of small maps: a row for each layer, a column for the mean and one for each head. If heads were averaged,
 * layers are laid out side by side instead. */
class Multiples {
  constructor(units, width, aspect, compact) {
    this.columns = 1 + Math.max(...units.map((unit) => (unit.averaged ? 0 : unit.heads)));
    this.rows = units.length;
    this.across = this.columns === 1;
    this.left = compact || this.across ? 0 : 24; // the number of a single layer stands beside its slider
    this.top = 16;
    this.gap = this.columns > 16 ? 2 : 4;
    const room = (width - this.left) / this.columns - this.gap;
    this.w = Math.max(10, Math.min(compact ? 36 : 52, Math.floor(room)));
    this.h = Math.max(6, Math.round(this.w * aspect));
    this.step = [this.w + this.gap, this.h + this.gap + (this.across ? this.top : 0)];
    this.beside = this.across ? Math.max(1, Math.min(this.rows, Math.floor(width / this.step[0]))) : this.columns;
    this.width = this.left + this.beside * this.step[0];
    this.height = this.across ? Math.ceil(this.rows / this.beside) * this.step[1] : this.top + this.rows * this.step[1];
  }

  corner(row, column) {
    const [x, y] = this.across ? [row % this.beside, Math.floor(row / this.beside)] : [column, row];
    return [this.left + x * this.step[0] + this.gap / 2, this.top + y * this.step[1] + this.gap / 2];
  }

  /** Row and column under a point, or null. */
  at(x, y) {
    const column = Math.floor((x - this.left) / this.step[0]);
    const row = Math.floor((y - (this.across ? 0 : this.top)) / this.step[1]);
    const found = this.across ? [row * this.beside + column, 0] : [row, column];
    return column >= 0 && column < this.beside && row >= 0 && found[0] < this.rows ? found : null;
  }

  /** Numbers of layers and heads, in the page's own colour and font. */
  label(pen, element) {
    const style = getComputedStyle(element);
    pen.fillStyle = style.color;
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    const above = (row, column, text) => {
      const [x, y] = this.corner(row, column);
      pen.fillText(text, x + this.w / 2, y - this.gap / 2 - this.top / 2);
    };
    if (this.across) {
      for (let row = 0; row < this.rows; row++) above(row, 0, String(row + 1));
      return;
    }
    const step = Math.ceil(18 / this.step[0]);
    above(0, 0, this.w < 30 ? "x̄" : "mean");
    for (let head = 0; head < this.columns - 1; head += step) above(0, head + 1, String(head));
    if (!this.left) return;
    pen.textAlign = "right";
    for (let row = 0; row < this.rows; row += Math.ceil(13 / this.step[1])) {
      const [, y] = this.corner(row, 0);
      pen.fillText(String(row + 1), this.left - 5, y + this.h / 2);
    }
  }

  place(pen, row, column, grid, keys) {
    const most = grid.reduce((a, b) => Math.max(a, b), 0);
    const [x, y] = this.corner(row, column);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(veil(grid, keys, most), x, y, this.w, this.h);
  }

  frame(pen, row, column, style) {
    const [x, y] = this.corner(row, column);
    pen.strokeStyle = style;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, y - 1, this.w + 2, this.h + 2);
  }
}
