// Charts: Vega-Lite, drawn when they come into view, in the page's theme, for the models that are chosen.

const charts = new Map(); // element of a chart → its drawing: promise, view, data
let chosen = []; // models chosen with chips; none means all
let at = null; // model and unit under the pointer or the keyboard's focus

const night = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (document.documentElement.dataset.theme ?? (night.matches ? "dark" : "light")) === "dark";

let library = null;
/** Vega's embed function, from a block that is unpacked for the first chart; the page's policy has the script's hash. */
function drawing() {
  library ??= text("library").then((source) => {
    document.head.append(make("script", {}, source));
    if (!window.vegaEmbed) throw new Error("the drawing library did not load");
    return window.vegaEmbed;
  });
  return library;
}

/** Closed cards and the first screen have charts of a fixed height. */
const isCompact = (place) => Boolean(place.closest(".key, .question:not(:has(.fold[open])) > figure"));

/** Draw a chart, or redraw it if the theme, the width or the chosen models have changed. */
function draw(place) {
  const known = charts.get(place) ?? {};
  charts.set(place, known);
  const width = Math.floor(place.clientWidth);
  if (width < 50) return known.done;
  const wanted = [dark(), width, isCompact(place), ...chosen].join("\n");
  if (known.wanted === wanted) return known.done;
  known.wanted = wanted;
  // one after the other, so that an older drawing never replaces a newer one
  known.done = (known.done ?? Promise.resolve()).then(() => known.wanted === wanted && redraw(place, known, width));
  return known.done;
}

async function redraw(place, known, width) {
  known.home ??= place.appendChild(make("div", { class: "drawn" }));
  try {
    const [embed, chart] = await Promise.all([drawing(), json(`chart-${place.dataset.chart}`)]);
    const spec = filtered(themed(chart), chosen);
    if (!spec) {
      known.home.replaceChildren(make("p", { class: "quiet" }, "Nothing was measured here for the chosen models."));
      return;
    }
    const height = isCompact(place) ? place.clientHeight : 0;
    arranged(linked(spec, dark()), width, height);
    known.home.classList.toggle("tiles", chart.view.mark === "tiles");
    const drawn = await embed(known.home, spec, {
      mode: "vega-lite", renderer: chart.view.mark === "heatmap" ? "canvas" : "svg", actions: false,
      defaultStyle: false, ast: true, logLevel: 1, tooltip: vegaTip, patch: clickable,
    });
    known.view?.finalize();
    known.view = drawn.view;
    known.chart = chart;
    for (const empty of $$("g[role='graphics-symbol']:empty", known.home)) {
      for (const name of ["role", "aria-roledescription"]) empty.removeAttribute(name); // it has nothing to say
    }
    listen(place, known);
    if (!performance.getEntriesByName("first chart").length) performance.mark("first chart");
  } catch (error) {
    known.home.replaceChildren(make("p", { class: "failed" }, `This chart could not be drawn: ${error.message}`));
  } finally {
    place.classList.remove("waiting");
  }
}

/** The chart's specification in the theme of the page. */
function themed(chart) {
  const spec = structuredClone(chart.spec);
  for (const [path, value] of dark() ? chart.dark : []) {
    const last = path.at(-1);
    path.slice(0, -1).reduce((part, key) => part[key], spec)[last] = value;
  }
  return spec;
}

const inside = (part) => part.layer ?? part.concat ?? part.vconcat ?? part.hconcat ?? [];

/** Keep only rows of the chosen models, and drop panels and layers without rows; null if nothing is left. */
function filtered(spec, models) {
  if (!models.length) return spec;
  const empty = new Set();
  for (const [name, rows] of Object.entries(spec.datasets)) {
    const keeps = (row, key) => row[key] == null || models.includes(row[key]);
    spec.datasets[name] = rows.filter((row) => keeps(row, "model") && keeps(row, "other_model"));
    if (rows.length && !spec.datasets[name].length) empty.add(name);
  }
  const alive = (part) => {
    for (const key of ["layer", "concat", "vconcat", "hconcat"]) {
      if (part[key]) part[key] = part[key].filter(alive);
    }
    const names = inside(part).some((each) => each.data?.name || inside(each).length);
    return part.data?.name ? !empty.has(part.data.name) : !("concat" in part || "layer" in part) || names;
  };
  if (!alive(spec)) return null;
  const domains = (part) => {
    inside(part).forEach(domains);
    for (const channel of Object.values(part.encoding ?? {})) {
      const domain = channel?.scale?.domain;
      if (channel.field !== "model" || !Array.isArray(domain)) continue;
      const range = channel.scale.range ?? [];
      channel.scale.range = range.filter((_, i) => models.includes(domain[i]));
      channel.scale.domain = domain.filter((name) => models.includes(name));
    }
  };
  domains(spec);
  return spec;
}

