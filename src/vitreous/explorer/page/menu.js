// The menu of a unit: its possible edits, by pointer, arrow keys or letters.
import { make } from "./drawing.js";
import { ACTIONS, TITLES } from "./words.js";

let close = () => {};

/** Open the menu of a unit at its chip; the chip gets the focus back. */
export function openMenu(chip, state, model, unit) {
  close();
  const made = state.editsOf(model, unit.name).map(({ what }) => what);
  const act = (what) => {
    close();
    state.toggle(model, unit.name, what);
  };
  const items = unit.edits.map((what) => {
    const { button, key } = ACTIONS[what];
    const role = { role: "menuitemcheckbox", "aria-checked": String(made.includes(what)) };
    const item = make("button", { type: "button", ...role, tabindex: -1, title: TITLES[what] },
      make("span", {}, button), make("kbd", {}, key.toUpperCase()));
    item.addEventListener("click", () => act(what));
    return item;
  });
  const menu = make("div", { class: "menu", role: "menu", "aria-label": `What to do to ${unit.name}` }, ...items);
  if (!items.length) menu.append(make("p", {}, "Nothing can be changed here."));
  const outside = (event) => menu.contains(event.target) || close();
  close = () => {
    removeEventListener("pointerdown", outside, true);
    const focused = menu.contains(document.activeElement);
    menu.remove();
    if (focused) chip.focus();
    close = () => {};
  };
  menu.addEventListener("keydown", (event) => press(event, items, unit, act));
  menu.addEventListener("focusout", (event) => event.relatedTarget && !menu.contains(event.relatedTarget) && close());
  addEventListener("pointerdown", outside, true);
  document.body.append(menu);
  place(menu, chip.getBoundingClientRect());
  (items[0] ?? menu).focus();
}

/** Below the chip, or above where there is no room. */
function place(menu, box) {
  const { width, height } = menu.getBoundingClientRect();
  const below = box.bottom + height + 8 < innerHeight;
  menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - width - 8))}px`;
  menu.style.top = `${below ? box.bottom + 3 : Math.max(4, box.top - height - 3)}px`;
}

function press(event, items, unit, act) {
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  const what = unit.edits.find((name) => ACTIONS[name].key === event.key.toLowerCase());
  if (to !== undefined) items[(to + items.length) % items.length]?.focus();
  else if (event.key === "Escape" || event.key === "Tab") close();
  else if (what && !event.ctrlKey && !event.metaKey) act(what);
  else return;
  event.preventDefault();
  event.stopPropagation();
}
