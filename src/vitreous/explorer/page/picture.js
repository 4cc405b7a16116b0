// The big picture: point at a patch to see it, click to follow it, drag with Shift to occlude.
import { $, capital, make, paste, sharpen, tokenNames } from "./drawing.js";

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const SMALLEST = 0.015; // side of a box, as a share of the image
const ASKING = "#39F3FF";

const cellOf = ([y, x], [rows, columns]) => [Math.min(Math.floor(y * rows), rows - 1), Math.min(Math.floor(x * columns), columns - 1)];
const middle = ([row, column], [rows, columns]) => [(row + 0.5) / rows, (column + 0.5) / columns];

export class Picture {
  constructor(session, state) {
    Object.assign(this, { session, state, picture: null, pointed: null, drag: null });
    this.canvas = $("#picture");
    this.place = $("#place");
    this.tool = $("#occlude");
    this.fillTokens();
    this.listen();
    new ResizeObserver(() => this.draw()).observe($("#plate"));
  }

  /** Rows and columns of patches: of the chosen unit, else of the first with attention, else of the first with a grid. */
  get grid() {
    const { unit } = this.state.now;
    const units = this.session.models[unit?.model ?? 0].units;
    const chosen = units.find((each) => each.name === unit?.name);
    const known = [chosen, units.find((each) => each.attention), units.find((each) => each.grid)];
    return known.find((each) => each?.grid)?.grid ?? [8, 8];
  }

  /** Show another picture. */
  show(picture) {
    this.picture = picture;
    this.draw();
  }

  fillTokens() {
    const kinds = [...new Set(this.session.models.flatMap((model) => model.tokens))].filter((kind) => kind === "class");
    const title = "Follow this token instead of a patch (C)";
    $("#tokens").replaceChildren(...kinds.map((kind) => {
      const button = make("button", { type: "button", "data-token": kind, title }, capital(tokenNames([kind])[0]));
      button.addEventListener("click", () => this.askToken(kind));
      return button;
    }));
  }

  /** Follow a token, or the patch in the middle again. */
  askToken(kind = "class") {
    if (!$(`#tokens [data-token="${kind}"]`)) return;
    this.state.ask(this.state.now.query === kind ? [0.5, 0.5] : kind);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (value) => Math.min(Math.max(value, 0), 0.99999);
    return [share((event.clientY - box.top) / box.height), share((event.clientX - box.left) / box.width)];
  }

  get occluding() {
    return this.tool.getAttribute("aria-pressed") === "true";
  }

  listen() {
    const { canvas } = this;
    this.tool.addEventListener("click", () => {
      this.tool.setAttribute("aria-pressed", String(!this.occluding));
      canvas.classList.toggle("occluding", this.occluding);
    });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      if (event.shiftKey || this.occluding) this.drag = { from: this.at(event), to: this.at(event) };
      else this.follow(this.at(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const place = this.at(event);
      if (this.drag) this.drag.to = place;
      else if (event.buttons === 1) this.follow(place);
      this.pointed = cellOf(place, this.grid);
      this.draw();
    });
    canvas.addEventListener("pointerup", () => this.drop());
    canvas.addEventListener("pointercancel", () => {
      this.drag = null;
      this.draw();
    });
    canvas.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.draw();
    });
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  /** The query is the middle of a patch, so that the same click gives the same address. */
  follow(place) {
    this.state.ask(middle(cellOf(place, this.grid), this.grid));
  }

  /** What was dragged becomes a box. */
  drop() {
    if (!this.drag) return;
    const box = this.box();
    this.drag = null;
    if (box[2] - box[0] < SMALLEST || box[3] - box[1] < SMALLEST) return this.draw();
    this.state.occlude(box);
  }

  box() {
    const { from, to } = this.drag;
    return [Math.min(from[0], to[0]), Math.min(from[1], to[1]), Math.max(from[0], to[0]), Math.max(from[1], to[1])];
  }

  /** Arrow keys move the patch; X occludes it. */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { query } = this.state.now;
    const grid = this.grid;
    const cell = cellOf(Array.isArray(query) ? query : [0.5, 0.5], grid);
    const by = STEPS[event.key];
    if (by) {
      const next = cell.map((value, i) => Math.min(Math.max(value + by[i], 0), grid[i] - 1));
      this.state.ask(middle(next, grid));
    } else if (event.key.toLowerCase() === "x") {
      this.state.occlude([cell[0] / grid[0], cell[1] / grid[1], (cell[0] + 1) / grid[0], (cell[1] + 1) / grid[1]]);
    } else return;
    event.preventDefault();
  }

  draw() {
    const { query, image } = this.state.now;
    const known = this.session.images.find((each) => each.id === image);
    $("#label").textContent = known?.label ?? "";
    $("#label").title = known?.label ?? "";
    const cell = Array.isArray(query) ? cellOf(query, this.grid) : null;
    const asking = cell ? `the patch in row ${cell[0] + 1}, column ${cell[1] + 1}` : `the ${query} token`;
    this.canvas.setAttribute("aria-label", `The image. Followed: ${asking}. Arrow keys move the patch, X occludes it.`);
    for (const button of $("#tokens").children) button.setAttribute("aria-pressed", String(button.dataset.token === query));
    const at = this.pointed ?? null;
    this.place.textContent = at ? `row ${at[0] + 1}, column ${at[1] + 1}` : "";
    if (this.picture) this.paint();
  }

  paint() {
    const { canvas, picture } = this;
    const side = $("#plate").clientWidth;
    const room = $("#plate").clientHeight || side;
    const scale = Math.min(side / picture.width, room / picture.height);
    const [width, height] = [picture.width * scale, picture.height * scale];
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const pen = sharpen(canvas, width, height);
    paste(pen, picture, width, height);
    const [rows, columns] = this.grid;
    if (this.pointed && Math.max(rows, columns) <= 64) this.lines(pen, width, height);
    const frame = ([y, x], style, line) => {
      pen.strokeStyle = style;
      pen.lineWidth = line;
      pen.strokeRect((x * width) / columns + 1, (y * height) / rows + 1, width / columns - 2, height / rows - 2);
    };
    if (this.pointed && !this.drag) frame(this.pointed, "#FFFC", 1.5);
    if (Array.isArray(this.state.now.query)) {
      const cell = cellOf(this.state.now.query, this.grid);
      frame(cell, "#000B", 4.5);
      frame(cell, ASKING, 2);
    }
    const boxes = [...(this.state.now.changes.boxes ?? []), ...(this.drag ? [this.box()] : [])];
    for (const [top, left, bottom, right] of boxes) {
      pen.setLineDash([4, 3]);
      pen.strokeStyle = "#FFF";
      pen.lineWidth = 1.5;
      pen.strokeRect(left * width, top * height, (right - left) * width, (bottom - top) * height);
      pen.setLineDash([]);
    }
  }

  lines(pen, width, height) {
    const [rows, columns] = this.grid;
    pen.beginPath();
    for (let row = 1; row < rows; row++) {
      pen.moveTo(0, (row * height) / rows);
      pen.lineTo(width, (row * height) / rows);
    }
    for (let column = 1; column < columns; column++) {
      pen.moveTo((column * width) / columns, 0);
      pen.lineTo((column * width) / columns, height);
    }
    pen.strokeStyle = "#FFFFFF48";
    pen.lineWidth = 1;
    pen.stroke();
  }
}
