// Keyboard shortcuts of the page: which elements need the letters themselves.

/** Whether a key is typed into a field. Sliders and checkboxes only use arrows and space, so letters act on the page. */
export function typing(event) {
  return Boolean(event.target.matches?.("input:not([type=range], [type=checkbox]), select, textarea"));
}
