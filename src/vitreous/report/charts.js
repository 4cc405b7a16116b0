// Charts: Vega-Lite, drawn when they come into view, as wide as the page, in the colours of the theme.

const charts = new Map(); // the place of a chart: what is drawn there
let only = null; // the model that stands out
let at = null; // the unit under the pointer, in whichever chart

const night = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (document.documentElement.dataset.theme ?? (night.matches ? "dark" : "light")) === "dark";

let library = null;
/** Vega is a script of its own, unpacked with the first chart; the page's policy knows its digest. */
function drawing() {
  library ??= text("library").then((source) => {
    document.head.append(make("script", {}, source));
    if (!window.vegaEmbed) throw new Error("the drawing library did not load");
    return window.vegaEmbed;
  });
  return library;
}

/** Draw, or draw anew after the theme or the width has changed. */
async function draw(place) {
  const width = Math.floor(place.clientWidth) - 2;
  const wanted = `${dark()} ${width}`;
  const known = charts.get(place) ?? {};
  if (known.wanted === wanted || width < 50) return known.done;
  known.wanted = wanted;
  charts.set(place, known);
  known.done = (async () => {
    try {
      const [embed, chart] = await Promise.all([drawing(), json(`chart-${place.id}`)]);
      const spec = arranged(linked(themed(chart)), width);
      const cells = chart.view.mark === "heatmap" || chart.view.mark === "tiles";
      const drawn = await embed(place, spec, {
        mode: "vega-lite", renderer: cells ? "canvas" : "svg", actions: false, defaultStyle: false, ast: true, logLevel: 1,
        tooltip: { disableDefaultStyle: true }, patch: clickable,
      });
      known.view?.finalize();
      known.view = drawn.view;
      known.chart = chart;
      listen(place, known);
      place.classList.remove("waiting");
      place.style.minHeight = "";
    } catch (error) {
      place.classList.remove("waiting");
      place.replaceChildren(make("p", { class: "failed" }, `This chart could not be drawn: ${error.message}`));
    }
  })();
  return known.done;
}

/** On light or on dark paper. */
function themed(chart) {
  const spec = structuredClone(chart.spec);
  for (const [path, value] of dark() ? chart.dark : []) {
    const last = path.at(-1);
    path.slice(0, -1).reduce((part, key) => part[key], spec)[last] = value;
  }
  return spec;
}

/** Every layer whose rows know their model can fade; every point whose row knows its unit can grow. */
function linked(spec) {
  spec.params = [{ name: "only", value: only }, { name: "at", value: at }];
  const walk = (part) => {
    for (const inside of part.layer ?? part.concat ?? part.vconcat ?? part.hconcat ?? []) walk(inside);
    const row = spec.datasets[part.data?.name]?.[0];
    if (!part.mark || !row || !("model" in row) || part.encoding?.opacity) return;
    const mark = part.mark.type ?? part.mark;
    const full = part.mark.opacity ?? 1;
    const heat = mark === "rect" && part.encoding.color;
    if (!heat && full) {
      const test = "!only || datum.model === only";
      part.encoding.opacity = { condition: { test, value: full }, value: full * 0.08 };
    }
    if (mark === "point" && "unit" in row && part.encoding.tooltip) {
      const size = part.mark.size ?? 30;
      const test = "at && datum.model === at.model && datum.unit === at.unit";
      part.encoding.size = { condition: { test, value: size * 5 }, value: size };
    }
  };
  walk(spec);
  return spec;
}

