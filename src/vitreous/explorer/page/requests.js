// Requests to the server: aborts stale requests, turns errors into one sentence, and notices a server that has stopped.

/** An error whose message is shown to the reader as it is. */
export class Refused extends Error {}

export class Server {
  constructor() {
    this.page = crypto.randomUUID();
    this.serial = 0;
    this.gone = false;
  }

  /** Ask, and return the response. Raises `Refused` with one sentence, or `AbortError`. */
  async fetch(route, options = {}) {
    let response;
    try {
      response = await fetch(`api/${route}`, { ...options, cache: "no-store", credentials: "same-origin" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.gone = true;
      throw new Refused("The server does not answer any more.");
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => ({}));
    const refused = new Refused(body.error ?? `The server answered with status ${response.status}.`);
    refused.stale = response.status === 409;
    throw refused;
  }

  get(route) {
    return this.fetch(route);
  }

  post(route, body, signal) {
    const content = JSON.stringify({ ...body, page: this.page, serial: ++this.serial });
    return this.fetch(route, { method: "POST", headers: { "Content-Type": "application/json" }, body: content, signal });
  }

  async upload(file) {
    const headers = { "Content-Type": "application/octet-stream", "X-Name": encodeURIComponent(file.name || "image") };
    return (await this.fetch("upload", { method: "POST", headers, body: file })).json();
  }
}

/**
 * Requests of one kind, of which only the newest matters. While a slider moves (`moving`), the running request may finish
 * before the newest is sent, so that something is always drawn; otherwise a new request aborts it.
 */
export class Channel {
  constructor(server, route, read, { failed, changed }) {
    Object.assign(this, { server, route, read, failed, changed, asked: null, next: null, under: null });
  }

  /** Send a request unless it equals the last one; `show` gets the response as read by `read`. */
  ask(body, show, moving = false) {
    const key = JSON.stringify(body);
    if (key === this.asked) return;
    this.asked = key;
    this.next = { body, show };
    if (this.under && moving) return;
    this.under?.abort();
    this.run();
  }

  /** Forget the last request, so that the next one is sent even if it is the same. */
  forget() {
    this.asked = null;
  }

  async run() {
    while (this.next) {
      const { body, show } = this.next;
      const turn = new AbortController();
      [this.next, this.under] = [null, turn];
      this.changed();
      try {
        const found = await this.read(await this.server.post(this.route, body, turn.signal));
        if (this.under !== turn) return;
        show(found);
      } catch (error) {
        if (this.under !== turn) return; // a newer one has taken over
        if (error.name !== "AbortError" && !error.stale) {
          this.forget();
          this.failed(error);
        }
      }
      if (this.under === turn) this.under = null;
      this.changed();
    }
  }
}

/** Decode the maps of `pack_maps`: the length of a header, the header in JSON, and the shares of all maps in its order. */
export async function readMaps(response) {
  const buffer = await response.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const floats = new Float32Array(buffer, 4 + length);
  let at = 0;
  const rows = ({ heads, prefix, keys }) => Array.from({ length: heads }, () => {
    const count = prefix + keys[0] * keys[1];
    at += count;
    return floats.subarray(at - count, at);
  });
  return header.models.map((units, index) => ({ units: units.map((unit) => ({ ...unit, rows: rows(unit) })), why: header.why?.[index] }));
}
