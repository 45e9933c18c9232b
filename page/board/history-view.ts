/** The last 24 hours as plots. */
import type { HistorySeries, PageBoot, PageHistory } from "@picolet/protocol/page/board-data.ts";
import { make, setText } from "../elements/dom.ts";
import { bytesText, count, durationText, percentText } from "../elements/format.ts";
import { Plot, type PlotSeries } from "../elements/plot.ts";

const HOURS = 24;

interface Shown {
  readonly plot: Plot;
  /** Undefined: not known at that sample. */
  readonly figureOf: (boot: PageBoot, index: number) => number | null;
}

const at = (boot: PageBoot, name: HistorySeries, index: number): number | null => boot.series[name]?.[index] ?? null;

const single =
  (name: HistorySeries) =>
  (boot: PageBoot, index: number): number | null =>
    at(boot, name, index);

const used =
  (whole: HistorySeries, available: HistorySeries) =>
  (boot: PageBoot, index: number): number | null => {
    const [all, free] = [at(boot, whole, index), at(boot, available, index)];
    return all === null || free === null || all === 0 ? null : 1 - free / all;
  };

export class HistoryView {
  readonly element: HTMLElement;
  readonly #note = make("p", { class: "note" });
  readonly #shown: readonly Shown[] = [
    share("Memory in use", used("memoryBytes", "memoryAvailableBytes")),
    share("CPU", single("cpuShare")),
    share("Waiting for memory", single("memoryPressureShare")),
    share("Waiting for I/O", single("ioPressureShare")),
    share("Disk in use", used("diskBytes", "diskAvailableBytes")),
    {
      plot: new Plot({ title: "Written to disks, a minute", text: bytesText, max: null }),
      figureOf: single("writtenBytes"),
    },
    {
      plot: new Plot({ title: "Pods", text: String, max: null }),
      figureOf: single("pods"),
    },
    {
      plot: new Plot({ title: "Tunnel", text: (value) => (value >= 1 ? "connected" : "away"), max: 1 }),
      figureOf: single("tunnel"),
    },
  ];

  constructor() {
    this.element = make(
      "div",
      {},
      this.#note,
      make("div", { class: "plots" }, ...this.#shown.map(({ plot }) => plot.element)),
    );
  }

  show({ boots, now, intervalMs }: PageHistory): void {
    const nowMs = Date.parse(now);
    const known = boots.filter(({ isTimeKnown }) => isTimeKnown);
    const lost = boots.filter(({ isTimeKnown }) => !isTimeKnown);
    const starts = known.length > 1 ? [`The board was started ${count(known.length - 1, "time")} in these hours.`] : [];
    const unknown = lost.map((boot) => {
      const length = durationText(boot.at.length * intervalMs);
      return `For ${length} of an earlier run the clock was not set: they are left out.`;
    });
    setText(this.#note, [`A sample each ${durationText(intervalMs)}.`, ...starts, ...unknown].join(" "));
    for (const { plot, figureOf } of this.#shown) {
      const series = known.map((boot): PlotSeries => {
        return { name: boot.id, at: boot.at, values: boot.at.map((_, index) => figureOf(boot, index)) };
      });
      plot.show(series, nowMs, HOURS);
    }
  }
}

const share = (title: string, figureOf: Shown["figureOf"]): Shown => ({
  plot: new Plot({ title, text: percentText, max: 1 }),
  figureOf,
});