/** As wide as the page: one panel fills it, several stand beside each other where they fit. */
function arranged(spec, width) {
  const panels = spec.concat ?? [spec];
  const legend = { ...spec.config.legend, orient: "top", direction: "horizontal", offset: 10, columnPadding: 14 };
  legend.layout = { top: { anchor: "start", direction: width < 760 ? "vertical" : "horizontal", margin: width < 760 ? 6 : 30, center: false } };
  spec.config = { ...spec.config, background: "transparent", padding: 6, legend };
  labelled(spec, width);
  if (typeof panels[0].width === "object") return cells(spec, panels, width);
  if (!spec.concat) {
    if (panels[0].layer?.some((layer) => layer.mark?.type === "image")) return spec;
    return Object.assign(spec, { width: Math.min(width, 1100), autosize: { type: "fit-x", contains: "padding" } });
  }
  const beside = even(panels.length, Math.floor(width / 245));
  const each = Math.min(520, Math.floor((width - 16) / beside) - 76);
  for (const panel of panels) panel.width = each;
  spec.columns = beside;
  return spec;
}

/** Legends in as many columns as fit; those of models and kinds need no title. */
function labelled(part, width) {
  for (const inside of part.layer ?? part.concat ?? []) labelled(inside, width);
  for (const channel of [part.encoding?.color, part.encoding?.fill]) {
    if (!channel?.scale || channel.type !== "nominal" || channel.legend === null) continue;
    const longest = Math.max(...channel.scale.domain.map((name) => Math.min(String(name).length, 32)));
    channel.legend = { ...channel.legend, columns: Math.max(1, Math.floor((width - 50) / (6.2 * longest + 28))) };
    if (["model", "kind"].includes(channel.field)) channel.title = null;
  }
}

/** How many panels stand beside each other: as many as fit, up to four, and no last one alone in its row. */
function even(count, fit) {
  const most = Math.max(1, Math.min(count, fit, 4));
  return most > 2 && count > most && count % most === 1 ? most - 1 : most;
}

/** Heat-maps keep square cells. */
function cells(spec, panels, width) {
  const count = Math.max(...panels.map((panel) => Math.max(panel.encoding.x.sort.length, panel.encoding.y.sort.length)));
  const names = panels.flatMap((panel) => panel.encoding.y.sort.map((name) => String(name).length));
  const room = Math.min(160, 30 + 6 * Math.max(...names));
  const beside = spec.concat ? even(panels.length, Math.floor(width / (room + Math.max(count * 12, 110)))) : 1;
  const step = Math.max(3, Math.min(28, Math.floor((width / beside - room - 24) / count), Math.floor(560 / count)));
  for (const panel of panels) {
    [panel.width, panel.height] = [{ step }, { step }];
    if (step < 11) for (const axis of [panel.encoding.x.axis, panel.encoding.y.axis]) axis.labelOverlap = "greedy";
  }
  if (spec.concat) spec.columns = beside;
  return spec;
}

/** Legends take clicks. */
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
    if (item?.mark?.role?.startsWith("legend") && settings.models.includes(item.datum?.value)) choose(item.datum.value);
  });
  view.addEventListener("pointerover", (_, item) => point(item?.datum, place));
  view.addEventListener("pointerout", () => point(null, place));
  const strip = document.getElementById(`${place.id}-across`);
  if (!strip) return;
  if (!strip.firstChild) strip.textContent = "Point at a cell to see its row.";
  view.addEventListener("pointerover", (_, item) => {
    if (item?.datum && chart.view.y in item.datum) across(strip, chart, item.datum);
  });
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

/** Set a signal wherever something is drawn. */
function tell(name, value, except) {
  for (const [place, { view }] of charts) {
    if (view && place !== except) view.signal(name, value).runAsync();
  }
}

let waiting = 0;
/** The same unit in all charts. */
function point(row, place) {
  const next = row?.model !== undefined && row?.unit !== undefined ? { model: row.model, unit: row.unit } : null;
  if (next?.model === at?.model && next?.unit === at?.unit) return;
  at = next;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => tell("at", at));
}

/** One model alone, or all again. */
function choose(model) {
  only = only === model ? null : model;
  for (const chip of $$(".chip[data-model]")) chip.setAttribute("aria-pressed", String(chip.dataset.model === only));
  tell("only", only);
}
