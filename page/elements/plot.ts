/** A plot of figures over time as SVG, with a sentence and a table for those who do not see it. */
import { make, makeSvg, setAttributes, setText } from "./dom.ts";
import { clockText } from "./format.ts";

export interface PlotSeries {
  readonly name: string;
  /** Milliseconds since the epoch, rising. */
  readonly at: readonly number[];
  /** As many as `at`; null: not known. */
  readonly values: readonly (number | null)[];
}

export interface PlotInit {
  readonly title: string;
  readonly text: (value: number) => string;
  /** Null: the largest value. */
  readonly max: number | null;
}

const WIDTH = 600;
const HEIGHT = 120;
const HOUR_MS = 3_600_000;
/** Lines at every fourth hour. */
const GRID_HOURS = 4;
/** A longer pause between two samples is a gap. */
const GAP_MS = 5 * 60_000;

export class Plot {
  readonly element: HTMLElement;
  readonly #init: PlotInit;
  readonly #svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  readonly #summary = make("p", { class: "plot-summary" });
  readonly #top = make("span", { class: "plot-top", "aria-hidden": "true" });
  readonly #times = make("div", { class: "plot-times", "aria-hidden": "true" });
  readonly #table = make("tbody");

  constructor(init: PlotInit) {
    this.#init = init;
    const table = make(
      "table",
      {},
      make("caption", { class: "hidden" }, `${init.title}, by hour`),
      make(
        "thead",
        {},
        make("tr", {}, ...["Hour", "Lowest", "Highest"].map((name) => make("th", { scope: "col" }, name))),
      ),
      this.#table,
    );
    this.element = make(
      "figure",
      { class: "plot" },
      make("figcaption", {}, make("h3", {}, init.title), this.#summary),
      make("div", { class: "plot-area" }, this.#top, this.#svg),
      this.#times,
      make("details", {}, make("summary", {}, `${init.title} by hour`), table),
    );
  }

  show(series: readonly PlotSeries[], nowMs: number, hours: number): void {
    const fromMs = nowMs - hours * HOUR_MS;
    const known = series.flatMap(({ values }) => values.filter((value) => value !== null));
    const max = this.#init.max ?? Math.max(...known, 0);
    const x = (ms: number): number => Math.round(((ms - fromMs) / (nowMs - fromMs)) * WIDTH * 10) / 10;
    const y = (value: number): number => Math.round((1 - (max <= 0 ? 0 : value / max)) * (HEIGHT - 4) * 10) / 10 + 2;
    const lines = Array.from(
      { length: Math.floor(hours / GRID_HOURS) },
      (_, index) => nowMs - (index + 1) * GRID_HOURS * HOUR_MS,
    );
    this.#svg.replaceChildren(
      ...lines.map((ms) => makeSvg("line", { class: "grid", x1: x(ms), x2: x(ms), y1: 0, y2: HEIGHT })),
      ...series.map((each, index) => makeSvg("path", { class: `series series-${index % 3}`, d: pathOf(each, x, y) })),
    );
    const { text, title } = this.#init;
    const summary =
      known.length === 0
        ? "nothing was recorded yet"
        : `now ${text(known.at(-1) ?? 0)}, lowest ${text(Math.min(...known))}, highest ${text(Math.max(...known))}`;
    setText(this.#summary, summary);
    setText(this.#top, known.length === 0 ? "" : text(max));
    setAttributes(this.#svg, { "aria-label": `${title}, the last ${hours} hours: ${summary}` });
    const marks = [...lines].reverse().map((ms) => make("span", {}, clockText(ms)));
    this.#times.replaceChildren(...marks, make("span", {}, "now"));
    this.#table.replaceChildren(...hourRows(series, text));
  }
}

function pathOf({ at, values }: PlotSeries, x: (ms: number) => number, y: (value: number) => number): string {
  let path = "";
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const [index, value] of values.entries()) {
    const ms = at[index] ?? 0;
    if (value === null) continue;
    path += `${ms - lastMs > GAP_MS ? "M" : "L"}${x(ms)} ${y(value)}`;
    lastMs = ms;
  }
  return path;
}

function hourRows(series: readonly PlotSeries[], text: (value: number) => string): HTMLElement[] {
  const hours = new Map<number, number[]>();
  for (const { at, values } of series)
    for (const [index, value] of values.entries()) {
      const hour = Math.floor((at[index] ?? 0) / HOUR_MS);
      if (value !== null) hours.set(hour, [...(hours.get(hour) ?? []), value]);
    }
  return [...hours].map(([hour, values]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, clockText(hour * HOUR_MS)),
      make("td", {}, text(Math.min(...values))),
      make("td", {}, text(Math.max(...values))),
    ),
  );
}
