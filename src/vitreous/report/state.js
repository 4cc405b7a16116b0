// The state of the page in the URL: #section?models=…&open=…&theme=…&attention=…

let section = ""; // the section that was visited last

/** The state of the page, as the fragment of the URL. */
function currentState() {
  const query = new URLSearchParams();
  if (chosen.length) query.set("models", chosen.map(encodeURIComponent).join(","));
  const open = $$(".fold[open]").filter((fold) => fold.dataset.fold).map((fold) => `${fold.closest("section").id}.${fold.dataset.fold}`);
  if (open.length) query.set("open", open.length > 40 ? "all" : open.join(","));
  if (document.documentElement.dataset.theme) query.set("theme", document.documentElement.dataset.theme);
  const attention = attentionState();
  if (attention) query.set("attention", attention);
  const words = query.toString();
  return words ? `${section}?${words}` : section;
}

let restoring = false;
/** Update the URL without adding an entry to the history. */
function remember() {
  if (restoring) return;
  const wanted = currentState();
  if (`#${wanted}` !== (location.hash || "#")) history.replaceState(null, "", wanted ? `#${wanted}` : location.pathname + location.search);
}

/** Restore the state that the URL holds. */
function restore() {
  restoring = true;
  const [where, words] = location.hash.slice(1).split("?");
  const query = new URLSearchParams(words ?? "");
  const models = (query.get("models") ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  if (words !== undefined) {
    const open = (query.get("open") ?? "").split(",");
    for (const fold of $$(".fold[data-fold]")) {
      fold.open = open[0] === "all" || open.includes(`${fold.closest("section").id}.${fold.dataset.fold}`);
    }
    setTheme(query.get("theme"));
    chooseModels(models.filter((name) => settings.models.includes(name)));
    if (query.get("attention")) setAttentionState(query.get("attention"));
  }
  restoring = false;
  if (where) go(where);
}

/** Scroll to a section, or to an element in it, and open all folds around it. */
function go(id, element = document.getElementById(id)) {
  if (!element) return;
  for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  if (element.hidden) element.dispatchEvent(new Event("wanted", { bubbles: true }));
  element.scrollIntoView();
  for (const each of $$(".target")) each.classList.remove("target");
  element.classList.add("target");
  section = id;
  remember();
}

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const id = decodeURIComponent((link.getAttribute("href") ?? "").slice(1));
  if (!document.getElementById(id)) return;
  event.preventDefault();
  const before = location.hash;
  go(id);
  const after = location.hash;
  if (before === after) return;
  history.replaceState(null, "", before || location.pathname + location.search);
  history.pushState(null, "", after); // links are steps in the history, other changes are not
  if (id === "main") $("#main").focus();
});
addEventListener("popstate", restore);
addEventListener("toggle", (event) => event.target.matches?.(".fold") && remember(), true);
addEventListener("statechange", remember);
