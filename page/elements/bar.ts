/** A bar that shows how much of something is used, with a mark for a limit. */
import { make, makeSvg, setAttributes, setText } from "./dom.ts";

export interface BarState {
  /** 0 to 1. */
  readonly share: number;
  /** Where the limit is, 0 to 1; undefined: there is none. */
  readonly limit?: number | undefined;
  readonly level: "good" | "warning" | "bad";
  /** The bar in words. */
  readonly text: string;
}

const WIDTH = 200;

export class Bar {
  readonly element: HTMLElement;
  readonly #svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" });
  readonly #value = makeSvg("rect", { x: 0, y: 0, height: 10 });
  readonly #mark = makeSvg("rect", { class: "mark", y: 0, height: 10, width: 2 });
  readonly #text = make("span", { class: "bar-text" });

  constructor(label: string) {
    this.#svg.append(
      makeSvg("rect", { class: "track", x: 0, y: 0, width: WIDTH, height: 10 }),
      this.#value,
      this.#mark,
    );
    const name = make("span", { class: "bar-name" }, label);
    this.element = make("div", { class: "bar" }, name, this.#text, this.#svg);
  }

  show({ share, limit, level, text }: BarState): void {
    const width = Math.round(Math.min(1, Math.max(0, share)) * WIDTH);
    setAttributes(this.#value, { class: `value ${level}`, width });
    setAttributes(this.#mark, {
      x: Math.round((limit ?? 0) * (WIDTH - 2)),
      visibility: limit === undefined ? "hidden" : "visible",
    });
    setText(this.#text, text);
  }
}
