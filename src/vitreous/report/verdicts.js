// Verdicts: by paper, by outcome, by what they say. The script only hides; without it everything is there.

const filters = $(".filters");
if (filters) {
  const paper = $("#verdict-paper");
  const wanted = $("#verdict-text");
  const chosen = $$("[data-outcome]", filters);
  const every = $$(".verdict");
  const words = new Map(every.map((each) => [each, each.textContent.toLowerCase()]));

  /** Of one paper, with one of the chosen outcomes, and with every word that was typed. */
  function filter() {
    const outcomes = chosen.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.outcome);
    const typed = wanted.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of every) {
      const here = !paper.value || each.closest("[data-paper]").dataset.paper === paper.value;
      const so = !outcomes.length || outcomes.includes(each.dataset.outcome);
      each.hidden = !(here && so && typed.every((word) => words.get(each).includes(word)));
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

  for (const chip of chosen) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  paper.addEventListener("change", filter);
  wanted.addEventListener("input", filter);
  filters.hidden = false;
  filter();

  // a link to a finding that is filtered out shows it
  addEventListener("wanted", (event) => {
    if (!every.includes(event.target)) return;
    paper.value = wanted.value = "";
    for (const chip of chosen) chip.setAttribute("aria-pressed", "false");
    filter();
  });
}
