// The page: drawing charts in sight, chips, theme, printing, saving files.

const places = $$(".chart");
for (const place of places) place.classList.add("waiting");
const seen = new Set();
const sight = new IntersectionObserver(
  (all) => {
    for (const each of all) {
      if (each.isIntersecting) seen.add(each.target), draw(each.target);
      else seen.delete(each.target);
    }
  },
  { rootMargin: "300px" },
);
places.forEach((place) => sight.observe(place));

/** Redraw the charts in sight; the others are redrawn when they come into sight. */
function again() {
  for (const place of seen) draw(place);
}
let settled = 0;
const sizes = new ResizeObserver(() => {
  clearTimeout(settled);
  settled = setTimeout(again, 120);
});
places.forEach((place) => sizes.observe(place));

// --- models ---

/** Show only these models, or all if the list is empty. */
function chooseModels(models) {
  chosen = models.length === settings.models.length ? [] : models;
  for (const chip of $$(".chip[data-model]")) chip.setAttribute("aria-pressed", String(chosen.includes(chip.dataset.model)));
  for (const each of $$("[data-models]")) {
    const named = JSON.parse(each.dataset.models);
    each.hidden = Boolean(chosen.length && named.length && !named.some((name) => chosen.includes(name)));
  }
  for (const each of $$("#models .drawing g.model")) each.classList.toggle("faded", Boolean(chosen.length) && !chosen.includes(each.dataset.model));
  for (const each of tables.values()) if (each.rows) each.draw();
  showAttentionModels(chosen);
  again();
  remember();
}
const toggleModel = (name) => chooseModels(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
for (const chip of $$(".chip[data-model]")) chip.addEventListener("click", () => toggleModel(chip.dataset.model));
addEventListener("keydown", (event) => event.key === "Escape" && chosen.length && chooseModels([]));

// --- theme ---

const theme = $("#theme");
/** Set the theme, "light" or "dark"; null follows the system. */
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  theme.textContent = dark() ? "Light" : "Dark";
  again();
  dispatchEvent(new Event("painted"));
}
theme.addEventListener("click", () => {
  setTheme(dark() ? "light" : "dark");
  remember();
});
night.addEventListener("change", () => setTheme(document.documentElement.dataset.theme));

// --- folds ---

const unfold = $("#unfold");
unfold.addEventListener("click", () => {
  const open = unfold.textContent === "Expand all";
  for (const fold of $$(".fold")) fold.open = open;
  unfold.textContent = open ? "Collapse all" : "Expand all";
});
// an open card is wider and shows its chart in full; its charts are drawn at once, so that they can be printed
addEventListener("toggle", (event) => {
  if (!event.target.matches?.(".fold")) return;
  if (event.target.open) $$(".chart", event.target).forEach(draw);
  again();
}, true);

// --- printing is synchronous, so static pictures replace charts that are not drawn in the light theme ---

function stillPictures() {
  for (const place of places) {
    if (!place.offsetParent) continue;
    const known = charts.get(place);
    if (known?.view && !dark()) continue;
    const still = $("noscript", document.getElementById(place.dataset.chart))?.textContent;
    if (still?.startsWith("<")) {
      const shown = make("div", { class: "still" });
      shown.innerHTML = still;
      place.append(shown);
      place.classList.add("stilled");
    } else place.classList.add("inverted");
  }
}
addEventListener("beforeprint", stillPictures);
addEventListener("afterprint", () => {
  for (const place of places) {
    $(".still", place)?.remove();
    place.classList.remove("stilled", "inverted");
  }
});
$("#print").addEventListener("click", () => window.print());

// --- files ---

for (const button of $$("[data-save]")) {
  button.addEventListener("click", async () => {
    const place = document.getElementById(button.dataset.save);
    await draw(place);
    const { view } = charts.get(place);
    view.background(getComputedStyle(document.documentElement).getPropertyValue("--paper").trim());
    if (button.dataset.as === "svg") save(`${place.id}.svg`, await view.toSVG(), "image/svg+xml");
    else (await view.toCanvas(2)).toBlob((blob) => save(`${place.id}.png`, blob, "image/png"));
    view.background("transparent");
  });
}

// --- contents: they mark the section in sight; on a narrow screen they begin closed ---

const links = new Map($$("nav a").map((link) => [link.hash.slice(1), link]));
const where = new IntersectionObserver(
  (all) => {
    const first = all.filter((each) => each.isIntersecting).at(-1);
    if (!first) return;
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = links.get(first.target.id);
    link?.setAttribute("aria-current", "true");
    const nav = $("nav");
    if (link && (link.offsetTop < nav.scrollTop || link.offsetTop > nav.scrollTop + nav.clientHeight - 40)) {
      nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
    }
  },
  { rootMargin: "-15% 0px -75% 0px" },
);
for (const id of links.keys()) if (document.getElementById(id)) where.observe(document.getElementById(id));
if (innerWidth <= 1080) $("nav details").open = false;

setTheme(document.documentElement.dataset.theme);
restore();
document.documentElement.dataset.ready = "";
