// The live explorer: reads the session, then keeps image, anatomy, prediction and panel in step with one state.
import { Anatomies } from "./anatomy.js";
import { AttentionPanel } from "./attention_panel.js";
import { openKeys } from "./dialogs.js";
import { $, $$ } from "./drawing.js";
import { Jobs } from "./jobs.js";
import { typing } from "./keys.js";
import { say, sayLost } from "./notes.js";
import { Picture } from "./picture.js";
import { Predictions } from "./prediction.js";
import { Channel, Server, readMaps } from "./requests.js";
import { Sliders } from "./sliders.js";
import { PANELS, State, requestBody } from "./state.js";
import { StreamPanel } from "./stream_panel.js";
import { Strip } from "./strip.js";
import { startTheme } from "./theme.js";
import { offerTour, startTour } from "./tour.js";
import { count } from "./words.js";

const ABOUT = {
  attention: "One column a layer: the mean of its heads, then each head. Point to enlarge, click to choose.",
  stream: "What the chosen unit hands on: its norm at each position, its first three principal components as colours, its spectrum.",
  rollout: "Attention multiplied through all layers, skips included: what has reached the patch that is followed.",
};

class Explorer {
  constructor(session, server) {
    Object.assign(this, { session, server, inForce: null });
    this.state = new State(session);
    const { state } = this;
    this.strip = new Strip(session, state, server, (error) => this.failed(error));
    this.picture = new Picture(session, state);
    this.sliders = new Sliders(session, state);
    this.anatomies = new Anatomies(session, state);
    this.predictions = new Predictions(session, state);
    this.jobs = new Jobs(session, state, server, (error) => this.failed(error));
    this.panels = {
      attention: new AttentionPanel(session, state, false),
      stream: new StreamPanel(session, state),
      rollout: new AttentionPanel(session, state, true),
    };
    this.open();
    this.head();
    this.listen();
  }

  /** One channel for each route. */
  open() {
    const callbacks = { failed: (error) => this.failed(error), changed: () => this.busy() };
    const json = (response) => response.json();
    const channel = (route, read) => new Channel(this.server, route, read, callbacks);
    this.channels = {
      view: channel("view", json),
      picture: channel("picture", async (response) => createImageBitmap(await response.blob())),
      attention: channel("attention", readMaps),
      rollout: channel("rollout", readMaps),
      stream: channel("stream", json),
    };
  }

  head() {
    const { models } = this.session;
    document.title = `${models.map(({ name }) => name).join(" and ")} · Vitreous live`;
    const { data, shown, of, device } = this.session;
    const many = of > shown ? `${shown} of ${of} images` : count(of, "image");
    $("#data").textContent = [data, many, device].filter(Boolean).join(" · ");
    $("#mirroring").hidden = models.length < 2;
    const attends = models.some(({ units }) => units.some((unit) => unit.attention));
    for (const name of ["attention", "rollout"]) {
      $(`#tab-${name}`).disabled = !attends;
      if (!attends) $(`#tab-${name}`).title = "No unit has attention that could be shown";
    }
    document.body.dataset.models = models.length;
  }

  listen() {
    const { state } = this;
    state.addEventListener("change", ({ detail }) => this.update(detail.before, detail.moving));
    $("#mirror").addEventListener("change", (event) => state.set({ mirror: event.target.checked }, { step: true }));
    for (const tab of $$("[role=tab]")) tab.addEventListener("click", () => this.turn(tab.dataset.panel));
    $("[role=tablist]").addEventListener("keydown", (event) => this.walkTabs(event));
    $("#help-button").addEventListener("click", openKeys);
    $("#tour-button").addEventListener("click", startTour);
    addEventListener("keydown", (event) => this.press(event));
  }

  turn(panel) {
    this.state.set({ panel }, { step: true });
  }

  walkTabs(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tabs = $$("[role=tab]:not(:disabled)");
    const next = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
    next.focus();
    this.turn(next.dataset.panel);
  }

