/** Asks before a pod is restarted or deleted, has the board do it, and says what has become of the pod. */
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import { make, setAttributes, setText } from "../elements/dom.ts";
import type { PageClient } from "../elements/page-client.ts";
import type { PodReport } from "./pods-view.ts";

const RESTART = "All its containers end within their grace period, and start again from the beginning.";
/** Sentences that say what a deletion means for a pod, by its source. */
const DELETION: Readonly<Record<string, string>> = {
  api: "Its containers end for good on this board. Its hub decides what follows.",
  push: "It was applied on this board. Its containers end, and it is wanted no more.",
};
const KEPT = "Its source would bring it back at once, so the board refuses this: remove it there, or restart it.";

export class PodChangeView implements Disposable {
  /** The result of the last change, the dialog, and the way to a token. */
  readonly element: HTMLElement;
  readonly #client: PageClient;
  readonly #life = new AbortController();
  readonly #result = make("p", { role: "status" });
  readonly #title = make("h2", { id: "change-title" });
  readonly #meaning = make("p", { id: "change-meaning" });
  readonly #confirm = make("button", { type: "button" });
  readonly #dialog: HTMLDialogElement;
  #action: PodAction | undefined;

  /** @param signIn called when a user wants to enter a token; undefined: the page asks for it elsewhere */
  constructor(client: PageClient, signIn: (() => void) | undefined) {
    this.#client = client;
    const cancel = make("button", { type: "button", autofocus: true }, "Cancel");
    cancel.addEventListener("click", () => this.#dialog.close());
    this.#confirm.addEventListener("click", () => void this.#change());
    const buttons = make("div", { class: "row" }, cancel, this.#confirm);
    const labels = { "aria-labelledby": "change-title", "aria-describedby": "change-meaning" };
    this.#dialog = make("dialog", labels, this.#title, this.#meaning, buttons);
    this.element = make("div", {}, this.#result, this.#dialog);
    if (signIn === undefined) return;
    const text = client.hasToken ? "Sign in as another user" : "Sign in to restart and delete pods";
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", signIn);
    this.element.append(button);
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    this.#dialog.close();
  }

  ask(verb: PodAction["verb"], { namespace, name, source }: PodReport): void {
    this.#action = { verb, namespace, name };
    const deed = verb === "restart" ? "Restart" : "Delete";
    setText(this.#title, `${deed} ${namespace}/${name}?`);
    setText(this.#meaning, verb === "restart" ? RESTART : (DELETION[source] ?? KEPT));
    setText(this.#confirm, deed);
    this.#dialog.showModal();
  }

  async #change(): Promise<void> {
    this.#dialog.close();
    const action = this.#action;
    this.#action = undefined;
    if (action === undefined) return;
    this.#show("The board is asked …", "note");
    try {
      this.#show(await this.#client.change(action, this.#life.signal), "note");
    } catch (error) {
      this.#show(error instanceof Error ? error.message : String(error), "problem");
    }
  }

  #show(sentence: string, kind: "note" | "problem"): void {
    setAttributes(this.#result, { class: kind });
    setText(this.#result, sentence);
  }
}
