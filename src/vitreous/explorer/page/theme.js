// Light, dark, or as the system has it.
import { $ } from "./drawing.js";

const NAME = "vitreous-theme";
const night = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : night.matches);

/** Storage may be forbidden, as in a notebook's frame. */
function stored(value) {
  try {
    if (value) localStorage.setItem(NAME, value);
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

/** Set up the switch; `again` draws what canvases have in the theme's colours. */
export function startTheme(again) {
  const button = $("#theme");
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    again();
  };
  const known = stored();
  if (known === "light" || known === "dark") root.dataset.theme = known;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    stored(root.dataset.theme);
    show();
  });
  night.addEventListener("change", show);
  show();
}
