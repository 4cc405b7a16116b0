// Blocks of data in the page: gzip in base64, unpacked when they are first asked for.

const $ = (selector, home = document) => home.querySelector(selector);
const $$ = (selector, home = document) => [...home.querySelectorAll(selector)];

const unpacked = new Map();

/** The bytes of a block. */
function bytes(id) {
  if (!unpacked.has(id)) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(id, new Response(stream).arrayBuffer().then((buffer) => new Uint8Array(buffer)));
  }
  return unpacked.get(id);
}

const text = async (id) => new TextDecoder().decode(await bytes(id));
const json = async (id) => JSON.parse(await text(id));

/** An element with attributes and children; text is text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? (name.startsWith("aria-") ? "true" : "") : value);
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

const settings = await json("settings");
