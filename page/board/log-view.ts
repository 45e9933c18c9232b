/** The log of one container, as it is written. */
import { make, setText } from "../elements/dom.ts";
import { printableText } from "../elements/format.ts";
import type { PageClient } from "../elements/page-client.ts";
import type { NamedPod } from "./pods-view.ts";

const FIRST_LINES = 200;
/** Bounds the memory of the page: what is older is dropped. */
const MAX_CHARACTERS = 400_000;
/** A reader who is so near to the end wants to see what comes. */
const FOLLOW_PX = 40;

export class LogView implements Disposable {
  readonly element: HTMLElement;
  readonly #client: PageClient;
  readonly #title = make("h3", { tabindex: -1 });
  readonly #state = make("p", { class: "note", role: "status" });
  readonly #text = make("pre", { class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Log" });
  #life = new AbortController();

  constructor(client: PageClient) {
    this.#client = client;
    const close = make("button", { type: "button" }, "Close the log");
    close.addEventListener("click", () => this.#close());
    this.element = make(
      "div",
      { class: "log-panel", hidden: true },
      make("div", { class: "title" }, this.#title, close),
      this.#state,
      this.#text,
    );
  }

  open(pod: NamedPod, container: string): void {
    this.#life.abort();
    this.#life = new AbortController();
    const opener = document.activeElement;
    this.#life.signal.addEventListener("abort", () => {
      if (this.element.hidden && opener instanceof HTMLElement) opener.focus();
    });
    this.element.hidden = false;
    setText(this.#title, `Log of ${container} in ${pod.name}`);
    this.#text.replaceChildren();
    this.#text.hidden = true;
    void this.#follow(pod, container, this.#life.signal);
    this.element.scrollIntoView({ block: "nearest" });
    this.#title.focus({ preventScroll: true });
  }

  [Symbol.dispose](): void {
    this.#life.abort();
  }

  #close(): void {
    this.element.hidden = true;
    this.#life.abort();
  }

  async #follow({ namespace, name }: NamedPod, container: string, signal: AbortSignal): Promise<void> {
    const path = ["log", namespace, name].map(encodeURIComponent).join("/");
    const query = `follow=true&tailLines=${FIRST_LINES}&container=${encodeURIComponent(container)}`;
    try {
      setText(this.#state, `The last ${FIRST_LINES} lines, and what is written now.`);
      for await (const piece of this.#client.pieces(`${path}?${query}`, signal)) this.#add(printableText(piece));
      if (!signal.aborted) setText(this.#state, "The container has ended; this is the end of its log.");
    } catch (error) {
      if (signal.aborted) return;
      setText(this.#state, `The log cannot be read: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #add(piece: string): void {
    const log = this.#text;
    log.hidden = false;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < FOLLOW_PX;
    log.append(piece);
    for (let length = log.textContent.length; length > MAX_CHARACTERS; ) {
      const first = log.firstChild;
      if (first === null) break;
      length -= first.textContent?.length ?? 0;
      first.remove();
    }
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}