/** Highlight marks of a unit when it is pointed at anywhere on the page, through the parameter `at`. */
function linked(spec, isDark) {
  spec.params = [{ name: "at", value: at }];
  const test = "at && datum.model === at.model && datum.unit === at.unit";
  const ink = settings.papers[isDark ? "dark" : "light"][0];
  const walk = (part) => {
    inside(part).forEach(walk);
    const row = spec.datasets[part.data?.name]?.[0];
    if (!part.mark || !row || !("model" in row && "unit" in row) || !part.encoding?.tooltip) return;
    const mark = part.mark.type ?? part.mark;
    if (mark === "point") {
      const size = part.mark.size ?? 30;
      part.encoding.size = { condition: { test, value: size * 5 }, value: size };
    } else if (mark === "rect" || mark === "bar") {
      part.encoding.stroke = { condition: { test, value: ink }, value: null };
    }
  };
  walk(spec);
  return spec;
}

/** Set the size of a specification: the given width, and on a closed card (`height` > 0) the given height. */
function arranged(spec, width, height) {
  const panels = spec.concat ?? [spec];
  const legend = { ...spec.config.legend, orient: "top", direction: "horizontal", offset: 8, columnPadding: 14 };
  const beneath = width < 760 ? { direction: "vertical", margin: 6 } : { direction: "horizontal", margin: 30 };
  legend.layout = { top: { anchor: "start", ...beneath, center: false } };
  spec.config = { ...spec.config, background: "transparent", padding: { left: 5, top: 5, bottom: 5, right: 18 }, legend }; // half of a last label
  const legends = labelled(spec, width, height > 0);
  if (!spec.concat) leaning(spec, width);
  if (typeof panels[0].width === "object") return cells(spec, panels, width, height);
  if (panels[0].layer?.some((layer) => layer.mark?.type === "image")) return spec; // tiles keep their pixels
  if (!spec.concat) {
    const square = panels[0].width === panels[0].height;
    if (height) {
      const size = square ? { width: Math.min(width, height), height } : { width, height };
      return Object.assign(spec, size, { autosize: { type: "fit", contains: "padding" } });
    }
    const size = square ? { width: Math.min(width, 520), height: Math.min(width, 520) } : { width: Math.min(width, 1100) };
    return Object.assign(spec, size, { autosize: { type: square ? "fit" : "fit-x", contains: "padding" } });
  }
  const beside = height ? roomiest(panels.length, width, height, 66, 1.6) : even(panels.length, Math.floor(width / 245));
  const rows = Math.ceil(panels.length / beside);
  const each = Math.min(520, Math.floor((width - 16) / beside) - 66);
  for (const panel of panels) {
    const square = panel.width === panel.height;
    panel.width = each;
    if (height) panel.height = Math.max(46, Math.floor((height - legends - 12) / rows) - 66);
    if (square) panel.width = panel.height = Math.min(panel.width, panel.height || each);
  }
  spec.columns = beside;
  return spec;
}

/** Legends in as many columns as fit. The top of the page shows the colours of models and kinds, so closed cards do
not. Returns their height. */
function labelled(part, width, compact) {
  let height = Math.max(0, ...inside(part).map((each) => labelled(each, width, compact)));
  for (const channel of Object.values(part.encoding ?? {})) {
    if (!channel?.scale || channel.type !== "nominal" || channel.legend === null) continue;
    if (!Array.isArray(channel.scale.domain)) continue;
    if (compact && ["model", "kind"].includes(channel.field)) {
      channel.legend = null;
      continue;
    }
    const longest = Math.max(1, ...channel.scale.domain.map((name) => Math.min(String(name).length, 32)));
    const columns = Math.max(1, Math.floor((width - 50) / (6.2 * longest + 28)));
    channel.legend = { ...channel.legend, columns };
    if (["model", "kind"].includes(channel.field)) channel.title = null;
    height = Math.max(height, 14 + 18 * Math.ceil(channel.scale.domain.length / columns));
  }
  return height;
}

