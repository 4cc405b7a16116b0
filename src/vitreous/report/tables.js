// Tables: all rows, sorted and filtered; filled when their fold is opened.

const PAGE = 40; // rows at a time
const ORDERS = { 1: "ascending", "-1": "descending" };
const tables = new Map(); // name → table

/** Rows of a CSV file, as lists of texts. */
function parseCSV(source) {
  const rows = [];
  let [row, field, quoted] = [[], "", false];
  for (let i = 0; i < source.length; i++) {
    const c = source[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (source[i + 1] === '"') [field, i] = [`${field}"`, i + 1];
      else quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === ",") [row, field] = [[...row, field], ""];
    else if (c === "\n") {
      rows.push([...row, field]);
      [row, field] = [[], ""];
    } else if (c !== "\r") field += c;
  }
  return rows;
}

/** Four significant digits, and an exponent only where it is needed. */
function shortNumber(text) {
  const value = Number(text);
  if (text === "" || Number.isNaN(value)) return text;
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  return Math.abs(value) >= 1e-4 && Math.abs(value) < 1e7 ? String(Number(value.toPrecision(4))) : value.toExponential(3);
}

class Table {
  constructor(home) {
    this.home = home;
    this.name = home.dataset.table;
    this.columns = JSON.parse(home.dataset.columns).map(([name, title, numeric]) => ({ name, title, numeric }));
    this.order = null; // index of a column and direction
    this.page = 0;
    this.search = make("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${this.name}` });
    this.search.addEventListener("input", () => ((this.page = 0), this.draw()));
    this.count = make("output", { "aria-live": "polite" });
    const step = (by, label) => make("button", { type: "button", "aria-label": label, onclick: () => ((this.page += by), this.draw()) }, by < 0 ? "‹" : "›");
    this.buttons = [step(-1, "previous rows"), step(1, "next rows")];
    this.body = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table of ${this.name}` });
  }

  async fill() {
    const [names, ...rows] = parseCSV(await text(`table-${this.name}`));
    this.rows = rows;
    this.model = names.indexOf("model");
    this.home.replaceChildren(make("div", { class: "row" }, this.search, this.count, ...this.buttons), this.body);
    this.draw();
  }

  filter(words) {
    this.search.value = words;
    this.page = 0;
    if (this.rows) this.draw();
  }

  chosenRows() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => row.some((field) => field.toLowerCase().includes(word)));
    const here = (row) => !chosen.length || this.model < 0 || chosen.includes(row[this.model]);
    const rows = this.rows.filter((row) => here(row) && fits(row));
    if (!this.order) return rows;
    const [column, sign] = this.order;
    const number = (field) => (field === "" ? NaN : Number(field));
    const value = this.columns[column].numeric ? number : String;
    return rows.sort((a, b) => {
      const [x, y] = [value(a[column]), value(b[column])];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // empty cells come last
      return sign * ((x > y) - (x < y));
    });
  }

  draw() {
    const rows = this.chosenRows();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const from = this.page * PAGE;
    const shown = rows.slice(from, from + PAGE);
    const range = rows.length > PAGE ? `${from + 1}–${from + shown.length} of ` : "";
    const all = rows.length < this.rows.length ? ` (${this.rows.length.toLocaleString("en")} in all)` : "";
    this.count.textContent = `${range}${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}${all}`;
    this.buttons[0].disabled = this.page === 0;
    this.buttons[1].disabled = this.page === pages - 1;
    const heads = this.columns.map(({ title, numeric }, i) => {
      const [by, direction] = this.order ?? [];
      const sorted = by === i ? ORDERS[direction] : "none";
      const turn = () => {
        this.order = { none: [i, 1], ascending: [i, -1], descending: null }[sorted];
        this.draw();
        $(`th:nth-child(${i + 1}) button`, this.body).focus();
      };
      const sign = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
      return make("th", { scope: "col", class: numeric && "number", "aria-sort": sorted }, make("button", { type: "button", onclick: turn }, title + sign));
    });
    const cell = (field, i) => make("td", { class: this.columns[i].numeric && "number", title: this.columns[i].numeric && field }, this.columns[i].numeric ? shortNumber(field) : field);
    const body = shown.map((row) => make("tr", {}, ...row.map(cell)));
    this.body.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)));
  }
}

/** The table with this name, which is filled on first use. */
function table(name) {
  if (!tables.has(name)) {
    const created = new Table($(`[data-table="${CSS.escape(name)}"]`));
    created.filled = created.fill();
    tables.set(name, created);
  }
  return tables.get(name);
}

for (const fold of $$("[data-fold=table]")) {
  fold.addEventListener("toggle", () => fold.open && table($("[data-table]", fold).dataset.table));
}
for (const button of $$("[data-csv]")) {
  button.addEventListener("click", async () => {
    const name = button.dataset.csv;
    save(`${name}.csv`, await text(`table-${name}`), "text/csv");
  });
}
