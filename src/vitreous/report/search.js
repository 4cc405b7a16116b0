// Search: titles, sentences, findings and units at once, then the rows of all tables.

const search = $("#search");
const results = $("#search-results");
const MAX_RESULTS = 14; // results in the list
const HOMES = "section[id], article[id], li.verdict[id]"; // elements that results link to
let entries = null;

/** The entries of the search: the id to go to, a title, and the words that are searched. */
function collect() {
  const found = [];
  for (const section of $$(HOMES)) {
    const heading = $("h2, h3, h4", section)?.textContent ?? section.textContent.slice(0, 90);
    const own = $$("p, li, dt, dd, h4, pre", section).filter((each) => each.parentElement.closest(HOMES) === section);
    const words = (own.length ? own : [section]).map((each) => each.textContent).join(" ");
    const title = section.classList.contains("verdict") ? `${section.id} ${heading}` : heading;
    found.push({ id: section.id, title, words: `${section.id} ${title} ${words}`.toLowerCase() });
  }
  for (const row of $$("#models tr[data-unit]")) {
    const { model, unit } = row.dataset;
    found.push({ id: "models", title: `${unit} of ${model}`, words: `${model} ${row.textContent}`.toLowerCase(), row });
  }
  return found;
}

/** Titles first, then texts, then tables with matching rows. */
async function find(typed) {
  entries ??= collect();
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (where) => words.every((word) => where.includes(word));
  const texts = entries.filter((entry) => has(entry.words));
  texts.sort((a, b) => has(b.title.toLowerCase()) - has(a.title.toLowerCase()));
  const rows = [];
  for (const { dataset } of $$("[data-table]")) {
    const lines = (await text(`table-${dataset.table}`)).toLowerCase().split("\n");
    const count = lines.slice(1).filter(has).length;
    if (count) rows.push({ id: dataset.table, title: `${count.toLocaleString("en")} ${count === 1 ? "row" : "rows"} of ${dataset.table}`, rows: typed });
  }
  return [...texts.slice(0, Math.max(MAX_RESULTS - rows.length, MAX_RESULTS / 2)), ...rows].slice(0, MAX_RESULTS);
}

/** Go to a result; a table opens with its matching rows, a unit with the list it is in. */
function follow(entry) {
  results.hidden = true;
  if (entry.row) entry.row.closest("details").open = true;
  go(entry.id, entry.row);
  if (entry.row) markUnit({ model: entry.row.dataset.model, unit: entry.row.dataset.unit });
  if (!entry.rows) return;
  $(`#${CSS.escape(entry.id)} [data-fold=table]`).open = true;
  table(entry.id).filter(entry.rows);
}

let latest = 0;
search?.addEventListener("input", async () => {
  const number = ++latest;
  const typed = search.value.trim();
  const found = typed.length > 1 ? await find(typed) : [];
  if (number !== latest) return;
  const items = found.map((entry) => make("li", {}, make("button", { type: "button", onclick: () => follow(entry) }, entry.title)));
  if (typed.length > 1 && !items.length) items.push(make("li", { class: "quiet" }, `Nothing about “${typed}”.`));
  results.replaceChildren(...items);
  results.hidden = !items.length;
});
search?.addEventListener("keydown", (event) => {
  if (event.key === "Enter") $("button", results)?.click();
  else if (event.key === "ArrowDown") $("button", results)?.focus();
  else if (event.key === "Escape") [search.value, results.hidden] = ["", true];
  else return;
  event.preventDefault();
});
results?.addEventListener("keydown", (event) => {
  const buttons = $$("button", results);
  const next = buttons.indexOf(document.activeElement) + { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") results.hidden = true;
  if (event.key === "Escape" || next < 0) search.focus();
  else if (buttons[next]) buttons[next].focus();
  else return;
  event.preventDefault();
});
addEventListener("click", (event) => {
  if (results && !event.target.closest(".search")) results.hidden = true;
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  search?.focus();
});
