// Blocks of data in the page: gzip in base64, unpacked when they are first asked for.

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

const settings = await json("settings");
