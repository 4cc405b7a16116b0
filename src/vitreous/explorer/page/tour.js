// Six steps through the page, on first use with the bundled models and whenever asked for.
import { $, make } from "./drawing.js";

const STEPS = [
  ["#image", "Follow a patch", "Click anywhere in the image. The patch under the pointer is followed through the model."],
  ["#inside", "See what it attends to", "One column a layer: the mean of its heads, then each head. Point at a map to enlarge it, click to keep it."],
  ["#anatomy", "Take the model apart", "Each row is a block, each chip a unit. Choose one and press O to switch it off. Several edits add up."],
  ["#prediction", "Watch the prediction", "Bars show the model as it is now; the thin mark is where it was. Undo, redo and reset stand below."],
  ["#sliders", "Disturb the image", "Move noise through the frequencies, filter or corrupt the image. Shift and drag on the image to occlude a part."],
  ["#jobs", "Make it a measurement", "Measure an edit over the dataset, save the view as a report, or copy it as Python. The address keeps the view."],
];
const SEEN = "vitreous-tour";

/** Storage may be forbidden, as in a notebook's frame; then the tour is offered each time. */
function remembered(value) {
  try {
    if (value) localStorage.setItem(SEEN, value);
    return localStorage.getItem(SEEN);
  } catch {
    return null;
  }
}

let leave = () => {};

export function startTour() {
  leave();
  let at = 0;
  const title = make("h2", { id: "tour-title" });
  const words = make("p", { id: "tour-words" });
  const place = make("span", { class: "quiet" });
  const back = make("button", { type: "button" }, "Back");
  const next = make("button", { type: "button", class: "main" }, "Next");
  const stop = make("button", { type: "button", class: "close", "aria-label": "End the tour" }, "×");
  const card = make("div", { class: "tour", role: "dialog", "aria-labelledby": "tour-title", "aria-describedby": "tour-words" },
    make("div", { class: "bar" }, title, stop), words, make("div", { class: "bar" }, place, make("span", { class: "buttons" }, back, next)));
  const go = (to) => {
    if (to >= STEPS.length) return leave();
    at = Math.max(0, to);
    const [selector, heading, text] = STEPS[at];
    document.querySelector(".toured")?.classList.remove("toured");
    const target = $(selector);
    target.classList.add("toured");
    target.scrollIntoView({ block: "nearest" });
    [title.textContent, words.textContent, place.textContent] = [heading, text, `${at + 1} of ${STEPS.length}`];
    next.textContent = at === STEPS.length - 1 ? "Done" : "Next";
    back.disabled = at === 0;
    position(card, target.getBoundingClientRect());
  };
  const press = (event) => event.key === "Escape" && leave();
  const settle = () => go(at);
  leave = () => {
    remembered("seen");
    removeEventListener("keydown", press);
    removeEventListener("resize", settle);
    document.querySelector(".toured")?.classList.remove("toured");
    card.remove();
    leave = () => {};
    $("#tour-button").focus();
  };
  next.addEventListener("click", () => go(at + 1));
  back.addEventListener("click", () => go(at - 1));
  stop.addEventListener("click", () => leave());
  addEventListener("keydown", press);
  addEventListener("resize", settle);
  document.body.append(card);
  go(0);
  next.focus({ preventScroll: true });
}

/** Beside its target, on the side with more room. */
function position(card, box) {
  const { width, height } = card.getBoundingClientRect();
  const fits = (value, size, room) => Math.max(8, Math.min(value, room - size - 8));
  const beside = [innerWidth - box.right, box.left].map((room) => room > width + 20);
  const middle = fits(box.top + box.height / 2 - height / 2, height, innerHeight);
  let [left, top] = [fits(box.left + box.width / 2 - width / 2, width, innerWidth), middle];
  if (beside[0]) left = box.right + 12;
  else if (beside[1]) left = box.left - width - 12;
  else top = box.top > height + 20 ? box.top - height - 12 : fits(box.bottom + 12, height, innerHeight);
  Object.assign(card.style, { left: `${left}px`, top: `${top}px` });
}

/** The first visit to the bundled models begins with the tour. */
export function offerTour(session) {
  if (session.demo && !remembered()) startTour();
}
