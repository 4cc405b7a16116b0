// The attention of a query, summarised in numbers and in a sentence.

const TOKEN_WORDS = { class: "class token", distillation: "distillation token", register: "register", query: "learned query", prefix: "prefix token" };

/** Names of the tokens without a place: numbered where there are several of a kind. */
function tokenNames(tokens) {
  return tokens.map((kind, i) => {
    const name = TOKEN_WORDS[kind] ?? TOKEN_WORDS.prefix;
    const number = tokens.slice(0, i + 1).filter((each) => each === kind).length;
    return tokens.filter((each) => each === kind).length > 1 ? `${name} ${number}` : name;
  });
}

/** A share as per cent with one decimal. */
function percent(share) {
  const value = 100 * share;
  let shown = value.toFixed(1);
  if (value === 0 || value >= 99.95) shown = value.toFixed(0);
  else if (value < 0.05) shown = "< 0.1";
  return `${shown}\u00A0%`; // the sign stays on the line of its number
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const capital = (words) => words[0].toUpperCase() + words.slice(1);

/** Summarise a row of attention: `onGrid` (share on patches), `at` and `most` (the cell with the largest share), `half`
 * (number of patches that get half of it), `distance` (mean, in patches), and `tokens` (shares of prefix tokens). */
function summarise(row, unit, cell) {
  const prefix = unit.tokens.length;
  const { rows, columns } = unit.keys;
  const grid = row.subarray(prefix);
  const onGrid = sum(grid);
  let at = 0;
  grid.forEach((value, i) => value > grid[at] && (at = i));
  const sorted = [...grid].sort((a, b) => b - a);
  let [half, held] = [0, 0];
  while (half < sorted.length && held < onGrid / 2) held += sorted[half++];
  let distance = null;
  if (cell && onGrid) {
    const { queries } = unit;
    const [across, down] = ["columns", "rows"].map((side) => Math.max(queries[side], unit.keys[side])); // of the finer grid
    const [qx, qy] = [(cell[0] + 0.5) / queries.columns, (cell[1] + 0.5) / queries.rows];
    distance = grid.reduce((total, value, i) => {
      const dx = ((i % columns) + 0.5) / columns - qx;
      const dy = (Math.floor(i / columns) + 0.5) / rows - qy;
      return total + (value / onGrid) * Math.hypot(dx * across, dy * down);
    }, 0);
  }
  return { onGrid, at: [at % columns, Math.floor(at / columns)], most: grid[at], half, distance, tokens: row.subarray(0, prefix) };
}

/** The name of a cell relative to the query: itself, a neighbour, or its row and column. */
function placeName([x, y], unit, cell) {
  const alike = unit.keys.rows === unit.queries.rows && unit.keys.columns === unit.queries.columns;
  const [dx, dy] = cell && alike ? [x - cell[0], y - cell[1]] : [9, 9];
  const near = { "0,0": "itself", "1,0": "the patch on its right", "-1,0": "the patch on its left", "0,1": "the patch below it", "0,-1": "the patch above it" };
  return near[`${dx},${dy}`] ?? `row ${y + 1}, column ${x + 1}`;
}

/** One or two sentences about a query. */
function describe(row, unit, cell, asking) {
  const found = summarise(row, unit, cell);
  const names = tokenNames(unit.tokens);
  const named = (i) => (/\d$/.test(names[i]) ? names[i] : `the ${names[i]}`); // "register 2", but "the class token"
  const block = unit.keys.rows > unit.queries.rows ? "This block of patches" : "This patch";
  const who = asking === null ? `${block} (row ${cell[1] + 1}, column ${cell[0] + 1})` : capital(named(asking));
  if (!found.onGrid && !found.tokens.some((share) => share > 0)) return `${who} attends to nothing in this layer.`;
  const best = found.tokens.reduce((top, share, i) => (share > found.tokens[top] ? i : top), 0);
  const given = found.tokens.length ? found.tokens[best] : 0;
  const itself = (i) => (i === asking ? "itself" : named(i));
  const cells = unit.keys.rows * unit.keys.columns;
  const place = placeName(found.at, unit, cell);
  const top = given > found.most ? `${itself(best)} (${percent(given)}), and among patches to ${place} (${percent(found.most)})` : `${place} (${percent(found.most)})`;
  const get = found.half === 1 ? "gets" : "get";
  const half = sum(found.tokens) < 0.05 ? `${found.half} of ${cells} patches ${get} half of it` : `Of what patches get, ${found.half} of ${cells} ${get} half`;
  const far = found.distance === null ? "" : `; the mean distance is ${found.distance.toFixed(1)} patches`;
  const spread = found.onGrid ? ` ${half}${far}.` : "";
  const rest = given > 0.005 && given <= found.most ? ` ${capital(itself(best))} gets ${percent(given)}.` : "";
  return `${who} attends most to ${top}.${spread}${rest}`;
}
