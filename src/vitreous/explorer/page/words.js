// Units, edits and changes of the image in words.
import { percent } from "./drawing.js";

export const KINDS = {
  attention: "attention", mlp: "MLP", conv: "conv", "token-mlp": "token MLP", mixer: "mixer",
  pool: "pool", downsample: "downsample", stem: "stem", head: "head",
};

export const SHORT = { attention: "attn", downsample: "down", "token-mlp": "tokens" }; // where there is no room

/** What can be done to a unit: the letter that does it, what a button says, what stands on the unit, what is in force. */
export const ACTIONS = {
  off: { key: "o", button: "Switch off", mark: "off", words: (unit) => `${unit} is switched off` },
  skip: { key: "s", button: "Remove skip", mark: "no skip", words: (unit) => `the skip around ${unit} is removed` },
  uniform: { key: "u", button: "Uniform", mark: "uniform", words: (unit) => `${unit} attends to everything alike` },
  mean: { key: "m", button: "Mean", mark: "mean", words: (unit) => `${unit} has its mean attention` },
  box: { key: "b", button: "3×3 box", mark: "3×3", words: (unit) => `${unit} attends to its 3×3 neighbours alike` },
};

export const TITLES = {
  off: "Leave out what this unit adds",
  skip: "Remove the skip connection around this unit",
  uniform: "Attend to every token alike",
  mean: "Use this unit's attention averaged over images",
  box: "Attend to the 3×3 neighbours alike",
};

/** What a unit is, in a few words. */
export function describeUnit(unit) {
  const reach = unit.reach && unit.reach !== "global" ? `${unit.reach} ` : "";
  const size = unit.grid ? `${unit.grid[0]}×${unit.grid[1]}` : "";
  return [
    reach + KINDS[unit.kind],
    unit.heads && `${unit.heads} ${unit.heads === 1 ? "head" : "heads"}`,
    size,
    unit.channels && `${unit.channels} channels`,
  ].filter(Boolean).join(" · ");
}

/** What is done to the image: the name of each change and its words. */
export function describeChanges(changes) {
  const found = [];
  const share = (value) => `${Math.round(100 * value)} %`;
  if (changes.noise) {
    const { frequency, strength } = changes.noise;
    found.push(["noise", `noise at ${share(frequency)} of the highest frequency, strength ${strength.toFixed(2)}`]);
  }
  if ("low_pass" in changes) found.push(["low_pass", `only frequencies below ${share(changes.low_pass)} of the highest`]);
  if ("high_pass" in changes) found.push(["high_pass", `only frequencies above ${share(changes.high_pass)} of the highest`]);
  if (changes.boxes?.length) {
    found.push(["boxes", changes.boxes.length === 1 ? "one box is occluded" : `${changes.boxes.length} boxes are occluded`]);
  }
  if (changes.corruption) {
    const { name, severity } = changes.corruption;
    found.push(["corruption", `${name.replaceAll("_", " ")}, severity ${severity}`]);
  }
  return found;
}

/** A difference of shares in percentage points, with its sign. */
export function points(difference) {
  const value = 100 * difference;
  if (Math.abs(value) < 0.05) return "±0.0";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`;
}

/** A number with its noun. */
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export { percent };
