// Filter verdicts by paper, outcome and words. The script only hides verdicts; without it all are visible.

const filters = $(".filters");
if (filters) {
  const paper = $("#verdict-paper");
  const search = $("#verdict-text");
  const chips = $$("[data-outcome]", filters);
  const every = $$(".verdict");
  const words = new Map(every.map((each) => [each, each.textContent.toLowerCase()]));

  /** Show the verdicts of the chosen paper that have one of the chosen outcomes and contain every typed word. */
  function filter() {
    const outcomes = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.outcome);
    const typed = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of every) {
      const isOfPaper = !paper.value || each.closest("[data-paper]").dataset.paper === paper.value;
      const hasOutcome = !outcomes.length || outcomes.includes(each.dataset.outcome);
      each.hidden = !(isOfPaper && hasOutcome && typed.every((word) => words.get(each).includes(word)));
    }
    for (const list of $$(".lacking")) {
      list.hidden = !$(".verdict:not([hidden])", list);
      if (typed.length && !list.hidden) list.open = true;
    }
    for (const section of $$(".verdicts")) {
      section.hidden = !$(".verdict:not([hidden])", section);
      if ((typed.length || outcomes.length) && !section.hidden) section.open = true;
    }
    const shown = every.filter((each) => !each.hidden).length;
    $("#verdict-count").textContent = shown === every.length ? "" : `${shown} of ${every.length}`;
  }

  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  paper.addEventListener("change", filter);
  search.addEventListener("input", filter);
  filters.hidden = false;
  filter();

  // a link to a finding that is filtered out shows it
  addEventListener("wanted", (event) => {
    if (!every.includes(event.target)) return;
    paper.value = search.value = "";
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    filter();
  });
}
