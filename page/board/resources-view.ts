/** Memory, CPU, pressure and the eviction thresholds, with how near they are. */
import type { StatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { PageThreshold, PageThresholds } from "@picolet/protocol/page/board-data.ts";
import { KeyedChildren, make, makeSvg, setAttributes, setText } from "../elements/dom.ts";
import { bytesText, durationText, numberText, percentText } from "../elements/format.ts";

/** The kubelet's Summary, as far as the page shows it. */
export interface Summary {
  readonly node?: UsageSummary & { readonly fs?: Filesystem };
  readonly pods?: readonly (UsageSummary & {
    readonly podRef?: { readonly namespace: string; readonly name: string };
    readonly containers?: readonly (UsageSummary & { readonly name: string })[];
  })[];
}

export interface UsageSummary {
  readonly cpu?: { readonly usageNanoCores?: number; readonly psi?: Stalls };
  readonly memory?: { readonly time?: string; readonly workingSetBytes?: number; readonly psi?: Stalls };
  readonly io?: { readonly psi?: Stalls };
}

interface Stalls {
  readonly some?: { readonly avg10?: number };
}

interface Filesystem {
  readonly availableBytes?: number;
  readonly capacityBytes?: number;
}

const NANO = 1_000_000_000;
const PERCENT = 100;
/** A tenth of the time that tasks wait is felt. */
const STALL_WARNING = 0.1;
const STALL_BAD = 0.4;
const CPU_WARNING = 0.9;
/** A threshold is near when less than as much again is left. */
const NEAR = 2;

export class ResourcesView {
  readonly element: HTMLElement;
  readonly #cpu = new Bar("CPU");
  readonly #memory = new Bar("Memory");
  readonly #agent = new Bar("Memory of the agent");
  readonly #stalls = new Map(
    ["cpu", "memory", "io"].map((name) => [
      name,
      new Bar(`Waiting for ${name === "io" ? "I/O" : name === "cpu" ? "CPU" : name}`),
    ]),
  );
  readonly #thresholds = make("div", { class: "bars stacked" });
  readonly #bars = new KeyedChildren<PageThreshold>(this.#thresholds, (item) => {
    const bar = new Bar(nameOf(item));
    return { element: bar.element, update: (each) => bar.show(thresholdState(each)) };
  });
  readonly #none = make("p", { class: "note" });

  constructor() {
    const bars = [this.#cpu, this.#memory, ...this.#stalls.values(), this.#agent].map(({ element }) => element);
    this.element = make(
      "div",
      {},
      make("div", { class: "bars" }, ...bars),
      make("h3", {}, "Eviction thresholds"),
      make("p", { class: "note" }, "A bar that reaches its mark: the board ends pods until enough is free."),
      this.#none,
      this.#thresholds,
    );
  }

  show({ resources, agent }: StatusAnswer, { node = {} }: Summary, { items }: PageThresholds): void {
    const cpus = Number(resources.capacity.cpu ?? 0) || 1;
    const cores = (node.cpu?.usageNanoCores ?? 0) / NANO;
    const busy = cores / cpus;
    const cpuText = node.cpu?.usageNanoCores === undefined ? "–" : `${cores.toFixed(2)} of ${cpus} cores`;
    this.#cpu.show({ share: busy, level: busy > CPU_WARNING ? "warning" : "good", text: cpuText });
    const used = node.memory?.workingSetBytes ?? resources.memoryBytes - (resources.memoryAvailableBytes ?? 0);
    const share = used / resources.memoryBytes;
    const limit = items.find(({ signal, gracePeriodMs }) => signal === "memory.available" && gracePeriodMs === null);
    const mark = limit === undefined ? undefined : 1 - limit.limit / resources.memoryBytes;
    const isNear = limit !== undefined && resources.memoryBytes - used < limit.limit * NEAR;
    const text = `${bytesText(used)} of ${bytesText(resources.memoryBytes)}`;
    this.#memory.show({ share, limit: mark, level: isNear ? "warning" : "good", text });
    const ofAgent = agent.anonBytes / agent.budgetBytes;
    this.#agent.show({
      share: ofAgent,
      level: ofAgent > 1 ? "bad" : "good",
      text: `${bytesText(agent.anonBytes)} of ${bytesText(agent.budgetBytes)}`,
    });
    this.#showStalls("cpu", node.cpu?.psi);
    this.#showStalls("memory", node.memory?.psi);
    this.#showStalls("io", node.io?.psi);
    setText(this.#none, items.length === 0 ? "None is configured." : "");
    this.#bars.show(items, nameOf);
  }

  #showStalls(of: string, stalls: Stalls | undefined): void {
    const average = stalls?.some?.avg10;
    const share = (average ?? 0) / PERCENT;
    const level = share > STALL_BAD ? "bad" : share > STALL_WARNING ? "warning" : "good";
    const text = average === undefined ? "this kernel does not say" : `${percentText(share)} of the last 10 s`;
    this.#stalls.get(of)?.show({ share, level, text });
  }
}

const nameOf = ({ signal, value, gracePeriodMs }: PageThreshold): string =>
  `${signal} < ${value}${gracePeriodMs === null ? "" : ` for ${durationText(gracePeriodMs)}`}`;

function thresholdState({ signal, limit, available, capacity }: PageThreshold): BarState {
  if (available === null || capacity === null) return { share: 0, level: "good", text: "cannot be measured here" };
  const isBytes = signal.endsWith(".available") && !signal.startsWith("pid.");
  const text = (amount: number): string => (isBytes ? bytesText(amount) : numberText(amount));
  const level = available < limit ? "bad" : available < limit * NEAR ? "warning" : "good";
  const left = available < limit ? "met" : `${text(available - limit)} above it`;
  return {
    share: 1 - available / capacity,
    limit: 1 - limit / capacity,
    level,
    text: `${text(available)} left, ${left}`,
  };
}

interface BarState {
  /** 0 to 1. */
  readonly share: number;
  /** Where the limit is, 0 to 1; undefined: there is none. */
  readonly limit?: number | undefined;
  readonly level: "good" | "warning" | "bad";
  /** The bar in words. */
  readonly text: string;
}

const WIDTH = 200;

/** Shows how much of something is used, with a mark for a limit. */
class Bar {
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
