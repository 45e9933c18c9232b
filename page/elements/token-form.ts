/** Asks for a token, which stays in memory: it is gone with the page. */
import { make, setText } from "./dom.ts";

export class TokenForm {
  readonly element: HTMLElement;
  readonly #input = make("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-note token-problem",
  });
  readonly #problem = make("p", { id: "token-problem", class: "problem", role: "alert" });
  #token = "";

  /** @param note where a token comes from. @param entered called with each one */
  constructor(note: string, entered: () => void) {
    const form = make(
      "form",
      { class: "token-form" },
      make("label", { for: "token" }, "Token"),
      make("div", { class: "row" }, this.#input, make("button", { type: "submit" }, "Show")),
      make("p", { id: "token-note", class: "note" }, note),
      this.#problem,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#token = this.#input.value.trim();
      this.#input.value = "";
      entered();
    });
    this.element = make("section", { class: "card", "aria-label": "Sign in" }, make("h2", {}, "Sign in"), form);
  }

  get token(): string {
    return this.#token;
  }

  /** @param problem with the token that was entered; "": none was */
  ask(problem: string): void {
    this.#token = "";
    setText(this.#problem, problem);
    this.#input.focus();
  }
}
