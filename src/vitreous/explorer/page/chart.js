// A line chart as SVG: frequencies from none to the highest, logarithmic amplitudes.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 30, right: 8, top: 6, bottom: 30 };

function element(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Round numbers that divide a range into three to six steps. */
export function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

/** Draw lines of `frequency` (0 to 1) and `amplitude`, each with the class `kind`. */
export function chart(lines, width, height, label) {
  const finite = lines.flatMap(({ amplitude }) => amplitude).filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)];
  const x = (value) => MARGIN.left + value * (width - MARGIN.left - MARGIN.right);
  const y = (value) => MARGIN.top + ((high - value) / (high - low || 1)) * (height - MARGIN.top - MARGIN.bottom);
  const text = (words, attributes) => element("text", attributes, words);
  const down = ticks(low, high).flatMap((value) => [
    element("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
    text(String(value).replace("-", "−"), { x: MARGIN.left - 5, y: y(value) + 4, "text-anchor": "end" }),
  ]);
  const across = [[0, "0", "start"], [0.5, "half", "middle"], [1, "highest", "end"]].map(([value, words, anchor]) =>
    text(words, { x: x(value), y: height - MARGIN.bottom + 14, "text-anchor": anchor }));
  const axis = text("frequency", { x: x(0.5), y: height - 3, "text-anchor": "middle", class: "axis" });
  const drawn = lines.map(({ frequency, amplitude, kind }) => {
    const points = frequency.map((at, i) => [at, amplitude[i]]).filter(([, value]) => Number.isFinite(value));
    const path = points.map(([at, value]) => `${x(at)},${y(value)}`).join(" ");
    return element("polyline", { class: `line ${kind}`, points: path });
  });
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return element("svg", { class: "chart", role: "img", "aria-label": label, ...size }, ...down, ...across, axis, ...drawn);
}
