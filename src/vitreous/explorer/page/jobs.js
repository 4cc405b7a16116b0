// Jobs: measure an edit over the dataset, save the view as a report, show it as Python code.
import { $, make, percent } from "./drawing.js";
import { openDialog } from "./dialogs.js";
import { requestBody } from "./state.js";
import { points } from "./words.js";

const EVERY = 300; // milliseconds between two requests for the status of a job

export class Jobs {
  constructor(session, state, server, say) {
    Object.assign(this, { session, state, server, say, running: null });
    this.place = $("#job");
    $("#measure").addEventListener("click", () => this.start("measure"));
    $("#report").addEventListener("click", () => this.start("report"));
    $("#python").addEventListener("click", () => this.python());
  }

  /** Update the buttons, and mark a result as stale if edits or changes are no longer those it was measured with. */
  draw() {
    const { edits, changes } = this.state.now;
    const some = edits.length > 0 || Object.keys(changes).length > 0;
    $("#measure").disabled = !some || Boolean(this.running);
    $("#measure").title = some ? "Accuracy over the dataset, before and after" : "Edit a unit or change the image first";
    $("#report").disabled = Boolean(this.running);
    const stale = this.measured && this.measured !== this.key();
    this.place.classList.toggle("stale", Boolean(stale));
  }

  /** What a result depends on. */
  key({ edits, changes, mirror } = requestBody(this.state.now)) {
    return JSON.stringify([edits, changes, mirror]);
  }

  async start(kind) {
    const key = this.key();
    await this.run(kind, key, async () => (await (await this.server.post(kind, requestBody(this.state.now))).json()).job);
  }

  /** Follow the newest job that a page began and no page has the result of, such as this one before it was reloaded. */
  async resume() {
    try {
      const { jobs } = await (await this.server.get("pending")).json();
      const last = jobs.at(-1);
      if (last && !this.running) await this.run(last.kind, this.key(last), () => last.job);
    } catch (error) {
      this.say(error);
    }
  }

  /** Follow the job that `begin` returns. */
  async run(kind, key, begin) {
    try {
      const job = await begin();
      this.running = job;
      this.measured = kind === "measure" ? key : null;
      this.draw();
      await this.follow(job, kind);
    } catch (error) {
      this.place.replaceChildren();
      this.say(error);
    }
    this.running = null;
    this.draw();
  }

  /** Poll a job until it is done, show its progress, and offer to cancel it. */
  async follow(job, kind) {
    const words = make("span", { class: "words" }, kind === "measure" ? "Measuring …" : "Writing the report …");
    const bar = make("progress", { max: 1, "aria-label": "Progress" });
    const cancel = make("button", { type: "button" }, "Cancel");
    cancel.addEventListener("click", () => {
      this.running = null;
      this.server.fetch(`jobs/${encodeURIComponent(job)}`, { method: "DELETE" }).catch(this.say);
    });
    this.place.replaceChildren(make("div", { class: "progress" }, words, bar, cancel));
    while (this.running === job) {
      const now = await (await this.server.get(`jobs/${encodeURIComponent(job)}`)).json();
      if (now.error) throw new Error(now.error);
      if (now.result) return this.finish(now.result, kind);
      if (now.cancelled) break; // in another tab
      if (now.of) {
        bar.value = now.done / now.of;
        const left = now.seconds_left ? `, ${Math.ceil(now.seconds_left)} s left` : "";
        words.textContent = `${now.done} of ${now.of}${left}`;
      }
      await new Promise((done) => setTimeout(done, EVERY));
    }
    this.place.replaceChildren(make("p", { class: "quiet" }, "Cancelled."));
  }

  finish(result, kind) {
    if (kind === "report") {
      const link = make("a", { href: result.url, target: "_blank", rel: "noopener" }, "Open the report");
      return this.place.replaceChildren(make("p", {}, link, make("span", { class: "quiet" }, ` Saved as ${result.file}`)));
    }
    const found = result.models ?? [result];
    this.place.replaceChildren(...found.map((each, index) => this.cost(each, index, found.length)));
  }

  /** What an edit costs one model, with its interval. */
  cost({ accuracy, words, why }, index, many) {
    const line = make("p", { class: "result" });
    if (many > 1) line.append(make("span", { class: `dot model-${index}` }));
    if (accuracy) {
      line.append(make("b", {}, `${points(accuracy.difference)} points`), " ");
      line.title = `${percent(accuracy.before)} before, ${percent(accuracy.after)} after`;
      Object.assign(line.dataset, { before: accuracy.before, after: accuracy.after });
    }
    line.append(make("span", {}, words ?? why ?? ""));
    return line;
  }

  async python() {
    try {
      const { text } = await (await this.server.post("python", requestBody(this.state.now))).json();
      const copied = await navigator.clipboard.writeText(text).then(() => true, () => false);
      const code = make("pre", { tabindex: 0, "aria-label": "Python code" }, text);
      openDialog("The same in Python", make("p", { class: "quiet" }, copied ? "Copied to the clipboard." : "Select and copy it."), code);
      if (!copied) getSelection().selectAllChildren(code);
    } catch (error) {
      this.say(error);
    }
  }
}
