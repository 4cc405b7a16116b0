// Notes to the reader: errors as one sentence, and a message that the server does not respond.
import { $, make } from "./drawing.js";

const LOST =
  "The server does not answer. If it was stopped, start vitreous live again and open the new address; " +
  "this view is in the part behind #.";
const STAYS = 8000; // milliseconds

/** Show a sentence, which disappears after a while. */
export function say(error) {
  const words = error instanceof Error ? error.message : String(error);
  const place = $("#notes");
  if ([...place.children].some((note) => note.dataset.words === words)) return;
  const close = make("button", { type: "button", class: "close", "aria-label": "Dismiss" }, "×");
  const note = make("p", { class: "note", "data-words": words }, make("span", {}, words), close);
  const leave = setTimeout(() => note.remove(), STAYS);
  close.addEventListener("click", () => (clearTimeout(leave), note.remove()));
  place.append(note);
}

/** Show that the server does not respond, until `retry` succeeds. */
export function sayLost(retry) {
  if ($(".lost")) return;
  const again = make("button", { type: "button" }, "Try again");
  const note = make("p", { class: "lost", role: "alert" }, make("span", {}, LOST), again);
  again.addEventListener("click", async () => {
    again.disabled = true;
    if (await retry()) note.remove();
    again.disabled = false;
  });
  document.body.append(note);
}