/** Names under an axis lean where they would overlap. */
function leaning(spec, width) {
  const names = new Set();
  const axes = inside(spec).map((layer) => layer.encoding?.x).filter((x) => x?.type === "nominal" && x.axis !== null);
  for (const layer of inside(spec)) {
    const field = layer.encoding?.x?.type === "nominal" && layer.encoding.x.field;
    for (const row of (field && spec.datasets[layer.data?.name]) || []) names.add(String(row[field]));
  }
  const longest = Math.max(0, ...[...names].map((name) => Math.min(name.length, 28)));
  if (names.size * (6.5 * longest + 8) < width - 60) return;
  for (const x of axes) x.axis = { ...x.axis, labelAngle: -20, labelAlign: "right", labelLimit: Math.max(60, Math.floor(width / 3)) };
}

/** How many panels stand beside each other: as many as fit, up to four, and no last one alone in its row. */
function even(count, fit) {
  const most = Math.max(1, Math.min(count, fit, 4));
  return most > 2 && count > most && count % most === 1 ? most - 1 : most;
}

/** Number of panels per row for which the shorter side of a panel is as long as possible. */
function roomiest(count, width, height, margin, aspect) {
  let best = 1;
  const side = (beside) => Math.min(width / beside - margin, aspect * (height / Math.ceil(count / beside) - margin));
  for (let beside = 2; beside <= count; beside++) if (side(beside) > side(best)) best = beside;
  return best;
}

/** Heat-maps keep square cells. */
function cells(spec, panels, width, height) {
  const count = Math.max(...panels.map((panel) => Math.max(panel.encoding.x.sort.length, panel.encoding.y.sort.length)));
  const names = panels.flatMap((panel) => panel.encoding.y.sort.map((name) => String(name).length));
  const labels = Math.min(96, 8 + 6 * Math.max(...names));
  const fits = Math.floor(width / (labels + 30 + Math.max(count * 8, 110)));
  let columns = 1;
  if (spec.concat) columns = height ? roomiest(panels.length, width, height - 44, 40, 1) : even(panels.length, fits);
  const rows = Math.ceil(panels.length / columns);
  /** Side of a cell that leaves this room beside and below each panel. */
  const side = (beside, below) => Math.min(28, (width / columns - beside - 24) / count, (height ? (height - 44) / rows - below : 560) / count);
  // closed cards show the names of columns, and then those of rows, only where they are legible
  const columnsNamed = !height || (!spec.concat && side(labels + 20, labels + 26) >= 11);
  const rowsNamed = columnsNamed || (!spec.concat && side(labels + 20, 26) >= 11);
  let room = spec.concat ? [4, 40] : [24, 26]; // beside and below
  if (rowsNamed) room = [labels + 20, columnsNamed ? labels + 26 : 26];
  const step = Math.max(1.2, side(...room)); // an open card is as high as it likes, and `side` leaves out what is below
  for (const panel of panels) {
    [panel.width, panel.height] = [{ step }, { step }];
    if (step < 24 && panel.layer) panel.layer = panel.layer.filter((layer) => (layer.mark?.type ?? layer.mark) !== "text");
    for (const [axis, named] of [[panel.encoding.x.axis, columnsNamed], [panel.encoding.y.axis, rowsNamed]]) {
      if (!named) Object.assign(axis, { labels: false, title: spec.concat ? null : axis.title });
      else if (step < 11) axis.labelOverlap = "greedy";
      if (height) axis.labelLimit = labels;
    }
  }
  if (spec.concat) spec.columns = columns;
  return spec;
}

/** Make the legends of a Vega specification clickable. */
function clickable(spec) {
  for (const legend of spec.legends ?? []) {
    for (const part of ["labels", "symbols"]) {
      legend.encode = { ...legend.encode, [part]: { ...legend.encode?.[part], interactive: true } };
    }
  }
  return spec;
}

