// Elements: found, made, and content handed over as a file.

const $ = (selector, home = document) => home.querySelector(selector);
const $$ = (selector, home = document) => [...home.querySelectorAll(selector)];

/** An element with attributes and children; text is text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    const present = name.startsWith("aria-") ? "true" : "";
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? present : value);
  }
  element.append(...children);
  return element;
}

/** Hand content to the reader as a file. */
function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
