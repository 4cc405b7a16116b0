// The strip of images: choose one, or add your own by button, drop or paste.
import { $, make } from "./drawing.js";

const MOST = 20e6; // bytes of an image, as the server allows

export class Strip {
  constructor(session, state, server, say) {
    Object.assign(this, { session, state, server, say, buttons: new Map() });
    this.home = $("#strip");
    // thumbnails are loaded when they come into sight, so that they do not delay the first prediction
    this.sight = new IntersectionObserver((seen) => seen.forEach((each) => each.isIntersecting && this.load(each.target)), { root: this.home });
    this.home.replaceChildren(...session.images.map((image) => this.thumbnail(image)));
    this.home.addEventListener("keydown", (event) => this.press(event));
    this.listen();
  }

  thumbnail(image) {
    const picture = make("img", { alt: "", width: 40, height: 40 });
    const label = { title: image.label, "aria-label": `Image: ${image.label}` };
    const button = make("button", { type: "button", class: "thumbnail", ...label, tabindex: -1 }, picture);
    picture.addEventListener("load", () => button.classList.toggle("tiny", picture.naturalWidth < 80));
    button.addEventListener("click", () => this.state.set({ image: image.id }, { step: true }));
    button.dataset.image = image.id;
    this.buttons.set(image.id, button);
    this.sight.observe(button);
    return button;
  }

  load(button) {
    this.sight.unobserve(button);
    button.firstChild.src = `api/images/${encodeURIComponent(button.dataset.image)}`;
  }

  draw() {
    const { image } = this.state.now;
    for (const [id, button] of this.buttons) {
      button.setAttribute("aria-pressed", String(id === image));
      button.tabIndex = id === image ? 0 : -1;
    }
    if (image !== this.shown) this.reveal(this.buttons.get(image));
    this.shown = image;
  }

  /** Scroll the strip, and never the page. */
  reveal(button) {
    if (!button) return;
    const { offsetTop: top, offsetHeight: height } = button;
    const { scrollTop, clientHeight } = this.home;
    if (top < scrollTop) this.home.scrollTop = top - 3;
    else if (top + height > scrollTop + clientHeight) this.home.scrollTop = top + height - clientHeight + 3;
  }

  /** Choose the image that is `by` images further on; returns its id. */
  step(by) {
    const ids = [...this.buttons.keys()];
    const at = ids.indexOf(this.state.now.image) + by;
    if (ids[at]) this.state.set({ image: ids[at] }, { step: true });
    return ids[at];
  }

  press(event) {
    const across = getComputedStyle(this.home).gridTemplateColumns.split(" ").length;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    if (!by) return;
    event.preventDefault();
    const id = this.step(by);
    this.buttons.get(id)?.focus();
  }

  listen() {
    const file = $("#file");
    $("#upload").addEventListener("click", () => file.click());
    file.addEventListener("change", () => this.add([...file.files]).then(() => (file.value = "")));
    addEventListener("dragover", (event) => {
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      this.add([...event.dataTransfer.files]);
    });
    addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) this.add(files);
    });
  }

  /** Upload pictures one after the other, and show the last. */
  async add(files) {
    for (const file of files) {
      try {
        if (file.size > MOST) throw new Error(`${file.name} has ${(file.size / 1e6).toFixed(0)} MB; an image may have 20 MB.`);
        const image = await this.server.upload(file);
        this.session.images.push(image);
        this.home.append(this.thumbnail(image));
        this.state.set({ image: image.id }, { step: true });
      } catch (error) {
        this.say(error);
      }
    }
  }
}
