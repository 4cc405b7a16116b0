// Keys of the whole page: which elements keep their letters to themselves.

/** Whether a key goes into a field. Sliders and boxes to tick take arrows and space only, so letters act on the page. */
export function typing(event) {
  return Boolean(event.target.matches?.("input:not([type=range], [type=checkbox]), select, textarea"));
}
