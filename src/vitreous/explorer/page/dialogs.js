// Dialogs: any content, and the list of keys.
import { make } from "./drawing.js";

/** Open a dialog with a title; Escape and a button close it. */
export function openDialog(title, ...content) {
  document.querySelector("dialog[open]")?.close();
  const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  const heading = make("h2", { id: "dialog-title" }, title);
  const dialog = make("dialog", { "aria-labelledby": "dialog-title" }, make("div", { class: "bar" }, heading, close), ...content);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const KEYS = [
  ["Image", [["← → ↑ ↓", "on the image: move the patch that is followed"], ["X", "on the image: occlude that patch"],
    ["C", "follow the class token, or the patch again"], [", .", "previous and next image"]]],
  ["Units", [["← → ↑ ↓", "on a unit: choose another"], ["Enter", "on a unit: what can be done to it"], ["O", "switch the chosen unit off"],
    ["S", "remove the skip around it"], ["U M B", "attention uniform, its mean, a 3×3 box"]]],
  ["View", [["1 2 3", "attention, stream, rollout"], ["← → ↑ ↓", "on small maps: another layer or head"]]],
  ["Page", [["Ctrl Z", "undo"], ["Ctrl Shift Z", "redo"], ["R", "reset everything"], ["Esc", "close what is open"], ["?", "this list"]]],
];

export function openKeys() {
  const groups = KEYS.map(([name, keys]) => {
    const rows = keys.flatMap(([key, words]) => [make("dt", {}, ...key.split(" ").map((each) => make("kbd", {}, each))), make("dd", {}, words)]);
    return make("section", {}, make("h3", {}, name), make("dl", {}, ...rows));
  });
  openDialog("Keys", make("div", { class: "keys" }, ...groups));
}