  press(event) {
    if (event.defaultPrevented || $("dialog[open]")) return;
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    const keys = control
      ? { z: () => (event.shiftKey ? this.state.redo() : this.state.undo()), y: () => this.state.redo() }
      : {
          "?": openKeys, c: () => this.picture.askToken(), r: () => this.state.reset(),
          ",": () => this.strip.step(-1), ".": () => this.strip.step(1),
          1: () => this.turnTo(0), 2: () => this.turnTo(1), 3: () => this.turnTo(2),
        };
    if (typing(event) || event.altKey || !Object.hasOwn(keys, key)) return;
    event.preventDefault();
    keys[key]();
  }

  turnTo(number) {
    const tab = $(`#tab-${PANELS[number]}`);
    if (!tab.disabled) this.turn(PANELS[number]);
  }

  /** Draw what is known at once, and request the rest from the server. */
  update(before, moving) {
    const { now } = this.state;
    if (before.edits !== now.edits || before.mirror !== now.mirror) this.inForce = null;
    this.drawControls();
    this.ask(moving);
  }

  drawControls() {
    const { now } = this.state;
    $("#mirror").checked = now.mirror;
    this.strip.draw();
    this.picture.draw();
    this.sliders.draw();
    this.anatomies.draw(this.inForce);
    this.predictions.drawForce(this.inForce);
    this.jobs.draw();
    for (const tab of $$("[role=tab]")) {
      const chosen = tab.dataset.panel === now.panel;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    $("#about").textContent = ABOUT[now.panel];
    const panel = this.panels[now.panel];
    if ($("#panel").firstChild !== panel.home) $("#panel").replaceChildren(panel.home);
    $("#panel").setAttribute("aria-labelledby", `tab-${now.panel}`);
    panel.draw?.();
  }

  ask(moving) {
    const { now } = this.state;
    const { image, changes, edits, mirror, query, unit } = requestBody(now);
    const shown = { image, changes, edits, mirror };
    this.channels.view.ask(shown, (view) => this.showView(view), moving);
    this.channels.picture.ask({ image, changes }, (picture) => this.showPicture(picture), moving);
    const panel = this.panels[now.panel];
    const asked = now.panel === "stream" ? { ...shown, unit } : { ...shown, query };
    this.channels[now.panel].ask(asked, (models) => panel.show(now.panel === "stream" ? models.models : models), moving);
  }

  /** Mark the page as busy while a response is pending. */
  busy() {
    const pending = Object.values(this.channels).some((channel) => channel.under || channel.next);
    document.documentElement.toggleAttribute("data-busy", pending);
  }

  showView(view) {
    this.inForce = view.models.map(({ edits, refused }) => ({ edits, refused: refused.map(({ edit, why }) => ({ ...edit, why })) }));
    this.predictions.draw(view);
    this.anatomies.draw(this.inForce);
    this.predictions.drawForce(this.inForce);
  }

  showPicture(picture) {
    this.picture.show(picture);
    this.panels.attention.draw(picture);
    this.panels.rollout.draw(picture);
  }

  failed(error) {
    if (!this.server.gone) return say(error);
    sayLost(async () => {
      this.server.gone = false;
      await this.server.get("session").catch(() => {});
      if (this.server.gone) return false;
      for (const channel of Object.values(this.channels)) channel.forget();
      this.ask(false);
      this.jobs.resume();
      return true;
    });
  }

  start() {
    const unfit = this.state.read();
    if (unfit) say("Parts of this address do not fit these models and images; they were left out.");
    this.state.write(false);
    startTheme(() => this.drawControls());
    offerTour(this.session);
    this.jobs.resume();
    document.documentElement.dataset.ready = "";
  }
}

const server = new Server();
try {
  const session = await (await server.get("session")).json();
  new Explorer(session, server).start();
} catch (error) {
  say(error);
  if (server.gone) sayLost(async () => (location.reload(), false));
}
