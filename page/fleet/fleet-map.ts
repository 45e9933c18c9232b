/** The map of states: a cell for each board, by name. Its numbers are beside it, for those who do not see it. */
import { make, setAttributes, setText } from "../elements/dom.ts";
import type { FleetLetter } from "./fleet-model.ts";

const GAP = 1;
const LEAST_CELL = 4;
const MOST_CELL = 22;
/** Bounds the height: a map of 10,000 boards fits on a desk's screen. */
const MOST_HEIGHT = 420;
/** Names of the page's colours. */
const COLORS: Readonly<Record<FleetLetter, string>> = { r: "--calm", p: "--warning", n: "--bad", a: "--away" };

export class FleetMap {
  readonly element: HTMLElement;
  readonly #canvas = make("canvas", { class: "map", role: "img", "aria-label": "Map of states" });
  readonly #under = make("p", { class: "note", "aria-hidden": "true" });
  readonly #nameOf: (at: number) => string;
  readonly #open: (name: string) => void;
  #letters: readonly FleetLetter[] = [];
  #cell = MOST_CELL;
  #columns = 1;

  /** @param nameOf "" while the names are not known @param open called for the board that is clicked */
  constructor(nameOf: (at: number) => string, open: (name: string) => void) {
    this.#nameOf = nameOf;
    this.#open = open;
    this.element = make("div", {}, this.#canvas, this.#under);
    this.#canvas.addEventListener("pointermove", (event) => setText(this.#under, this.#nameAt(event)));
    this.#canvas.addEventListener("pointerleave", () => setText(this.#under, ""));
    this.#canvas.addEventListener("click", (event) => {
      const name = this.#nameAt(event);
      if (name !== "") this.#open(name);
    });
    new ResizeObserver(() => this.#draw()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** @param text what the map shows, in words */
  show(letters: readonly FleetLetter[], text: string): void {
    this.#letters = letters;
    setAttributes(this.#canvas, { "aria-label": `Map of states: ${text}` });
    this.#draw();
  }

  #draw(): void {
    const width = this.element.clientWidth;
    const count = this.#letters.length;
    const context = this.#canvas.getContext("2d");
    if (width === 0 || context === null) return;
    this.#cell = MOST_CELL;
    while (this.#cell > LEAST_CELL && Math.ceil(count / Math.floor(width / this.#cell)) * this.#cell > MOST_HEIGHT)
      this.#cell -= 1;
    this.#columns = Math.max(1, Math.floor(width / this.#cell));
    const height = Math.ceil(count / this.#columns) * this.#cell;
    const scale = globalThis.devicePixelRatio;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#canvas.style.height = `${height}px`;
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    for (const letter of Object.keys(COLORS) as FleetLetter[]) {
      context.fillStyle = style.getPropertyValue(COLORS[letter]);
      for (const [at, each] of this.#letters.entries()) {
        if (each !== letter) continue;
        const [x, y] = [(at % this.#columns) * this.#cell, Math.floor(at / this.#columns) * this.#cell];
        context.fillRect(x, y, this.#cell - GAP, this.#cell - GAP);
        // What is wrong differs by shape too.
        if (each === "n" || each === "a")
          context.clearRect(x + this.#cell / 4, y + this.#cell / 4, this.#cell / 3, this.#cell / 3);
      }
    }
  }

  #nameAt(event: MouseEvent): string {
    const column = Math.floor(event.offsetX / this.#cell);
    const at = Math.floor(event.offsetY / this.#cell) * this.#columns + column;
    return column < this.#columns && at < this.#letters.length ? this.#nameOf(at) : "";
  }
}
