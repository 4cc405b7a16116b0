// The controls of image changes: noise in a frequency band, filters, a corruption.
import { $, make } from "./drawing.js";

const WIDTH = 0.1; // of the noise band, as a share of the highest frequency
const MIDDLE = 0.5; // the initial frequency of the noise band
const STRONGEST = 0.5; // root mean square of the noise, for levels from 0 to 1: more hides everything

const share = (value) => `${Math.round(100 * value)} %`;

/** The sliders in order; `off` is the value that means no change. */
const SLIDERS = [
  { id: "strength", label: "Noise", title: "Strength of the noise", off: 0, most: STRONGEST, words: (value) => value.toFixed(2) },
  { id: "frequency", label: "frequency", title: "Where the band of noise lies, in shares of the highest frequency", off: null, words: share, inset: true },
  { id: "low_pass", label: "Low-pass", title: "Keep frequencies below this share of the highest", off: 1, words: (value) => `< ${share(value)}` },
  { id: "high_pass", label: "High-pass", title: "Keep frequencies above this share of the highest", off: 0, words: (value) => `> ${share(value)}` },
];

export class Sliders {
  constructor(session, state) {
    this.state = state;
    this.frequency = MIDDLE; // also while there is no noise
    this.rows = SLIDERS.map((slider) => this.row(slider));
    this.kind = make("select", { id: "corruption", "aria-label": "Corruption" }, make("option", { value: "" }, "none"),
      ...session.corruptions.map((name) => make("option", { value: name }, name.replaceAll("_", " "))));
    this.kind.addEventListener("change", () => this.corrupt(false));
    this.severity = make("input", { type: "range", id: "severity", min: 1, max: 5, step: 1, value: 3, "aria-label": "Severity of the corruption" });
    this.listen(this.severity, (moving) => this.corrupt(moving));
    this.level = make("output", { for: "severity" });
    const corruption = make("div", { class: "slider" }, make("label", { for: "corruption" }, "Corruption"), this.kind, make("span", {}));
    this.severe = make("div", { class: "slider inset" }, make("label", { for: "severity" }, "severity"), this.severity, this.level);
    $("#sliders").replaceChildren(...this.rows.map(({ home }) => home), corruption, this.severe);
    $("#clear").addEventListener("click", () => state.set({ changes: {} }, { step: true }));
  }

  row(slider) {
    const { id, label, title, words, inset, most = 1 } = slider;
    const input = make("input", { type: "range", id, min: 0, max: most, step: 0.01, title });
    const output = make("output", { for: id });
    const home = make("div", { class: `slider${inset ? " inset" : ""}`, title }, make("label", { for: id }, label), input, output);
    this.listen(input, (moving) => this.move(slider, Number(input.value), moving));
    input.addEventListener("dblclick", () => this.move(slider, slider.off ?? MIDDLE, false));
    return { ...slider, home, input, output, words };
  }

  /** Act while a slider moves, and again when it is released, which is the step that undo reverts. */
  listen(input, act) {
    input.addEventListener("input", () => act(true));
    input.addEventListener("change", () => act(false));
  }

  move({ id, off }, value, moving) {
    const { noise } = this.state.now.changes;
    if (id === "frequency") {
      this.frequency = value;
      if (noise) this.state.change("noise", { ...noise, frequency: value }, moving);
      return this.draw();
    }
    if (id === "strength") {
      const band = { frequency: noise?.frequency ?? this.frequency, width: noise?.width ?? WIDTH };
      return this.state.change("noise", value === off ? null : { ...band, strength: value }, moving);
    }
    this.state.change(id, value === off ? null : value, moving);
  }

  corrupt(moving) {
    const name = this.kind.value;
    this.state.change("corruption", name ? { name, severity: Number(this.severity.value) } : null, moving);
  }

  draw() {
    const { changes } = this.state.now;
    this.frequency = changes.noise?.frequency ?? this.frequency;
    const values = {
      strength: changes.noise?.strength ?? 0, frequency: this.frequency,
      low_pass: changes.low_pass ?? 1, high_pass: changes.high_pass ?? 0,
    };
    for (const { id, off, home, input, output, words } of this.rows) {
      const active = id === "frequency" ? Boolean(changes.noise) : values[id] !== off;
      if (Number(input.value) !== values[id]) input.value = values[id];
      output.textContent = active || id === "frequency" ? words(values[id]) : "off";
      home.classList.toggle("active", active);
    }
    this.kind.value = changes.corruption?.name ?? "";
    if (changes.corruption) this.severity.value = changes.corruption.severity;
    this.severity.disabled = !changes.corruption;
    this.level.textContent = changes.corruption ? this.severity.value : "";
    this.severe.classList.toggle("active", Boolean(changes.corruption));
    $("#clear").disabled = !Object.keys(changes).length;
  }
}
