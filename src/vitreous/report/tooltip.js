// One tooltip for all charts and drawings, by pointer or by keyboard.

const tip = make("div", { id: "tip", role: "status", "aria-live": "polite", hidden: true });
document.body.append(tip);

/** Show up to five lines beside a point of the window. */
function showTip(x, y, lines) {
  const rows = Object.entries(lines).filter(([, value]) => value !== "" && value !== "null").slice(0, 5);
  if (!rows.length) return hideTip();
  tip.replaceChildren(...rows.map(([name, value]) => make("div", {}, make("span", {}, name), make("b", {}, String(value)))));
  tip.hidden = false;
  shownAt = scrollY;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

let shownAt = 0; // how far the page was scrolled
const hideTip = () => (tip.hidden = true);
addEventListener("scroll", () => Math.abs(scrollY - shownAt) > 8 && hideTip(), { passive: true });

/** What Vega calls when the pointer is over a mark. */
function vegaTip(_, event, item, value) {
  if (value == null || value === "") hideTip();
  else showTip(event.clientX, event.clientY, typeof value === "object" ? value : { "": value });
}

/** All marks of a chart with a tooltip, and their positions in the window; marks with a value come first. */
function marksWithTips({ view, chart }, home) {
  const drawn = $("svg, canvas", home);
  const box = drawn.getBoundingClientRect();
  const [left, top] = view.origin();
  const scale = box.width / (view._viewWidth + view.padding().left + view.padding().right || box.width);
  const found = [];
  const walk = (item, x, y) => {
    for (const mark of item.items ?? []) {
      for (const each of mark.items ?? []) {
        if (mark.marktype === "group") walk(each, x + (each.x ?? 0), y + (each.y ?? 0));
        else if (each.tooltip != null && each.bounds) {
          const middle = [(each.bounds.x1 + each.bounds.x2) / 2 + x, (each.bounds.y1 + each.bounds.y2) / 2 + y];
          found.push({ item: each, x: box.left + (left + middle[0]) * scale, y: box.top + (top + middle[1]) * scale });
        }
      }
    }
  };
  for (const root of view.scenegraph().root.items) walk(root, root.x ?? 0, root.y ?? 0);
  return found.sort((a, b) => (chart.view.y in b.item.datum) - (chart.view.y in a.item.datum));
}

const MARK_STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };

/** Arrow keys walk through the marks of a chart that has the focus. */
function walkMarks(event, place, known) {
  if (event.key === "Escape") return leaveMarks(place, known);
  if (!(event.key in MARK_STEPS) || !known.view || event.target !== place) return;
  const marks = marksWithTips(known, place);
  if (!marks.length) return;
  event.preventDefault();
  const next = (known.mark ?? -1) + MARK_STEPS[event.key];
  known.mark = Math.min(Math.max(next, 0), marks.length - 1);
  const { item, x, y } = marks[known.mark];
  showTip(x, y, typeof item.tooltip === "object" ? item.tooltip : { "": item.tooltip });
  known.ring ??= place.appendChild(make("i", { class: "ring", "aria-hidden": true }));
  const home = place.getBoundingClientRect();
  known.ring.style.left = `${x - home.left + place.scrollLeft}px`;
  known.ring.style.top = `${y - home.top + place.scrollTop}px`;
  markUnit(item.datum);
}

function leaveMarks(place, known) {
  hideTip();
  known.ring?.remove();
  known.ring = known.mark = undefined;
  markUnit(null);
}