function listen(place, known) {
  const { view, chart } = known;
  view.addEventListener("click", (_, item) => {
    if (item?.mark?.role?.startsWith("legend") && settings.models.includes(item.datum?.value)) toggleModel(item.datum.value);
    else if (item?.datum && chart.opens?.column in item.datum) openPanel(chart, item.datum[chart.opens.column]);
  });
  view.addEventListener("pointerover", (_, item) => markUnit(item?.datum));
  view.addEventListener("pointerout", () => markUnit(null));
  if (!known.listens) {
    known.listens = true;
    place.addEventListener("keydown", (event) => walkMarks(event, place, known));
    place.addEventListener("blur", () => leaveMarks(place, known));
  }
  const strip = document.getElementById(`${place.id}-across`);
  if (!strip) return;
  if (!strip.firstChild) strip.textContent = "Point at a cell to see its row.";
  view.addEventListener("pointerover", (_, item) => {
    if (item?.datum && chart.view.y in item.datum) across(strip, chart, item.datum);
  });
}

/** Go from a mark of an overview, such as the mean CKA of two models, to the panel with its details. */
async function openPanel(chart, entry) {
  const { column, views } = chart.opens;
  let target = null;
  for (const number of views) {
    const { spec } = await json(`chart-${chart.name}-${number}`);
    const has = Object.values(spec.datasets).flat().some((row) => row[column] === entry);
    if (has) target ??= document.getElementById(`${chart.name}-${number}`);
  }
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  await Promise.all($$(".chart", target.closest("section")).map(draw)); // an open card is laid out anew
  const titles = $$("text", target).filter((text) => text.textContent === String(entry));
  if (titles.length) titles[0].scrollIntoView({ block: "center" });
  else target.closest("figure").scrollIntoView();
}

/** The row of the cell under the pointer, as a line. */
function across(strip, { view, spec }, cell) {
  const rows = Object.values(spec.datasets).flat();
  const same = (row) => row[view.y] === cell[view.y] && (!view.facet || row[view.facet] === cell[view.facet]);
  const row = rows.filter((each) => same(each) && each[view.value] != null);
  const values = row.map((each) => each[view.value]);
  const all = rows.map((each) => each[view.value]).filter((value) => value != null);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const spot = (value, i) => [((i + 0.5) / row.length) * 100, 46 - ((value - low) / (high - low || 1)) * 42];
  const here = row.findIndex((each) => each[view.x] === cell[view.x]);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "line");
  svg.setAttribute("viewBox", "0 0 100 50");
  svg.setAttribute("preserveAspectRatio", "none");
  for (const drawn of [line, mark]) {
    for (const [name, value] of Object.entries({ fill: "none", stroke: "currentColor", "vector-effect": "non-scaling-stroke" })) {
      drawn.setAttribute(name, value);
    }
  }
  line.setAttribute("points", values.map((value, i) => spot(value, i).join(",")).join(" "));
  line.setAttribute("stroke-width", 2);
  const x = spot(0, Math.max(here, 0))[0];
  for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: 50, opacity: 0.5 })) mark.setAttribute(name, value);
  svg.append(line, mark);
  const value = cell[view.value];
  const shown = value == null ? "no value" : Number(value.toPrecision(3));
  strip.replaceChildren(make("b", {}, `${cell[view.y]} × ${cell[view.x]}: ${shown}`), ` — the row of ${cell[view.y]}`, svg);
}

// --- one unit, marked in all charts and drawings ---

const units = new Map(); // model and unit → boxes of drawings and rows of tables
for (const box of $$("[data-unit]")) {
  const model = box.closest("[data-model]").dataset.model;
  for (const unit of box.dataset.unit.split(" ")) {
    const key = `${model}\n${unit}`;
    units.set(key, [...(units.get(key) ?? []), box]);
  }
  box.addEventListener("pointerenter", () => markUnit({ model, unit: box.dataset.unit.split(" ")[0] }));
  box.addEventListener("pointerleave", () => markUnit(null));
}

let waiting = 0;
/** Mark the unit of a row, or none, wherever it is drawn. */
function markUnit(row) {
  const next = row?.model !== undefined && row?.unit !== undefined ? { model: row.model, unit: row.unit } : null;
  if (next?.model === at?.model && next?.unit === at?.unit) return;
  for (const box of (at && units.get(`${at.model}\n${at.unit}`)) ?? []) box.classList.remove("at");
  at = next;
  for (const box of (at && units.get(`${at.model}\n${at.unit}`)) ?? []) box.classList.add("at");
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    for (const { view } of charts.values()) view?.signal("at", at).runAsync();
  });
}
