// The page: what is drawn when, the switches, the files.

const places = $$(".chart");
for (const place of places) {
  place.classList.add("waiting");
  place.style.minHeight = `${place.dataset.height}px`;
}
const sight = new IntersectionObserver(
  (seen) => seen.filter((each) => each.isIntersecting).forEach((each) => draw(each.target)),
  { rootMargin: "300px" },
);
places.forEach((place) => sight.observe(place));

const all = () => Promise.all(places.map(draw));
const again = () => charts.forEach((_, place) => draw(place));
let settled = 0;
addEventListener("resize", () => {
  clearTimeout(settled);
  settled = setTimeout(again, 200);
});

for (const chip of $$(".chip[data-model]")) chip.addEventListener("click", () => choose(chip.dataset.model));
addEventListener("keydown", (event) => event.key === "Escape" && only && choose(only));

const theme = $("#theme");
const relabel = () => (theme.textContent = dark() ? "Light" : "Dark");
function paint() {
  relabel();
  again();
  dispatchEvent(new Event("painted"));
}
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  paint();
});
night.addEventListener("change", paint);
relabel();

/** Paper is light and has every chart on it. */
async function print() {
  const before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  paint();
  await all();
  window.print();
  if (before === undefined) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = before;
  paint();
}
$("#print").addEventListener("click", print);
addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  print();
});

for (const button of $$("[data-csv]")) {
  button.addEventListener("click", async () => {
    const name = button.dataset.csv;
    save(`${name}.csv`, await text(`table-${name}`), "text/csv");
  });
}
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

// Where one is: the contents mark the section in sight. On a narrow screen they begin closed.
const links = new Map($$("nav a").map((link) => [link.hash.slice(1), link]));
const where = new IntersectionObserver(
  (seen) => {
    for (const each of seen.filter((one) => one.isIntersecting)) {
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(each.target.id)?.setAttribute("aria-current", "true");
    }
  },
  { rootMargin: "-20% 0px -70% 0px" },
);
for (const id of links.keys()) if (document.getElementById(id)) where.observe(document.getElementById(id));
if (innerWidth <= 1080) $("nav details").open = false;
